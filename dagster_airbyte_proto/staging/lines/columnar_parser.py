"""Parses a whole segment with Arrow's JSON parser, and makes the checks that it lacks on whole columns.

- `parse` returns None for a segment that is not plainly right. `parse_by_record` then finds out what is wrong with it.
- As long as no record of a stream had an undeclared field, Arrow's parser rejects such fields. So a clean stream pays
  nothing for the check, and no undeclared field is missed. After the first one (and for streams with columns that the
  parser must skip) the names are searched in a sample of each segment: from then on their counts are lower bounds.
- The parser skips columns whose raw text is needed (JSON and decimals), and columns with a value that it could not
  read. `wire_array` reads these from their raw text; the others stay as fast as before.
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
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.schema.columns import Column, Columns
from dagster_airbyte_proto.staging.lines.envelope import (
    data_members,
    emitted_at_type,
    line_schema,
    member_names_decoder,
    raw_decoder,
    whole_record_decoder,
)
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, text_array
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.lines.record_line import DECODE_ERRORS, split_lines
from dagster_airbyte_proto.staging.lines.undeclared_fields import DeclaredFields
from dagster_airbyte_proto.staging.lines.wire_rows import ANOTHER_NAMESPACE, WireRows
from dagster_airbyte_proto.staging.values.changes import Changes

_SAMPLED_WHOLE_BYTES = 128 << 10
_SAMPLES = 16
_SAMPLE_BYTES = 4 << 10
# With more skipped columns than this, `parse_by_record` is as fast.
_MAX_SKIPPED_COLUMNS = 8


class ColumnarParser:
    """Parses the segments of one stream. The stream's first line shows what its envelope looks like."""

    def __init__(self, columns: Columns, record_wire: RecordWire, stream: StreamId, first_line: bytes) -> None:
        self._columns = columns
        self._record_wire = record_wire
        self._stream = stream
        self._first_line = first_line
        self._members_decoder, self._members_of = member_names_decoder(record_wire.data)
        self._declared = DeclaredFields(columns)
        # Most sources never send these members. They are declared as nulls until a line has one, which saves their
        # columns.
        self._rare_members = [record_wire.changes] if stream.namespace else [record_wire.changes, record_wire.namespace]
        self._assumes_no_rare_members = True
        # No value is read from these members. The demux blanks them in all lines of a run, so that only a record that
        # came as a single line still has them.
        self._head_members = [record_wire.type, record_wire.stream]
        self._unneeded_members = [] if columns.sdc else [record_wire.version]
        self._skip_columns([column for column in columns.parsed_fields if column.type.needs_raw_text])

    def _skip_columns(self, raw_columns: list[Column]) -> None:
        """Makes the parser skip these columns."""
        self._raw_columns = raw_columns
        self._raw_decoder = (
            raw_decoder(self._record_wire, [column.path[0] for column in raw_columns]) if raw_columns else None
        )
        if self._columns.is_schemaless:
            self._raw_decoder = whole_record_decoder(self._record_wire.data)
        self._rejects_undeclared = not raw_columns and self._columns.reads_every_field
        self._schema = self._schema_of(self._parsed)

    @property
    def _parsed(self) -> list[Column]:
        """The columns that Arrow's parser reads."""
        return [column for column in self._columns.parsed_fields if column not in self._raw_columns]

    def _schema_of(self, columns: Sequence[Column]) -> pa.Schema:
        declares_head_members = self._rejects_undeclared and not self._assumes_no_rare_members
        return line_schema(
            self._record_wire,
            columns,
            self._first_line,
            excluded=[*self._unneeded_members, *(() if declares_head_members else self._head_members)],
            null_paths=self._rare_members if self._assumes_no_rare_members else (),
        )

    def skip_odd_columns(self, segment: bytes) -> None:
        """Makes the parser skip, from now on, the columns that have a value in this segment that it cannot read."""
        self._assumes_no_rare_members = self._rejects_undeclared = False
        skipped = [*self._raw_columns, *self._odd_columns(segment)]
        # In the order of the columns, because entries of changes come in that order.
        self._skip_columns([column for column in self._columns.parsed_fields if column in skipped])

    def _odd_columns(self, segment: bytes) -> list[Column]:
        """Finds the columns that the parser cannot read, by halving. Empty if it is none of them, or too many."""
        if self._read_json(segment, self._schema_of([])) is None:
            return []
        odd_columns: list[Column] = []
        halves = [self._parsed]
        while halves:
            columns = halves.pop()
            if self._read_json(segment, self._schema_of(columns)) is not None:
                continue
            if len(columns) > 1:
                halves += [columns[: len(columns) // 2], columns[len(columns) // 2 :]]
            elif len(odd_columns) == _MAX_SKIPPED_COLUMNS:
                return []
            else:
                odd_columns += columns
        return odd_columns

    def parse(self, segment: bytes, lines: int) -> WireRows | None:
        """Returns the rows of a segment; None if it must be parsed by record."""
        ignored: Counter[str] = Counter()
        table = self._read_json(segment, self._schema)
        if table is None and self._assumes_no_rare_members:
            self._assumes_no_rare_members = False
            self._schema = self._schema_of(self._parsed)
            table = self._read_json(segment, self._schema)
        if not self._rejects_undeclared:
            ignored = self._count_undeclared(_sample_lines(segment))
        elif table is None:
            ignored = self._count_undeclared([segment])
            self._rejects_undeclared = False
            table = self._read_json(segment, self._schema)
            # If nothing in the data or the envelope was undeclared, the cause is a value that does not fit: the parser
            # goes on rejecting undeclared fields.
            self._rejects_undeclared = table is None and not ignored
        if table is None or table.num_rows != lines:
            return None
        changes = Changes()
        raws = self._raw_arrays(segment, changes)
        return None if raws is None else self._rows(table, raws, ignored, changes)

    def _read_json(self, segment: bytes, schema: pa.Schema) -> pa.Table | None:
        options = pj.ReadOptions(use_threads=False, block_size=len(segment) + 1)
        strictness = "error" if self._rejects_undeclared else "ignore"
        parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=strictness)
        try:
            table = pj.read_json(pa.BufferReader(segment), read_options=options, parse_options=parsing)
            table.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return table

    def _raw_arrays(self, segment: bytes, changes: Changes) -> list[pa.Array] | None:
        """Returns the arrays of the columns that the parser skips. Only their members become Python objects."""
        if self._raw_decoder is None:
            return []
        decoder, getters = self._raw_decoder
        try:
            records = decoder.decode_lines(segment)
        except DECODE_ERRORS:
            return self._raw_arrays_line_by_line(segment, changes)
        arrays = [
            _raw_array(column, list(map(getter, records)), changes)
            for column, getter in zip(self._raw_columns, getters, strict=True)
        ]
        with suppress(pa.ArrowInvalid):
            for array in arrays:
                array.validate(full=True)
            return arrays
        return None

    def _raw_arrays_line_by_line(self, segment: bytes, changes: Changes) -> list[pa.Array] | None:
        """Returns the same for a segment with an odd line that Arrow's parser takes: it lets NaN pass, for one."""
        found = [
            None if parts is None else parts.data
            for parts in split_lines(segment, self._record_wire, is_whole=self._columns.is_schemaless)
        ]
        data = [each for each in found if each is not None]
        if len(data) < len(found):
            return None
        return [wire_array(c, [each.get(c.path[0], MISSING) for each in data], changes) for c in self._raw_columns]

    def _rows(self, table: pa.Table, raws: list[pa.Array], ignored: Counter[str], changes: Changes) -> WireRows | None:
        data = _array_at(table, self._record_wire.data)
        if data is None or data.null_count:
            return None
        raw = dict(zip((column.name for column in self._raw_columns), raws, strict=True))
        arrays = [raw[c.name] if c.name in raw else data.field(c.path[0]) for c in self._columns.parsed_fields]
        emitted_at = _array_at(table, self._record_wire.emitted_at)
        rows = WireRows(
            tuple(arrays),
            pa.nulls(len(data), emitted_at_type(self._record_wire)) if emitted_at is None else emitted_at,
            _array_at(table, self._record_wire.changes),
            changes,
            Counter(),
            ignored,
            Counter(),
            _array_at(table, self._record_wire.version) if self._columns.sdc else None,
        )
        return self._filter_namespace(rows, _array_at(table, self._record_wire.namespace))

    def _filter_namespace(self, rows: WireRows, namespaces: pa.Array | None) -> WireRows | None:
        """Returns the rows of the stream's namespace; None if changes are noted, since those count the others too."""
        if namespaces is None or (self._stream.namespace is None and namespaces.null_count == len(namespaces)):
            return rows
        names_or_empty = pc.fill_null(namespaces, "")
        ours = pc.equal(names_or_empty, self._stream.namespace or "")
        if pc.all(ours).as_py():
            return rows
        if rows.changes:
            return None
        others = Counter(
            StreamId.of(self._stream.name, name) for name in names_or_empty.filter(pc.invert(ours)).to_pylist()
        )
        return rows._replace(
            arrays=tuple(array.filter(ours) for array in rows.arrays),
            emitted_at=rows.emitted_at.filter(ours),
            source_changes=None if rows.source_changes is None else rows.source_changes.filter(ours),
            version=None if rows.version is None else rows.version.filter(ours),
            rejected=Counter({ANOTHER_NAMESPACE: others.total()}),
            foreign=others,
        )

    def _count_undeclared(self, parts: Sequence[bytes]) -> Counter[str]:
        found: Counter[str] = Counter()
        for record in chain.from_iterable(map(self._records_in, parts)):
            if unknown := self._declared.undeclared_in(record):
                found.update(unknown)
        return found

    def _records_in(self, part: bytes) -> Iterator[Mapping[str, Raw]]:
        try:
            records = self._members_decoder.decode_lines(part)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield from (data_members(line, self._record_wire.data) for line in part.split(b"\n")[:-1])
        else:
            yield from map(self._members_of, records)


def _array_at(table: pa.Table, path: FieldPath) -> pa.Array | None:
    """Returns the array at `path`; None if there is no such path, or if an object on the way is missing in a row."""
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


def _raw_array(column: Column, raws: Sequence[Raw], changes: Changes) -> pa.Array:
    return text_array(raws) if column.type.is_json_text else wire_array(column, raws, changes)


def _sample_lines(segment: bytes) -> list[bytes]:
    if len(segment) <= _SAMPLED_WHOLE_BYTES:
        return [segment]
    return list(_windows(segment))


def _windows(segment: bytes) -> Iterator[bytes]:
    """Yields whole lines from places spread over the segment, each line once: one may be longer than a step."""
    step, end = len(segment) // _SAMPLES, 0
    for at in range(0, len(segment), step):
        if at < end:
            continue
        start = segment.rfind(b"\n", 0, at) + 1
        end = segment.find(b"\n", min(start + _SAMPLE_BYTES, len(segment) - 1)) + 1
        yield segment[start:end]
