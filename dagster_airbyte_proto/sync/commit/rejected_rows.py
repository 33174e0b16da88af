"""The table of rejected rows of a stream: the records that its source rejected, each with the reason.

They land in the load that has the rows around them, so each is there once. The table only grows, and is made with the
first of them. Where it refuses, the sync goes on: the records are counted in the report, and the log has their reasons.
"""

import os
from collections.abc import Callable, Sequence

import pyarrow as pa

from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ProtoError, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import PlannedStream, SchemaPolicy, StreamId, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.staging.files.open_part import SourceRejection
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.rejections_file import storable_rejections
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    create_folder,
    file_name,
    run_staging_folder,
    staging_id,
)
from dagster_airbyte_proto.sync.engine import Engine

NAMESPACE, LOAD_ID = "_rejected", "_load_id"
# Not `_partition`: Iceberg has a column of that name in every table, and reads none that has another.
_PARTITION = "_synced_partition"
_SCHEMA = pa.schema(
    [
        pa.field("_reason", pa.string(), metadata={"comment": "Why the source rejected the record"}),
        pa.field("_row", pa.string(), metadata={"comment": "The record as JSON, as the source has it"}),
        pa.field(_PARTITION, pa.string(), metadata={"comment": "The partition of the sync"}),
        pa.field(LOAD_ID, pa.string(), metadata={"comment": "The load with which it came"}),
        pa.field("_rejected_at", pa.timestamp("us", "UTC"), metadata={"comment": "When it came"}),
    ]
)


class RejectedRows:
    """Makes parts of loads of rejected records. `warn` is for what became of them if their table refuses."""

    def __init__(self, engine: Engine, lease: Lease, partition: str, on_warning: Callable[[str], None]) -> None:
        self._engine, self._lease, self._partition = engine, lease, partition
        self._on_warning = on_warning
        self._staging_id = staging_id(lease.run_id, lease.fence)
        self._targets: dict[StreamId, TableTarget] = {}
        self._files = 0

    def part(self, planned: PlannedStream, rejected: Sequence[SourceRejection], load_id: str) -> StagedRows | None:
        """Returns a part with these records, for the table of rejected rows; None if that refuses."""
        stream = rejected_stream(planned.id)
        try:
            target = self._targets.get(stream) or self._prepared(stream)
            return self._staged(stream, target, self._rows(planned, rejected, load_id))
        except TableError as error:
            self.warn(stream, error)
            return None

    def warn(self, stream: StreamId, error: ProtoError) -> None:
        self._on_warning(f"the rejected records of stream {stream.name} are in no table: {error}")

    def _prepared(self, stream: StreamId) -> TableTarget:
        spec = TableSpec(
            _table(self._lease.connection, stream),
            _SCHEMA,
            comment="Records that the source rejected",
            evolution_rules=EvolutionRules(SchemaPolicy.FREEZE),
        )
        target = self._engine.tables.prepare(spec)
        folder = run_staging_folder(target, self._staging_id)
        self._engine.store.note_folders(self._lease, [folder])
        create_folder(StagingFolder.at(folder, target.storage))
        self._targets[stream] = target
        return target

    def _rows(self, planned: PlannedStream, rejected: Sequence[SourceRejection], load_id: str) -> pa.RecordBatch:
        stored = storable_rejections(planned, rejected)
        columns = {
            "_reason": [each.reason for each in stored],
            "_row": [each.record for each in stored],
            _PARTITION: [self._partition or None] * len(stored),
            LOAD_ID: [load_id] * len(stored),
            "_rejected_at": [each.at_microseconds for each in stored],
        }
        return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)

    def _staged(self, stream: StreamId, target: TableTarget, rows: pa.RecordBatch) -> StagedRows:
        self._files += 1
        folder = StagingFolder.at(run_staging_folder(target, self._staging_id), target.storage)
        name = file_name("rows", f"{NAMESPACE}_{stream.name}", os.urandom(4).hex(), self._files)
        file = OpenFile(folder, name, target.schema)
        file.write(rows)
        return StagedRows(
            stream=stream,
            table=target.name,
            write=WriteMode.APPEND,
            files=(file.close(),),
            rows=rows.num_rows,
            added=rows.num_rows,
            connection=self._lease.connection,
            table_id=target.table_id,
            log_position=target.log_position,
            read_whole=True,
        )


def rejected_stream(stream: StreamId) -> StreamId:
    """Returns the name under which a load has the rejected records of a stream: no stream of a source is called so."""
    return StreamId.of(str(stream), NAMESPACE)


def parts_of_rejected(parts: Sequence[StagedRows]) -> dict[StreamId, StreamId]:
    """Returns the names of the parts that have rejected records, each with the stream whose rows are around them.

    A source may have a stream of such a name, and a table in this namespace. Its rows were emitted as rows.
    """
    streams = {rejected_stream(part.stream): part.stream for part in parts}
    found = (part.stream for part in parts if part.table == _table(part.connection, part.stream) and part.emitted == 0)
    return {name: streams[name] for name in found if name in streams}


def _table(connection: str, rejected: StreamId) -> TableName:
    return TableName(NAMESPACE, f"{connection}__{rejected.name}")
