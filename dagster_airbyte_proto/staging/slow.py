"""The slow road: a segment that the JSON parser refused, record by record, and value by value where it must be.

Nothing is refused here but what is no record at all. Each column is tried whole first, so that one bad value in a
segment costs one column's worth of time.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath, StreamId
from dagster_airbyte_proto.protocols.session import RecordShape
from dagster_airbyte_proto.schema.columns import CHANGES, Column, Columns, Kind
from dagster_airbyte_proto.staging.changes import SIZE_LIMITATION, Changes, Misfit
from dagster_airbyte_proto.staging.raw_json import MISSING, Raw, elements, members
from dagster_airbyte_proto.staging.wire import ANOTHER_NAMESPACE, WireRows

NOT_JSON = "the line is no JSON object"
NOT_A_RECORD = "the message is no record"
NO_DATA = "the record has no data"

_NULL = b"null"
_NUMBER = re.compile(rb"[+-]?\d++(\.\d++)?([eE][+-]?\d{1,9})?")
_WHOLE = Context(prec=40)
_TEXT = msgspec.json.Decoder(str)
_WHOLE_COLUMN: Mapping[Kind, msgspec.json.Decoder[list[Any]]] = {
    Kind.STRING: msgspec.json.Decoder(list[str | None]),
    Kind.BOOLEAN: msgspec.json.Decoder(list[bool | None]),
    Kind.INTEGER: msgspec.json.Decoder(list[int | None]),
    Kind.NUMBER: msgspec.json.Decoder(list[float | None]),
    **dict.fromkeys(
        (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP, Kind.BINARY),
        msgspec.json.Decoder(list[str | None]),
    ),
}


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
    declared = {column.path[0] for column in columns.top}
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


def wire_array(column: Column, raws: Sequence[Raw], changes: Changes) -> pa.Array:
    """Raw texts as the column's wire type. What does not fit is null and has its entry in `changes`."""
    whole = _WHOLE_COLUMN.get(column.type.kind) if column.type.depth == 0 else None
    if whole is not None:
        try:
            values = whole.decode(b"[%b]" % b",".join(bytes(raw) or _NULL for raw in raws))
            if len(values) == len(raws):
                return pa.array(values, column.type.on_wire)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, pa.ArrowInvalid, OverflowError):
            pass  # One value at least does not fit: which one is found below.
    name = ".".join(column.path)
    return pa.array(
        [
            _value(raw, column.type.kind, column.type.depth, partial(changes.nulled, row), name)
            for row, raw in enumerate(raws)
        ],
        column.type.on_wire,
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


def _value(raw: Raw, kind: Kind, depth: int, nulled: Any, name: str) -> Any:
    text = bytes(raw)
    if not text or text == _NULL:
        return None
    try:
        if depth:
            return [
                _value(element, kind, depth - 1, nulled, f"{name}.{position}")
                for position, element in enumerate(elements(raw))
            ]
        return _SCALARS.get(kind, _string_only)(text)
    except Misfit as misfit:
        nulled(name, misfit.reason)
    except ValueError:
        nulled(name)
    return None


def _string_only(text: bytes) -> str:
    try:
        return _TEXT.decode(text)
    except msgspec.MsgspecError as error:
        raise Misfit from error


def _string(text: bytes) -> str:
    """A string; any other value as its own JSON text."""
    return _string_only(text) if text.startswith(b'"') else _json(text)


def _json(text: bytes) -> str:
    try:
        msgspec.json.decode(text, type=Raw)
    except RecursionError:
        pass  # Too deep to look into: it was cut at matching brackets.
    except msgspec.MsgspecError:
        _require_strict(text)
    return text.decode("utf-8")


def _require_strict(text: bytes) -> None:
    """msgspec refuses half a surrogate pair too, which is JSON; NaN is not."""
    with suppress(RecursionError):
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)


def _refuse(_constant: str) -> None:
    raise Misfit


def _boolean(text: bytes) -> bool:
    if text not in (b"true", b"false"):
        raise Misfit
    return text == b"true"


def _integer(text: bytes) -> int:
    number = int(_whole(text))
    if not -(1 << 63) <= number < 1 << 63:
        raise Misfit(SIZE_LIMITATION)
    return number


def _big_integer(text: bytes) -> Decimal:
    return _whole(text.strip(b'"') if text.startswith(b'"') else text)


def _whole(text: bytes) -> Decimal:
    """A whole number of at most 38 digits, however it is written (1, 1.0, 1e3)."""
    if not _NUMBER.fullmatch(text):
        raise Misfit
    number = Decimal(text.decode())
    if number and number.adjusted() >= 38:
        raise Misfit(SIZE_LIMITATION)
    try:
        whole = number.to_integral_value(context=_WHOLE)
    except InvalidOperation as error:
        raise Misfit(SIZE_LIMITATION) from error
    if whole != number:
        raise Misfit
    return whole


def _float(text: bytes) -> float:
    if not _NUMBER.fullmatch(text):
        raise Misfit
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise Misfit(SIZE_LIMITATION)
    return number


_SCALARS = {
    Kind.STRING: _string,
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.BIG_INTEGER: _big_integer,
    Kind.NUMBER: _float,
    Kind.JSON: _json,
}
