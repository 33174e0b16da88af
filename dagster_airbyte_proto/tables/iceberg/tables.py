"""Iceberg tables, by reference: staged Parquet files become part of a table without being read or written again.

A commit looks whether the table's log has the load, and if not, commits a change that Iceberg refuses should anything
have come in since that look. So a load lands once, whoever else tries: a writer that was paused and wakes up, or a JVM
that finishes what its dead Python asked for, fails its validation. Refused, we look again.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of, with_text, without
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, without_file_scheme
from dagster_airbyte_proto.loads.table import REPLACING, Sought, Standing, TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.formats import ICEBERG
from dagster_airbyte_proto.tables.iceberg.branches import AsideOf
from dagster_airbyte_proto.tables.iceberg.copy_on_write import CopyOnWrite, is_copied
from dagster_airbyte_proto.tables.iceberg.jvm import JavaIceberg, JavaTable
from dagster_airbyte_proto.tables.iceberg.log import (
    NEWEST,
    History,
    Snapshot,
    refuse_misplaced,
)
from dagster_airbyte_proto.tables.iceberg.preparation import Fitting, Wanted, fitted
from dagster_airbyte_proto.tables.iceberg.sort_order import keep_order
from dagster_airbyte_proto.tables.part_checks import newest_after, refuse_mode
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.key_lookup import greatest, rows_of
from dagster_airbyte_proto.tables.spark.session import LateSession, SparkSettings, refuse_unfenced
from dagster_airbyte_proto.tables.sql_names import qualified

_ATTEMPTS = 8


class IcebergTables:
    """The tables of one Iceberg catalog of a Spark session. Tables may be committed side by side, one thread each.

    `session` may be a function: it is called when the first table is wanted, by the thread that wants it. A process has
    one context of Spark, so `close` stops no session.
    `labels` go into every snapshot's summary, behind `airbyte-proto.` (the connection, the run).
    """

    abilities = ICEBERG

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        settings: SparkSettings,
        *,
        labels: dict[str, str] | None = None,
    ) -> None:
        self._late_session = LateSession(session)
        self.catalog = settings.catalog
        self._warehouse = settings.warehouse_location
        self._labels = labels or {}
        self._opening = threading.Lock()
        self._opened: JavaIceberg | None = None
        self._storage = LOCAL
        self._tables: dict[TableName, JavaTable] = {}

    @property
    def storage(self) -> Storage:
        self._iceberg()
        return self._storage

    def prepare(self, spec: TableSpec) -> TableTarget:
        columns = with_text(columns_of(spec.schema), spec.slice_column)
        wanted = Wanted(
            spec.name,
            columns,
            spec.slice_column,
            spec.comment,
            partitioning=spec.partitioning,
            terms=spec.terms,
            ordering=spec.ordering,
            replaces=spec.replaces,
            begun=spec.begun,
        )
        return self._target(wanted)

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing = f"committing load {load_id} to table {self._qualified(part.table)}"
        refuse_mode(doing, self.abilities, part)
        with self._refusals(doing, str(part.stream)):
            table = self._table(part.table)
            for _ in range(_ATTEMPTS):
                if part.aside is not None:
                    if put_aside := self._put_aside(doing, table, load_id, part):
                        return put_aside
                    continue
                history = table.refresh()
                if known := self._known(history, load_id, part):
                    return known
                refuse_misplaced(doing, table.log, part)
                if landed := self._land(table, history, load_id, part):
                    self._iceberg().show(part.table, self._qualified(part.table))
                    return landed
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile", stream=str(part.stream))

    def aside(self, name: TableName) -> Mapping[str, str]:
        with self._refusals(f"looking at the branches of table {self._qualified(name)}"):
            return AsideOf(table).newest() if (table := self._standing(name)) else {}

    def drop_aside(self, name: TableName, branch: str) -> None:
        doing = f"dropping branch {branch} of table {self._qualified(name)}"
        with self._refusals(doing):
            table = self._standing(name)
            if table is None or any(AsideOf(table).drop(doing, branch) for _ in range(_ATTEMPTS)):
                return
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile")

    def prepare_for_frame(self, name: TableName, frame: DataFrame, slice_column: str | None) -> TableTarget:
        """The table for a frame that Spark will write: `prepare`, with the slice column among the frame's own.

        Without a slice column any way that a table is partitioned is good: Spark follows it. The session's readers and
        writers see the table as it is now.
        """
        try:
            columns = self._iceberg().columns_of(frame)
        except CALL_ERRORS as error:
            remedy = "Cast the column to a type that tables have, or leave it out."
            raise ConfigError(f"preparing table {self._qualified(name)}", first_line(error), remedy=remedy) from error
        target = self._target(Wanted(name, columns, slice_column, is_by_reference=False))
        with self._refusals(f"preparing table {target.qualified}"):
            self._iceberg().show(name, target.qualified)
        return target

    def landed(self, load_id: str, name: TableName) -> Snapshot | None:
        """The snapshot of a load in a table that is prepared, as long as the table keeps it."""
        with self._refusals(f"looking for load {load_id} in table {self._qualified(name)}"):
            return self._table(name).refresh().landed(load_id)

    def standing(self, name: TableName, branch: str | None = None) -> Standing:
        with self._refusals(f"looking at table {self._qualified(name)}"):
            table = self._table(name)
            history = table.refresh()
            return (history if branch is None else History.of(table.log, branch)).standing

    def greatest(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        with self._refusals(f"looking for the newest rows of table {self._qualified(name)}"):
            return greatest(self._as_it_is(name, branch), columns)

    def rows_of(self, name: TableName, sought: Sought, branch: str | None = None) -> pa.Table:
        with self._refusals(f"looking for older rows of table {self._qualified(name)}"):
            return rows_of(self._as_it_is(name, branch), sought)

    def close(self) -> None:
        """Nothing is held."""

    def _as_it_is(self, name: TableName, branch: str | None) -> DataFrame:
        self._iceberg().show(name, self._qualified(name))
        reader = self.open_session().read
        if branch is not None:
            table = self._table(name)
            table.refresh()
            if (head := table.log.branches.get(branch)) is None:
                raise TableError(f"reading table {self._qualified(name)}", f"branch {branch} is not there any more")
            # By the name of a branch Iceberg would read it with the columns that readers have.
            reader = reader.option("versionAsOf", head)
        return reader.table(self._qualified(name))

    def _put_aside(self, doing: str, table: JavaTable, load_id: str, part: StagedRows) -> CommittedRows | None:
        """None when it was refused because the table changed since it was read."""
        labels = {f"airbyte-proto.{key}": value for key, value in self._labels_of(load_id, part).items()}
        landed = AsideOf(table).land(doing, (load_id, part), labels, lambda log: refuse_misplaced(doing, log, part))
        if landed:
            self._iceberg().show(part.table, self._qualified(part.table))
        return landed.told(part) if landed else None

    def _known(self, history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
        """What there is to say of a load that is in already, or that has nothing to land."""
        rows, current = history.current.rows if history.current else 0, history.current
        if landed := history.landed(load_id):
            return CommittedRows(part.stream, str(landed.snapshot_id), True, _deleted(part, landed), rows)
        if not part.files and part.write not in REPLACING:
            return CommittedRows(part.stream, str(current.snapshot_id) if current else "", False, table_rows=rows)
        if current and self._landed_long_ago(history, part):
            return CommittedRows(part.stream, str(current.snapshot_id), True, table_rows=rows)
        return None

    def _land(self, table: JavaTable, history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Commits, once; None when it was refused because the table changed since it was read."""
        copies = CopyOnWrite(self.open_session(), self._storage, table) if is_copied(part, history) else None
        change = (copies or table).change(part, history)
        for key, value in self._labels_of(load_id, part).items():
            change.set(f"airbyte-proto.{key}", value)
        if newest := newest_after(part, history.standing):
            change.set(NEWEST, msgspec.json.encode(newest).decode())
        points.reach("table.committing")
        try:
            change.commit()
        except CALL_ERRORS as error:
            if failure_of(error) is Failure.CONFLICT or _has_moved(table, history, error):
                if copies:
                    copies.discard()
                return None
            if failure_of(error) is Failure.NO_ANSWER:
                raise CommitUnknown(f"committing load {load_id}", first_line(error), stream=str(part.stream)) from error
            raise
        points.reach("table.committed")
        snapshot = table.committed(load_id, history)
        if snapshot is None:
            raise CommitUnknown(
                f"committing load {load_id}", "the table's log does not show it", stream=str(part.stream)
            )
        deleted, totals = _deleted(part, snapshot, history.current), snapshot.totals
        return CommittedRows(part.stream, str(snapshot.snapshot_id), False, deleted, snapshot.rows, totals)

    def _labels_of(self, load_id: str, part: StagedRows) -> dict[str, str]:
        return {**self._labels, "load-id": load_id, "stream": str(part.stream)}

    def _landed_long_ago(self, history: History, part: StagedRows) -> bool:
        """Whether a load landed in a snapshot that has been expired since: then its files may still be in the table.

        Files younger than the oldest snapshot left were not staged when anything that is forgotten happened.
        """
        expired_before_ms = history.expired_before_ms
        if not expired_before_ms or not part.files or self._modified_ms(part.files[0].path) > expired_before_ms:
            return False
        paths = ", ".join("'" + file.path.replace("\\", "\\\\").replace("'", "\\'") + "'" for file in part.files)
        self._iceberg().show(part.table, self._qualified(part.table))
        found = self.open_session().sql(
            f"select 1 from {self._qualified(part.table)}.files where file_path in ({paths}) limit 1"  # noqa: S608 - quoted
        )
        return bool(found.collect())

    def _target(self, wanted: Wanted) -> TableTarget:
        table, fit, schema_id = self._prepared(wanted)
        columns = table.log.columns_of(f"preparing table {self._qualified(wanted.name)}", schema_id)
        return TableTarget(
            name=wanted.name,
            schema=arrow_schema(without(columns, wanted.slice_column)),
            location=without_file_scheme(table.log.location),
            qualified=self._qualified(wanted.name),
            fit=fit,
            storage=self._storage,
            schema_id=schema_id,
        )

    def _modified_ms(self, path: str) -> int:
        """When a file was last written. One that is not there counts as new: landing it is refused."""
        filesystem, place = self.storage.at(path)
        written_ns = filesystem.get_file_info(place).mtime_ns
        return sys.maxsize if written_ns is None else int(written_ns // 1_000_000)

    def _prepared(self, wanted: Wanted) -> Fitting:
        doing = f"preparing table {self._qualified(wanted.name)}"
        iceberg = self._iceberg()
        with self._refusals(doing):
            for _ in range(_ATTEMPTS):
                try:
                    fitting = fitted(iceberg, wanted, doing)
                    # An order may speak of the readers' columns alone: other ones get theirs by the next sync.
                    if wanted.ordering is not None and fitting.schema_id is None:
                        java, columns = fitting.table.java, fitting.table.log.columns
                        keep_order(self.open_session(), java, columns, wanted.ordering)
                except CALL_ERRORS as error:
                    # Another writer made the table, or changed its columns, at the same moment.
                    if failure_of(error) not in (Failure.EXISTS, Failure.CONFLICT):
                        raise
                else:
                    self._tables[wanted.name] = fitting.table
                    return fitting
        raise TableError(doing, "other writers keep changing it")

    def _table(self, name: TableName) -> JavaTable:
        if name not in self._tables:
            self._tables[name] = self._iceberg().load(name)
        return self._tables[name]

    def _standing(self, name: TableName) -> JavaTable | None:
        """The table, if there is one."""
        try:
            table = self._table(name)
            table.metadata()
        except CALL_ERRORS as error:
            if failure_of(error) is not Failure.MISSING_TABLE:
                raise
            return None
        return table

    def _iceberg(self) -> JavaIceberg:
        session = self.open_session()
        with self._opening:
            if self._opened is None:
                try:
                    # What the session says is so, whatever the settings had it start with.
                    key = f"spark.sql.catalog.{self.catalog}.warehouse"
                    self._warehouse = session.conf.get(key, None) or self._warehouse
                    refuse_unfenced(session, self.catalog, self._warehouse)
                    self._opened = JavaIceberg(session, self.catalog)
                    self._storage = self._opened.storage
                except CALL_ERRORS as error:
                    raise ConfigError(
                        f"opening catalog {self.catalog}",
                        first_line(error),
                        remedy=f"Does the Spark session have spark.sql.catalog.{self.catalog}, an Iceberg catalog, "
                        "and the jars that it needs? Is it reachable from here, and does Spark's JVM still run?",
                    ) from error
            return self._opened

    def open_session(self) -> SparkSession:
        """The session that they are tables of."""
        return self._late_session.open()

    def _qualified(self, name: TableName) -> str:
        return qualified(self.catalog, name)

    @contextmanager
    def _refusals(self, doing: str, stream: str | None = None) -> Iterator[None]:
        """Java's exceptions as ours, in one line."""
        try:
            yield
        except FileNotFoundError as error:
            raise TableError(doing, str(error), remedy=_DELETED_BY_HAND, stream=stream) from error
        except CALL_ERRORS as error:
            failure, found = failure_of(error), first_line(error)
            if failure is Failure.UNKNOWN:
                raise CommitUnknown(doing, found, stream=stream) from error
            if failure is Failure.NO_ANSWER:
                remedy = f"Is the catalog's database or server there, and does it know who asks? It is {self.catalog}"
            elif failure is Failure.MISSING_TABLE:
                remedy = "It was dropped after it was prepared; run again."
            elif failure is Failure.MISSING_FILE:
                remedy = _DELETED_BY_HAND
            else:
                remedy = f"Is the warehouse there, writable and not full? It is {self._warehouse}"
            raise TableError(doing, found, remedy=remedy, stream=stream) from error


_DELETED_BY_HAND = "Was something deleted from the warehouse by hand?"


def _has_moved(table: JavaTable, history: History, error: BaseException) -> bool:
    """Whether the snapshot that a refused change started from was rolled back: a row delta calls that its caller's
    mistake, with a plain IllegalArgumentException."""
    return failure_of(error) is Failure.REFUSED and table.refresh().current != history.current


def _deleted(part: StagedRows, snapshot: Snapshot, before: Snapshot | None = None) -> int:
    """How many rows a replacement took out: those that readers found, where that is known, else all in its files."""
    if part.write not in REPLACING:
        return 0
    found = before.rows if before is not None and part.slice is None else None
    return snapshot.removed_rows if found is None else found
