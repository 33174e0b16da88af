"""Rewinds an Iceberg table to a snapshot, so that a writer that was paused cannot land the undone loads again.

Iceberg's own rollback is not enough. Take a writer that reads the table, is paused while another run lands its load,
and wakes up after that load was undone. It finds the very snapshot that it read, so its commit would be accepted. A
writer that reads the table again would not find the load in the log. Therefore a rewind does more:

1. It creates a branch at the snapshot, and adds further snapshots that leave the rows as they are. The first adds a
   barrier file (one in each slice, if the table has slices), the second removes it. They make every commit fail that is
   validated from an older snapshot.
2. For each undone load it adds a snapshot with the load's id, so that a writer that looks for it finds it landed.
3. It moves `main` to the branch in one change, which fails if the table is no longer as the caller saw it. So a rewind
   that was paused cannot undo a later load.

To rewind to nothing, it deletes all rows instead: then the undone loads stay in the log by themselves.

If the table has since lost columns of the snapshot, or has other columns under their names (`schema/replacement.py`),
the change that moves `main` also makes the snapshot's schema the current one. If it has only gained columns it keeps
them.
"""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.columns import null_array
from dagster_airbyte_proto.schema.replacement import field_ids
from dagster_airbyte_proto.tables.care import PastRewind, ShownSnapshot, TablePast
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.iceberg.handle import OpenedTable, alone, open_table, table_errors
from dagster_airbyte_proto.tables.iceberg.log import (
    CONNECTION,
    NOTHING,
    REWOUND_AT,
    REWOUND_TO,
    FullTableLog,
    Snapshot,
    TableLog,
    lineage,
)
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.sql_names import qualified, quoted

_BRANCH = "airbyte-proto-rewinding"
_ATTEMPTS = 8


class IcebergRewinder:
    """Rewinds the tables of one Iceberg catalog of a session."""

    def __init__(self, session: SparkSession, catalog: str) -> None:
        self._session = session
        self._catalog = catalog
        self._jvm: Any = session._jvm

    def past(self, name: TableName) -> TablePast:
        _, log = self._read(name, f"reading the log of table {name}")
        # The snapshots of a rewind that was refused, or whose process died, stay in the log until they expire.
        shown = {each.snapshot_id for each in log.snapshot_log}
        rewound = [each for each in log.snapshots if REWOUND_AT in each.summary and each.snapshot_id in shown]
        rewinds = sorted(map(_past_rewind, rewound), key=lambda each: each.version)
        ids = tuple(str(each.snapshot_id) for each in log.snapshots)
        current = str(log.current_snapshot_id) if _current(log) else None
        return TablePast(current, ids, tuple(rewinds), _shown(log))

    def rewind(self, name: TableName, snapshot_id: str | None, *, seen: TablePast, version: int) -> bool:
        doing = f"taking table {name} back to {f'snapshot {snapshot_id}' if snapshot_id else 'nothing'}"
        table, log = self._read(name, doing)
        if _already_shows(log, snapshot_id):
            return False
        labels = {REWOUND_TO: snapshot_id or NOTHING, REWOUND_AT: str(version)}
        try:
            schema_id = None
            if snapshot_id is None:
                self._empty(table, labels)
            else:
                schema_id = self._take_back(name, OpenedTable(table, log), int(snapshot_id), labels)
            has_moved = self._move_main(table, seen.current, schema_id)
            self._session.catalog.refreshTable(self._qualified(name))
        except CALL_ERRORS as error:
            if failure_of(error) is not Failure.CONFLICT:
                raise TableError(doing, first_line(error)) from error
            has_moved = False
        if not has_moved:
            raise TableError(doing, "the table has changed since it was looked at", remedy="Run the rollback again.")
        return True

    def _read(self, name: TableName, doing: str) -> OpenedTable:
        with table_errors(doing):
            return open_table(self._session, self._qualified(name))

    def _empty(self, table: Any, labels: dict[str, str]) -> None:
        everything = self._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        base = table.operations().refresh()
        transaction = _with_branch(table, self._transaction(table, base, None), base.currentSnapshot().snapshotId())
        _commit(transaction.newDelete().deleteFromRowFilter(everything), labels)
        _swap(table, base, transaction.currentMetadata())

    def _take_back(self, name: TableName, read: OpenedTable, snapshot_id: int, labels: dict[str, str]) -> int | None:
        """Prepares the branch. Returns the id of the schema to make current with it, or None to keep the schema."""
        table, log = read
        schema_id = _schema_to_restore(f"taking table {name} back to snapshot {snapshot_id}", log, snapshot_id)
        base = table.operations().refresh()
        transaction = _with_branch(table, self._transaction(table, base, schema_id), snapshot_id)
        files = self._barrier_files(name, table, log)
        barrier = transaction.newFastAppend()
        for file in files:
            barrier.appendFile(file)
        _commit(barrier, labels)
        removal = transaction.newDelete()
        for file in files:
            removal.deleteFile(file)
        _commit(removal, labels)
        for load_id in _undone_loads(log, snapshot_id):
            _commit(transaction.newFastAppend(), {**labels, LOAD_ID: load_id})
        changed = transaction.currentMetadata()
        if schema_id is not None:
            # Readers keep their schema until `main` is moved.
            changed = self._metadata_builder(changed).setCurrentSchema(base.currentSchemaId()).build()
        _swap(table, base, changed)
        return schema_id

    def _transaction(self, table: Any, base: Any, schema_id: int | None) -> Any:
        """Returns a transaction whose snapshots have the given schema, or the readers' schema for None."""
        if schema_id is None:
            return table.newTransaction()
        start = self._metadata_builder(base).setCurrentSchema(schema_id).build()
        make = self._jvm.org.apache.iceberg.Transactions
        return make.replaceTableTransaction(table.name(), table.operations(), start)

    def _metadata_builder(self, metadata: Any) -> Any:
        return self._jvm.org.apache.iceberg.TableMetadata.buildFrom(metadata)

    def _move_main(self, table: Any, seen: str | None, schema_id: int | None) -> bool:
        """Moves `main` to the branch. Returns False, and drops the branch, if `main` is no longer at `seen`."""
        operations, head = table.operations(), None
        for _ in range(_ATTEMPTS):
            metadata = operations.refresh()
            if head is not None and self._shows(table, head):
                return True  # The change was refused, but the error came after the effect.
            if (str(metadata.currentSnapshot().snapshotId()) if metadata.currentSnapshot() else None) != seen:
                break
            head = metadata.ref(_BRANCH).snapshotId()
            moved = self._metadata_builder(metadata).setBranchSnapshot(head, "main")
            if schema_id is not None:
                moved.setCurrentSchema(schema_id)
            try:
                with alone(table):
                    operations.commit(metadata, moved.removeRef(_BRANCH).build())
            except CALL_ERRORS as error:
                if failure_of(error) is not Failure.CONFLICT:
                    raise
            else:
                return True
        if operations.refresh().ref(_BRANCH) is not None:
            with alone(table):
                table.manageSnapshots().removeBranch(_BRANCH).commit()
        return False

    def _shows(self, table: Any, snapshot_id: int) -> bool:
        """Returns whether `main` is at that snapshot, or at one that was made on top of it."""
        ancestors = self._jvm.org.apache.iceberg.util.SnapshotUtil
        return bool(table.currentSnapshot() and ancestors.isAncestorOf(table, snapshot_id))

    def _barrier_files(self, name: TableName, table: Any, log: TableLog) -> list[Any]:
        """Writes a barrier file for each slice that ever had a row. A table without slices gets one, in any of its
        partitions: a load conflicts with rows in each of them.

        Each file has one row, because a file without rows would conflict with no change.
        """
        fields = [pa.field(field.name, field.type) for field in arrow_schema(log.columns)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table([null_array(1, field.type) for field in fields], pa.schema(fields)), sink)
        content = sink.getvalue().to_pybytes()
        if log.slice_column != SLICE_COLUMN:
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
            if slice_value is not None:
                values.set(0, slice_value)
            described.withPartition(values)
        return described.withRecordCount(1).withFileSizeInBytes(len(content)).build()

    def _qualified(self, name: TableName) -> str:
        return qualified(self._catalog, name)


def _shown(log: FullTableLog) -> tuple[ShownSnapshot, ...]:
    by_id = {each.snapshot_id: each for each in log.snapshots}
    shown = [by_id[each.snapshot_id] for each in log.snapshot_log if each.snapshot_id in by_id]
    is_whole = bool(shown) and shown[0].parent_snapshot_id is None
    # Loads of older releases do not say whose they are.
    if not is_whole or any(each.load_id and not {CONNECTION, REWOUND_AT} & each.summary.keys() for each in shown):
        return ()
    return tuple(ShownSnapshot(str(each.snapshot_id), each.summary.get(CONNECTION)) for each in shown)


def _past_rewind(snapshot: Snapshot) -> PastRewind:
    target = snapshot.summary.get(REWOUND_TO, NOTHING)
    return PastRewind(
        int(snapshot.summary[REWOUND_AT]), str(snapshot.snapshot_id), None if target == NOTHING else target
    )


def _already_shows(log: TableLog, snapshot_id: str | None) -> bool:
    """True if readers see the rows of that snapshot already. Compactions on top of it do not change the rows."""
    for snapshot in lineage(log, log.current_snapshot_id):
        if str(snapshot.snapshot_id) == snapshot_id or snapshot.summary.get(REWOUND_TO) == (snapshot_id or NOTHING):
            return True
        if snapshot.summary.get("operation") != "replace":
            return False
    return snapshot_id is None and _current(log) is None


def _schema_to_restore(doing: str, log: TableLog, snapshot_id: int) -> int | None:
    """Returns the id of the snapshot's schema if the current schema lacks columns of it, else None.

    Raises TableError if the snapshot's schema lacks a column by which the table is now partitioned or sorted.
    """
    schema_id = next((each.schema_id for each in log.snapshots if each.snapshot_id == snapshot_id), None)
    if schema_id is None or (columns := log.known_columns.get(schema_id)) is None:
        return None
    ids = field_ids(columns)
    if ids <= field_ids(log.columns):
        return None
    if lacking := [name for name, own in log.layout_column_ids.items() if not own <= ids]:
        found = f"its columns at that time lack {', '.join(lacking)}, by which it has been partitioned or sorted since"
        raise TableError(doing, found, remedy="Read the snapshot with VERSION AS OF, or refresh the table.")
    return schema_id


def _undone_loads(log: TableLog, snapshot_id: int) -> Sequence[str]:
    """Returns the ids of the loads in the log that neither the snapshot nor its ancestors have landed."""
    kept = {each.summary.get(LOAD_ID) for each in lineage(log, snapshot_id)}
    known = dict.fromkeys(load_id for each in log.snapshots if (load_id := each.summary.get(LOAD_ID)))
    return [load_id for load_id in known if load_id not in kept]


def _current(log: TableLog) -> Snapshot | None:
    return next(lineage(log, log.current_snapshot_id), None)


def _swap(table: Any, base: Any, changed: Any) -> None:
    """Puts the changed metadata in the place of `base`.

    Not by the transaction itself: after a refusal that deletes the manifests that it wrote, and what Iceberg takes for
    a refusal may have landed.
    """
    with alone(table):
        table.operations().commit(base, changed)


def _with_branch(table: Any, transaction: Any, snapshot_id: int) -> Any:
    """Returns the transaction after it created a branch at the snapshot. It removes the branch of a dead process."""
    snapshots = transaction.manageSnapshots()
    if table.refs().containsKey(_BRANCH):
        snapshots.removeBranch(_BRANCH)
    snapshots.createBranch(_BRANCH, snapshot_id).commit()
    return transaction


def _commit(change: Any, summary: dict[str, str]) -> None:
    for key, value in summary.items():
        change.set(key, value)
    change.toBranch(_BRANCH).commit()
