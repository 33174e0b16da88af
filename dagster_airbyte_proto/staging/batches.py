"""From a segment (whole record lines of one stream) to an Arrow batch in the table's columns, and what was left out."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.session import RecordShape
from dagster_airbyte_proto.schema.columns import Column, Columns
from dagster_airbyte_proto.staging.changes import Changes
from dagster_airbyte_proto.staging.coercion import coerced
from dagster_airbyte_proto.staging.fast import FastRoad
from dagster_airbyte_proto.staging.metadata import RowNames, extracted_at, meta
from dagster_airbyte_proto.staging.raw_json import MISSING, Raw, members
from dagster_airbyte_proto.staging.raw_values import wire_array
from dagster_airbyte_proto.staging.shaping import FILTERED, shaper_of
from dagster_airbyte_proto.staging.slow import redo
from dagster_airbyte_proto.staging.wire import WireRows

_MOST_MISFITS = 6
NO_KEY = "every part of the key is null"


class Parsed(NamedTuple):
    """`batch` has the schema of the stream's `Columns`. Lines in = rows in the batch + rejected."""

    batch: pa.RecordBatch
    changed: int
    rejected: Counter[str]
    ignored: Counter[str]
    foreign: Counter[StreamId]


class SegmentParser:
    """Parses the segments of one stream, in order. `seed` (9 random bytes) makes the rows' names."""

    def __init__(
        self,
        planned: PlannedStream,
        columns: Columns,
        shape: RecordShape,
        *,
        sync_id: int,
        seed: bytes,
        hash_key: str = "",
    ) -> None:
        self._planned = planned
        self._shaper = shaper_of(columns, hash_key)
        self._columns = columns
        self._shape = shape
        self._sync_id = sync_id
        self._row_names = RowNames(seed)
        self._fast: FastRoad | None = None
        self._misfits_in_a_row = 0
        self._passed_over = 0
        self.redone = 0

    def parse(self, segment: bytes, lines: int, now_microseconds: int) -> Parsed:
        """All of a segment's `lines`; never raises for what the connector sent."""
        if self._fast is None:
            first_line = segment[: segment.find(b"\n") + 1]
            self._fast = FastRoad(self._columns, self._shape, self._planned.id, first_line)
        wire = self._fast_parse(self._fast, segment, lines)
        if wire is None:
            self.redone += 1
            wire = redo(segment, self._columns, self._shape, self._planned.id)
        return self._parsed(wire, now_microseconds)

    def _fast_parse(self, road: FastRoad, segment: bytes, lines: int) -> WireRows | None:
        """None where the slow road must do it; the longer the fast one was of no use, the more rarely it is tried."""
        if self._passed_over < (1 << self._misfits_in_a_row) // 4:
            self._passed_over += 1
            return None
        self._passed_over = 0
        wire = road.parse(segment, lines)
        if wire is None and self._misfits_in_a_row == 1:
            road.set_aside(segment)
            wire = road.parse(segment, lines)
        self._misfits_in_a_row = 0 if wire is not None else min(self._misfits_in_a_row + 1, _MOST_MISFITS)
        return wire

    def _parsed(self, wire: WireRows, now_microseconds: int) -> Parsed:
        rows = len(wire.emitted_at)
        top = self._columns.top
        arrays = {
            column.name: coerced(column, array, wire.changes) for column, array in zip(top, wire.arrays, strict=True)
        }
        for column in self._columns.nested:
            arrays[column.name] = self._nested_key(column, wire)
        is_wanted = None
        if self._shaper is not None:
            arrays, is_wanted = self._shaper.shaped(arrays)
        if self._shape.emitted_at:
            extracted = extracted_at(wire.emitted_at, now_microseconds, wire.changes)
        else:
            extracted = extracted_at(pa.repeat(now_microseconds / 1000, rows), now_microseconds, wire.changes)
        about = meta(self._sync_id, rows, wire.source_changes, wire.changes)
        generation = pa.repeat(pa.scalar(self._planned.generation_id, pa.int64()), rows)
        batch = pa.RecordBatch.from_arrays(
            [
                *(arrays[column.name] for column in self._columns.all),
                self._row_names.take(rows),
                extracted,
                about,
                generation,
            ],
            schema=self._columns.schema,
        )
        if is_wanted is not None:
            wire.rejected[FILTERED] += is_wanted.false_count
            batch = batch.filter(is_wanted)
        keyed = self._with_a_key(batch)
        if keyed.num_rows < batch.num_rows:
            wire.rejected[NO_KEY] += batch.num_rows - keyed.num_rows
        return Parsed(keyed, _changed(keyed, wire), wire.rejected, wire.ignored, wire.foreign)

    def _nested_key(self, column: Column, wire: WireRows) -> pa.Array:
        owner = next(index for index, top in enumerate(self._columns.top) if top.path[0] == column.path[0])
        raws = [_inside(text, column.path[1:]) for text in wire.arrays[owner].to_pylist()]
        changes: Changes = wire.changes
        return coerced(column, wire_array(column, raws, changes), changes)

    def _with_a_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows whose key is null in every part: nothing could ever find them again."""
        keys = self._columns.keys
        if not keys or min(batch.column(key).null_count for key in keys) == 0:
            return batch
        has_key = batch.column(keys[0]).is_valid()
        for key in keys[1:]:
            has_key = pc.or_(has_key, batch.column(key).is_valid())
        return batch.filter(has_key)


def _inside(text: str | None, path: tuple[str, ...]) -> Raw:
    raw = MISSING if text is None else Raw(text.encode())
    for step in path:
        try:
            raw = members(raw).get(step, MISSING)
        except ValueError:
            return MISSING
    return raw


def _changed(batch: pa.RecordBatch, wire: WireRows) -> int:
    source = wire.source_changes
    if not wire.changes and (source is None or source.null_count == len(source)):
        return 0
    lengths = pc.list_value_length(batch.column("_airbyte_meta").field("changes"))
    return int(pc.sum(pc.greater(lengths, 0)).as_py() or 0)
