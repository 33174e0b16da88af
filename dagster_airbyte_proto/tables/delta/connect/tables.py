"""Commits staged Parquet files to the Delta tables of a Spark Connect server.

There is no JVM in which to add files by reference, so the server reads the staged files and writes their rows again.
The table's log is in a folder that both see, and is read from its files. Delta itself sees to it that a load lands once
(`writes.py`), also where a server goes on with the request of a client that died.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, InternalError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of, key_ids, with_text_column, without_column
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery, TableFit, TableSpec, TableTarget, Witness, table_fit
from dagster_airbyte_proto.model import REPLACING, TableName
from dagster_airbyte_proto.schema.evolution import IcebergSchema, evolution_decision
from dagster_airbyte_proto.tables.delta.connect import ABILITIES
from dagster_airbyte_proto.tables.delta.connect.delta_log import DeltaLog, read_log
from dagster_airbyte_proto.tables.delta.connect.statements import change_columns, create_table
from dagster_airbyte_proto.tables.delta.connect.writes import write_part
from dagster_airbyte_proto.tables.delta.history import (
    Commit,
    load_metadata,
    logged_freshness,
    newest_load,
    read_commit,
    shows_load,
)
from dagster_airbyte_proto.tables.delta.jobs import CommitLabels
from dagster_airbyte_proto.tables.delta.partitions import check_delta_partitioning, partitioned_by
from dagster_airbyte_proto.tables.delta.preparation import check_no_branch, check_remembers_loads
from dagster_airbyte_proto.tables.delta.warehouse import (
    NOT_BY_COLUMN_ID,
    by_folder,
    check_is_local,
    register,
    sql_name,
    table_location,
)
from dagster_airbyte_proto.tables.formats import LOAD_ID
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
from dagster_airbyte_proto.tables.spark.jvm.errors import NO_OUTCOME, REMOTE_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.jvm.job_tags import inherited_tag
from dagster_airbyte_proto.tables.spark.key_lookup import greatest_values, rows_with_keys
from dagster_airbyte_proto.tables.spark.session import LazySession
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.spark.staged_part import StagedPart, discard_files
from dagster_airbyte_proto.tables.sql_names import is_catalog_name

_ATTEMPTS = 8
_ATTEMPT = "airbyte-proto.attempt"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


class RemoteDeltaTables:
    """The Delta tables of one warehouse, a folder that this machine and the server share. Several threads may commit at
    the same time, each to a table of its own.

    `session` may be a function; the first thread that needs a table calls it. `labels` (the connection, the run) go
    into the user metadata of every commit, with the prefix `airbyte-proto.`.
    Raises ConfigError for a warehouse that is not a folder.
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
        self._session = LazySession(session, has_jvm=False)
        self.catalog = settings.catalog
        self._warehouse = settings.warehouse_location
        self._labels = labels or {}
        self._opening = threading.Lock()
        self._checked: SparkSession | None = None
        self._logs: dict[TableName, DeltaLog] = {}

    def open_session(self) -> SparkSession:
        """Returns the session, and connects to the server if need be. Raises ConfigError where it has no Delta."""
        session = self._session.open()
        with self._opening:
            if session is not self._checked:
                key = f"spark.sql.catalog.{self.catalog}"
                if session.conf.get(key, None) != _DELTA_CATALOG:
                    remedy = f"Start the server with Delta's jar and extension, and {key}={_DELTA_CATALOG}."
                    raise ConfigError(
                        "opening Delta tables", f"the Connect server has no Delta in {key}", remedy=remedy
                    )
                self._checked = session
        return session

    def prepare(self, spec: TableSpec) -> TableTarget:
        doing = f"preparing table {self._sql_name(spec.name)}"
        columns = with_text_column(columns_of(spec.schema), spec.slice_column)
        with self._table_errors(doing):
            log, fit = self._prepared(doing, spec, columns)
            self._register(doing, spec.name)
        return TableTarget(
            spec.name,
            arrow_schema(without_column(log.metadata.columns, spec.slice_column)),
            self.location(spec.name),
            self._sql_name(spec.name),
            fit,
            table_id=log.metadata.id,
            log_position=log.version,
        )

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing, stream = f"committing load {load_id} to table {self._sql_name(part.table)}", str(part.stream)
        check_mode(doing, self.abilities, part)
        if part.branch_position is not None:
            raise InternalError(doing, "tables of a Connect server hold no generations on branches")
        with self._table_errors(doing, stream), inherited_tag(self.open_session()):
            for _ in range(_ATTEMPTS):
                log = self._read(doing, part.table)
                if known := self._landed(log, load_id, part):
                    return known
                if not part.changes_table:
                    rows = self._rows(part.table, log.version)
                    return CommittedRows(part.stream, str(log.version), was_there=False, table_rows=rows)
                check_table_id(doing, log.metadata.id, part)
                check_delta_partitioning(doing, log.metadata, part)
                if part.follows:
                    shown = shows_load(self._log_folder(part.table), log.version, part.follows)
                    check_follows(doing, part, is_shown=shown)
                if landed := self._land(log, load_id, part):
                    if not landed.was_there:  # Else a session with a JVM may have landed them by reference.
                        discard_files(part, self.storage)
                    return landed
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile", stream=stream)

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        doing = f"looking for load {load_id} in table {self._sql_name(part.table)}"
        with self._table_errors(doing, str(part.stream)):
            log = self._read(doing, part.table)
            check_table_id(doing, log.metadata.id, part)
            if (landed := self._landed(log, load_id, part)) is None:
                check_remembers_loads(doing, log.metadata, part)
            return landed

    def witness(self, name: TableName, connection: str) -> Witness | None:
        with self._table_errors(f"reading the log of table {self._sql_name(name)}"):
            log = self._refreshed(name)
            return log and Witness(log.metadata.id, *newest_load(self._log_folder(name), log.version, connection))

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:
        doing = f"reading the log of table {self._sql_name(name)}"
        check_no_branch(doing, branch)
        with self._table_errors(doing):
            found = logged_freshness(self._log_folder(name), self._read(doing, name).version)
            return found._replace(has_rows=not self._frame(name).isEmpty())

    def greatest_values(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        doing = f"reading the greatest values of table {self._sql_name(name)}"
        check_no_branch(doing, branch)
        with self._table_errors(doing):
            return greatest_values(self._frame(name), columns)

    def rows_with_keys(self, name: TableName, query: KeyQuery, branch: str | None = None) -> pa.Table:
        doing = f"looking up keys in table {self._sql_name(name)}"
        check_no_branch(doing, branch)
        with self._table_errors(doing):
            return rows_with_keys(self._frame(name), query)

    def register_all(self) -> None:
        """Makes every table of the warehouse known by name to the server's catalog."""
        for folder in sorted(Path(self._warehouse).glob("*/*/_delta_log")):
            name = TableName(*map(unquote, folder.parts[-3:-1]))
            doing = f"registering table {name} in the server's catalog"
            with self._table_errors(doing):
                self._register(doing, name)

    def close(self) -> None:
        """Does nothing: the session belongs to the process."""

    def _read(self, doing: str, name: TableName) -> DeltaLog:
        log = self._refreshed(name)
        if log is None:
            raise TableError(doing, "there is no such table")
        return log

    def _refreshed(self, name: TableName) -> DeltaLog | None:
        files, folder = self._log_folder(name)
        log = read_log(files, folder, self._logs.get(name))
        if log is not None:
            self._logs[name] = log
        return log

    def _landed(self, log: DeltaLog, load_id: str, part: StagedRows) -> CommittedRows | None:
        if load_id not in log.loads:
            return None
        # It is in the table: an error while its rows are counted is no refusal.
        with outcome_unknown(f"reading load {load_id} in table {self._sql_name(part.table)}", str(part.stream)):
            commit = self._commit_of(log, load_id, part.table)
            version = str(commit.version if commit else log.loads[load_id])
            return CommittedRows(part.stream, version, True, table_rows=self._rows(part.table, log.version))

    def _commit_of(self, log: DeltaLog, load_id: str, name: TableName) -> Commit | None:
        """Returns the commit of a load; None where the log has only a checkpoint of it.

        Where other commits came in between, it has a later version than its writer expected.
        """
        found = (read_commit(*self._log_folder(name), each) for each in range(log.loads[load_id], log.version + 1))
        return next((each for each in found if each and each.user_metadata.get(LOAD_ID) == load_id), None)

    def _land(self, log: DeltaLog, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Commits a part once. Returns None if it was refused because the table changed since its log was read."""
        location, metadata, attempt = self.location(part.table), log.metadata, uuid4().hex
        key_ids(metadata.columns, part.keys)
        # The keys stay also where there is no row yet: a MERGE sees rows that come in until it begins, no append does.
        files = effective_files(part, holds_rows=True)
        check_staged_files(files, self.storage, metadata.columns)
        staged = StagedPart(part, files, metadata.columns, metadata.slice_column)
        metadata_of_load = load_metadata(load_id, part, self._labels, self._log_folder(part.table), log.version)
        # Delta skips a load that it has of this version or a later one. So all writers of a load name the same version:
        # one that reads the log later would name a later one, and land the load once more behind an earlier request.
        expected = (log.version if part.log_position is None else part.log_position) + 1
        labels = CommitLabels(load_id, expected, {**metadata_of_load, _ATTEMPT: attempt})
        doing, stream = f"committing load {load_id} to table {self._sql_name(part.table)}", str(part.stream)
        replaces_all = part.write in REPLACING and part.slice is None
        # Where a commit removes all files, Delta's log does not say how many rows were in them.
        replaced = self._rows(part.table, log.version) if replaces_all else 0
        points.reach("table.committing")
        refusal: BaseException | None = None
        with outcome_unknown(doing, stream):
            try:
                with only_writer(location):
                    write_part(self.open_session(), location, staged, labels)
            except REMOTE_ERRORS as error:
                if failure_of(error) in NO_OUTCOME:
                    raise CommitUnknown(doing, first_line(error), stream=stream) from error
                refusal = error
            else:
                points.reach("table.committed")
            now = self._read(doing, part.table)
            if load_id not in now.loads and refusal is None:
                raise CommitUnknown(doing, "the table's log does not show it", stream=stream)
        if load_id not in now.loads:
            if refusal is not None and failure_of(refusal) is not Failure.CONFLICT:
                raise refusal
            return None
        with outcome_unknown(doing, stream):
            commit = self._commit_of(now, load_id, part.table)
            # Another writer may have landed the load meanwhile. Then Delta skips the write, or refuses it.
            if commit is None or commit.user_metadata.get(_ATTEMPT) != attempt:
                return self._landed(now, load_id, part)
            removed = commit.row_counts[1] if part.write in REPLACING and not replaces_all else replaced
            rows = self._rows(part.table, now.version)
            return CommittedRows(part.stream, str(commit.version), False, removed, rows, log_position=commit.version)

    def _rows(self, name: TableName, version: int) -> int:
        """Counts the rows of a version. As a rule Delta does it by its log alone."""
        reader = self.open_session().read.format("delta").option("versionAsOf", str(version))
        return int(reader.load(self.location(name)).count())

    def _prepared(self, doing: str, spec: TableSpec, columns: IcebergSchema) -> tuple[DeltaLog, TableFit]:
        """Creates the table or changes its columns until it is as the stream needs it. Every statement is a commit of
        its own, so another writer may come in between: then it decides again."""
        session, table = self.open_session(), by_folder(self.location(spec.name))
        changed: TableFit | None = None
        for _ in range(_ATTEMPTS):
            log = self._refreshed(spec.name)
            if log is None:
                self._create(session, table, spec, columns)
                continue
            check_slice_column(doing, log.metadata.slice_column, spec.slice_column)
            check_partitioning(doing, log.metadata.partitioning, partitioned_by(log.metadata, spec))
            if not log.metadata.maps_columns_by_id:
                raise TableError(doing, NOT_BY_COLUMN_ID)
            existing = log.metadata.columns
            decision = evolution_decision(existing, columns, log.metadata.last_column_id, spec.evolution_rules)
            decision.check_accepted(doing, spec.evolution_rules)
            fit = table_fit(decision, columns, spec.evolution_rules)
            # The second attempt finds the changes of the first one done, and would report none.
            changed = changed if changed is not None and changed.changes else fit
            if not (statements := list(change_columns(table, existing, decision))):
                return log, changed
            try:
                for statement in statements:
                    session.sql(statement)
            except REMOTE_ERRORS as error:
                now = self._refreshed(spec.name)
                if failure_of(error) is not Failure.CONFLICT and (now is None or now.version == log.version):
                    raise
        raise TableError(doing, "other writers keep changing it")

    def _create(self, session: SparkSession, table: str, spec: TableSpec, columns: IcebergSchema) -> None:
        by = [spec.slice_column] if spec.slice_column else [field.column for field in spec.partitioning]
        session.sql(create_table(table, columns, spec.comment, by))
        if self._refreshed(spec.name) is None:
            raise ConfigError(
                f"preparing table {self._sql_name(spec.name)}",
                f"this machine does not see {self.location(spec.name)}, where the Connect server made it",
                remedy="Put the warehouse into a folder that both share under the same path.",
            )

    def _register(self, doing: str, name: TableName) -> None:
        """Makes the table known by name, where the name is one that the server's catalog takes. Raises TableError where
        the catalog has a table of this name in another folder."""
        if not is_catalog_name(name):
            return
        location, session, table = self.location(name), self.open_session(), self._sql_name(name)
        register(session, self.catalog, name, location)
        found = without_file_scheme(unquote(str(session.sql(f"describe detail {table}").collect()[0]["location"])))
        if found != unquote(location):
            remedy = (
                "Give the stream another namespace under destination, or set catalog: {warehouse: …} to its folder."
            )
            raise TableError(doing, f"the server has a table of this name in {found}", remedy=remedy)

    def _frame(self, name: TableName) -> DataFrame:
        return self.open_session().read.format("delta").load(self.location(name))

    def _log_folder(self, name: TableName) -> tuple[pa.fs.FileSystem, str]:
        return self.storage.at(f"{self.location(name)}/_delta_log")

    def location(self, name: TableName) -> str:
        """Returns the folder of a table."""
        return table_location(self._warehouse, name)

    def _sql_name(self, name: TableName) -> str:
        return sql_name(self.catalog, name, self.location(name))

    @contextmanager
    def _table_errors(self, doing: str, stream: str | None = None) -> Iterator[None]:
        """Raises the server's errors as TableError, with a remedy for each kind of failure."""
        try:
            yield
        except REMOTE_ERRORS as error:
            failure, found = failure_of(error), first_line(error)
            if isinstance(error, FileNotFoundError) or failure is Failure.MISSING_FILE:
                remedy = "Was something deleted from the warehouse by hand?"
            elif failure in NO_OUTCOME:
                remedy = "Is the Connect server up? Then run again: the next run goes on from what is in the table."
            else:
                remedy = f"Is the warehouse there for this machine and the Connect server? It is {self._warehouse}"
            raise TableError(doing, found, remedy=remedy, stream=stream) from error
