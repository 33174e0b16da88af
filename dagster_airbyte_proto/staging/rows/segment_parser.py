"""Parses segments (whole record lines of one stream) into Arrow batches of the stream's columns.

The steps of a segment:

1. `ColumnarParser` parses it. If that refuses it, `parse_by_record` parses it again.
2. Values are coerced to the types of the table. A batch of a connector that sends Arrow joins here, converted to these
   types by `staging/arrow/batch_rows.py`.
3. The stream's shaping filters rows, hashes columns, and prunes objects.
4. The metadata columns are added.
5. Rows without a usable key are rejected, where rows have keys.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import DEDUPLICATING, PlannedStream, StreamId
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.schema.columns import META, Column, Columns, ValueKind
from dagster_airbyte_proto.schema.shaping import merges_by_key
from dagster_airbyte_proto.staging.arrow.batch_rows import batch_rows
from dagster_airbyte_proto.staging.lines.columnar_parser import ColumnarParser
from dagster_airbyte_proto.staging.lines.nested_values import (
    are_around_misfits,
    member_array,
    paths_around,
    raw_texts_at,
)
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.lines.record_parser import parse_by_record
from dagster_airbyte_proto.staging.lines.wire_rows import WireRows
from dagster_airbyte_proto.staging.rows.coercion import coerce
from dagster_airbyte_proto.staging.rows.deletions import deletion_mask
from dagster_airbyte_proto.staging.rows.faulty_values import wire_array_around_faults
from dagster_airbyte_proto.staging.rows.metadata import (
    RawIdGenerator,
    RowOrigin,
    SegmentTimes,
    extracted_at,
    meta_column,
    sdc_arrays,
)
from dagster_airbyte_proto.staging.rows.shaping import FILTERED, shaper_of
from dagster_airbyte_proto.staging.values.changes import Changes, ValueLocations, count_nulled, true_positions

# After this many failures in a row the columnar parser is tried for every 17th segment, and not more rarely.
_MAX_BACKOFF_FAILURES = 6
_FIRST_INEXACT = 2.0**53
NO_KEY = "every part of the key is null"
BAD_KEY = "a part of the key does not fit its column"


class ParsedBatch(NamedTuple):
    """A parsed segment. `batch` has the schema of the stream's `Columns`.

    The lines of the segment are the landing rows plus the rejected ones. `deletions` is a mask of the rows that delete
    their key. `filtered_out` is a mask of the rows that the filter rejected: the batch has them for their keys alone,
    which the table must no longer have. Both are None if there are no such rows. `nulled` counts the values of the
    landing rows that did not fit their column, by their path in the record. `added` rows were made by a transform,
    beyond the first one that it made of each row.
    """

    batch: pa.RecordBatch
    changed: int
    rejected: Counter[str]
    ignored: Counter[str]
    foreign: Counter[StreamId]
    deletions: pa.BooleanArray | None = None
    filtered_out: pa.BooleanArray | None = None
    nulled: Mapping[str, int] = {}
    added: int = 0

    @property
    def landing_rows(self) -> pa.RecordBatch:
        """The rows that land."""
        return self.batch if self.filtered_out is None else self.batch.filter(pc.invert(self.filtered_out))


class SegmentParser:
    """Parses the segments of one stream, in order."""

    def __init__(
        self,
        planned: PlannedStream,
        columns: Columns,
        record_wire: RecordWire,
        origin: RowOrigin,
        *,
        hash_key: str = "",
    ) -> None:
        self._origin = origin
        self._planned = planned
        self._shaper = shaper_of(columns, hash_key)
        self._columns = columns
        self._record_wire = record_wire
        self._raw_ids = RawIdGenerator(origin.seed)
        self._columnar: ColumnarParser | None = None
        self._columnar_failures = 0
        self._skipped_attempts = 0
        self.segments_by_record = 0

    def parse(
        self, segment: bytes, lines: int, now_microseconds: int, since_microseconds: int | None = None
    ) -> ParsedBatch:
        """Parses a segment of so many `lines`, of which the first came at `since_microseconds`.

        Never raises for what the connector sent. Where our own code fails on a value, that value is nulled.
        """
        since = now_microseconds if since_microseconds is None else since_microseconds
        times = SegmentTimes(self._origin.began_at, since, now_microseconds)
        try:
            return self._parse_lines(segment, lines, times)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - raised again below, unless it came from values that can be left out
            self.segments_by_record += 1
            wire = parse_by_record(
                segment, self._columns, self._record_wire, self._planned.id, wire_array_around_faults
            )
            return self._build_batch(wire, self._coerced_arrays(wire), times)

    def _parse_lines(self, segment: bytes, lines: int, times: SegmentTimes) -> ParsedBatch:
        if self._columnar is None:
            first_line = segment[: segment.find(b"\n") + 1]
            self._columnar = ColumnarParser(self._columns, self._record_wire, self._planned.id, first_line)
        wire = self._parse_columnar(self._columnar, segment, lines)
        if wire is not None:
            arrays = self._coerced_arrays(wire)
            # Arrow's parser makes one infinity of 1e999, which is a number, and of Infinity, which is none. Each gives
            # an entry when it is coerced, so segments without entries need no search.
            if not (wire.changes and (any(map(_has_infinity, wire.arrays)) or self._has_key_in_misfit(wire.changes))):
                return self._build_batch(wire, arrays, times)
        self.segments_by_record += 1
        wire = parse_by_record(segment, self._columns, self._record_wire, self._planned.id)
        return self._build_batch(wire, self._coerced_arrays(wire), times)

    def _has_key_in_misfit(self, changes: Changes) -> bool:
        """True if an object around a key became null. The key is then read from its raw text."""
        return any(are_around_misfits(key.path, changes) for key in self._columns.nested)

    def _coerced_arrays(self, wire: WireRows) -> dict[str, pa.Array]:
        return {
            column.name: coerce(column, array, wire.changes)
            for column, array in zip(self._columns.parsed_fields, wire.arrays, strict=True)
        }

    def parse_batch(self, batch: pa.RecordBatch, now_microseconds: int, since_microseconds: int) -> ParsedBatch:
        """Takes in a batch of a connector that sends Arrow, which came at `since_microseconds`."""
        wire = batch_rows(batch, self._columns)
        names = (column.name for column in self._columns.parsed_fields)
        arrays = dict(zip(names, wire.arrays, strict=True))
        times = SegmentTimes(self._origin.began_at, since_microseconds, now_microseconds)
        return self._build_batch(wire, arrays, times)

    def _parse_columnar(self, parser: ColumnarParser, segment: bytes, lines: int) -> WireRows | None:
        """Returns the rows by the columnar parser; None if the segment must be parsed by record.

        The longer the columnar parser fails, the less often it is tried. It is never given up.
        """
        if self._skipped_attempts < (1 << self._columnar_failures) // 4:
            self._skipped_attempts += 1
            return None
        self._skipped_attempts = 0
        wire = parser.parse(segment, lines)
        if wire is None and self._columnar_failures == 1:
            parser.skip_odd_columns(segment)
            wire = parser.parse(segment, lines)
        self._columnar_failures = 0 if wire is not None else min(self._columnar_failures + 1, _MAX_BACKOFF_FAILURES)
        return wire

    def _build_batch(self, wire: WireRows, arrays: dict[str, pa.Array], times: SegmentTimes) -> ParsedBatch:
        """Builds the batch from arrays of the table's types."""
        rows, now_microseconds = len(wire.emitted_at), times.read
        for column in self._columns.nested:
            arrays[column.name] = self._nested_key_array(column, arrays, wire)
        self._note_rounded_keys(arrays, wire.changes)
        # Of values as they came, not as they are shaped.
        deletions = deletion_mask(self._columns, arrays, wire.changes)
        is_wanted = None
        if self._shaper is not None:
            arrays, is_wanted = self._shaper.shape_rows(arrays)
        # Before the times of the envelope are noted: a key may have the name of one.
        misfits = self._key_misfits(wire)
        if self._record_wire.emitted_at:
            extracted = extracted_at(wire.emitted_at, now_microseconds, wire.changes)
        else:
            extracted = extracted_at(pa.repeat(now_microseconds / 1000, rows), now_microseconds, wire.changes)
        lists = wire.changes.entry_lists(rows, self._columns.parsed_fields)
        about = meta_column(self._origin.sync_id, lists, wire.source_changes)
        generation = pa.repeat(pa.scalar(self._planned.generation_id, pa.int64()), rows)
        batch = pa.RecordBatch.from_arrays(
            [
                *(arrays[column.name] for column in self._columns.all),
                self._raw_ids.take(rows),
                extracted,
                about,
                generation,
                *(sdc_arrays(self._columns.sdc, extracted, wire.version, times) if self._columns.sdc else ()),
                *(arrays[mark.name] for mark in self._columns.sent_marks),
            ],
            schema=self._columns.schema,
        )
        has_key = self._reject_unusable_keys(batch, wire, misfits)
        filtered_out = None if is_wanted is None else self._filtered_out_mask(is_wanted, deletions)
        if has_key is not None:
            batch, deletions = batch.filter(has_key), _filter_mask(deletions, has_key)
            filtered_out = _filter_mask(filtered_out, has_key)
        parsed = ParsedBatch(batch, 0, wire.rejected, wire.ignored, wire.foreign, deletions)
        if filtered_out is not None:
            parsed = self._apply_filter(parsed, filtered_out)
        landing_rows = parsed.landing_rows
        nulled = count_nulled(_entry_lists(landing_rows)) if wire.changes.has_nulled else {}
        return parsed._replace(changed=_count_changed(landing_rows, wire), nulled=nulled)

    def _filtered_out_mask(self, is_wanted: pa.BooleanArray, deletions: pa.BooleanArray | None) -> pa.BooleanArray:
        """Returns a mask of the rows that the filter leaves out."""
        # Of a deleted row a source may send only the key. So the filter does not apply to rows that delete their key.
        if deletions is None or not merges_by_key(self._planned):
            return pc.invert(is_wanted)
        return pc.invert(pc.or_(is_wanted, deletions))

    def _apply_filter(self, parsed: ParsedBatch, filtered_out: pa.BooleanArray) -> ParsedBatch:
        """Removes the rows that the filter leaves out; where rows have keys, the table loses older ones of the keys."""
        parsed.rejected[FILTERED] += filtered_out.true_count
        if self._planned.write in DEDUPLICATING:
            return parsed._replace(filtered_out=filtered_out)
        wanted = pc.invert(filtered_out)
        return parsed._replace(batch=parsed.batch.filter(wanted), deletions=_filter_mask(parsed.deletions, wanted))

    def _nested_key_array(self, column: Column, arrays: Mapping[str, pa.Array], wire: WireRows) -> pa.Array:
        owner = next(top for top in self._columns.parsed_fields if top.path[0] == column.path[0])
        array, kind, beyond = member_array(arrays[owner.name], owner.type, column.path[1:])
        if not beyond:
            return array
        raws = raw_texts_at(array, kind, beyond)
        for row, raw in wire.key_texts.get(column.name, {}).items():
            raws[row] = raw
        return coerce(column, wire_array(column, raws, wire.changes), wire.changes)

    def _note_rounded_keys(self, arrays: Mapping[str, pa.Array], changes: Changes) -> None:
        """Notes the numbers of keys that are so large that a double stands for several whole numbers."""
        if self._planned.write not in DEDUPLICATING:
            return
        for column in (*self._columns.parsed_fields, *self._columns.nested):
            if column.name in self._columns.keys and column.type.kind is ValueKind.NUMBER:
                is_large = pc.greater_equal(pc.abs(arrays[column.name]), _FIRST_INEXACT)
                changes.note_truncated(ValueLocations(column.path), true_positions(is_large))

    @property
    def _keys(self) -> list[Column]:
        return [column for column in self._columns.all if column.name in self._columns.keys]

    def _key_misfits(self, wire: WireRows) -> list[int]:
        """The rows whose key does not fit its column. It would land as null, or without its last digits: then different
        keys would be equal, and their rows would replace each other."""
        found: list[int] = []
        for key in self._keys:
            found += wire.changes.rows_changed(key.path)
            # The same holds for an object that became null, unless the key was read from its text.
            texts = wire.key_texts.get(key.name, {})
            around = (row for path in paths_around(key.path) for row in wire.changes.rows_changed(path))
            found += [row for row in around if row not in texts]
        return found

    def _reject_unusable_keys(
        self, batch: pa.RecordBatch, wire: WireRows, misfits: Sequence[int]
    ) -> pa.BooleanArray | None:
        """Counts the rows without a usable key as rejected: those without one, and the misfits. Returns a mask of the
        other rows.

        None if all rows have a usable key, or need none.
        """
        if self._planned.write not in DEDUPLICATING:
            return None
        keys = self._keys
        if not misfits and all(batch.column(key.name).null_count == 0 for key in keys):
            return None
        bad = _mask_of_rows(misfits, batch.num_rows)
        absent = reduce(pc.and_, (batch.column(key.name).is_null() for key in keys))
        wire.rejected.update(+Counter({BAD_KEY: bad.true_count, NO_KEY: pc.and_not(absent, bad).true_count}))
        return pc.invert(pc.or_(absent, bad))


def _has_infinity(array: pa.Array) -> bool:
    """True if the array has an infinite number at any depth. Where a null is, it may be true for no reason."""
    if pa.types.is_floating(array.type):
        return bool(np.isinf(array.to_numpy(zero_copy_only=False)).any())
    if pa.types.is_list(array.type):
        return _has_infinity(array.values)
    return pa.types.is_struct(array.type) and any(
        _has_infinity(array.field(number)) for number in range(array.type.num_fields)
    )


def _filter_mask(claims: pa.BooleanArray | None, rows: pa.BooleanArray) -> pa.BooleanArray | None:
    return None if claims is None else claims.filter(rows)


def _mask_of_rows(rows: Sequence[int], of: int) -> pa.BooleanArray:
    marks = np.zeros(of, dtype=bool)
    marks[rows] = True
    return pa.array(marks)


def _count_changed(batch: pa.RecordBatch, wire: WireRows) -> int:
    source = wire.source_changes
    if not wire.changes and (source is None or source.null_count == len(source)):
        return 0
    lengths = pc.list_value_length(_entry_lists(batch))
    return int(pc.sum(pc.greater(lengths, 0)).as_py() or 0)


def _entry_lists(batch: pa.RecordBatch) -> pa.ListArray:
    return batch.column(META).field("changes")
