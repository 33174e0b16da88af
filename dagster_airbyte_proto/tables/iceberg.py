"""Iceberg tables, by reference: staged Parquet files become part of a table without being read or written again.

A commit looks whether the table's log has the load, and if not, commits a change that Iceberg refuses should anything
have come in since that look. So a load lands once, whoever else tries: a writer that was paused and wakes up, or a JVM
that finishes what its dead Python asked for, fails its validation. Refused, we look again.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.model import CommittedRows, StagedRows, TableName
from dagster_airbyte_proto.tables.columns import Columns, arrow_schema, columns_of, refuse_differences, united
from dagster_airbyte_proto.tables.iceberg_jvm import JavaIceberg, JavaTable
from dagster_airbyte_proto.tables.iceberg_log import History, Snapshot
from dagster_airbyte_proto.tables.jvm_errors import CALL_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark import SparkSettings
from dagster_airbyte_proto.tables.writer import MODES, REPLACING, TableSpec, TableTarget, without_file_scheme

_ATTEMPTS = 8
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class IcebergTables:
    """The tables of one Iceberg catalog of a Spark session. Tables may be committed side by side, one thread each.

    `session` may be a function: it is called when the first table is wanted, and what it made is stopped by `close`.
    `labels` go into every snapshot's summary, behind `airbyte-proto.` (the connection, the run).
    """

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        settings: SparkSettings,
        *,
        labels: dict[str, str] | None = None,
    ) -> None:
        self._session = session
        self._catalog = settings.catalog
        self._warehouse = settings.warehouse_location
        self._labels = labels or {}
        self._made: SparkSession | None = None
        self._opening = threading.Lock()
        self._opened: JavaIceberg | None = None
        self._tables: dict[TableName, JavaTable] = {}

    def prepare(self, spec: TableSpec) -> TableTarget:
        iceberg = self._iceberg()
        wanted = columns_of(spec.schema)
        with self._refusals(f"preparing table {self._qualified(spec.name)}"):
            for _ in range(_ATTEMPTS):
                try:
                    table = self._fitting(iceberg, spec, wanted)
                    break
                except CALL_ERRORS as error:
                    # Another writer made the table, or changed its columns, at the same moment.
                    if failure_of(error) not in (Failure.EXISTS, Failure.CONFLICT):
                        raise
            else:
                raise TableError(f"preparing table {self._qualified(spec.name)}", "other writers keep changing it")
        self._tables[spec.name] = table
        return TableTarget(
            name=spec.name,
            schema=arrow_schema(table.log.columns),
            location=without_file_scheme(table.log.location),
            qualified=self._qualified(spec.name),
        )

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing = f"committing load {load_id} to table {self._qualified(part.table)}"
        if part.write not in MODES:
            raise TableError(doing, f"write mode {part.write} is not supported yet", stream=str(part.stream))
        with self._refusals(doing, str(part.stream)):
            table = self._table(part.table)
            for _ in range(_ATTEMPTS):
                history = table.refresh()
                if known := self._known(table, history, load_id, part):
                    return known
                if landed := self._land(table, history, load_id, part):
                    self._iceberg().show(part.table, self._qualified(part.table))
                    return landed
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile", stream=str(part.stream))

    def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.stop()

    def _known(self, table: JavaTable, history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
        """What there is to say of a load that is in already, or that has nothing to land."""
        rows, current = history.current.rows if history.current else 0, history.current
        if landed := history.landed(load_id):
            return CommittedRows(part.stream, str(landed.snapshot_id), True, _deleted(part, landed), rows)
        if not part.files and part.write not in REPLACING:
            return CommittedRows(part.stream, str(current.snapshot_id) if current else "", False, table_rows=rows)
        if current and self._landed_long_ago(table, history, part):
            return CommittedRows(part.stream, str(current.snapshot_id), True, table_rows=rows)
        return None

    def _land(self, table: JavaTable, history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Commits, once; None when it was refused because the table changed since it was read."""
        change = table.change(part, history)
        for key, value in {**self._labels, "load-id": load_id, "stream": str(part.stream)}.items():
            change.set(f"airbyte-proto.{key}", value)
        points.reach("table.committing")
        try:
            change.commit()
        except CALL_ERRORS as error:
            if failure_of(error) is Failure.CONFLICT or _has_moved(table, history, error):
                return None
            raise
        points.reach("table.committed")
        snapshot = table.committed(load_id, history)
        if snapshot is None:
            raise CommitUnknown(
                f"committing load {load_id}", "the table's log does not show it", stream=str(part.stream)
            )
        return CommittedRows(part.stream, str(snapshot.snapshot_id), False, _deleted(part, snapshot), snapshot.rows)

    def _landed_long_ago(self, table: JavaTable, history: History, part: StagedRows) -> bool:
        """Whether a load landed in a snapshot that has been expired since: then its files may still be in the table.

        Files younger than the oldest snapshot left were not staged when anything that is forgotten happened.
        """
        expired_before_ms = history.expired_before_ms
        if not expired_before_ms or not part.files or table.modified_ms(part.files[0].path) > expired_before_ms:
            return False
        paths = ", ".join("'" + file.path.replace("\\", "\\\\").replace("'", "\\'") + "'" for file in part.files)
        self._iceberg().show(part.table, self._qualified(part.table))
        found = self._open_session().sql(
            f"select 1 from {self._qualified(part.table)}.files where file_path in ({paths}) limit 1"  # noqa: S608 - quoted
        )
        return bool(found.collect())

    def _fitting(self, iceberg: JavaIceberg, spec: TableSpec, wanted: Columns) -> JavaTable:
        """The table with all its columns: as it is, made wider, or new."""
        try:
            table = iceberg.load(spec.name)
        except CALL_ERRORS as error:
            if failure_of(error) is not Failure.MISSING_TABLE:
                raise
            iceberg.create_namespace(spec.name.namespace)
            table = iceberg.create(spec.name, wanted, spec.comment)
            table.refresh()
            return table
        table.refresh()
        self._check(table, spec.name, wanted)
        if united(table.log.columns, wanted, table.log.last_column_id)[0] != table.log.columns:
            table.evolve(wanted)
            table.refresh()
        return table

    def _check(self, table: JavaTable, name: TableName, wanted: Columns) -> None:
        doing = f"preparing table {self._qualified(name)}"
        if table.log.is_partitioned:
            raise TableError(doing, "it is partitioned, which is not supported yet")
        refuse_differences(doing, table.log.columns, wanted)

    def _table(self, name: TableName) -> JavaTable:
        if name not in self._tables:
            self._tables[name] = self._iceberg().load(name)
        return self._tables[name]

    def _iceberg(self) -> JavaIceberg:
        session = self._open_session()
        with self._opening:
            if self._opened is None:
                try:
                    self._opened = JavaIceberg(session, self._catalog)
                except CALL_ERRORS as error:
                    raise ConfigError(
                        f"opening catalog {self._catalog}",
                        first_line(error),
                        remedy=f"Does the Spark session have spark.sql.catalog.{self._catalog}, an Iceberg catalog?",
                    ) from error
            return self._opened

    def _open_session(self) -> SparkSession:
        if isinstance(self._session, SparkSession):
            return self._session
        with self._opening:
            if self._made is None:
                self._made = self._session()
            return self._made

    def _qualified(self, name: TableName) -> str:
        return ".".join(quoted(part) for part in (self._catalog, name.namespace, name.name))

    @contextmanager
    def _refusals(self, doing: str, stream: str | None = None) -> Iterator[None]:
        """Java's exceptions as ours, in one line."""
        try:
            yield
        except CALL_ERRORS as error:
            failure, found = failure_of(error), first_line(error)
            if failure is Failure.UNKNOWN:
                raise CommitUnknown(doing, found, stream=stream) from error
            if failure is Failure.MISSING_TABLE:
                remedy = "It was dropped after it was prepared; run again."
            elif failure is Failure.MISSING_FILE:
                remedy = "Was something deleted from the warehouse by hand?"
            else:
                remedy = f"Is the warehouse there, writable and not full? It is {self._warehouse}"
            raise TableError(doing, found, remedy=remedy, stream=stream) from error


def quoted(name: str) -> str:
    """A name as Spark SQL takes it: in backticks where it needs them."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _has_moved(table: JavaTable, history: History, error: BaseException) -> bool:
    """Whether the snapshot that a refused change started from was rolled back: a row delta calls that its caller's
    mistake, with a plain IllegalArgumentException."""
    return failure_of(error) is Failure.REFUSED and table.refresh().current != history.current


def _deleted(part: StagedRows, snapshot: Snapshot) -> int:
    return snapshot.removed_rows if part.write in REPLACING else 0
