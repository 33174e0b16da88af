"""The slow road: a segment that the JSON parser refused, record by record, and value by value where it must be.

Nothing is refused here but what is no record at all.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath, StreamId
from dagster_airbyte_proto.protocols.session import RecordShape
from dagster_airbyte_proto.schema.columns import CHANGES, Columns
from dagster_airbyte_proto.staging.changes import Changes
from dagster_airbyte_proto.staging.raw_json import MISSING, Raw, elements, members
from dagster_airbyte_proto.staging.raw_values import wire_array
from dagster_airbyte_proto.staging.wire import ANOTHER_NAMESPACE, WireRows

NOT_JSON = "the line is no JSON object"
NOT_A_RECORD = "the message is no record"
NO_DATA = "the record has no data"

_TEXT = msgspec.json.Decoder(str)


class _Envelope:
    """A line's members by path. Each level is cut once, however many of its members are asked for."""

    __slots__ = ("_levels",)

    def __init__(self, line: bytes) -> None:
        self._levels: dict[FieldPath, Mapping[str, Raw]] = {(): members(line)}

    def at(self, path: FieldPath) -> Raw:
        """The raw text at `path`; empty where there is none."""
        return self._level(path[:-1]).get(path[-1], MISSING) if path else MISSING

    def _level(self, path: FieldPath) -> Mapping[str, Raw]:
        level = self._levels.get(path)
        if level is None:
            raw = self._level(path[:-1]).get(path[-1], MISSING)
            try:
                level = members(raw) if len(raw) else {}
            except ValueError:
                level = {}
            self._levels[path] = level
        return level


class _Record(NamedTuple):
    envelope: _Envelope
    data: Mapping[str, Raw]


def redo(segment: bytes, columns: Columns, shape: RecordShape, stream: StreamId) -> WireRows:
    """All records of a segment. Never raises for what the connector sent."""
    rejected: Counter[str] = Counter()
    foreign: Counter[StreamId] = Counter()
    records = list(_records(segment, shape, stream, rejected, foreign))
    changes = Changes()
    declared = {column.path[0] for column in columns.top} | columns.passed_over
    ignored = Counter(name for record in records for name in record.data.keys() - declared)
    return WireRows(
        arrays=tuple(
            wire_array(column, [record.data.get(column.path[0], MISSING) for record in records], changes)
            for column in columns.top
        ),
        emitted_at=pa.array([_number(record.envelope.at(shape.emitted_at)) for record in records], pa.float64()),
        source_changes=_source_changes([record.envelope.at(shape.changes) for record in records]),
        changes=changes,
        rejected=rejected,
        ignored=ignored,
        foreign=foreign,
    )


def namespace_of(line: bytes, shape: RecordShape) -> str | None:
    """The namespace that a record's line carries behind its data. Raises ValueError for what is no JSON object."""
    return _text(_Envelope(line).at(shape.namespace))


def _records(
    segment: bytes, shape: RecordShape, stream: StreamId, rejected: Counter[str], foreign: Counter[StreamId]
) -> Iterator[_Record]:
    for line in segment.split(b"\n")[:-1]:
        try:
            envelope = _Envelope(line)
        except ValueError:
            rejected[NOT_JSON] += 1
            continue
        if shape.kind is not None and _text(envelope.at(shape.kind[0])) != shape.kind[1]:
            rejected[NOT_A_RECORD] += 1
            continue
        namespace = _text(envelope.at(shape.namespace)) if shape.namespace else stream.namespace
        if (namespace or None) != stream.namespace:
            rejected[ANOTHER_NAMESPACE] += 1
            foreign[StreamId.of(stream.name, namespace)] += 1
            continue
        try:
            yield _Record(envelope, members(envelope.at(shape.data)))
        except ValueError:
            rejected[NO_DATA] += 1


def _text(raw: Raw) -> str | None:
    if not len(raw):
        return None
    try:
        return _TEXT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _number(raw: Raw) -> float | None:
    try:
        return float(msgspec.json.decode(raw, type=int | float))
    except (msgspec.MsgspecError, OverflowError):
        return None


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
