"""The slow road: a segment that the JSON parser refused, record by record, and value by value where it must be.

Nothing is refused here but what is no record at all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.wire import RecordShape
from dagster_airbyte_proto.schema.columns import CHANGES, Columns
from dagster_airbyte_proto.staging.lines.parsed import ANOTHER_NAMESPACE, WireRows
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, elements, members
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.lines.record_line import REFUSALS, Envelope, Parts, parts_of_lines
from dagster_airbyte_proto.staging.lines.undeclared import Declared
from dagster_airbyte_proto.staging.rows.changes import Changes

NOT_JSON = "the line is no JSON object"
NO_DATA = "the record has no data"

_TEXT = msgspec.json.Decoder(str)
_NUMBERS = msgspec.json.Decoder(list[float | None])


def redo(segment: bytes, columns: Columns, shape: RecordShape, stream: StreamId) -> WireRows:
    """All records of a segment. Never raises for what the connector sent."""
    rejected: Counter[str] = Counter()
    foreign: Counter[StreamId] = Counter()
    records = list(
        _records(parts_of_lines(segment, shape, is_whole=columns.is_whole), shape, stream, rejected, foreign)
    )
    changes = Changes()
    declared = Declared(columns)
    fields = [record.data or {} for record in records]
    ignored = Counter(name for data in fields for name in declared.unknown(data))
    return WireRows(
        arrays=tuple(
            wire_array(column, [data.get(column.path[0], MISSING) for data in fields], changes)
            for column in columns.top
        ),
        emitted_at=_emitted_at([record.emitted_at for record in records], shape),
        source_changes=_source_changes([record.changes for record in records]),
        changes=changes,
        rejected=rejected,
        ignored=ignored,
        foreign=foreign,
        version=pa.array([_whole_number(record.version) for record in records], pa.int64()) if columns.sdc else None,
    )


def namespace_of(line: bytes, shape: RecordShape) -> str | None:
    """The namespace that a record's line carries behind its data. Raises ValueError for what is no JSON object."""
    return _text(Envelope(line).at(shape.namespace))


def _records(
    lines: Iterable[Parts | None],
    shape: RecordShape,
    stream: StreamId,
    rejected: Counter[str],
    foreign: Counter[StreamId],
) -> Iterator[Parts]:
    for parts in lines:
        if parts is None:
            rejected[NOT_JSON] += 1
            continue
        namespace = _text(parts.namespace) if shape.namespace else stream.namespace
        if (namespace or None) != stream.namespace:
            rejected[ANOTHER_NAMESPACE] += 1
            foreign[StreamId.of(stream.name, namespace)] += 1
        elif parts.data is None:
            rejected[NO_DATA] += 1
        else:
            yield parts


def _text(raw: Raw) -> str | None:
    if not len(raw):
        return None
    try:
        return _TEXT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _emitted_at(raws: Sequence[Raw], shape: RecordShape) -> pa.Array:
    """Where it is text, what is none has said nothing that could be read: an empty text says so too."""
    if not shape.emitted_at_is_text:
        return _numbers(raws)
    return pa.array([None if bytes(raw) in (b"", b"null") else _text(raw) or "" for raw in raws], pa.string())


def _numbers(raws: Sequence[Raw]) -> pa.Array:
    try:
        values = _NUMBERS.decode(b"[%b]" % b",".join([raw if len(raw) else b"null" for raw in raws]))
    except REFUSALS:
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
    except REFUSALS:
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None


def _source_changes(raws: Sequence[Raw]) -> pa.Array | None:
    if not any(map(len, raws)):
        return None
    return pa.array([_changes(raw) for raw in raws], CHANGES)


def _changes(raw: Raw) -> list[dict[str, str | None]] | None:
    """The source's entries as far as they can be read: they are remarks, and no reason to refuse a row."""
    try:
        entries = [members(element) for element in elements(raw)]
    except ValueError:
        return None
    return [{name: _text(entry.get(name, MISSING)) for name in ("field", "change", "reason")} for entry in entries]
