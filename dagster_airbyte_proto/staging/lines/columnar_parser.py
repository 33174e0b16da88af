"""The fast road: a whole segment through Arrow's JSON parser, with the checks it lacks made on whole columns.

Says None whenever a segment is not plainly right; the slow road then finds out what is wrong with it. While no record
of a stream had a field that its schema lacks, the parser is told to refuse those: clean streams pay nothing for the
look-out, and no such field goes unseen. From the first one on (and for streams with fields that the parser must skip)
the names are looked up in a sample of each segment, so that their counts are lower bounds.

The parser skips columns whose raw text we want (JSON and decimals), and those that were set aside because it could not
read a value of theirs: they are cut and read by the slow road's means, and the others go on as fast as before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dagster_airbyte_proto.model import FieldPath, StreamId
from dagster_airbyte_proto.protocols.wire import RecordShape
from dagster_airbyte_proto.schema.columns import Column, Columns
from dagster_airbyte_proto.staging.lines.envelope import (
    data_members,
    emitted_type,
    names_decoder,
    parse_schema,
    raw_decoder,
    whole_decoder,
)
from dagster_airbyte_proto.staging.lines.parsed import ANOTHER_NAMESPACE, WireRows
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, text_array
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.lines.record_line import REFUSALS, parts_of_lines
from dagster_airbyte_proto.staging.lines.undeclared import Declared
from dagster_airbyte_proto.staging.rows.changes import Changes

_SAMPLED_WHOLE_BYTES = 128 << 10
_SAMPLES = 16
_SAMPLE_BYTES = 4 << 10
# More odd columns than this, and the slow road is as good.
_MOST_SET_ASIDE = 8


class FastRoad:
    """Parses the segments of one stream. Made with the stream's first line, to learn what its envelope looks like."""

    def __init__(self, columns: Columns, shape: RecordShape, stream: StreamId, first_line: bytes) -> None:
        self._columns = columns
        self._shape = shape
        self._stream = stream
        self._first_line = first_line
        self._names_decoder, self._names = names_decoder(shape.data)
        self._declared = Declared(columns)
        # Until a line has them, members that most sources never send are declared as nulls: that saves their columns.
        self._rare = [shape.changes] if stream.namespace else [shape.changes, shape.namespace]
        self._is_lean = True
        # Nothing is read there, and only a line that came in no run has them.
        self._told = [shape.type, shape.stream]
        self._unasked = [] if columns.sdc else [shape.version]
        self._cut_out([column for column in columns.top if column.type.is_raw])

    def _cut_out(self, cut: list[Column]) -> None:
        """The parser is to skip these columns."""
        self._cut = cut
        self._raw_decoder = raw_decoder(self._shape, [column.path[0] for column in cut]) if cut else None
        if self._columns.is_whole:
            self._raw_decoder = whole_decoder(self._shape.data)
        self._refuses_undeclared = not cut and self._columns.is_read_whole
        self._schema = self._schema_of(self._parsed)

    @property
    def _parsed(self) -> list[Column]:
        """The columns that the parser is to read."""
        return [column for column in self._columns.top if column not in self._cut]

    def _schema_of(self, columns: Sequence[Column]) -> pa.Schema:
        has_told = self._refuses_undeclared and not self._is_lean
        return parse_schema(
            self._shape,
            columns,
            self._first_line,
            without=[*self._unasked, *(() if has_told else self._told)],
            nulls=self._rare if self._is_lean else (),
        )

    def set_aside(self, segment: bytes) -> None:
        """From now on the parser skips the columns of which it cannot read a value that is in this segment."""
        self._is_lean = self._refuses_undeclared = False
        skipped = [*self._cut, *self._odd_columns(segment)]
        self._cut_out([column for column in self._columns.top if column in skipped])  # In order, as notes are.

    def _odd_columns(self, segment: bytes) -> list[Column]:
        """Found by halving. None where no column is to blame, or too many are."""
        if self._read(segment, self._schema_of([])) is None:
            return []
        odd: list[Column] = []
        halves = [self._parsed]
        while halves:
            some = halves.pop()
            if self._read(segment, self._schema_of(some)) is not None:
                continue
            if len(some) > 1:
                halves += [some[: len(some) // 2], some[len(some) // 2 :]]
            elif len(odd) == _MOST_SET_ASIDE:
                return []
            else:
                odd += some
        return odd

    def parse(self, segment: bytes, lines: int) -> WireRows | None:
        """The rows of a segment; None when it must take the slow road."""
        ignored: Counter[str] = Counter()
        table = self._read(segment, self._schema)
        if table is None and self._is_lean:
            self._is_lean = False
            self._schema = self._schema_of(self._parsed)
            table = self._read(segment, self._schema)
        if not self._refuses_undeclared:
            ignored = self._undeclared(_sample(segment))
        elif table is None:
            ignored = self._undeclared([segment])
            self._refuses_undeclared = False
            table = self._read(segment, self._schema)
            # Neither the data nor the envelope had something new: a value does not fit, and the look-out goes on.
            self._refuses_undeclared = table is None and not ignored
        if table is None or table.num_rows != lines:
            return None
        changes = Changes()
        raws = self._raws(segment, changes)
        return None if raws is None else self._rows(table, raws, ignored, changes)

    def _read(self, segment: bytes, schema: pa.Schema) -> pa.Table | None:
        options = pj.ReadOptions(use_threads=False, block_size=len(segment) + 1)
        strictness = "error" if self._refuses_undeclared else "ignore"
        parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=strictness)
        try:
            table = pj.read_json(pa.BufferReader(segment), read_options=options, parse_options=parsing)
            table.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return table

    def _raws(self, segment: bytes, changes: Changes) -> list[pa.Array] | None:
        """The columns that the parser skips. Nothing but these members becomes a Python object."""
        if self._raw_decoder is None:
            return []
        decoder, getters = self._raw_decoder
        try:
            records = decoder.decode_lines(segment)
        except REFUSALS:
            return self._raws_line_by_line(segment, changes)
        arrays = [
            _from_raws(column, list(map(getter, records)), changes)
            for column, getter in zip(self._cut, getters, strict=True)
        ]
        with suppress(pa.ArrowInvalid):
            for array in arrays:
                array.validate(full=True)
            return arrays
        return None

    def _raws_line_by_line(self, segment: bytes, changes: Changes) -> list[pa.Array] | None:
        """Where a line is odd that the parser takes all the same: it lets NaN pass, for one."""
        found = [
            None if parts is None else parts.data
            for parts in parts_of_lines(segment, self._shape, is_whole=self._columns.is_whole)
        ]
        data = [each for each in found if each is not None]
        if len(data) < len(found):
            return None
        return [wire_array(c, [each.get(c.path[0], MISSING) for each in data], changes) for c in self._cut]

    def _rows(self, table: pa.Table, raws: list[pa.Array], ignored: Counter[str], changes: Changes) -> WireRows | None:
        data = _at(table, self._shape.data)
        if data is None or data.null_count:
            return None
        cut = dict(zip((column.name for column in self._cut), raws, strict=True))
        arrays = [cut[c.name] if c.name in cut else data.field(c.path[0]) for c in self._columns.top]
        emitted_at = _at(table, self._shape.emitted_at)
        rows = WireRows(
            tuple(arrays),
            pa.nulls(len(data), emitted_type(self._shape)) if emitted_at is None else emitted_at,
            _at(table, self._shape.changes),
            changes,
            Counter(),
            ignored,
            Counter(),
            _at(table, self._shape.version) if self._columns.sdc else None,
        )
        return self._of_our_namespace(rows, _at(table, self._shape.namespace))

    def _of_our_namespace(self, rows: WireRows, namespaces: pa.Array | None) -> WireRows:
        if namespaces is None or (self._stream.namespace is None and namespaces.null_count == len(namespaces)):
            return rows
        given = pc.fill_null(namespaces, "")
        ours = pc.equal(given, self._stream.namespace or "")
        if pc.all(ours).as_py():
            return rows
        others = Counter(StreamId.of(self._stream.name, name) for name in given.filter(pc.invert(ours)).to_pylist())
        return rows._replace(
            arrays=tuple(array.filter(ours) for array in rows.arrays),
            emitted_at=rows.emitted_at.filter(ours),
            source_changes=None if rows.source_changes is None else rows.source_changes.filter(ours),
            version=None if rows.version is None else rows.version.filter(ours),
            rejected=Counter({ANOTHER_NAMESPACE: others.total()}),
            foreign=others,
        )

    def _undeclared(self, parts: Sequence[bytes]) -> Counter[str]:
        found: Counter[str] = Counter()
        for record in chain.from_iterable(map(self._records_in, parts)):
            if unknown := self._declared.unknown(record):
                found.update(unknown)
        return found

    def _records_in(self, part: bytes) -> Iterator[Mapping[str, Raw]]:
        try:
            records = self._names_decoder.decode_lines(part)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield from (data_members(line, self._shape.data) for line in part.split(b"\n")[:-1])
        else:
            yield from map(self._names, records)


def _at(table: pa.Table, path: FieldPath) -> pa.Array | None:
    """The array at `path`; None when there is no such path, or when an object on the way to it is missing."""
    if not path:
        return None
    schema: Any = table.schema
    for step in path:
        if schema == pa.null() or schema.get_field_index(step) < 0:
            return None
        schema = schema.field(step).type
    column = table.column(path[0])
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    for depth, step in enumerate(path[1:], start=1):
        if array.null_count and depth == 1:
            return None
        array = array.field(step)
    return array


def _from_raws(column: Column, raws: Sequence[Raw], changes: Changes) -> pa.Array:
    return text_array(raws) if column.type.is_json_text else wire_array(column, raws, changes)


def _sample(segment: bytes) -> list[bytes]:
    if len(segment) <= _SAMPLED_WHOLE_BYTES:
        return [segment]
    return list(_windows(segment))


def _windows(segment: bytes) -> Iterator[bytes]:
    """Whole lines from places spread over the segment."""
    step = len(segment) // _SAMPLES
    for at in range(0, len(segment), step):
        start = segment.rfind(b"\n", 0, at) + 1
        end = segment.find(b"\n", min(start + _SAMPLE_BYTES, len(segment) - 1)) + 1
        yield segment[start:end]
