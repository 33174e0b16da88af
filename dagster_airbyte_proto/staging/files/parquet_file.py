"""Writes Parquet files in the table's own schema, with its field ids: zstd level 1, row groups of a few segments."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.model import SortField
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.schema.columns import META, null_array
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.staging.files.sorting import SortedPositions, sort_rows
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    raising_staging_error,
    remove_file,
    sync_to_disk,
)

ROW_GROUP_BYTES: Final = 32 << 20
SORTED_BYTES: Final = 64 << 20
_SYNC_ID = f"{META}.sync_id"
_SAMPLED_ROWS = 1024
# Up to this share of distinct values a dictionary saves more than it costs. Above it, Parquet builds one and drops it.
_MAX_DISTINCT_SHARE = 1 / 8


class RowGroups(NamedTuple):
    """The row groups of a file: their size, and the order of the rows. Sorted rows have a size of their own."""

    size_bytes: int = ROW_GROUP_BYTES
    order: Sequence[SortField] = ()


class OpenFile:
    """A Parquet file that is being written. Batches wait until they fill a row group. A closed file is durable.

    Where its rows have an order, the file has one sorted row group: it `is_full` once that is written, and
    `sorted_positions` has the position of each row. So the whole file is sorted, and the rows that are sorted at once
    are bounded. It `is_full` also once it has been open for as long as its storage allows.
    """

    def __init__(
        self,
        folder: StagingFolder,
        name: str,
        schema: pa.Schema,
        content: FileContent = FileContent.ROWS,
        row_groups: RowGroups = RowGroups(),  # noqa: B008  # a tuple, and frozen
    ) -> None:
        self._folder = folder
        self._path, self.uri = folder.file(name)
        self._schema = schema
        self._content = content
        order = row_groups.order
        self._order = [field._replace(column=field_named(schema, field.column).name) for field in order]
        self._row_group_bytes = SORTED_BYTES if order else row_groups.size_bytes
        self.sorted_positions: SortedPositions | None = None
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._closes_at = math.inf
        self.waiting_bytes = 0
        self.rows = 0

    @property
    def size_bytes(self) -> int:
        """The bytes written so far."""
        return int(self._sink.tell()) if self._sink is not None else 0

    @property
    def is_written(self) -> bool:
        """True once some of its rows were written, or began to be."""
        return self._sink is not None

    @property
    def is_full(self) -> bool:
        return self.sorted_positions is not None or time.monotonic() >= self._closes_at

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Adds rows. Their positions in the file follow the order of the calls."""
        table = _align(batch, self._schema)
        self._waiting.append(table)
        self.waiting_bytes += table.get_total_buffer_size()  # `nbytes` takes 4 µs a column.
        self.rows += table.num_rows
        if self.waiting_bytes >= self._row_group_bytes:
            self.write_waiting()

    def write_waiting(self) -> None:
        """Writes the waiting rows as one row group, and frees their memory."""
        if not self._waiting:
            return
        table, size_bytes = pa.concat_tables(self._waiting), self.waiting_bytes
        self._waiting, self.waiting_bytes = [], 0
        if self._order:
            table, self.sorted_positions = sort_rows(table, self._order)
        with raising_staging_error("writing a staged file", self.uri, size_bytes=size_bytes):
            self._open_writer(table).write_table(table, row_group_size=table.num_rows)

    def close(self) -> StagedFile:
        """Completes the file and makes it durable."""
        self.write_waiting()
        if self._writer is None or self._sink is None:
            raise InternalError("closing a staged file", "it has no rows")
        with raising_staging_error("closing a staged file", self.uri, size_bytes=self.size_bytes):
            self._writer.close()
            size_bytes = self.size_bytes
            self._sink.close()
        sync_to_disk(self._folder, self._path)
        reach("stage.file_closed")
        return StagedFile(self.uri, self._content, self.rows, size_bytes)

    def discard(self) -> None:
        """Closes the file and deletes what was written of it."""
        self._waiting, self.waiting_bytes = [], 0
        if self._writer is not None:
            with suppress(OSError):  # A full disk has no room for the footer, and the file is deleted anyway.
                self._writer.close()
        if self._sink is not None:
            with suppress(OSError):
                self._sink.close()
            remove_file(self._folder, self._path)

    def _open_writer(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            self._closes_at = time.monotonic() + self._folder.storage.most_open_seconds(self.uri)
            self._sink = self._folder.filesystem.open_output_stream(self._path)
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[
                    _SYNC_ID,
                    *(field.name for field in self._schema if _is_repetitive(first.column(field.name))),
                ],
                write_statistics=True,
            )
        return self._writer


def _is_repetitive(column: pa.ChunkedArray) -> bool:
    if len(column) < _SAMPLED_ROWS:  # With so few rows a dictionary costs more than it saves.
        return False
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return False
    sample = column.slice(0, _SAMPLED_ROWS)
    return bool(pc.count_distinct(sample).as_py() <= len(sample) * _MAX_DISTINCT_SHARE)


def _align(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the batch in the table's schema: its column order and types, with nulls for columns the stream lacks."""
    if batch.schema.equals(schema):  # Without field ids: the writer adds them.
        return pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    indexes = {name: place for place, name in enumerate(batch.schema.names)}
    if unknown := indexes.keys() - set(schema.names):
        # Tables may spell a name in another case.
        spelled = {case_folded(name): name for name in schema.names if name not in indexes}
        if lacking := [name for name in unknown if case_folded(name) not in spelled]:
            raise InternalError("writing a staged file", f"the table lacks the columns {', '.join(sorted(lacking))}")
        indexes |= {spelled[case_folded(name)]: indexes[name] for name in unknown}
    arrays = [
        _cast_to(batch.column(indexes[field.name]), field.type)
        if field.name in indexes
        else null_array(len(batch), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def field_named(schema: pa.Schema, name: str) -> pa.Field:
    """Returns the table's field of this name, whose spelling may differ in case."""
    if name in schema.names:
        return schema.field(name)
    return next(field for field in schema if case_folded(field.name) == case_folded(name))


def _cast_to(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Casts values to the table's type. Struct members are matched by name; those the stream lacks are null."""
    if values.type.equals(kind) or not (pa.types.is_struct(kind) or pa.types.is_list(kind)):
        return values.cast(kind)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    mask = values.is_null() if values.null_count else None
    if pa.types.is_list(kind):
        inner = _cast_to(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, inner, type=kind, mask=mask)
    index_by_name = {field.name.casefold(): number for number, field in enumerate(values.type)}
    members = [
        _cast_to(values.field(index_by_name[field.name.casefold()]), field.type)
        if field.name.casefold() in index_by_name
        else null_array(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
