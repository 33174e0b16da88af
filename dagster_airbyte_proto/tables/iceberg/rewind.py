"""Taking an Iceberg table back to a snapshot, so that nobody who slept meanwhile brings back what was undone.

Iceberg's own rollback is not enough. A writer that looked at the table before a load came in, slept while another run
landed that load, and wakes after it was undone, finds the very snapshot that it saw: its commit would be accepted, and
one that looks again would not find the load in the log. So on top of the snapshot come others that leave its rows as
they are: the first brings a file (in each slice, where the table is sliced) and the second takes it out, which refuses
every change that is validated from before them. And the id of each load that is undone stands in one of them, so that
whoever looks finds it landed.

All that is made ready on a branch. Then `main` is moved to it, in one change that is refused if the table is not what
the caller saw any more: whoever slept here must not undo what came in meanwhile.

A table that is taken back to nothing has its rows deleted instead: there what was undone stays in the log by itself.

Where the table has lost columns of the snapshot since, or has others under their names (`schema/replacing.py`), the
snapshot's schema is the current one again, from that same change on. Where it has only gained some it keeps them.
"""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.columns import nulls
from dagster_airbyte_proto.schema.replacing import ids_of
from dagster_airbyte_proto.tables.care import Rewinder, Rewinding, TablePast
from dagster_airbyte_proto.tables.delta.rewind import DeltaRewinder
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.log import LOAD_ID, Snapshot, TableLog, lineage
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.sql_names import qualified, quoted
from dagster_airbyte_proto.tables.writer import TableWriter

REWOUND_TO = "airbyte-proto.rewound-to"
VERSION = "airbyte-proto.rewound-at-version"
_NOTHING = "nothing"
_BRANCH = "airbyte-proto-rewinding"
_ATTEMPTS = 8


class _Moved(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int


class _Log(TableLog, frozen=True, rename="kebab"):
    """With the snapshots that `main` was moved to, one after the other."""

    snapshot_log: tuple[_Moved, ...] = ()


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_LOG = msgspec.json.Decoder(_Log)


class IcebergRewinder:
    """The tables of one Iceberg catalog of a session."""

    def __init__(self, session: SparkSession, catalog: str) -> None:
        self._session = session
        self._catalog = catalog
        self._jvm: Any = session._jvm

    def past(self, name: TableName) -> TablePast:
        _, log = self._read(name, f"reading the log of table {name}")
        # Of a rewinding that was refused, or that died, the snapshots stay until they expire.
        shown = {each.snapshot_id for each in log.snapshot_log}
        taken_back = [each for each in log.snapshots if VERSION in each.summary and each.snapshot_id in shown]
        rewindings = {int(each.summary[VERSION]): str(each.snapshot_id) for each in taken_back}
        ids = tuple(str(each.snapshot_id) for each in log.snapshots)
        current = str(log.current_snapshot_id) if _current(log) else None
        return TablePast(current, ids, tuple(Rewinding(version, at) for version, at in sorted(rewindings.items())))

    def rewind(self, name: TableName, snapshot_id: str | None, *, seen: TablePast, version: int) -> bool:
        doing = f"taking table {name} back to {f'snapshot {snapshot_id}' if snapshot_id else 'nothing'}"
        table, log = self._read(name, doing)
        if _stands_at(log, snapshot_id):
            return False
        labels = {REWOUND_TO: snapshot_id or _NOTHING, VERSION: str(version)}
        try:
            schema_id = None
            if snapshot_id is None:
                self._empty(table, labels)
            else:
                schema_id = self._take_back(name, (table, log), int(snapshot_id), labels)
            has_moved = self._move_main(table, seen.current, schema_id)
            self._session.catalog.refreshTable(self._qualified(name))
        except CALL_ERRORS as error:
            if failure_of(error) is not Failure.CONFLICT:
                raise TableError(doing, first_line(error)) from error
            has_moved = False
        if not has_moved:
            raise TableError(doing, "the table has changed since it was looked at", remedy="Ask for it again.")
        return True

    def _read(self, name: TableName, doing: str) -> tuple[Any, _Log]:
        jvm = self._jvm
        try:
            # A catalog is made from the config of the thread's session, and a new thread of the gateway has none.
            jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._session._jsparkSession)
            table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                self._session._jsparkSession, self._qualified(name)
            )
            # The catalog's own copy may be half a minute old.
            metadata = table.operations().refresh()
            return table, _LOG.decode(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata))
        except CALL_ERRORS as error:
            raise TableError(doing, first_line(error)) from error

    def _empty(self, table: Any, labels: dict[str, str]) -> None:
        everything = self._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        transaction = _branched(table, table.newTransaction(), table.currentSnapshot().snapshotId())
        _commit(transaction.newDelete().deleteFromRowFilter(everything), labels)
        transaction.commitTransaction()

    def _take_back(
        self, name: TableName, read: tuple[Any, TableLog], snapshot_id: int, labels: dict[str, str]
    ) -> int | None:
        """The schema that is to be the current one again."""
        table, log = read
        schema_id = _schema_to_put_back(f"taking table {name} back to snapshot {snapshot_id}", log, snapshot_id)
        base = table.operations().refresh()
        transaction = _branched(table, self._transaction(table, base, schema_id), snapshot_id)
        files = self._barrier_files(name, table, log)
        barrier = transaction.newFastAppend()
        for file in files:
            barrier.appendFile(file)
        _commit(barrier, labels)
        removal = transaction.newDelete()
        for file in files:
            removal.deleteFile(file)
        _commit(removal, labels)
        for load_id in _undone(log, snapshot_id):
            _commit(transaction.newFastAppend(), {**labels, LOAD_ID: load_id})
        if schema_id is None:
            transaction.commitTransaction()
        else:
            # Readers have their schema until `main` is moved.
            made = self._changed(transaction.currentMetadata()).setCurrentSchema(base.currentSchemaId()).build()
            table.operations().commit(base, made)
        return schema_id

    def _transaction(self, table: Any, base: Any, schema_id: int | None) -> Any:
        """In which snapshots are of a schema, or of that which readers have."""
        if schema_id is None:
            return table.newTransaction()
        start = self._changed(base).setCurrentSchema(schema_id).build()
        make = self._jvm.org.apache.iceberg.Transactions
        return make.replaceTableTransaction(table.name(), table.operations(), start)

    def _changed(self, metadata: Any) -> Any:
        return self._jvm.org.apache.iceberg.TableMetadata.buildFrom(metadata)

    def _move_main(self, table: Any, seen: str | None, schema_id: int | None) -> bool:
        """Whether `main` is where the branch was, for it was still what had been seen."""
        operations = table.operations()
        for _ in range(_ATTEMPTS):
            metadata = operations.refresh()
            if (str(metadata.currentSnapshot().snapshotId()) if metadata.currentSnapshot() else None) != seen:
                break
            head = metadata.ref(_BRANCH).snapshotId()
            moved = self._changed(metadata).setBranchSnapshot(head, "main")
            if schema_id is not None:
                moved.setCurrentSchema(schema_id)
            try:
                operations.commit(metadata, moved.removeRef(_BRANCH).build())
            except CALL_ERRORS as error:
                if failure_of(error) is not Failure.CONFLICT:
                    raise
            else:
                return True
        table.manageSnapshots().removeBranch(_BRANCH).commit()
        return False

    def _barrier_files(self, name: TableName, table: Any, log: TableLog) -> list[Any]:
        """One for each slice that ever had a row. Of one row: where no row is, no change can conflict."""
        fields = [pa.field(field.name, field.type) for field in arrow_schema(log.columns)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table([nulls(1, field.type) for field in fields], pa.schema(fields)), sink)
        content = sink.getvalue().to_pybytes()
        if log.slice_column is None:
            return [self._barrier_file(table, content)]
        slices = f"select distinct partition.{quoted(log.slice_column)} from {self._qualified(name)}.all_data_files"  # noqa: S608 - quoted
        return [self._barrier_file(table, content, value) for [value] in query(self._session, slices).rows]

    def _barrier_file(self, table: Any, content: bytes, slice_value: str | None = None) -> Any:
        path = table.locationProvider().newDataLocation(f"rewinding-{uuid4().hex}.parquet")
        stream = table.io().newOutputFile(path).create()
        try:
            stream.write(content)
        finally:
            stream.close()
        iceberg = self._jvm.org.apache.iceberg
        described = iceberg.DataFiles.builder(table.spec()).withPath(path).withFormat("PARQUET")
        if table.spec().isPartitioned():
            values = iceberg.PartitionData(table.spec().partitionType())
            values.set(0, slice_value)
            described.withPartition(values)
        return described.withRecordCount(1).withFileSizeInBytes(len(content)).build()

    def _qualified(self, name: TableName) -> str:
        return qualified(self._catalog, name)


def rewinder_of(tables: TableWriter) -> Rewinder:
    """Raises ConfigError for tables that keep no snapshots."""
    if isinstance(tables, IcebergTables):
        return IcebergRewinder(tables.open_session(), tables.catalog)
    if isinstance(tables, DeltaTables):
        return DeltaRewinder(tables)
    raise ConfigError(
        "taking tables back",
        "only Iceberg tables and Delta tables keep the snapshots that this takes",
        remedy="Roll back the state alone: the rows after it come again.",
    )


def _stands_at(log: TableLog, snapshot_id: str | None) -> bool:
    """Whether it shows the rows of that snapshot already: compactions on top of it change none."""
    for snapshot in lineage(log, log.current_snapshot_id):
        if str(snapshot.snapshot_id) == snapshot_id or snapshot.summary.get(REWOUND_TO) == (snapshot_id or _NOTHING):
            return True
        if snapshot.summary.get("operation") != "replace":
            return False
    return snapshot_id is None and _current(log) is None


def _schema_to_put_back(doing: str, log: TableLog, snapshot_id: int) -> int | None:
    """The snapshot's own, where the current one has not all columns of it. Raises TableError where it lacks one that
    the table is parted or sorted by."""
    schema_id = next((each.schema_id for each in log.snapshots if each.snapshot_id == snapshot_id), None)
    if schema_id is None or (columns := log.known_columns.get(schema_id)) is None:
        return None
    ids = ids_of(columns)
    if ids <= ids_of(log.columns):
        return None
    if lacking := [name for name, own in log.placing_ids.items() if not own <= ids]:
        found = f"its columns of then lack {', '.join(lacking)}, by which it has been parted or sorted since"
        raise TableError(doing, found, remedy="Read the snapshot as it is, by VERSION AS OF, or refresh the table.")
    return schema_id


def _undone(log: TableLog, snapshot_id: int) -> Sequence[str]:
    """The loads that the log knows and that are not among the snapshot and its ancestors."""
    kept = {each.summary.get(LOAD_ID) for each in lineage(log, snapshot_id)}
    known = dict.fromkeys(load_id for each in log.snapshots if (load_id := each.summary.get(LOAD_ID)))
    return [load_id for load_id in known if load_id not in kept]


def _current(log: TableLog) -> Snapshot | None:
    return next(lineage(log, log.current_snapshot_id), None)


def _branched(table: Any, transaction: Any, snapshot_id: int) -> Any:
    """The transaction, with a branch that begins at the snapshot. One that a dead process left is removed."""
    snapshots = transaction.manageSnapshots()
    if table.refs().containsKey(_BRANCH):
        snapshots.removeBranch(_BRANCH)
    snapshots.createBranch(_BRANCH, snapshot_id).commit()
    return transaction


def _commit(change: Any, summary: dict[str, str]) -> None:
    for key, value in summary.items():
        change.set(key, value)
    change.toBranch(_BRANCH).commit()
