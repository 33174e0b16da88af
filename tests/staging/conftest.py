"""A shop of one stream, with a protocol's shape of our own, so that staging is tested without a protocol."""

import itertools
import json
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.loads.load import BranchPosition, FileContent, StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import FieldPath, PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.keys.dedup import NONE_LATE
from dagster_airbyte_proto.staging.rows.metadata import RowOrigin
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch, SegmentParser
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit.late_rows import LateRowLookup
from dagster_airbyte_proto.tables.writer import TableWriter

Sent = TypeVar("Sent")

SHAPE = RecordWire(
    head=re.compile(rb'\{"type": ?"RECORD", ?"record": ?\{"stream": ?(?P<stream>"[^"\\\n]*+"), ?'),
    known_members=re.compile(rb'"type": ?"RECORD", ?|"stream": ?"[^"\\\n]*+", ?'),
    type=("type",),
    data=("record", "data"),
    emitted_at=("record", "emitted_at"),
    namespace=("record", "namespace"),
    stream=("record", "stream"),
    changes=("record", "meta", "changes"),
)
EMITTED_AT = 1_700_000_000_000


def plan(
    properties: Mapping[str, Any],
    *,
    name: str = "users",
    namespace: str | None = None,
    write: WriteMode = WriteMode.APPEND,
    key: Sequence[FieldPath] = (),
    cursor: FieldPath = (),
) -> PlannedStream:
    """A stream with these properties in its schema."""
    stream = Stream(StreamId.of(name, namespace), {"type": "object", "properties": properties})
    table = TableName("shop", f"{namespace}_{name}" if namespace else name)
    return PlannedStream(stream, table, ReadMode.INCREMENTAL, write, tuple(key), cursor, generation_id=3)


def record(data: str, *, stream: str = "users", rest: str = f',"emitted_at":{EMITTED_AT}') -> bytes:
    """A record's line from the JSON text of its data; surrogate escapes become the bytes they stand for."""
    line = f'{{"type":"RECORD","record":{{"stream":"{stream}","data":{data}{rest}}}}}\n'
    return line.encode("utf-8", "surrogateescape")


def records(rows: Sequence[Mapping[str, Any]], *, stream: str = "users") -> bytes:
    return b"".join(record(json.dumps(row), stream=stream) for row in rows)


def parse(planned: PlannedStream, *lines: bytes, shape: RecordWire = SHAPE) -> ParsedBatch:
    """The lines as one segment of a fresh stream."""
    parser = SegmentParser(planned, table_columns(planned), shape, RowOrigin(7, b"123456789"))
    return parser.parse(b"".join(lines), len(lines), EMITTED_AT * 1000 + 5_000_000)


def with_field_ids(schema: pa.Schema) -> pa.Schema:
    """The schema as a table gives it: with an id on every field, also inside lists and structs."""
    numbers = itertools.count(1)

    def numbered(field: pa.Field) -> pa.Field:
        kind = field.type
        number = str(next(numbers))
        if pa.types.is_list(kind):
            kind = pa.list_(numbered(pa.field("element", kind.value_type)))
        elif pa.types.is_struct(kind):
            kind = pa.struct([numbered(inner) for inner in kind])
        return pa.field(field.name, kind, metadata={"PARQUET:field_id": number})

    return pa.schema([numbered(field) for field in schema])


def target_of(planned: PlannedStream, warehouse: Path) -> TableTarget:
    schema = with_field_ids(table_columns(planned).schema)
    return TableTarget(planned.table, schema, str(warehouse / planned.table.name), str(planned.table))


def rows_of(part: StagedRows) -> list[dict[str, Any]]:
    """The rows of a part's ROWS files in order, without those that its position deletes take out."""
    deleted = {
        (row["file_path"], row["pos"])
        for file in part.files
        if file.content is FileContent.POSITION_DELETES
        for row in pq.read_table(file.path).to_pylist()
    }
    return [
        row
        for file in part.files
        if file.content is FileContent.ROWS
        for position, row in enumerate(pq.ParquetFile(file.path).read().to_pylist())
        if (file.path, position) not in deleted
    ]


def landed(
    tables: TableWriter,
    planned: PlannedStream,
    loads: Sequence[Sequence[bytes]],
    name: str = "l",
    branch: str | None = None,
) -> list[StagedRows]:
    """Loads of record lines, cut and committed one after the other, as a sync does it; on a branch that the last load
    publishes."""
    columns = table_columns(planned)
    spec = TableSpec(planned.table, columns.schema, columns.keys)
    spec = spec._replace(partitioning=columns.partitioning, ordering=columns.ordering)
    target = tables.prepare(spec)
    source = StreamInput(planned, columns, target)
    stage = Stage([source], RunInput(SHAPE, "r1", sync_id=1))
    parts: list[StagedRows] = []
    for load in loads:
        for line in load:
            stage.add_line(planned.id, line)
        stage.mark(planned.id)
        earlier = branch if parts else None
        keys = _sent(stage.marked_keys(planned.id))
        late_rows = LateRowLookup(lambda: tables, keys, earlier).find() if keys else NONE_LATE
        part = stage.cut(planned.id, _sent(late_rows), follows_on_branch=earlier is not None)
        assert part is not None
        if branch is not None:
            after = f"{name}{len(parts) - 1}" if parts else None
            aside = BranchPosition(branch, after, publishes=len(parts) == len(loads) - 1)
            part = msgspec.structs.replace(part, branch_position=aside)
        tables.commit(f"{name}{len(parts)}", part)
        parts.append(part)
    return parts


def _sent(value: Sent) -> Sent:
    """The value as it arrives where another process stages than the one that has the tables."""
    arrived: Sent = pickle.loads(pickle.dumps(value))
    return arrived


@pytest.fixture
def stream_input(tmp_path: Path) -> Callable[[PlannedStream], StreamInput]:
    """A stage's input for a planned stream, its table in the test's own folder."""

    def made(planned: PlannedStream) -> StreamInput:
        return StreamInput(planned, table_columns(planned), target_of(planned, tmp_path))

    return made
