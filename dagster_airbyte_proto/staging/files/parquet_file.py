"""Parquet files in the table's own schema, field ids included: zstd level 1, row groups of a few segments."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.loads.column_ids import FIELD_ID
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.model import SortField
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.schema.columns import META, VARIANT, nulls
from dagster_airbyte_proto.schema.names import folded
from dagster_airbyte_proto.staging.files.area import Folder, on_disk, remove, settle
from dagster_airbyte_proto.staging.files.sorting import Places, in_order
from dagster_airbyte_proto.staging.files.variant_footer import TellingFile

ROW_GROUP_BYTES: Final = 32 << 20
SORTED_BYTES: Final = 64 << 20
_SYNC_ID = f"{META}.sync_id"
_SAMPLED_ROWS = 1024
# Below this share of distinct values a dictionary costs less than it saves; above it, it is built and thrown away.
_FEW_DISTINCT = 1 / 8


class OpenFile:
    """A Parquet file that grows. Batches wait until they make a row group; one that is closed is durable.

    With an `order` the file is of one row group, sorted: it `is_full` once that is written, and `places` tells where in
    it each row is. So what is sorted at once is bounded, and the whole file is in order.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        schema: pa.Schema,
        content: FileContent = FileContent.ROWS,
        order: Sequence[SortField] = (),
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        self._folder = folder
        self._path, self.uri = folder.file(name)
        self._schema = schema
        self._content = content
        self._order = [field._replace(column=field_of(schema, field.column).name) for field in order]
        self._enough_bytes = SORTED_BYTES if order else row_group_bytes
        self.places: Places | None = None
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._telling: TellingFile | None = None
        self.waiting_bytes = 0
        self.rows = 0

    @property
    def size_bytes(self) -> int:
        """What is on disk so far."""
        return int(self._sink.tell()) if self._sink is not None else 0

    @property
    def is_full(self) -> bool:
        return self.places is not None

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Adds rows; they take a place in the file in the order of these calls."""
        table = _aligned(batch, self._schema)
        self._waiting.append(table)
        self.waiting_bytes += table.get_total_buffer_size()  # `nbytes` takes 4 µs a column.
        self.rows += table.num_rows
        if self.waiting_bytes >= self._enough_bytes:
            self.write_waiting()

    def write_waiting(self) -> None:
        """Writes what waits as one row group, which frees its memory."""
        if not self._waiting:
            return
        table, size_bytes = pa.concat_tables(self._waiting), self.waiting_bytes
        self._waiting, self.waiting_bytes = [], 0
        if self._order:
            table, self.places = in_order(table, self._order)
        with on_disk("write a staged file", self.uri, size_bytes=size_bytes):
            self._opened(table).write_table(table, row_group_size=table.num_rows)

    def close(self) -> StagedFile:
        """The file, whole and durable."""
        self.write_waiting()
        if self._writer is None or self._sink is None:
            raise InternalError("close a staged file", "it has no rows")
        with on_disk("close a staged file", self.uri, size_bytes=self.size_bytes):
            if self._telling is None:
                self._writer.close()
            else:
                self._telling.end(self._writer)
            size_bytes = self.size_bytes
            self._sink.close()
        settle(self._folder, self._path)
        reach("stage.file_closed")
        return StagedFile(self.uri, self._content, self.rows, size_bytes)

    def abandon(self) -> None:
        """Lets go of the file and removes what there is of it."""
        self._waiting, self.waiting_bytes = [], 0
        if self._writer is not None:
            with suppress(OSError):  # A full disk cannot take the footer either, and the file goes anyway.
                self._writer.close()
        if self._sink is not None:
            with suppress(OSError):
                self._sink.close()
            remove(self._folder, self._path)

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            self._sink = self._folder.filesystem.open_output_stream(self._path)
            if ids := frozenset(_variant_ids(self._schema)):
                self._telling = TellingFile(self._sink, ids)
            self._writer = pq.ParquetWriter(
                self._telling or self._sink,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[
                    _SYNC_ID,
                    *(field.name for field in self._schema if _repeats(first.column(field.name))),
                ],
                write_statistics=True,
            )
        return self._writer


def _repeats(column: pa.ChunkedArray) -> bool:
    if len(column) < _SAMPLED_ROWS:  # So few that the dictionary's own cost is what counts.
        return False
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return False
    sample = column.slice(0, _SAMPLED_ROWS)
    return bool(pc.count_distinct(sample).as_py() <= len(sample) * _FEW_DISTINCT)


def _aligned(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """The batch in the table's schema: its order, its types, nulls for what the stream lacks."""
    if batch.schema.equals(schema):  # The writer has the field ids; rows need not carry them.
        return pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    places = {name: place for place, name in enumerate(batch.schema.names)}
    if unknown := places.keys() - set(schema.names):
        # The table's own spelling of a name may differ in case.
        spelled = {folded(name): name for name in schema.names if name not in places}
        if lacking := [name for name in unknown if folded(name) not in spelled]:
            raise InternalError("write a staged file", f"the table lacks the columns {', '.join(sorted(lacking))}")
        places |= {spelled[folded(name)]: places[name] for name in unknown}
    arrays = [
        _fitted(batch.column(places[field.name]), field.type) if field.name in places else nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _variant_ids(fields: Iterable[pa.Field]) -> Iterator[int]:
    """The field ids of VARIANTs, wherever they are."""
    for field in fields:
        if field.type == VARIANT and FIELD_ID in (field.metadata or {}):
            yield int(field.metadata[FIELD_ID])
        elif pa.types.is_struct(field.type):
            yield from _variant_ids(field.type)
        elif pa.types.is_list(field.type):
            yield from _variant_ids([field.type.value_field])
        elif pa.types.is_map(field.type):
            yield from _variant_ids([field.type.item_field])


def field_of(schema: pa.Schema, name: str) -> pa.Field:
    """A table's field, whose spelling may differ in case."""
    if name in schema.names:
        return schema.field(name)
    return next(field for field in schema if folded(field.name) == folded(name))


def _fitted(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """In the table's type: structs by the names of their members, with nulls for those that the stream lacks."""
    if values.type.equals(kind) or not (pa.types.is_struct(kind) or pa.types.is_list(kind)):
        return values.cast(kind)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    mask = values.is_null() if values.null_count else None
    if pa.types.is_list(kind):
        inner = _fitted(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, inner, type=kind, mask=mask)
    known = {field.name.casefold(): number for number, field in enumerate(values.type)}
    inside = [
        _fitted(values.field(known[field.name.casefold()]), field.type)
        if field.name.casefold() in known
        else nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(inside, fields=list(kind), mask=mask)
