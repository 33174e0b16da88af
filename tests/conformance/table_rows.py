"""Rows, files and parts for the conformance of table writers."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from dagster_airbyte_proto import points
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode
from dagster_airbyte_proto.tables.writer import TableWriter

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"comment": "who it is"}),
        pa.field("name", pa.string()),
        pa.field("_airbyte_meta", pa.struct([("sync_id", pa.int64()), ("changes", pa.list_(pa.string()))])),
    ]
)
POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
MODES = (WriteMode.APPEND, WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP)
KEYED_MODES = (WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP)
Row = dict[str, Any]
Reader = Callable[[TableTarget], list[Row]]


class Bench(NamedTuple):
    """A writer, a second writer that shares only the disk with it, and a reader."""

    writer: TableWriter
    other: TableWriter
    read: Reader


class NewTable:
    """A new table of the bench, with a key."""

    @pytest.fixture
    def target(self, bench: Bench) -> TableTarget:
        return bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))


def table_name() -> TableName:
    return TableName("shop", f"t_{uuid.uuid4().hex[:8]}")


def put(target: TableTarget, rows: pa.Table, content: FileContent = FileContent.ROWS) -> StagedFile:
    location = f"{target.location}/data/{uuid.uuid4()}.parquet"
    filesystem, path = target.storage.at(location)
    if isinstance(filesystem, LocalFileSystem):  # the credentials of a store may not reach folders above the table
        filesystem.create_dir(path.rpartition("/")[0])
    pq.write_table(rows, path, filesystem=filesystem)
    return StagedFile(location, content, rows.num_rows, filesystem.get_file_info(path).size)


def staged(target: TableTarget, rows: Sequence[Row]) -> StagedFile:
    return put(target, pa.Table.from_pylist(list(rows), schema=target.schema))


def part_of(target: TableTarget, write: WriteMode, *files: StagedFile, keys: tuple[str, ...] = ("id",)) -> StagedRows:
    keys = keys if write in KEYED_MODES else ()
    return StagedRows(StreamId.of("users"), target.name, write, files=files, keys=keys)


def part(target: TableTarget, write: WriteMode, rows: Sequence[Row], *, keys: tuple[str, ...] = ("id",)) -> StagedRows:
    """Returns a part as staging makes it, with the deletes that the mode needs.

    A deduplicated replacement always has a duplicate of its first row, taken out again: without one it is a plain one.
    """
    if rows and write is WriteMode.OVERWRITE_DEDUP:
        file = staged(target, [rows[0], *rows])
        return part_of(target, write, file, position_deletes(target, file, 0), keys=keys)
    files = [staged(target, rows)] if rows else []
    if rows and write is WriteMode.APPEND_DEDUP:
        wanted = pa.schema([target.schema.field(key) for key in keys])
        deletes = pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows], schema=wanted)
        files.append(put(target, deletes, FileContent.EQUALITY_DELETES))
    return part_of(target, write, *files, keys=keys)


def position_deletes(target: TableTarget, file: StagedFile, *positions: int) -> StagedFile:
    """Writes position deletes for rows of a staged file."""
    rows = [{"file_path": file.path, "pos": position} for position in positions]
    return put(target, pa.Table.from_pylist(rows, schema=POSITION_DELETES), FileContent.POSITION_DELETES)


def deletion(target: TableTarget, *ids: int) -> StagedRows:
    """Returns a part of deletions as staging makes it: their rows, which it deletes again, and their keys."""
    rows = part(target, WriteMode.APPEND_DEDUP, [{"id": each, "name": "deleted"} for each in ids])
    return part_of(target, rows.write, *rows.files, position_deletes(target, rows.files[0], *range(len(ids))))


def names(rows: Sequence[Row]) -> list[tuple[Any, Any]]:
    return sorted(((row["id"], row["name"]) for row in rows), key=repr)


def before_commit(act: Callable[[], None]) -> None:
    """Runs `act` once, after a writer has read the table's log and directly before it commits."""

    def once(point: str) -> None:
        if point == "table.committing":
            points.arm(None)
            act()

    points.arm(once)
