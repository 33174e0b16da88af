"""Commits staged Parquet files to the Iceberg tables of a Spark Connect server.

There is no JVM in which to add files by reference, so the server reads the staged files and writes their rows again. A
load lands once, whoever else tries to commit it:

1. Read the table's log. If it has the load, nothing is left to do.
2. Commit on top of the snapshot in whose history we looked, and no other. Rows without keys go in by one INSERT that is
   refused if any rows came in since. Rows with keys take a MERGE, which has no such fence: so it writes to a branch of
   its own that starts at that snapshot. Then the table is moved to the branch, which is refused if it has moved.
3. If the change was refused, start again.

A server goes on with the request of a client that died. By the same fences such a request lands once or not at all.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, InternalError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of, key_ids, without_column
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, without_file_scheme
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery, TableSpec, TableTarget, Witness, table_fit
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.evolution import EvolutionDecision
from dagster_airbyte_proto.tables.connect_client import check_same_server
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.iceberg.commit.expired_loads import is_younger, search_expired
from dagster_airbyte_proto.tables.iceberg.commit.results import result_before_commit, result_of_commit, result_of_landed
from dagster_airbyte_proto.tables.iceberg.connect import ABILITIES
from dagster_airbyte_proto.tables.iceberg.connect.catalog_settings import check_catalog, remote_storage
from dagster_airbyte_proto.tables.iceberg.connect.delegation import check_credentials
from dagster_airbyte_proto.tables.iceberg.connect.remote_table import RemoteTable
from dagster_airbyte_proto.tables.iceberg.connect.statements import (
    create_table,
    evolve,
    order_by,
    procedure_call,
    rename_columns,
)
from dagster_airbyte_proto.tables.iceberg.connect.writes import insert
from dagster_airbyte_proto.tables.iceberg.log import (
    CONNECTION,
    HIGH_WATER_MARK,
    History,
    Snapshot,
    check_placement,
)
from dagster_airbyte_proto.tables.iceberg.preparation import RequestedTable
from dagster_airbyte_proto.tables.outcome_unknown import outcome_unknown
from dagster_airbyte_proto.tables.part_checks import (
    check_follows,
    check_mode,
    check_staged_files,
    check_table_id,
    effective_files,
    high_water_mark_after,
)
from dagster_airbyte_proto.tables.spark.jvm.errors import NO_OUTCOME, REMOTE_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.jvm.job_tags import inherited_tag
from dagster_airbyte_proto.tables.spark.key_lookup import greatest_values, rows_with_keys
from dagster_airbyte_proto.tables.spark.session import LazySession
from dagster_airbyte_proto.tables.spark.session_copies import copy_with
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.spark.staged_part import StagedPart, discard_files, merge_by_sql
from dagster_airbyte_proto.tables.sql_names import qualified, quoted, text_literal

_ATTEMPTS = 8
_CONFLICTS = f"other writers changed the table during each of {_ATTEMPTS} attempts"
# Not with the prefix of branches that hold generations.
_BRANCH = re.compile(r"airbyte_merge_(?P<made_ms>[0-9]+)_[0-9a-f]+")
_OLD_MS = 24 * 3600 * 1000


class RemoteIcebergTables:
    """Writes the tables of one Iceberg catalog of a Connect server. Different tables may be committed in parallel.

    `session` may be a function; the first thread that needs a table calls it. `close` does not stop the session, which
    others of the process may use. `labels` (the connection, the run) go into every snapshot's summary, with the prefix
    `airbyte-proto.`.
    """

    abilities = ABILITIES

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        settings: SparkSettings,
        *,
        labels: dict[str, str] | None = None,
    ) -> None:
        self._session = LazySession(session, has_jvm=False)
        self.catalog = settings.catalog
        self._labels = labels or {}
        self._opening = threading.Lock()
        self._checked: SparkSession | None = None
        self._storage = LOCAL
        self._tables: dict[TableName, RemoteTable] = {}

    @property
    def storage(self) -> Storage:
        self.open_session()
        return self._storage

    def open_session(self) -> SparkSession:
        """Returns the session of the catalog, and connects to the server if need be."""
        session = self._session.open()
        with self._opening:
            if session is not self._checked:
                check_catalog(session, self.catalog)
                self._storage = remote_storage(session, self.catalog)
                self._tables = {}  # Those of a session before: its server was started again.
                self._checked = session
        return session

    def prepare(self, spec: TableSpec) -> TableTarget:
        session = self.open_session()
        with self._table_errors(f"preparing table {self._qualified(spec.name)}"):
            check_credentials(self.catalog, session.conf.getAll)
        # A generation with other columns waits for no moment here: the columns are added at once, as for an append.
        return self._target(RequestedTable.of(spec)._replace(replaces=False))

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing = f"committing load {load_id} to table {self._qualified(part.table)}"
        check_mode(doing, self.abilities, part)
        if part.branch_position is not None:
            raise InternalError(doing, "tables of a Connect server hold no generations on branches")
        with self._table_errors(doing, str(part.stream)), inherited_tag(self.open_session()):
            table = self._table(part.table)
            for _ in range(_ATTEMPTS):
                history = table.refresh()
                if known := self._landed_before(table, history, load_id, part):
                    return known
                check_table_id(doing, table.log.table_uuid, part)
                check_placement(doing, table.log, part)
                check_follows(doing, part, is_shown=history.shows(part.follows))
                if landed := self._land(table, history, load_id, part):
                    if not landed.was_there:  # Else another writer may have landed them by reference.
                        discard_files(part, self.storage)
                    return landed
        raise TableError(doing, _CONFLICTS, stream=str(part.stream))

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        doing = f"looking for load {load_id} in table {self._qualified(part.table)}"
        with self._table_errors(doing, str(part.stream)):
            table = self._table(part.table)
            history = table.refresh()
            check_table_id(doing, table.log.table_uuid, part)
            landed = result_of_landed(history, load_id, part)
            return landed or self._landed_before_expiry(table, history, load_id, part)

    def witness(self, name: TableName, connection: str) -> Witness | None:
        with self._table_errors(f"looking at table {self._qualified(name)}"):
            table = self._table(name)
            try:
                history = table.refresh()
            except REMOTE_ERRORS as error:
                if failure_of(error) is not Failure.MISSING_TABLE:
                    raise
                return None
            return Witness(table.log.table_uuid, history.newest_load(connection), history.is_whole)

    def prepare_for_frame(self, name: TableName, frame: DataFrame, slice_column: str | None) -> TableTarget:
        """Prepares the table for a frame that Spark will write. The slice column is one of the frame's own columns."""
        check_same_server(f"preparing table {self._qualified(name)}", frame, self.open_session())
        columns = columns_of(to_arrow_schema(frame.schema))
        return self._target(RequestedTable(name, columns, slice_column, is_by_reference=False))

    def snapshot_of_load(self, load_id: str, name: TableName) -> Snapshot | None:
        """Returns the snapshot of a load in a prepared table; None if there is none, or if it has expired."""
        with self._table_errors(f"looking for load {load_id} in table {self._qualified(name)}"):
            return self._table(name).refresh().snapshot_of(load_id)

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:  # noqa: ARG002 - there are none
        with self._table_errors(f"looking at table {self._qualified(name)}"):
            return self._table(name).refresh().freshness

    def greatest_values(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:  # noqa: ARG002
        with self._table_errors(f"looking for the newest rows of table {self._qualified(name)}"):
            return greatest_values(self._frame(name), columns)

    def rows_with_keys(self, name: TableName, query: KeyQuery, branch: str | None = None) -> pa.Table:  # noqa: ARG002
        with self._table_errors(f"looking for older rows of table {self._qualified(name)}"):
            return rows_with_keys(self._frame(name), query)

    def close(self) -> None:
        """Does nothing: the session belongs to the process."""

    def _frame(self, name: TableName) -> DataFrame:
        table = self._table(name)
        table.refresh()
        return self.open_session().table(table.qualified)

    def _landed_before(
        self, table: RemoteTable, history: History, load_id: str, part: StagedRows
    ) -> CommittedRows | None:
        """Returns the result for a load that is in the table already, or that has nothing to land; else None."""
        if known := result_before_commit(history, load_id, part):
            return known
        return self._landed_before_expiry(table, history, load_id, part, is_new=True)

    def _landed_before_expiry(
        self, table: RemoteTable, history: History, load_id: str, part: StagedRows, *, is_new: bool = False
    ) -> CommittedRows | None:
        """Returns the result for a load whose snapshot has expired; None if it has not landed. Raises CommitUnknown:
        the table has no file of it that would tell."""
        found = search_expired(table.log, history, load_id, part, table.earlier_log)
        if found.is_certain or (is_new and is_younger(history, part, self.storage)):
            return found.committed
        raise CommitUnknown(
            f"looking for a load in table {self._qualified(part.table)}",
            "its snapshots from the time of the load have expired, and a Connect server keeps no staged file",
            stream=str(part.stream),
        )

    def _land(self, table: RemoteTable, history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Commits a part once. Returns None if it was refused because the table changed since it was read."""
        base = history.current
        files = effective_files(part, holds_rows=history.may_have_rows)
        key_ids(table.log.columns, part.keys)
        check_staged_files(files, self.storage, table.log.columns)
        staged = StagedPart(part, files, table.log.columns, table.log.slice_column)
        labels = self._snapshot_labels(load_id, part)
        if mark := high_water_mark_after(part, history.freshness):
            labels[HIGH_WATER_MARK] = msgspec.json.encode(mark).decode()
        doing, stream = f"committing load {load_id} to table {table.qualified}", str(part.stream)
        points.reach("table.committing")
        refusal: BaseException | None = None
        with outcome_unknown(doing, stream):
            try:
                if base is not None and staged.paths(FileContent.EQUALITY_DELETES):
                    self._merge(table, base, staged, labels)
                else:
                    session = self.open_session()
                    insert(session, table.qualified, staged, base.snapshot_id if base else None, labels)
            except REMOTE_ERRORS as error:
                if failure_of(error) in NO_OUTCOME:
                    raise CommitUnknown(doing, first_line(error), stream=stream) from error
                refusal = error
            else:
                points.reach("table.committed")
            now = table.refresh()
            snapshot = now.snapshot_of(load_id)
            if snapshot is None and refusal is None:
                raise CommitUnknown(doing, "the table's log does not show it", stream=stream)
        if snapshot is None:
            if refusal is not None and failure_of(refusal) is not Failure.CONFLICT and now.current == base:
                raise refusal
            return None
        if refusal is not None:  # The error came after the effect, or another writer has landed the load.
            return result_of_landed(now, load_id, part)
        return result_of_commit(part, snapshot, base, table.log.format_version)

    def _merge(self, table: RemoteTable, base: Snapshot, staged: StagedPart, labels: Mapping[str, str]) -> None:
        """Merges on a branch that starts at `base`, and moves the table to it unless the table has moved."""
        session, branch = self.open_session(), f"airbyte_merge_{time.time_ns() // 1_000_000}_{uuid4().hex[:12]}"
        session.sql(f"alter table {table.qualified} create branch {branch} as of version {base.snapshot_id}")
        try:
            properties = {f"spark.sql.iceberg.snapshot-property.{key}": value for key, value in labels.items()}
            with copy_with(session, properties) as own:
                # It keeps copies of tables of its own, which do not know the new branch.
                own.sql(f"refresh table {table.qualified}")
                merge_by_sql(own, f"{table.qualified}.branch_{branch}", staged)
            # Iceberg moves it only forward: `main` must still be an ancestor of the branch, which only `base` is.
            moved = {"branch": "'main'", "to": text_literal(branch)}
            session.sql(procedure_call(self.catalog, "fast_forward", table.qualified, **moved))
        finally:
            self._drop(table, branch)

    def _drop(self, table: RemoteTable, branch: str) -> None:
        with suppress(*REMOTE_ERRORS):  # One that stays is dropped a day later, when the table is prepared.
            self.open_session().sql(f"alter table {table.qualified} drop branch {branch}")

    def _snapshot_labels(self, load_id: str, part: StagedRows) -> dict[str, str]:
        labels = {f"airbyte-proto.{key}": value for key, value in self._labels.items()}
        connection = {CONNECTION: part.connection} if part.connection else {}
        return {**labels, **connection, LOAD_ID: load_id, "airbyte-proto.stream": str(part.stream)}

    def _target(self, requested: RequestedTable) -> TableTarget:
        doing = f"preparing table {self._qualified(requested.name)}"
        # Iceberg's cache of metadata tables takes a dot in a name for the end of it. A refresh leaves such a log stale.
        if any("." in part for part in requested.name):
            found = "tables of a Connect server have no dot in their name or namespace"
            remedy = "Set names: snake under destination, or rename the stream."
            raise TableError(doing, found, remedy=remedy)
        with self._table_errors(doing):
            table, decision = self._prepared(requested, doing)
        return TableTarget(
            name=requested.name,
            schema=arrow_schema(without_column(table.log.columns, requested.slice_column)),
            location=without_file_scheme(table.log.location),
            qualified=table.qualified,
            fit=table_fit(decision, requested.columns, requested.evolution_rules),
            storage=self.storage,
            table_id=table.log.table_uuid,
            log_position=table.log.position,
        )

    def _prepared(self, requested: RequestedTable, doing: str) -> tuple[RemoteTable, EvolutionDecision]:
        """Returns the table with all its columns: unchanged, widened, or new. Every statement is a change of its own,
        so another writer may come in between: then it decides again."""
        session = self.open_session()
        for _ in range(_ATTEMPTS):
            table = self._table(requested.name)
            try:
                table.refresh()
            except REMOTE_ERRORS as error:
                if failure_of(error) is not Failure.MISSING_TABLE:
                    raise
                self._create(session, table, requested)
                table.refresh()
                return table, EvolutionDecision(table.log.columns, table.log.last_column_id)
            requested.check(doing, table.log)
            self._drop_old_branches(table)
            decision = requested.decision(table.log)
            decision.check_accepted(doing, requested.evolution_rules)
            try:
                for statement in rename_columns(table.qualified, decision.renames):
                    session.sql(statement)
                if decision.renames:
                    table.refresh()
                for statement in evolve(table.qualified, table.log, decision.columns):
                    session.sql(statement)
                if requested.ordering is not None and requested.ordering.sorted and not table.is_sorted:
                    session.sql(order_by(table.qualified, requested.ordering.sorted))
            except REMOTE_ERRORS as error:
                before = table.log
                table.refresh()
                if table.log == before and failure_of(error) is not Failure.CONFLICT:
                    raise
                continue
            table.refresh()
            return table, decision
        raise TableError(doing, "other writers keep changing it")

    def _create(self, session: SparkSession, table: RemoteTable, requested: RequestedTable) -> None:
        statement = create_table(table.qualified, requested)
        namespace = f"{quoted(self.catalog)}.{quoted(requested.name.namespace)}"
        # Tables are prepared side by side, and only some catalogs say that a namespace exists: others name a broken
        # constraint of their database. If it is not there after all, the next statement says so.
        with suppress(*REMOTE_ERRORS):
            session.sql(f"create namespace if not exists {namespace}")
        try:
            session.sql(statement)
        except REMOTE_ERRORS as error:
            if failure_of(error) is not Failure.EXISTS:
                raise
        if requested.ordering is not None and requested.ordering.sorted:
            session.sql(order_by(table.qualified, requested.ordering.sorted))

    def _drop_old_branches(self, table: RemoteTable) -> None:
        """Drops branches of writers that died: they keep snapshots from being expired."""
        until = time.time_ns() // 1_000_000 - _OLD_MS
        for branch in table.log.branches:
            found = _BRANCH.fullmatch(branch)
            if found and int(found["made_ms"]) < until:
                self._drop(table, branch)

    def _table(self, name: TableName) -> RemoteTable:
        session, known = self.open_session(), self._tables
        if name not in known:
            known[name] = RemoteTable(session, self.storage, self._qualified(name))
        return known[name]

    def _qualified(self, name: TableName) -> str:
        return qualified(self.catalog, name)

    @contextmanager
    def _table_errors(self, doing: str, stream: str | None = None) -> Iterator[None]:
        """Raises the server's errors as TableError or CommitUnknown, with a remedy for each kind of failure."""
        try:
            yield
        except REMOTE_ERRORS as error:
            failure, found = failure_of(error), first_line(error)
            if isinstance(error, FileNotFoundError) or failure is Failure.MISSING_FILE:
                remedy = "Was something deleted from the warehouse by hand?"
            elif failure in NO_OUTCOME:
                up = f"Is the Connect server up, and the server or database of catalog {self.catalog}?"
                remedy = f"{up} Then run again: the next run goes on from what is in the table."
            elif failure is Failure.MISSING_TABLE:
                remedy = "Was it dropped, or is its disk not mounted? Run again once it is there."
            else:
                remedy = "Is the warehouse reachable and writable for this machine and for the Connect server?"
            raise TableError(doing, found, remedy=remedy, stream=stream) from error
