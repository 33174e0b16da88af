"""From a segment (whole record lines of one stream) to an Arrow batch in the table's columns, and what was left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.loads.table import DEDUPLICATING
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.wire import RecordShape
from dagster_airbyte_proto.schema.columns import Column, Columns, Kind
from dagster_airbyte_proto.staging.lines.columnar_parser import FastRoad
from dagster_airbyte_proto.staging.lines.parsed import WireRows
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.lines.record_parser import redo
from dagster_airbyte_proto.staging.rows.changes import Changes
from dagster_airbyte_proto.staging.rows.coercion import coerced
from dagster_airbyte_proto.staging.rows.members import reached, texts_at
from dagster_airbyte_proto.staging.rows.metadata import Moments, RowNames, extracted_at, meta, sdc_arrays
from dagster_airbyte_proto.staging.rows.shaping import FILTERED, shaper_of

_MOST_MISFITS = 6
NO_KEY = "every part of the key is null"
BAD_KEY = "a part of the key does not fit its column"


class Parsed(NamedTuple):
    """`batch` has the schema of the stream's `Columns`. Lines in = rows in the batch that are not gone + rejected.

    `deletions` tells of each row whether it is one, `gone` whether it stands there for its key alone, which the table
    is to have no more; None where none is.
    """

    batch: pa.RecordBatch
    changed: int
    rejected: Counter[str]
    ignored: Counter[str]
    foreign: Counter[StreamId]
    deletions: pa.BooleanArray | None = None
    gone: pa.BooleanArray | None = None

    @property
    def rows(self) -> pa.RecordBatch:
        """Those that are to be landed."""
        return self.batch if self.gone is None else self.batch.filter(pc.invert(self.gone))


class SegmentParser:
    """Parses the segments of one stream, in order. `seed` (9 random bytes) makes the rows' names; the sync `began_at`
    so many microseconds."""

    def __init__(
        self,
        planned: PlannedStream,
        columns: Columns,
        shape: RecordShape,
        *,
        sync_id: int,
        seed: bytes,
        hash_key: str = "",
        began_at: int = 0,
    ) -> None:
        self._began_at = began_at
        self._planned = planned
        self._shaper = shaper_of(columns, hash_key)
        self._columns = columns
        self._variants = [column for column in columns.all if column.type.kind is Kind.VARIANT]
        self._shape = shape
        self._sync_id = sync_id
        self._row_names = RowNames(seed)
        self._fast: FastRoad | None = None
        self._misfits_in_a_row = 0
        self._passed_over = 0
        self.redone = 0

    def parse(self, segment: bytes, lines: int, now_microseconds: int, since_microseconds: int | None = None) -> Parsed:
        """All of a segment's `lines`, which came `since` then; never raises for what the connector sent."""
        if self._fast is None:
            first_line = segment[: segment.find(b"\n") + 1]
            self._fast = FastRoad(self._columns, self._shape, self._planned.id, first_line)
        wire = self._fast_parse(self._fast, segment, lines)
        if wire is None:
            self.redone += 1
            wire = redo(segment, self._columns, self._shape, self._planned.id)
        since = now_microseconds if since_microseconds is None else since_microseconds
        return self._parsed(wire, Moments(self._began_at, since, now_microseconds))

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

    def _parsed(self, wire: WireRows, moments: Moments) -> Parsed:
        rows, now_microseconds = len(wire.emitted_at), moments.now
        top = self._columns.top
        arrays = {
            column.name: array if column.type.kind is Kind.VARIANT else coerced(column, array, wire.changes)
            for column, array in zip(top, wire.arrays, strict=True)
        }
        for column in self._columns.nested:
            arrays[column.name] = self._nested_key(column, arrays, wire)
        is_wanted = None
        if self._shaper is not None:
            arrays, is_wanted = self._shaper.shaped(arrays)
        for column in self._variants:  # Not before: keys and members were cut out of their text.
            arrays[column.name] = coerced(column, arrays[column.name], wire.changes)
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
                *(sdc_arrays(self._columns.sdc, extracted, wire.version, moments) if self._columns.sdc else ()),
            ],
            schema=self._columns.schema,
        )
        deletions, keyed = self._deletions(batch, wire.changes), self._keyed(batch, wire)
        unwanted = None if is_wanted is None else self._unwanted(is_wanted, deletions)
        if keyed is not None:
            batch, deletions, unwanted = batch.filter(keyed), _some(deletions, keyed), _some(unwanted, keyed)
        parsed = Parsed(batch, 0, wire.rejected, wire.ignored, wire.foreign, deletions)
        if unwanted is not None:
            parsed = self._filtered(parsed, unwanted)
        return parsed._replace(changed=_changed(parsed.rows, wire))

    def _unwanted(self, is_wanted: pa.BooleanArray, deletions: pa.BooleanArray | None) -> pa.BooleanArray:
        """Of a row that was deleted a source may tell no more than its key: where it deletes, no filter is asked."""
        if deletions is None or self._planned.write not in DEDUPLICATING:
            return pc.invert(is_wanted)
        return pc.invert(pc.or_(is_wanted, deletions))

    def _filtered(self, parsed: Parsed, unwanted: pa.BooleanArray) -> Parsed:
        """A row that the filter leaves out takes an older one of its key out of the table, where rows have keys."""
        parsed.rejected[FILTERED] += unwanted.true_count
        if self._planned.write in DEDUPLICATING:
            return parsed._replace(gone=unwanted)
        wanted = pc.invert(unwanted)
        return parsed._replace(batch=parsed.batch.filter(wanted), deletions=_some(parsed.deletions, wanted))

    def _nested_key(self, column: Column, arrays: Mapping[str, pa.Array], wire: WireRows) -> pa.Array:
        owner = next(top for top in self._columns.top if top.path[0] == column.path[0])
        array, kind, beyond = reached(arrays[owner.name], owner.type, column.path[1:])
        if not beyond:
            return array
        raws = texts_at(array, kind, beyond)
        return coerced(column, wire_array(column, raws, wire.changes), wire.changes)

    def _deletions(self, batch: pa.RecordBatch, changes: Changes) -> pa.BooleanArray | None:
        """Also where the column could not hold the value: it was there none the less."""
        column = self._columns.deleted_at
        if column is None:
            return None
        said = batch.column(column.name).is_valid()
        if misfits := changes.rows_nulled(column.path[0]):
            said = pc.or_(said, _marked(misfits, batch.num_rows))
        return said if said.true_count else None

    def _keyed(self, batch: pa.RecordBatch, wire: WireRows) -> pa.BooleanArray | None:
        """Which rows can be told by their keys; None: all of them, or none needs to be. The others are rejected."""
        keys = [column for column in self._columns.all if column.name in self._columns.keys]
        if self._planned.write not in DEDUPLICATING or all(batch.column(key.name).null_count == 0 for key in keys):
            return None
        # Landed with nulls in their place, keys that differ would be one, and its rows replace each other.
        misfits = [row for key in keys for row in wire.changes.rows_nulled(".".join(key.path))]
        bad = _marked(misfits, batch.num_rows)
        absent = reduce(pc.and_, (batch.column(key.name).is_null() for key in keys))
        wire.rejected.update(+Counter({BAD_KEY: bad.true_count, NO_KEY: pc.and_not(absent, bad).true_count}))
        return pc.invert(pc.or_(absent, bad))


def _some(claims: pa.BooleanArray | None, rows: pa.BooleanArray) -> pa.BooleanArray | None:
    return None if claims is None else claims.filter(rows)


def _marked(rows: Sequence[int], of: int) -> pa.BooleanArray:
    marks = np.zeros(of, dtype=bool)
    marks[rows] = True
    return pa.array(marks)


def _changed(batch: pa.RecordBatch, wire: WireRows) -> int:
    source = wire.source_changes
    if not wire.changes and (source is None or source.null_count == len(source)):
        return 0
    lengths = pc.list_value_length(batch.column("_airbyte_meta").field("changes"))
    return int(pc.sum(pc.greater(lengths, 0)).as_py() or 0)
