"""Commits staged Parquet files to Iceberg tables by reference: the files are neither read nor written again.

A load lands once, whoever else tries to commit it:

1. Read the table's log. If it has the load, nothing is left to do.
2. Commit a change that Iceberg refuses if rows were added since that read. So the commit fails for a writer that was
   paused, and for a JVM that finishes a call of a dead Python process.
3. If the change was refused, start again.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import msgspec
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, without_column
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, without_file_scheme
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery, TableSpec, TableTarget, Witness
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.iceberg import ABILITIES
from dagster_airbyte_proto.tables.iceberg.branches import TableBranches
from dagster_airbyte_proto.tables.iceberg.commit.attempt import CommitAttempt, commit_attempt
from dagster_airbyte_proto.tables.iceberg.commit.expired_loads import find_files, is_younger, search_expired
from dagster_airbyte_proto.tables.iceberg.commit.leftovers import LeftoverKeeper
from dagster_airbyte_proto.tables.iceberg.commit.results import result_before_commit, result_of_commit, result_of_landed
from dagster_airbyte_proto.tables.iceberg.copy_on_write import CopyOnWrite, needs_copy_on_write
from dagster_airbyte_proto.tables.iceberg.jvm import JavaIceberg, JavaTable
from dagster_airbyte_proto.tables.iceberg.layout import set_order
from dagster_airbyte_proto.tables.iceberg.log import (
    HIGH_WATER_MARK,
    History,
    Snapshot,
    TableLog,
    check_placement,
)
from dagster_airbyte_proto.tables.iceberg.positions.position_merge import (
    ROWS_SEARCHED_HERE,
    PositionMerge,
    needs_positions,
)
from dagster_airbyte_proto.tables.iceberg.preparation import PreparedTable, RequestedTable, prepare_table
from dagster_airbyte_proto.tables.outcome_unknown import outcome_unknown
from dagster_airbyte_proto.tables.part_checks import check_follows, check_mode, check_table_id, high_water_mark_after
from dagster_airbyte_proto.tables.spark.jvm.errors import (
    CALL_ERRORS,
    Failure,
    failure_of,
    first_line,
    refuses_client,
)
from dagster_airbyte_proto.tables.spark.jvm.job_tags import inherited_tag
from dagster_airbyte_proto.tables.spark.key_lookup import greatest_values, rows_with_keys
from dagster_airbyte_proto.tables.spark.session import LazySession, check_exclusive_commits
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.sql_names import qualified

_ATTEMPTS = 8
_CONFLICTS = f"other writers changed the table during each of {_ATTEMPTS} attempts"


class IcebergTables:
    """Writes the tables of one Iceberg catalog of a Spark session. Different tables may be committed in parallel.

    `session` may be a function; the first thread that needs a table calls it. A process has a single Spark context, so
    `close` does not stop the session.
    Upserts by position search the table's keys in this process up to `rows_searched_here`, and on Spark beyond.
    `labels` (the connection, the run) go into every snapshot's summary, with the prefix `airbyte-proto.`.
    """

    abilities = ABILITIES

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        settings: SparkSettings,
        *,
        labels: dict[str, str] | None = None,
        rows_searched_here: int = ROWS_SEARCHED_HERE,
    ) -> None:
        self._session = LazySession(session)
        self.catalog = settings.catalog
        self._warehouse = settings.warehouse_location
        self._labels = labels or {}
        self._rows_searched_here = rows_searched_here
        self._opening = threading.Lock()
        self._opened: JavaIceberg | None = None
        self._leftovers: LeftoverKeeper | None = None
        self._storage = LOCAL
        self._tables: dict[TableName, JavaTable] = {}

    @property
    def storage(self) -> Storage:
        self._iceberg()
        return self._storage

    def prepare(self, spec: TableSpec) -> TableTarget:
        return self._target(RequestedTable.of(spec))

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing = f"committing load {load_id} to table {self._qualified(part.table)}"
        check_mode(doing, self.abilities, part)
        with self._table_errors(doing, str(part.stream), commits=True), inherited_tag(self.open_session()):
            table = self._table(part.table)
            for _ in range(_ATTEMPTS):
                if part.branch_position is not None:
                    if committed := self._commit_to_branch(doing, table, load_id, part):
                        return committed
                    continue
                history = table.refresh()
                if known := self._landed_before(table, history, load_id, part):
                    if known.was_there:  # Perhaps by the attempt before, whose error came after the effect.
                        with outcome_unknown(doing, str(part.stream)):
                            self._iceberg().refresh_readers(part.table, self._qualified(part.table))
                    return known
                check_table_id(doing, table.log.table_uuid, part)
                check_placement(doing, table.log, part)
                check_follows(doing, part, is_shown=history.shows(part.follows))
                if landed := self._land(table, history, load_id, part):
                    with outcome_unknown(doing, str(part.stream)):
                        self._iceberg().refresh_readers(part.table, self._qualified(part.table))
                    return landed
        raise TableError(doing, _CONFLICTS, stream=str(part.stream))

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        doing = f"looking for load {load_id} in table {self._qualified(part.table)}"
        with self._table_errors(doing, str(part.stream)):
            table = self._iceberg().load(part.table)
            history = table.refresh()
            check_table_id(doing, table.log.table_uuid, part)
            if landed := result_of_landed(history, load_id, part):
                return landed
            if part.branch_position is not None and (landed := TableBranches(table).find_load(load_id, part)):
                return landed
            return self._landed_before_expiry(table, history, load_id, part)

    def witness(self, name: TableName, connection: str) -> Witness | None:
        with self._table_errors(f"looking at table {self._qualified(name)}"):
            table = self._table_if_exists(name)
            if table is None:
                return None
            history = table.refresh()
            return Witness(table.log.table_uuid, history.newest_load(connection), history.is_whole)

    def branches(self, name: TableName) -> Mapping[str, str]:
        with self._table_errors(f"looking at the branches of table {self._qualified(name)}"):
            return TableBranches(table).last_load_ids() if (table := self._table_if_exists(name)) else {}

    def drop_branch(self, name: TableName, branch: str) -> None:
        doing = f"dropping branch {branch} of table {self._qualified(name)}"
        with self._table_errors(doing):
            table = self._table_if_exists(name)
            if table is None or any(TableBranches(table).drop(doing, branch) for _ in range(_ATTEMPTS)):
                return
        raise TableError(doing, _CONFLICTS)

    def prepare_for_frame(self, name: TableName, frame: DataFrame, slice_column: str | None) -> TableTarget:
        """Prepares the table for a frame that Spark will write. The slice column is one of the frame's own columns.

        Without a slice column the table may have any partitioning, because Spark follows it. Afterwards the session's
        readers and writers see the table as it is now.
        """
        try:
            columns = self._iceberg().columns_of(frame)
        except CALL_ERRORS as error:
            remedy = "Cast the column to a type that Iceberg tables support, or drop it."
            raise ConfigError(f"preparing table {self._qualified(name)}", first_line(error), remedy=remedy) from error
        target = self._target(RequestedTable(name, columns, slice_column, is_by_reference=False))
        with self._table_errors(f"preparing table {target.qualified}"):
            self._iceberg().refresh_readers(name, target.qualified)
        return target

    def snapshot_of_load(self, load_id: str, name: TableName) -> Snapshot | None:
        """Returns the snapshot of a load in a prepared table; None if there is none, or if it has expired."""
        with self._table_errors(f"looking for load {load_id} in table {self._qualified(name)}"):
            return self._table(name).refresh().snapshot_of(load_id)

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:
        with self._table_errors(f"looking at table {self._qualified(name)}"):
            table = self._table(name)
            history = table.refresh()
            return (history if branch is None else History.from_log(table.log, branch)).freshness

    def greatest_values(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        with self._table_errors(f"looking for the newest rows of table {self._qualified(name)}"):
            return greatest_values(self._frame(name, branch), columns)

    def rows_with_keys(self, name: TableName, query: KeyQuery, branch: str | None = None) -> pa.Table:
        with self._table_errors(f"looking for older rows of table {self._qualified(name)}"):
            return rows_with_keys(self._frame(name, branch), query)

    def close(self) -> None:
        """Does nothing: the session belongs to the process."""

    def _frame(self, name: TableName, branch: str | None) -> DataFrame:
        self._iceberg().refresh_readers(name, self._qualified(name))
        reader = self.open_session().read
        if branch is not None:
            table = self._table(name)
            table.refresh()
            if (head := table.log.branches.get(branch)) is None:
                raise TableError(f"reading table {self._qualified(name)}", f"branch {branch} no longer exists")
            # By the branch's name Iceberg would use the readers' columns, which may be others than the branch has.
            reader = reader.option("versionAsOf", head)
        return reader.table(self._qualified(name))

    def _commit_to_branch(self, doing: str, table: JavaTable, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Commits a part to its branch. Returns None if it was refused because the table changed since it was read."""
        labels = {f"airbyte-proto.{key}": value for key, value in self._snapshot_labels(load_id, part).items()}
        branches = TableBranches(table, self._positions(table, part.table))
        landed = branches.land(doing, load_id, part, labels)
        if landed:
            with outcome_unknown(doing, str(part.stream)):
                self._iceberg().refresh_readers(part.table, self._qualified(part.table))
        return landed.committed_rows(part) if landed else None

    def _landed_before(
        self, table: JavaTable, history: History, load_id: str, part: StagedRows
    ) -> CommittedRows | None:
        """Returns the result for a load that is in the table already, or that has nothing to land; else None."""
        if known := result_before_commit(history, load_id, part):
            return known
        # For a writer that slept: the run that took over may have landed it, and others may have expired its snapshot.
        return self._landed_before_expiry(table, history, load_id, part, is_new=True)

    def _land(self, table: JavaTable, history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Commits a part once. Returns None if it was refused because the table changed since it was read."""
        merge = self._merge(table, part, history)
        change = (merge or table).change(part, history)
        for key, value in self._snapshot_labels(load_id, part).items():
            change.set(f"airbyte-proto.{key}", value)
        if mark := high_water_mark_after(part, history.freshness):
            change.set(HIGH_WATER_MARK, msgspec.json.encode(mark).decode())
        doing = f"committing load {load_id} to table {self._qualified(part.table)}"
        assert self._leftovers is not None, "the table was opened with it"
        leftovers = self._leftovers.keep(change)
        attempt = CommitAttempt(doing, str(part.stream), load_id, change, history, leftovers)
        outcome = commit_attempt(table, attempt)
        if merge and outcome.was_refused and outcome.holders is not None:
            merge.discard(outcome.holders)
        if outcome.snapshot is None:
            return None
        if outcome.was_refused:
            # It is in the table: an error while the log is read again is no refusal.
            with outcome_unknown(doing, str(part.stream)):
                return result_of_landed(table.refresh(), load_id, part)
        return result_of_commit(part, outcome.snapshot, history.current, table.log.format_version)

    def _merge(self, table: JavaTable, part: StagedRows, history: History) -> CopyOnWrite | PositionMerge | None:
        if needs_copy_on_write(part, history):
            return CopyOnWrite(self.open_session(), self._storage, table)
        return self._positions(table, part.table) if needs_positions(part, history) else None

    def _positions(self, table: JavaTable, name: TableName) -> PositionMerge:
        session, here = self.open_session(), self._rows_searched_here
        return PositionMerge(session, self._storage, table, self._qualified(name), here)

    def _snapshot_labels(self, load_id: str, part: StagedRows) -> dict[str, str]:
        connection = {"connection": part.connection} if part.connection else {}
        return {**self._labels, **connection, "load-id": load_id, "stream": str(part.stream)}

    def _landed_before_expiry(
        self, table: JavaTable, history: History, load_id: str, part: StagedRows, *, is_new: bool = False
    ) -> CommittedRows | None:
        """Returns the result for a load whose snapshot has expired; None if it has not landed. Raises CommitUnknown."""

        def read(file: str) -> TableLog | None:
            with suppress(*CALL_ERRORS):
                return table.log_of(self._iceberg().metadata_parser.read(table.java.io(), file))
            return None

        found = search_expired(table.log, history, load_id, part, read)
        if found.is_certain or (is_new and is_younger(history, part, self.storage)):
            return found.committed
        qualified_name = self._qualified(part.table)
        self._iceberg().refresh_readers(part.table, qualified_name)
        return find_files(self.open_session(), qualified_name, history, part)

    def _target(self, requested: RequestedTable) -> TableTarget:
        table, fit, schema_id = self._prepared(requested)
        columns = table.log.columns_of(f"preparing table {self._qualified(requested.name)}", schema_id)
        return TableTarget(
            name=requested.name,
            schema=arrow_schema(without_column(columns, requested.slice_column)),
            location=without_file_scheme(table.log.location),
            qualified=self._qualified(requested.name),
            fit=fit,
            storage=self._storage,
            schema_id=schema_id,
            table_id=table.log.table_uuid,
            log_position=table.log.position,
        )

    def _prepared(self, requested: RequestedTable) -> PreparedTable:
        doing = f"preparing table {self._qualified(requested.name)}"
        iceberg = self._iceberg()
        with self._table_errors(doing):
            for _ in range(_ATTEMPTS):
                try:
                    prepared = prepare_table(iceberg, requested, doing)
                    # A sort order may refer only to the readers' columns. Columns of an incomplete generation get their
                    # order at the next sync.
                    if requested.ordering is not None and prepared.schema_id is None:
                        java, columns = prepared.table.java, prepared.table.log.columns
                        set_order(self.open_session(), java, columns, requested.ordering)
                except CALL_ERRORS as error:
                    # Another writer created the table, or changed its columns, at the same time.
                    if failure_of(error) not in (Failure.EXISTS, Failure.CONFLICT):
                        raise
                else:
                    self._tables[requested.name] = prepared.table
                    return prepared
        raise TableError(doing, "other writers keep changing it")

    def _table(self, name: TableName) -> JavaTable:
        if name not in self._tables or self._tables[name].renew_at <= time.time():
            self._tables[name] = self._iceberg().load(name)
        return self._tables[name]

    def _table_if_exists(self, name: TableName) -> JavaTable | None:
        """Returns the table; None if it does not exist."""
        is_kept = name in self._tables
        try:
            table = self._table(name)
            table.metadata()
        except CALL_ERRORS as error:
            if failure_of(error) is Failure.MISSING_TABLE:
                return None
            if not is_kept:
                raise
            # The handle of a table in a folder that was dropped since finds its folder empty, and does not say why.
            self._tables.pop(name, None)
            return self._table_if_exists(name)
        return table

    def _iceberg(self) -> JavaIceberg:
        session = self.open_session()
        with self._opening:
            if self._opened is None:
                key = f"spark.sql.catalog.{self.catalog}"
                try:
                    # The session may have been started by others, so its own warehouse wins over our settings.
                    self._warehouse = session.conf.get(f"{key}.warehouse", None) or self._warehouse
                    check_exclusive_commits(session, self.catalog, self._warehouse)
                    self._opened = JavaIceberg(session, self.catalog)
                    self._storage, self._leftovers = self._opened.storage, LeftoverKeeper(session._jvm)
                except CALL_ERRORS as error:
                    remedy = (
                        f"Correct {key}.credential and .scope: the server refused the client that they name."
                        if refuses_client(error)
                        else f"Does the Spark session have {key}, an Iceberg catalog, and the jars that it needs? "
                        "Is it reachable from here, and does Spark's JVM still run?"
                    )
                    raise ConfigError(f"opening catalog {self.catalog}", first_line(error), remedy=remedy) from error
            return self._opened

    def open_session(self) -> SparkSession:
        """Returns the session of the catalog, and starts it if need be."""
        return self._session.open()

    def _qualified(self, name: TableName) -> str:
        return qualified(self.catalog, name)

    @contextmanager
    def _table_errors(self, doing: str, stream: str | None = None, *, commits: bool = False) -> Iterator[None]:
        """Raises Java's exceptions and those of files as TableError, with a remedy for each kind of failure.

        Where a call `commits`, a JVM that no longer answers leaves its outcome unknown: CommitUnknown. All other errors
        behind the commit point are so already (`outcome_unknown`).
        """
        try:
            yield
        except FileNotFoundError as error:
            raise TableError(doing, str(error), remedy=_DELETED_BY_HAND, stream=stream) from error
        except CALL_ERRORS as error:
            failure, found = failure_of(error), first_line(error)
            if failure is Failure.UNKNOWN and commits and not isinstance(error, OSError):
                raise CommitUnknown(doing, found, stream=stream) from error
            if failure is Failure.UNKNOWN and not isinstance(error, OSError):
                remedy = "Does the JVM of the Spark session still run?"
            elif failure is Failure.NO_ANSWER:
                remedy = f"Is the server or database of catalog {self.catalog} up, and does it accept the credentials?"
            elif failure is Failure.NOT_ALLOWED:
                remedy = f"Correct the credentials in spark.sql.catalog.{self.catalog}.*, or the rights that they give."
            elif failure is Failure.MISSING_TABLE:
                remedy = "Was it dropped, or is its disk not mounted? Run again once it is there."
            elif failure is Failure.MISSING_FILE:
                remedy = _DELETED_BY_HAND
            else:
                remedy = f"Is the warehouse {self._warehouse} reachable, writable and not full?"
            raise TableError(doing, found, remedy=remedy, stream=stream) from error


_DELETED_BY_HAND = "Was something deleted from the warehouse by hand?"
