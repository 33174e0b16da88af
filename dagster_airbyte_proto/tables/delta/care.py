"""The care of Delta tables, beside syncs that go on.

What a table is and was is read from its log, without jobs of Spark where the log is at hand. Compaction is Delta's own
OPTIMIZE: its commit says that no row has changed, and syncs that append are not disturbed by it.

VACUUM is not used. It lets go of files by their age, whatever a state history points to, and takes what is staged and
not committed yet for rubbish. Here files go that were taken out before the oldest version that is kept: the log says
which these are. A commit of its own tells what was let go of, before the first file goes.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.storage import without_file_scheme
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import (
    SMALL_SHARE,
    Change,
    Compacted,
    TableFacts,
    TableHistory,
    Untouchable,
)
from dagster_airbyte_proto.tables.delta.history import (
    COMPACTION,
    KEPT_FROM,
    LOAD_ID,
    ROWS,
    VERSION,
    Commit,
    File,
    commits,
    file_of,
    kept,
    kept_from,
    needed,
)
from dagster_airbyte_proto.tables.delta.jvm import JavaDelta, Look, tell, telling
from dagster_airbyte_proto.tables.delta.log import transaction
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.spark.columns import spark_schema
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, Failure, failure_of
from dagster_airbyte_proto.tables.sql_names import quoted

_ATTEMPTS = 8
_TARGET_BYTES = 512 << 20
_SMALL_BYTES = int(SMALL_SHARE * _TARGET_BYTES)
_OPTIMIZE = "spark.databricks.delta.optimize"


class DeltaCare:
    """The tables of one warehouse."""

    def __init__(self, tables: DeltaTables) -> None:
        self._tables = tables

    def names(self) -> Sequence[TableName]:
        return self._tables.names()

    def facts(self, name: TableName) -> TableFacts:
        with self._tables.refusals(f"looking at table {name}"):
            look = self._look(name)
            files = self._files(look)
            history = self.history(name)
            landed = next((each for each in reversed(history.changes) if each.load_id), None)
            return TableFacts(
                table=str(name),
                format="delta",
                rows=self._tables.rows(name, look),
                files=len(files),
                small_files=sum((file.size or 0) < _SMALL_BYTES for file in files),
                delete_files=sum(file.deletion_vector is not None for file in files),
                size_bytes=sum(file.size or 0 for file in files),
                snapshots=len(history.changes),
                last_load=landed.load_id if landed else None,
                last_load_at=landed.at if landed else None,
                partitioned_by=", ".join(look.metadata.partition_columns) or None,
                slices=len({tuple((file.partition_values or {}).items()) for file in files if file.partition_values}),
                columns=_columns(look),
            )

    def history(self, name: TableName) -> TableHistory:
        with self._tables.refusals(f"reading the log of table {name}"):
            found = kept(self._commits(name))
        if not found:
            raise _missing(f"reading the log of table {name}")
        changes = tuple(map(_change, found))
        shown = tuple((commit.at, str(commit.version)) for commit in found)
        return TableHistory(changes, shown, changes[-1].snapshot_id)

    def compact(self, name: TableName) -> Compacted:
        doing, session = f"compacting table {name}", self._tables.open_session()
        with self._tables.refusals(doing):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    done = self._compacted(telling(session, {COMPACTION: "true"}), name)
                except CALL_ERRORS as error:
                    if failure_of(error) is not Failure.CONFLICT:
                        raise
                else:
                    return done._replace(attempts=attempt)
        raise TableError(
            doing,
            f"other writers changed the table {_ATTEMPTS} times meanwhile",
            remedy="Nothing is lost; call it again when fewer of them are at work.",
        )

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        """Versions go from the oldest on. None goes where no file goes with it: it costs nothing to keep."""
        doing = f"expiring snapshots of table {name}"
        with self._tables.refusals(doing):
            self._look(name)
            found = self._commits(name)
            staying = [each.version for each in kept(found) if str(each.version) not in snapshot_ids]
            first = min([*staying, found[-1].version])
            if not self._taken_out(name, found, first):
                return 0
            self._note(name, first)
            # Asked again: until it was noted, the table could be taken back to what is let go of.
            self._delete(name, self._taken_out(name, self._commits(name), first, since=kept_from(found)))
            return sum(commit.version < first for commit in kept(found))

    def remove_orphans(self, name: TableName, *, before: datetime, but: Untouchable) -> tuple[str, ...]:
        with self._tables.refusals(f"removing orphan files of table {name}"):
            lying = self._lying(name, before)
            # The log is read after the files are: what is committed meanwhile is no orphan.
            found = self._commits(name)
            if not found:
                raise _missing(f"removing orphan files of table {name}")
            wanted = needed(found, kept_from(found), self._files(self._look(name)))
            location = self._tables.location(name)
            staged = {without_file_scheme(path).removeprefix(f"{location}/") for path in but.paths}
            at_work = tuple(f"data/run-{run_id}/" for run_id in but.run_ids)
            gone = sorted(path for path in lying - wanted - staged if not path.startswith(at_work))
            self._delete(name, gone)
            return tuple(f"{location}/{path}" for path in gone)

    def _taken_out(self, name: TableName, found: Sequence[Commit], first: int, since: int | None = None) -> set[str]:
        """What lies there for versions alone that come before the first that is kept, and after those that went."""
        since = kept_from(found) if since is None else since
        removed = (file for commit in found if since < commit.version <= first for file in commit.removed)
        return _paths(removed) - needed(found, first, self._files(self._look(name)))

    def _note(self, name: TableName, first: int) -> None:
        """Tells in the log what was let go of. A taking back that began before is refused for it."""
        session = telling(self._tables.open_session(), {})
        java = JavaDelta(session)
        look = java.look(self._tables.location(name))
        rows = java.told(look, look.version).get(ROWS)
        tell(session, {KEPT_FROM: str(first)} | ({ROWS: rows} if rows else {}))
        java.note(look, transaction(KEPT_FROM, first))

    def _compacted(self, session: SparkSession, name: TableName) -> Compacted:
        """Delta's own OPTIMIZE; it leaves a file with deletes that stands alone, which a REORG writes anew."""
        table = f"delta.{quoted(self._tables.location(name))}"
        session.conf.set(f"{_OPTIMIZE}.minFileSize", str(_SMALL_BYTES))
        session.conf.set(f"{_OPTIMIZE}.maxFileSize", str(_TARGET_BYTES))
        session.conf.set(f"{_OPTIMIZE}.maxDeletedRowsRatio", "0.0")
        before = self._files(self._look(name))
        removed = written = 0
        for statement in (f"optimize {table}", f"reorg table {table} apply (purge)"):
            files = self._files(self._look(name)) if removed else before
            has_deletes = any(file.deletion_vector for file in files)
            if not has_deletes and (statement.startswith("reorg") or not _are_small(files)):
                continue
            [row] = session.sql(statement).collect()
            removed += int(row["metrics"]["numFilesRemoved"])
            written += int(row["metrics"]["numFilesAdded"])
        return Compacted(removed, written, sum(file.deletion_vector is not None for file in before))

    def _look(self, name: TableName) -> Look:
        look = self._tables.java().look(self._tables.location(name))
        if look.version < 0:
            raise _missing(f"looking at table {name}")
        return look

    def _files(self, look: Look) -> list[File]:
        return [file_of(action) for action in self._tables.java().files(look)]

    def _commits(self, name: TableName) -> list[Commit]:
        storage, folder = self._tables.storage.at(self._tables.location(name))
        return list(commits(storage, f"{folder}/_delta_log"))

    def _lying(self, name: TableName, before: datetime) -> set[str]:
        """The files of the table's folder that were written before then, but for the log's and for those that Delta
        keeps beside it."""
        storage, folder = self._tables.storage.at(self._tables.location(name))
        listed = storage.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        old = [info for info in listed if info.is_file and info.mtime < before.astimezone(UTC)]
        paths = {info.path.removeprefix(f"{folder}/") for info in old}
        return {path for path in paths if not any(map(_is_hidden, path.split("/")))}

    def _delete(self, name: TableName, paths: Iterable[str]) -> None:
        storage, folder = self._tables.storage.at(self._tables.location(name))
        for path in paths:
            try:
                storage.delete_file(f"{folder}/{path}")
            except FileNotFoundError:
                continue


def _columns(look: Look) -> tuple[tuple[str, str], ...]:
    fields = StructType.fromJson(spark_schema(look.metadata.columns)).fields
    return tuple((field.name, field.dataType.simpleString()) for field in fields)


def _are_small(files: Sequence[File]) -> bool:
    """Whether two files of a partition could be one."""
    small = [str(file.partition_values) for file in files if (file.size or 0) < _SMALL_BYTES]
    return len(set(small)) < len(small)


def _paths(files: Iterable[File]) -> set[str]:
    return {path for file in files for path in file.paths}


def _is_hidden(part: str) -> bool:
    """As Delta has it: but for folders that are named for a value of a partition."""
    return part.startswith((".", "_")) and "=" not in part


def _missing(doing: str) -> TableError:
    return TableError(doing, "there is no such table")


def _change(commit: Commit) -> Change:
    told = commit.told
    came, went, deleted = commit.counts
    return Change(
        snapshot_id=str(commit.version),
        at=commit.at,
        operation=_operation(commit),
        added_rows=came,
        removed_rows=went,
        deletes=deleted,
        load_id=told.get(LOAD_ID),
        parent_id=str(commit.version - 1) if commit.version else None,
        rewound_at=int(told[VERSION]) if VERSION in told else None,
        stream=told.get("airbyte-proto.stream"),
    )


def _operation(commit: Commit) -> str:
    """In our words where it is ours, else in Delta's."""
    ours = {COMPACTION: "compact", VERSION: "rollback", KEPT_FROM: "expire"}
    word = next((word for key, word in ours.items() if key in commit.told), None)
    if word is None and commit.info.operation == "WRITE":
        word = str(commit.info.operation_parameters.get("mode", "write"))
    return (word or commit.info.operation).lower()
