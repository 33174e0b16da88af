"""Facts, history, compaction and cleanup of Delta tables, while syncs go on (docs/decisions/0018).

- Facts and history come from the table's log, without Spark jobs where Delta has the log at hand.
- Compaction is Delta's own OPTIMIZE. Its commit says that no row has changed, so it does not disturb syncs that append.
- Expiry does not use VACUUM: that deletes files by their age, even files of versions that a state history points to,
  and staged files that are not committed yet. Instead the log says which files were removed from the table up to the
  oldest version that is kept. These go.
- Expiry first commits a marker (`OLDEST_KEPT`), then deletes files. A rollback that began before the marker is refused.
  Files that an expiry leaves behind when it dies are removed as orphans.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import pyspark
from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.storage import without_file_scheme
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import (
    SMALL_SHARE,
    CompactionResult,
    ProtectedFiles,
    SnapshotChange,
    TableFacts,
    TableHistory,
)
from dagster_airbyte_proto.tables.delta.actions import txn_action
from dagster_airbyte_proto.tables.delta.history import (
    COMPACTION,
    OLDEST_KEPT,
    REWOUND_AT,
    TABLE_ROWS,
    Commit,
    LoggedFile,
    kept_commits,
    oldest_kept_version,
    parse_add_action,
    read_commits,
    referenced_paths,
)
from dagster_airbyte_proto.tables.delta.jvm import (
    DeltaSnapshot,
    JavaDelta,
    session_with_user_metadata,
    set_user_metadata,
)
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.spark.columns import spark_schema
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, Failure, failure_of
from dagster_airbyte_proto.tables.sql_names import quoted

_ATTEMPTS = 8
_TARGET_BYTES = 512 << 20
_SMALL_BYTES = int(SMALL_SHARE * _TARGET_BYTES)
_OPTIMIZE = "spark.databricks.delta.optimize"
# As in Iceberg's own compaction: so many small files of a partition are merged, and files with such a share of deleted
# rows are written again.
_MERGED_FILES = 5
_DELETED_SHARE = 0.3


class DeltaCare:
    """The care of the Delta tables of one warehouse."""

    def __init__(self, tables: DeltaTables) -> None:
        self._tables = tables

    def names(self) -> Sequence[TableName]:
        return self._tables.names()

    def facts(self, name: TableName) -> TableFacts:
        with self._tables.translated_errors(f"looking at table {name}"):
            snapshot = self._snapshot(name)
            files = self._files(snapshot)
            history = self.history(name)
            landed = next((each for each in reversed(history.changes) if each.load_id), None)
            return TableFacts(
                table=str(name),
                format="delta",
                rows=self._tables.rows(name, snapshot),
                files=len(files),
                small_files=sum((file.size or 0) < _SMALL_BYTES for file in files),
                delete_files=sum(file.deletion_vector is not None for file in files),
                size_bytes=sum(file.size or 0 for file in files),
                snapshots=len(history.changes),
                last_load=landed.load_id if landed else None,
                last_load_at=landed.at if landed else None,
                partitioned_by=", ".join(snapshot.metadata.partition_columns) or None,
                slices=len({tuple((file.partition_values or {}).items()) for file in files if file.partition_values}),
                columns=_columns(snapshot),
            )

    def history(self, name: TableName) -> TableHistory:
        with self._tables.translated_errors(f"reading the log of table {name}"):
            found = kept_commits(self._commits(name))
        if not found:
            raise _no_such_table(f"reading the log of table {name}")
        changes = tuple(map(_change, found))
        shown = tuple((commit.committed_at, str(commit.version)) for commit in found)
        return TableHistory(changes, shown, changes[-1].snapshot_id)

    def compact(self, name: TableName, *, keeps_deletes: bool = False) -> CompactionResult:
        doing, session = f"compacting table {name}", self._tables.open_session()
        with self._tables.translated_errors(doing, commits=True):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    own = session_with_user_metadata(session, {COMPACTION: "true"})
                    done = self._optimize(own, name, keeps_deletes=keeps_deletes)
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
        """Expires versions from the oldest on, up to the first that has to stay.

        Expires none where that would delete no file: the marker is a version too, and such commits would breed each
        other.
        """
        doing = f"expiring snapshots of table {name}"
        with self._tables.translated_errors(doing, commits=True):
            self._snapshot(name)
            found = self._commits(name)
            staying = [each.version for each in kept_commits(found) if str(each.version) not in snapshot_ids]
            first = min([*staying, found[-1].version])
            if not self._expirable_paths(name, found, first):
                return 0
            self._mark_expired(name, first)
            # Computed again: until the marker was committed, a rollback could bring an expired version back.
            self._delete(
                name, self._expirable_paths(name, self._commits(name), first, since=oldest_kept_version(found))
            )
            return sum(commit.version < first for commit in kept_commits(found))

    def remove_orphans(self, name: TableName, *, before: datetime, protected: ProtectedFiles) -> tuple[str, ...]:
        with self._tables.translated_errors(f"removing orphan files of table {name}"):
            old_files = self._old_files(name, before)
            # The log is read after the files are listed: a file that is committed in between is no orphan.
            found = self._commits(name)
            if not found:
                raise _no_such_table(f"removing orphan files of table {name}")
            referenced = referenced_paths(found, oldest_kept_version(found), self._files(self._snapshot(name)))
            location = self._tables.location(name)
            staged = {without_file_scheme(path).removeprefix(f"{location}/") for path in protected.paths}
            running = tuple(f"data/run-{run_id}/" for run_id in protected.run_ids)
            orphans = sorted(path for path in old_files - referenced - staged if not path.startswith(running))
            self._delete(name, orphans)
            return tuple(f"{location}/{path}" for path in orphans)

    def _expirable_paths(
        self, name: TableName, found: Sequence[Commit], first: int, since: int | None = None
    ) -> set[str]:
        """Returns the files that only versions from `since` up to `first` need, the first that is kept left out.

        Files of versions before `since` went in an earlier expiry.
        """
        since = oldest_kept_version(found) if since is None else since
        removed = (file for commit in found if since < commit.version <= first for file in commit.removed)
        return _paths(removed) - referenced_paths(found, first, self._files(self._snapshot(name)))

    def _mark_expired(self, name: TableName, first: int) -> None:
        """Commits the marker that says which version is the oldest that is kept.

        A rollback that began before it is refused: it has read the `txn` entry that the marker writes.
        """
        session = session_with_user_metadata(self._tables.open_session(), {})
        java = JavaDelta(session)
        snapshot = java.snapshot(self._tables.location(name))
        rows = java.user_metadata(snapshot, snapshot.version).get(TABLE_ROWS)
        set_user_metadata(session, {OLDEST_KEPT: str(first)} | ({TABLE_ROWS: rows} if rows else {}))
        java.commit_marker(snapshot, txn_action(OLDEST_KEPT, first))

    def _optimize(self, session: SparkSession, name: TableName, *, keeps_deletes: bool) -> CompactionResult:
        """Runs Delta's OPTIMIZE, then REORG: OPTIMIZE leaves a file with deletes alone in its partition as it is."""
        table = f"delta.{quoted(self._tables.location(name))}"
        few, share = (_MERGED_FILES, _DELETED_SHARE) if keeps_deletes else (2, 0.0)
        session.conf.set(f"{_OPTIMIZE}.minFileSize", str(_SMALL_BYTES))
        session.conf.set(f"{_OPTIMIZE}.maxFileSize", str(_TARGET_BYTES))
        session.conf.set(f"{_OPTIMIZE}.maxDeletedRowsRatio", str(share))
        before = self._files(self._snapshot(name))
        removed = written = 0
        for statement in (f"optimize {table}", f"reorg table {table} apply (purge)"):
            files = self._files(self._snapshot(name)) if removed else before
            has_deletes = _deleted_share(files) > share
            if not has_deletes and (statement.startswith("reorg") or not _are_small(files, few)):
                continue
            [row] = session.sql(statement).collect()
            removed += int(row["metrics"]["numFilesRemoved"])
            written += int(row["metrics"]["numFilesAdded"])
        vectors = 0 if keeps_deletes else sum(file.deletion_vector is not None for file in before)
        return CompactionResult(removed, written, vectors)

    def _snapshot(self, name: TableName) -> DeltaSnapshot:
        snapshot = self._tables.java().snapshot(self._tables.location(name))
        if snapshot.version < 0:
            raise _no_such_table(f"looking at table {name}")
        return snapshot

    def _files(self, snapshot: DeltaSnapshot) -> list[LoggedFile]:
        return [parse_add_action(action) for action in self._tables.java().add_actions(snapshot)]

    def _commits(self, name: TableName) -> list[Commit]:
        storage, folder = self._tables.storage.at(self._tables.location(name))
        return list(read_commits(storage, f"{folder}/_delta_log"))

    def _old_files(self, name: TableName, before: datetime) -> set[str]:
        """Returns the files in the table's folder that were written before then.

        Hidden ones are left out: they are the log, and what else Delta keeps for itself.
        """
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


def _columns(snapshot: DeltaSnapshot) -> tuple[tuple[str, str], ...]:
    fields = StructType.fromJson(spark_schema(snapshot.metadata.columns)).fields
    return tuple((field.name, field.dataType.simpleString()) for field in fields)


def _are_small(files: Sequence[LoggedFile], few: int) -> bool:
    """Returns whether any partition has so many files that could become one."""
    small = Counter(str(file.partition_values) for file in files if (file.size or 0) < _SMALL_BYTES)
    return max(small.values(), default=0) >= few


def _deleted_share(files: Sequence[LoggedFile]) -> float:
    """Returns the share of the stored rows that vectors delete."""
    if not (deleted := sum(file.deleted_rows for file in files)):
        return 0.0
    # A file without statistics counts as one whose rows are all deleted.
    return deleted / max(deleted, sum(file.stored_rows or 0 for file in files))


def _paths(files: Iterable[LoggedFile]) -> set[str]:
    return {path for file in files for path in file.paths}


def _is_hidden(part: str) -> bool:
    """Follows Delta's rule.

    A folder of a partition (`_airbyte_partition=…`) begins with an underscore and is not hidden.
    """
    return part.startswith((".", "_")) and "=" not in part


def _no_such_table(doing: str) -> TableError:
    return TableError(doing, "there is no such table")


def _change(commit: Commit) -> SnapshotChange:
    user_metadata = commit.user_metadata
    added, removed, deleted = commit.row_counts
    return SnapshotChange(
        snapshot_id=str(commit.version),
        at=commit.committed_at,
        operation=_operation(commit),
        added_rows=added,
        removed_rows=removed,
        deletes=deleted,
        load_id=user_metadata.get(LOAD_ID),
        parent_id=str(commit.version - 1) if commit.version else None,
        rewound_at=int(user_metadata[REWOUND_AT]) if REWOUND_AT in user_metadata else None,
        stream=user_metadata.get("airbyte-proto.stream"),
    )


def _operation(commit: Commit) -> str:
    """Returns our word for a commit of ours, else Delta's."""
    ours = {COMPACTION: "compact", REWOUND_AT: "rollback", OLDEST_KEPT: "expire"}
    word = next((word for key, word in ours.items() if key in commit.user_metadata), None)
    if word is None and commit.info.operation == "WRITE":
        word = str(commit.info.operation_parameters.get("mode", "write"))
    return (word or commit.info.operation).lower()
