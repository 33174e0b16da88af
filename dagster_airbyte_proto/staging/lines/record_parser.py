"""Parses a segment that the columnar parser refused: record by record, and value by value where necessary.

It rejects only lines that are not records. A value that does not fit its column becomes null, and the row stays.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.schema.columns import CHANGES, Column, Columns
from dagster_airbyte_proto.staging.lines.nested_values import are_around_misfits, texts_in_misfits
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, elements, members
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.lines.record_line import DECODE_ERRORS, Envelope, RecordParts, split_lines
from dagster_airbyte_proto.staging.lines.undeclared_fields import DeclaredFields
from dagster_airbyte_proto.staging.lines.wire_rows import ANOTHER_NAMESPACE, WireRows
from dagster_airbyte_proto.staging.values.changes import Changes

NOT_JSON = "the line is no JSON object"
NO_DATA = "the record has no data"

_TEXT = msgspec.json.Decoder(str)
_NUMBERS = msgspec.json.Decoder(list[float | None])


def parse_by_record(
    segment: bytes,
    columns: Columns,
    record_wire: RecordWire,
    stream: StreamId,
    read_column: Callable[[Column, Sequence[Raw], Changes], pa.Array] = wire_array,
) -> WireRows:
    """Parses all records of a segment, the values of each column by `read_column`. Never raises for what the connector
    sent."""
    rejected: Counter[str] = Counter()
    foreign: Counter[StreamId] = Counter()
    records = list(
        _records(
            split_lines(segment, record_wire, is_whole=columns.is_schemaless), record_wire, stream, rejected, foreign
        )
    )
    changes = Changes()
    declared = DeclaredFields(columns)
    fields = [record.data or {} for record in records]
    ignored = Counter(name for data in fields for name in declared.undeclared_in(data))
    arrays = tuple(
        read_column(column, [data.get(column.path[0], MISSING) for data in fields], changes)
        for column in columns.parsed_fields
    )
    return WireRows(
        arrays=arrays,
        emitted_at=_emitted_at([record.emitted_at for record in records], record_wire),
        source_changes=_source_changes([record.changes for record in records]),
        changes=changes,
        rejected=rejected,
        ignored=ignored,
        foreign=foreign,
        version=pa.array([_whole_number(record.version) for record in records], pa.int64()) if columns.sdc else None,
        key_texts={
            key.name: texts_in_misfits(key.path, [data.get(key.path[0], MISSING) for data in fields], changes)
            for key in columns.nested
            if are_around_misfits(key.path, changes)
        },
    )


def namespace_of(line: bytes, record_wire: RecordWire) -> str | None:
    """Returns the namespace of a record line whose head does not have it. Raises ValueError for no JSON object."""
    return _text(Envelope(line).at(record_wire.namespace))


def _records(
    lines: Iterable[RecordParts | None],
    record_wire: RecordWire,
    stream: StreamId,
    rejected: Counter[str],
    foreign: Counter[StreamId],
) -> Iterator[RecordParts]:
    for record_parts in lines:
        if record_parts is None:
            rejected[NOT_JSON] += 1
            continue
        namespace = _text(record_parts.namespace) if record_wire.namespace else stream.namespace
        if (namespace or None) != stream.namespace:
            rejected[ANOTHER_NAMESPACE] += 1
            foreign[StreamId.of(stream.name, namespace)] += 1
        elif record_parts.data is None:
            rejected[NO_DATA] += 1
        else:
            yield record_parts


def _text(raw: Raw) -> str | None:
    if not len(raw):
        return None
    try:
        return _TEXT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _emitted_at(raws: Sequence[Raw], record_wire: RecordWire) -> pa.Array:
    # Where it is text, a value that is not a string becomes an empty text: that is no time, so the row gets an entry,
    # which a missing one does not get.
    if not record_wire.emitted_at_is_text:
        return _numbers(raws)
    return pa.array([None if bytes(raw) in (b"", b"null") else _text(raw) or "" for raw in raws], pa.string())


def _numbers(raws: Sequence[Raw]) -> pa.Array:
    try:
        values = _NUMBERS.decode(b"[%b]" % b",".join([raw if len(raw) else b"null" for raw in raws]))
    except DECODE_ERRORS:
        values = [_number(raw) for raw in raws]
    return pa.array(values, pa.float64())


def _number(raw: Raw) -> float | None:
    try:
        return float(msgspec.json.decode(raw, type=int | float))
    except (msgspec.MsgspecError, OverflowError):
        return None


def _whole_number(raw: Raw) -> int | None:
    try:
        number = msgspec.json.decode(raw, type=int)
    except DECODE_ERRORS:
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None


def _source_changes(raws: Sequence[Raw]) -> pa.Array | None:
    if not any(map(len, raws)):
        return None
    return pa.array([_changes(raw) for raw in raws], CHANGES)


def _changes(raw: Raw) -> list[dict[str, str | None]] | None:
    """Returns the source's entries as far as they are readable. Bad entries are no reason to reject a row."""
    try:
        entries = [members(element) for element in elements(raw)]
    except ValueError:
        return None
    return [{name: _text(entry.get(name, MISSING)) for name in ("field", "change", "reason")} for entry in entries]
