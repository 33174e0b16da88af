"""Delta tables, by reference: staged Parquet files become part of a table without being read or written again, with
deletion vectors for rows that a load brings twice. Upserts into rows that are there go in by a job of Spark
(`delta_jobs.py`).

The load id is the id of a Delta transaction (`txn`): the table itself knows which loads it holds, and refuses a commit
whose load came in since its writer looked. So a load lands once, whoever else tries. Refused, we look again.

Tables lie in the warehouse by their names, and Spark's own catalog, which may forget them with the session, is told.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of, key_ids, with_text, without
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedFile, StagedRows, TableTotals
from dagster_airbyte_proto.loads.storage import LOCAL, is_local, without_file_scheme
from dagster_airbyte_proto.loads.table import REPLACING, Sought, Standing, TableFit, TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.evolution import Columns
from dagster_airbyte_proto.tables.delta.files import added, counted, is_by_reference, placed
from dagster_airbyte_proto.tables.delta.history import LOAD_ID, NEWEST, ROWS, commit_at
from dagster_airbyte_proto.tables.delta.jobs import Job, run
from dagster_airbyte_proto.tables.delta.jvm import JavaDelta, Look, Removal
from dagster_airbyte_proto.tables.delta.log import Metadata, transaction
from dagster_airbyte_proto.tables.delta.preparation import Fitting, Wider, fitting_of, refuse_branch, turned
from dagster_airbyte_proto.tables.folder.tables import folder_name
from dagster_airbyte_proto.tables.formats import DELTA
from dagster_airbyte_proto.tables.part_checks import (
    landing,
    newest_after,
    refuse_mode,
    refuse_part,
    refuse_partitioning,
    refuse_slices,
)
from dagster_airbyte_proto.tables.spark.columns import spark_type
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.key_lookup import greatest, rows_of
from dagster_airbyte_proto.tables.spark.session import LateSession, SparkSettings
from dagster_airbyte_proto.tables.sql_names import qualified, quoted, text_literal

_ATTEMPTS = 8
_ATTEMPT = "airbyte-proto.attempt"
_CATALOG_TAKES = re.compile(r"\w+", re.ASCII)


class DeltaTables:
    """The Delta tables of one warehouse. Tables may be committed side by side, one thread each.

    `session` may be a function: it is called when the first table is wanted, by the thread that wants it. A process has
    one context of Spark, so `close` stops no session.
    Raises ConfigError for a warehouse that is not on a disk of this machine.
    `labels` go into the user metadata of every commit, behind `airbyte-proto.` (the connection, the run).
    """

    abilities = DELTA
    storage = LOCAL

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        settings: SparkSettings,
        *,
        labels: dict[str, str] | None = None,
    ) -> None:
        _refuse_unfenced(settings.warehouse_location)
        self._late_session = LateSession(session)
        self.catalog = settings.catalog
        self._warehouse = settings.warehouse_location
        self._labels = labels or {}
        self._opening = threading.Lock()
        self._opened: JavaDelta | None = None

    def prepare(self, spec: TableSpec) -> TableTarget:
        doing, location = f"preparing table {self._sql_name(spec.name)}", self.location(spec.name)
        columns = with_text(columns_of(spec.schema), spec.slice_column)
        with self.refusals(doing):
            fitting = self._fitted(doing, spec, columns)
            self._register(spec.name)
        schema = arrow_schema(without(fitting.columns, spec.slice_column))
        return TableTarget(
            spec.name, schema, location, self._sql_name(spec.name), fitting.fit, schema_id=fitting.schema_id
        )

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing, stream = f"committing load {load_id} to table {self._sql_name(part.table)}", str(part.stream)
        refuse_mode(doing, self.abilities, part)
        with self.refusals(doing, stream):
            for _ in range(_ATTEMPTS):
                look = self.java().look(self.location(part.table), load_id)
                if known := self._known(doing, look, load_id, part):
                    return known
                look = turned(doing, look, part)
                _refuse_misplaced(doing, look.metadata, part)
                try:
                    return self._land(look, load_id, part)
                except CALL_ERRORS as error:
                    if failure_of(error) is not Failure.CONFLICT:
                        raise
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile", stream=stream)

    def register_all(self) -> None:
        """Makes every table of the warehouse known by its name to the session."""
        for name in self.names():
            with self.refusals(f"making table {name} known to the session"):
                self._register(name)

    def names(self) -> list[TableName]:
        """Every table of the warehouse, by the names of their folders."""
        with self.refusals("looking at the tables of the warehouse"):
            folders = [without_file_scheme(each).split("/")[-2:] for each in self.java().tables(self._warehouse)]
        return sorted(TableName(*map(unquote, each)) for each in folders)

    def standing(self, name: TableName, branch: str | None = None) -> Standing:
        doing = f"looking at table {self._sql_name(name)}"
        refuse_branch(doing, branch)
        with self.refusals(doing):
            look = self.java().look(self.location(name))
            totals = self.java().totals(look)
            has_rows = totals.data_files > 0 if totals else self.rows(name, look) > 0
            return self._standing(name, look)._replace(has_rows=has_rows)

    def greatest(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        doing = f"looking for the newest rows of table {self._sql_name(name)}"
        refuse_branch(doing, branch)
        with self.refusals(doing):
            return greatest(self._as_it_is(name), columns)

    def rows_of(self, name: TableName, sought: Sought, branch: str | None = None) -> pa.Table:
        doing = f"looking for older rows of table {self._sql_name(name)}"
        refuse_branch(doing, branch)
        with self.refusals(doing):
            return rows_of(self._as_it_is(name), sought)

    def close(self) -> None:
        """Nothing is held."""

    def open_session(self) -> SparkSession:
        """The session that they are tables of."""
        return self._late_session.open()

    def _as_it_is(self, name: TableName) -> DataFrame:
        return self.open_session().read.format("delta").load(self.location(name))

    def _standing(self, name: TableName, look: Look) -> Standing:
        """What the last change of its rows said, from the log: as a rule its last commit. `has_rows` is left out."""
        storage, folder = self.storage.at(f"{self.location(name)}/_delta_log")
        for version in range(look.version, -1, -1):
            if (commit := commit_at(storage, folder, version)) is None:
                break
            if commit.changes_rows:
                return Standing(False, str(version), commit.newest)
        return Standing(False)

    def _known(self, doing: str, look: Look, load_id: str, part: StagedRows) -> CommittedRows | None:
        """What there is to say of a load that is in already, or that has nothing to land."""
        if look.version < 0:
            raise TableError(doing, "there is no such table", stream=str(part.stream))
        if look.landed_at is not None:
            landed_at = self.java().landed_at(look, load_id)
            return CommittedRows(part.stream, str(landed_at), was_there=True, table_rows=self.rows(part.table, look))
        if not part.files and part.write not in REPLACING:
            rows = self.rows(part.table, look)
            return CommittedRows(part.stream, str(look.version), was_there=False, table_rows=rows)
        return None

    def _land(self, look: Look, load_id: str, part: StagedRows) -> CommittedRows:
        """Commits, once."""
        before = self.rows(part.table, look)
        files = landing(part, holds_rows=before > 0)
        key_ids(look.metadata.columns, part.keys)
        removal = self.java().removal(look, _slice_of(look, part)) if part.write in REPLACING else Removal()
        told = {LOAD_ID: load_id, "airbyte-proto.stream": str(part.stream)}
        told |= {f"airbyte-proto.{key}": value for key, value in self._labels.items()}
        if part.newest is not None and (newest := newest_after(part, self._standing(part.table, look))):
            told[NEWEST] = msgspec.json.encode(newest).decode()
        places = placed(look.metadata, part, files)
        if not is_by_reference(look.metadata, files):
            return self._land_by_job(look, load_id, (part, files), told, removal)
        rows = before - removal.rows + sum(counted(file) for file in files)
        told[ROWS] = str(rows)
        location = self.location(part.table)
        actions = [transaction(load_id, look.version + 1), *added(places, files, location)]
        points.reach("table.committing")
        totals = self._totals_with(look, part)
        version = self.java().write(look, actions, removal, replaces=part.write in REPLACING, told=told)
        points.reach("table.committed")
        if version != look.version + 1:  # somebody else's rows came in between
            return CommittedRows(part.stream, str(version), False, deleted=removal.rows)
        return CommittedRows(part.stream, str(version), False, removal.rows, rows, totals)

    def _land_by_job(
        self,
        look: Look,
        load_id: str,
        what: tuple[StagedRows, Sequence[StagedFile]],
        told: dict[str, str],
        removal: Removal,
    ) -> CommittedRows:
        part, files = what
        location, metadata, attempt = self.location(part.table), look.metadata, uuid4().hex
        job = Job(part, files, location, metadata.columns, metadata.slice_column)
        points.reach("table.committing")
        run(self.open_session(), job, load_id, look.version + 1, {**told, _ATTEMPT: attempt})
        points.reach("table.committed")
        # A job for a load that came in meanwhile does nothing, and does not say so.
        now = self.java().look(location, load_id)
        if now.landed_at is None:
            raise CommitUnknown(
                f"committing load {load_id}", "the table's log does not show it", stream=str(part.stream)
            )
        version = self.java().landed_at(now, load_id)
        was_there = self.java().told(now, version).get(_ATTEMPT) != attempt
        deleted = 0 if was_there else removal.rows
        totals = self.java().totals(now)
        return CommittedRows(part.stream, str(version), was_there, deleted, self.rows(part.table, now), totals)

    def _totals_with(self, look: Look, part: StagedRows) -> TableTotals | None:
        """Those of the table once a part is in by reference. What replaces rows lets no files pile up."""
        before = None if part.write in REPLACING else self.java().totals(look)
        if before is None:
            return None
        rows = [file for file in part.files if file.content is FileContent.ROWS]
        return TableTotals(before.data_files + len(rows), 0, before.size_bytes + sum(file.size_bytes for file in rows))

    def rows(self, name: TableName, look: Look) -> int:
        """As our last commit told, or as its files say; else counted, by a job of Spark."""
        if (told := self.java().told(look, look.version).get(ROWS)) is not None:
            return int(told)
        if (known := self.java().rows(look)) is not None:
            return known
        reader = self.open_session().read.format("delta").option("versionAsOf", look.version)
        return int(reader.load(self.location(name)).count())

    def _fitted(self, doing: str, spec: TableSpec, columns: Columns) -> Fitting:
        """The table with all its columns: as it is, changed, or new. A type is widened before anything else."""
        changed: TableFit | None = None
        for _ in range(_ATTEMPTS):
            look = self.java().look(self.location(spec.name))
            if look.version >= 0:
                refuse_slices(doing, look.metadata.slice_column, spec.slice_column)
                refuse_partitioning(doing, look.metadata.partitioning, _partitioned_by(look.metadata, spec))
                if not look.metadata.takes_files:
                    raise TableError(doing, _MADE_BY_OTHERS)
            fitting = fitting_of(doing, look, spec, columns)
            # What was changed at the first attempt, the second finds so.
            changed = changed if changed is not None and changed.changes else fitting.fit
            if fitting.is_there:
                return fitting._replace(fit=changed)
            try:
                self._fit(look, spec, fitting)
            except CALL_ERRORS as error:
                # Another writer made the table, or changed its columns, at the same moment.
                if failure_of(error) is not Failure.CONFLICT:
                    raise
        raise TableError(doing, "other writers keep changing it")

    def _fit(self, look: Look, spec: TableSpec, fitting: Fitting) -> None:
        """One step to what the table has to be."""
        if fitting.wider:
            self._widen(f"delta.{quoted(self.location(spec.name))}", fitting.wider)
        elif fitting.action is not None and look.version < 0:
            self.java().create(look, fitting.action)
        elif fitting.action is not None:
            self.java().change(look, fitting.action)

    def _widen(self, table: str, wider: Wider) -> None:
        session = self.open_session()
        session.sql(f"alter table {table} set tblproperties ('delta.enableTypeWidening' = 'true')")
        for path, kind in wider:
            column = ".".join(map(quoted, path))
            session.sql(f"alter table {table} alter column {column} type {spark_type(kind, lambda _: {})}")

    def _register(self, name: TableName) -> None:
        if all(_CATALOG_TAKES.fullmatch(part) for part in name):
            location = self.location(name)
            session, namespace = self.open_session(), f"{self.catalog}.{quoted(name.namespace)}"
            place, above = text_literal(location), text_literal(location.rpartition("/")[0])
            session.sql(f"create namespace if not exists {namespace} location {above}")
            session.sql(f"create table if not exists {self._sql_name(name)} using delta location {place}")

    def _sql_name(self, name: TableName) -> str:
        """Spark's own catalog takes plain names alone; other tables go by their paths."""
        if all(_CATALOG_TAKES.fullmatch(part) for part in name):
            return qualified(self.catalog, name)
        return f"delta.{quoted(self.location(name))}"

    def location(self, name: TableName) -> str:
        """The folder of a table."""
        return "/".join([self._warehouse.rstrip("/"), *map(folder_name, name)])

    def java(self) -> JavaDelta:
        """Delta's classes in the session."""
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
    def refusals(self, doing: str, stream: str | None = None) -> Iterator[None]:
        """Java's exceptions as ours, in one line."""
        try:
            yield
        except CALL_ERRORS as error:
            failure, found = failure_of(error), first_line(error)
            if failure is Failure.UNKNOWN:
                raise CommitUnknown(doing, found, stream=stream) from error
            if failure is Failure.MISSING_FILE:
                remedy = "Was something deleted from the warehouse by hand?"
            else:
                remedy = f"Is the warehouse there, writable and not full? It is {self._warehouse}"
            raise TableError(doing, found, remedy=remedy, stream=stream) from error


_MADE_BY_OTHERS = (
    "readers find its columns by other names than files have (delta.columnMapping.mode is not id): others made it"
)


def _refuse_unfenced(warehouse: str) -> None:
    """In S3 Delta looks whether a version is there and then writes it, behind a lock of its own process. Other stores
    were not tried."""
    if not is_local(warehouse):
        raise ConfigError(
            "opening Delta tables",
            f"{warehouse} is no local folder: in an object store two processes that commit the same version of a Delta "
            "table would both believe that it is theirs, and the rows of one would be lost",
            remedy="Set catalog: {format: iceberg} in the settings with a catalog of type jdbc or rest, whose tables "
            "may lie in object stores, or keep the warehouse on a local disk.",
        )


def _partitioned_by(metadata: Metadata, spec: TableSpec) -> list[str]:
    """The columns that a stream's table is to be partitioned by, as the table calls them yet."""
    wanted = [field.column for field in spec.partitioning]
    formerly = spec.terms.formerly
    return [each if each in metadata.partitioning else formerly.get(each, each) for each in wanted]


def _refuse_misplaced(doing: str, metadata: Metadata, part: StagedRows) -> None:
    """Raises TableError where the part's files cannot lie in the table as it is partitioned now."""
    if part.partitioned_by or (part.files and metadata.partitioning):
        refuse_partitioning(doing, metadata.partitioning, part.partitioned_by, stream=str(part.stream))
    elif not metadata.partitioning:
        refuse_part(doing, metadata.slice_column, part)


def _slice_of(look: Look, part: StagedRows) -> str | None:
    """The rows that a part replaces, as SQL has it."""
    if part.slice is None:
        return None
    return f"{quoted(str(look.metadata.slice_column))} = {text_literal(part.slice)}"
