"""The writer of Delta tables. How a part of a load gets into a table:

- By reference, where it can: the staged Parquet files become part of the table without being read or written again.
  Deletion vectors leave out the rows that a load brings twice.
- By a Spark job (`jobs.py`), where rows that the table already has must go: an upsert into a table with rows.

The load id is the application id of a Delta transaction (`txn`). So the table itself knows which loads it holds, and
Delta refuses a commit whose load came in after its writer took the snapshot. A refused commit takes a new snapshot and
tries again. So a load lands once, however many writers try.

A table's folder in the warehouse is named after the table. Spark's session catalog may forget its tables with the
session, so tables are registered in it again and again.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of, key_ids, with_text_column, without_column
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery, TableFit, TableSpec, TableTarget, Witness
from dagster_airbyte_proto.model import REPLACING, TableName
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.tables.delta import ABILITIES
from dagster_airbyte_proto.tables.delta.actions import txn_action
from dagster_airbyte_proto.tables.delta.files.add_actions import (
    add_actions_of,
    can_add_by_reference,
    files_to_add,
    net_rows,
    totals_after,
)
from dagster_airbyte_proto.tables.delta.history import (
    TABLE_ROWS,
    load_metadata,
    logged_freshness,
    newest_load,
    shows_load,
)
from dagster_airbyte_proto.tables.delta.jobs import CommitLabels, run_write_job, widen
from dagster_airbyte_proto.tables.delta.jvm import DeltaSnapshot, JavaDelta, Removal
from dagster_airbyte_proto.tables.delta.partitions import check_delta_partitioning, partitioned_by, slice_predicate
from dagster_airbyte_proto.tables.delta.preparation import (
    DeltaPreparation,
    check_no_branch,
    check_remembers_loads,
    next_preparation,
    with_published_columns,
)
from dagster_airbyte_proto.tables.delta.warehouse import (
    NOT_BY_COLUMN_ID,
    check_is_local,
    register,
    sql_name,
    table_location,
)
from dagster_airbyte_proto.tables.only_writer import only_writer
from dagster_airbyte_proto.tables.outcome_unknown import outcome_unknown
from dagster_airbyte_proto.tables.part_checks import (
    check_follows,
    check_mode,
    check_partitioning,
    check_slice_column,
    check_staged_files,
    check_table_id,
    effective_files,
)
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, NO_OUTCOME, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.jvm.job_tags import inherited_tag
from dagster_airbyte_proto.tables.spark.key_lookup import greatest_values, rows_with_keys
from dagster_airbyte_proto.tables.spark.session import LazySession
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.spark.staged_part import StagedPart
from dagster_airbyte_proto.tables.sql_names import is_catalog_name, quoted

_ATTEMPTS = 8
_ATTEMPT = "airbyte-proto.attempt"


class DeltaTables:
    """The Delta tables of one warehouse. Several threads may commit at the same time, each to a table of its own.

    `session` may be a function: the thread that needs the first table calls it. A process has one Spark context, so
    `close` stops no session.
    `labels` (the connection, the run) go into the user metadata of every commit, with the prefix `airbyte-proto.`.
    Raises ConfigError for a warehouse that is not on a disk of this machine.
    """

    abilities = ABILITIES
    storage = LOCAL

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        settings: SparkSettings,
        *,
        labels: dict[str, str] | None = None,
    ) -> None:
        check_is_local(settings.warehouse_location)
        self._session = LazySession(session)
        self.catalog = settings.catalog
        self._warehouse = settings.warehouse_location
        self._labels = labels or {}
        self._opening = threading.Lock()
        self._opened: JavaDelta | None = None
        self._are_registered = False

    def prepare(self, spec: TableSpec) -> TableTarget:
        doing, location = f"preparing table {self._sql_name(spec.name)}", self.location(spec.name)
        columns = with_text_column(columns_of(spec.schema), spec.slice_column)
        with self.translated_errors(doing):
            preparation = self._prepare_columns(doing, spec, columns)
            self._register(spec.name)
        schema = arrow_schema(without_column(preparation.columns, spec.slice_column))
        return TableTarget(
            spec.name,
            schema,
            location,
            self._sql_name(spec.name),
            preparation.fit,
            schema_id=preparation.schema_id,
            table_id=preparation.table_id,
        )

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing, stream = f"committing load {load_id} to table {self._sql_name(part.table)}", str(part.stream)
        check_mode(doing, self.abilities, part)
        with self.translated_errors(doing, stream, commits=True), inherited_tag(self.open_session()):
            for _ in range(_ATTEMPTS):
                snapshot = self.java().snapshot(self.location(part.table), load_id)
                if known := self._already_committed(doing, snapshot, load_id, part):
                    return known
                snapshot = with_published_columns(doing, snapshot, part)
                check_table_id(doing, snapshot.metadata.id, part)
                check_delta_partitioning(doing, snapshot.metadata, part)
                if part.follows:
                    log = self._log_folder(part.table)
                    check_follows(doing, part, is_shown=shows_load(log, snapshot.version, part.follows))
                try:
                    return self._land(doing, snapshot, load_id, part)
                except CALL_ERRORS as error:
                    if failure_of(error) in NO_OUTCOME:
                        raise CommitUnknown(doing, first_line(error), stream=stream) from error
                    # Some errors come after the effect, as those of Delta's hooks do: what the log says counts.
                    with outcome_unknown(doing, stream):
                        now = self.java().snapshot(self.location(part.table), load_id)
                        landed = self._landed(now, load_id, part)
                    if landed:
                        return landed
                    if failure_of(error) is not Failure.CONFLICT:
                        raise
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile", stream=stream)

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        doing, stream = f"looking for load {load_id} in table {self._sql_name(part.table)}", str(part.stream)
        with self.translated_errors(doing, stream):
            snapshot = self.java().snapshot(self.location(part.table), load_id)
            if snapshot.version < 0:
                raise TableError(doing, "there is no such table", stream=stream)
            check_table_id(doing, snapshot.metadata.id, part)
            if (landed := self._landed(snapshot, load_id, part)) is None:
                check_remembers_loads(doing, snapshot.metadata, part)
            return landed

    def witness(self, name: TableName, connection: str) -> Witness | None:
        with self.translated_errors(f"reading the log of table {self._sql_name(name)}"):
            snapshot = self.java().snapshot(self.location(name))
            if snapshot.version < 0:
                return None
            return Witness(snapshot.metadata.id, *newest_load(self._log_folder(name), snapshot.version, connection))

    def register_all(self) -> None:
        """Registers every table of the warehouse in the session's catalog, at the first call."""
        if self._are_registered:
            return
        for name in self.names():
            with self.translated_errors(f"registering table {name} in the session's catalog"):
                self._register(name)
        self._are_registered = True

    def names(self) -> list[TableName]:
        """Returns the name of every table of the warehouse, from the names of their folders."""
        with self.translated_errors("listing the tables of the warehouse"):
            folders = [
                without_file_scheme(each).split("/")[-2:] for each in self.java().table_locations(self._warehouse)
            ]
        return sorted(TableName(*map(unquote, each)) for each in folders)

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:
        doing = f"reading the log of table {self._sql_name(name)}"
        check_no_branch(doing, branch)
        with self.translated_errors(doing):
            snapshot = self.java().snapshot(self.location(name))
            totals = self.java().totals(snapshot)
            has_rows = totals.data_files > 0 if totals else self.rows(name, snapshot) > 0
            return logged_freshness(self._log_folder(name), snapshot.version)._replace(has_rows=has_rows)

    def greatest_values(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        doing = f"reading the greatest values of table {self._sql_name(name)}"
        check_no_branch(doing, branch)
        with self.translated_errors(doing):
            return greatest_values(self._frame(name), columns)

    def rows_with_keys(self, name: TableName, query: KeyQuery, branch: str | None = None) -> pa.Table:
        doing = f"looking up keys in table {self._sql_name(name)}"
        check_no_branch(doing, branch)
        with self.translated_errors(doing):
            return rows_with_keys(self._frame(name), query)

    def close(self) -> None:
        """Does nothing: the session belongs to the process."""

    def open_session(self) -> SparkSession:
        """Returns the session, and starts it if it is not there yet."""
        return self._session.open()

    def _frame(self, name: TableName) -> DataFrame:
        return self.open_session().read.format("delta").load(self.location(name))

    def _log_folder(self, name: TableName) -> tuple[pa.fs.FileSystem, str]:
        return self.storage.at(f"{self.location(name)}/_delta_log")

    def _already_committed(
        self, doing: str, snapshot: DeltaSnapshot, load_id: str, part: StagedRows
    ) -> CommittedRows | None:
        """Returns the answer for a load that is in the table already, or that has nothing to commit. Else None."""
        if snapshot.version < 0:
            raise TableError(doing, "there is no such table", stream=str(part.stream))
        with outcome_unknown(doing, str(part.stream)):  # An error while the rows are counted is no refusal.
            if landed := self._landed(snapshot, load_id, part):
                return landed
        if not part.changes_table:
            rows = self.rows(part.table, snapshot)
            return CommittedRows(part.stream, str(snapshot.version), was_there=False, table_rows=rows)
        return None

    def _landed(self, snapshot: DeltaSnapshot, load_id: str, part: StagedRows) -> CommittedRows | None:
        if snapshot.load_version is None:
            return None
        version = self.java().load_version(snapshot, load_id)
        return CommittedRows(part.stream, str(version), was_there=True, table_rows=self.rows(part.table, snapshot))

    def _land(self, doing: str, snapshot: DeltaSnapshot, load_id: str, part: StagedRows) -> CommittedRows:
        """Tries to commit once. From the commit point on it raises one of CALL_ERRORS, a conflict among them."""
        replaces, location = part.write in REPLACING, self.location(part.table)
        with self.translated_errors(doing, str(part.stream), commits=True):
            before = self.rows(part.table, snapshot)
            files = effective_files(part, holds_rows=before > 0)
            key_ids(snapshot.metadata.columns, part.keys)
            removal = self.java().removal(snapshot, slice_predicate(snapshot, part)) if replaces else Removal()
            log = self._log_folder(part.table)
            user_metadata = load_metadata(load_id, part, self._labels, log, snapshot.version)
            places = files_to_add(snapshot.metadata, part, files)
            is_by_reference = can_add_by_reference(snapshot.metadata, files)
            if not is_by_reference:
                files = effective_files(part, holds_rows=True)  # A MERGE sees the rows that came in before it began.
                check_staged_files(files, self.storage, snapshot.metadata.columns)
            elif not replaces and len(files) < len(part.files):
                # Its keys delete nothing, as no row is there. A row that somebody adds meanwhile makes the commit fail.
                self.java().read_all(snapshot)
            added = list(add_actions_of(places, files, location)) if is_by_reference else []
            totals = None if replaces or not is_by_reference else totals_after(self.java().totals(snapshot), part)
        points.reach("table.committing")
        if not is_by_reference:
            staged = StagedPart(part, files, snapshot.metadata.columns, snapshot.metadata.slice_column)
            labels = CommitLabels(load_id, snapshot.version + 1, {**user_metadata, _ATTEMPT: uuid4().hex})
            return self._land_by_job(staged, labels, removal)
        rows = before - removal.rows + sum(net_rows(file) for file in files)
        user_metadata[TABLE_ROWS] = str(rows)
        actions = [txn_action(load_id, snapshot.version + 1), *added]
        version = self.java().write(snapshot, actions, removal, replaces=replaces, user_metadata=user_metadata)
        points.reach("table.committed")
        if version != snapshot.version + 1:  # another commit came in between, so our count of all rows does not hold
            return CommittedRows(part.stream, str(version), False, deleted=removal.rows)
        return CommittedRows(part.stream, str(version), False, removal.rows, rows, totals)

    def _land_by_job(self, staged: StagedPart, labels: CommitLabels, removal: Removal) -> CommittedRows:
        part, load_id, location = staged.part, labels.load_id, self.location(staged.part.table)
        with only_writer(location):
            run_write_job(self.open_session(), location, staged, labels)
        points.reach("table.committed")
        # If another writer has landed the load meanwhile, Delta skips the job silently. The attempt id in the commit
        # tells whose it was.
        with outcome_unknown(f"committing load {load_id}", str(part.stream)):
            now = self.java().snapshot(location, load_id)
        if now.load_version is None:
            raise CommitUnknown(
                f"committing load {load_id}", "the table's log does not show it", stream=str(part.stream)
            )
        version = self.java().load_version(now, load_id)
        was_there = self.java().user_metadata(now, version).get(_ATTEMPT) != labels.user_metadata[_ATTEMPT]
        deleted = 0 if was_there else removal.rows
        totals = self.java().totals(now)
        return CommittedRows(part.stream, str(version), was_there, deleted, self.rows(part.table, now), totals)

    def rows(self, name: TableName, snapshot: DeltaSnapshot) -> int:
        """Returns the number of rows: as our last commit or the files' statistics say, else counted by a Spark job."""
        if (logged := self.java().user_metadata(snapshot, snapshot.version).get(TABLE_ROWS)) is not None:
            return int(logged)
        if (known := self.java().rows(snapshot)) is not None:
            return known
        reader = self.open_session().read.format("delta").option("versionAsOf", snapshot.version)
        return int(reader.load(self.location(name)).count())

    def _prepare_columns(self, doing: str, spec: TableSpec, columns: IcebergSchema) -> DeltaPreparation:
        """Creates the table or changes its columns, step by step, until it is as the stream needs it.

        Types are widened before anything else, by SQL and so in a commit of its own.
        """
        changed: TableFit | None = None
        for _ in range(_ATTEMPTS):
            snapshot = self.java().snapshot(self.location(spec.name))
            if snapshot.version >= 0:
                check_slice_column(doing, snapshot.metadata.slice_column, spec.slice_column)
                check_partitioning(doing, snapshot.metadata.partitioning, partitioned_by(snapshot.metadata, spec))
                if not snapshot.metadata.maps_columns_by_id:
                    raise TableError(doing, NOT_BY_COLUMN_ID)
            preparation = next_preparation(doing, snapshot, spec, columns)
            # The second attempt finds the changes of the first one done, and would report none.
            changed = changed if changed is not None and changed.changes else preparation.fit
            if preparation.is_done:
                return preparation._replace(fit=changed, table_id=snapshot.metadata.id)
            try:
                self._take_step(snapshot, spec, preparation)
            except CALL_ERRORS as error:
                # Another writer made the table, or changed its columns, at the same moment.
                if failure_of(error) is not Failure.CONFLICT:
                    raise
        raise TableError(doing, "other writers keep changing it")

    def _take_step(self, snapshot: DeltaSnapshot, spec: TableSpec, preparation: DeltaPreparation) -> None:
        """Takes the next step of the preparation."""
        if preparation.widened:
            location = self.location(spec.name)
            with only_writer(location):
                widen(self.open_session(), f"delta.{quoted(location)}", preparation.widened)
        elif preparation.action is not None and snapshot.version < 0:
            self.java().create(snapshot, preparation.action)
        elif preparation.action is not None:
            self.java().change_metadata(snapshot, preparation.action)

    def _register(self, name: TableName) -> None:
        if is_catalog_name(name):
            register(self.open_session(), self.catalog, name, self.location(name))

    def _sql_name(self, name: TableName) -> str:
        return sql_name(self.catalog, name, self.location(name))

    def location(self, name: TableName) -> str:
        """Returns the folder of a table."""
        return table_location(self._warehouse, name)

    def java(self) -> JavaDelta:
        """Returns Delta's classes in the session. Raises ConfigError where they are not there."""
        session = self.open_session()
        with self._opening:
            if self._opened is None:
                try:
                    self._opened = JavaDelta(session)
                except (TypeError, *CALL_ERRORS) as error:
                    raise ConfigError(
                        "opening Delta tables",
                        first_line(error),
                        remedy="Are delta-spark, its extension and its catalog in the session? Does its JVM still run?",
                    ) from error
            return self._opened

    @contextmanager
    def translated_errors(self, doing: str, stream: str | None = None, *, commits: bool = False) -> Iterator[None]:
        """Raises exceptions from the JVM, and those of the log's files, as TableError with a message of one line.

        Where a call `commits`, a JVM that no longer answers leaves its outcome unknown: CommitUnknown. A file that this
        process cannot read is a refusal, as it reads them before the commit point.
        """
        try:
            yield
        except CALL_ERRORS as error:
            failure, found = failure_of(error), first_line(error)
            if failure in NO_OUTCOME and commits and not isinstance(error, OSError):
                raise CommitUnknown(doing, found, stream=stream) from error
            if failure is Failure.MISSING_FILE:
                remedy = "Was something deleted from the warehouse by hand?"
            else:
                remedy = f"Is the warehouse there, writable and not full? It is {self._warehouse}"
            raise TableError(doing, found, remedy=remedy, stream=stream) from error
