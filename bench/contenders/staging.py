"""Our staging alone: demux, segments, Parquet in plain folders, with the metadata columns and marks at states.

Reads the file itself, as the bare contender does, so the difference between the two is the cost of staging. A load is
cut at 128 MiB, as in a sync; nothing is announced or committed.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from bench.contenders.parquet_rows import parquet_rows
from bench.meter import Task, measure
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import PlannedStream, ReadMode, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.events import CatalogEvent, RecordLine, StateEvent
from dagster_airbyte_proto.protocols.lookup import source_protocol
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.lines.demux import Demux, RecordLines
from dagster_airbyte_proto.staging.stage import Stage

_CHUNK_BYTES = 1 << 20
_LOAD_BYTES = 128 << 20


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    folder = Path(task.folder)
    measure(lambda: _land(task, folder), lambda: parquet_rows(folder), {"pyarrow": pa.__version__})


def _land(task: Task, folder: Path) -> None:
    protocol = source_protocol(task.options.get("protocol", "airbyte"))
    streams = _planned(Path(task.catalog))
    inputs = [_input(planned, folder) for planned in streams]
    landing = _Landing(
        protocol, Stage(inputs, RunInput(protocol.record_wire, "bench", sync_id=1)), [it.id for it in streams]
    )
    demux = Demux(protocol.record_wire, landing.stage.stream_of)
    with Path(task.recording).open("rb", buffering=0) as recording:
        while chunk := recording.read(_CHUNK_BYTES):
            landing.take(demux.feed(chunk))
    landing.take(demux.finish())
    landing.cut()
    landing.stage.close()


class _Landing:
    """Stages the demux's items as the reading thread of a sync does, without a ledger and without tables."""

    def __init__(self, protocol: SourceProtocol, stage: Stage, streams: list[StreamId]) -> None:
        self._protocol = protocol
        self._streams = streams
        self.stage = stage

    def take(self, items: Iterable[RecordLines | bytes]) -> None:
        for item in items:
            if isinstance(item, RecordLines):
                self.stage.add(item)
                continue
            event = self._protocol.event(item)
            if isinstance(event, RecordLine):
                self.stage.add_line(event.stream, event.line)
            elif isinstance(event, StateEvent):
                for stream in [event.state.stream] if event.state.stream else self._streams:
                    self.stage.mark(stream)
                if self.stage.marked_bytes >= _LOAD_BYTES:
                    self.cut()

    def cut(self) -> None:
        for stream in self._streams:
            self.stage.cut(stream)


def _planned(catalog: Path) -> list[PlannedStream]:
    event = AirbyteSource().event(catalog.read_bytes())
    if not isinstance(event, CatalogEvent):
        raise ValueError(f"{catalog} holds no catalog message")
    return [
        PlannedStream(stream, TableName("bench", stream.id.name), ReadMode.INCREMENTAL, WriteMode.APPEND)
        for stream in event.catalog.streams
    ]


def _input(planned: PlannedStream, folder: Path) -> StreamInput:
    columns = table_columns(planned)
    location = folder / planned.table.name
    location.mkdir()
    target = TableTarget(planned.table, columns.schema, str(location), str(planned.table))
    return StreamInput(planned, columns, target)


if __name__ == "__main__":
    main()
