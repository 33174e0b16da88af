"""One value's raw JSON text as what its column reads from the wire, where Arrow's parser would not have it.

Each column is tried whole first, so that one bad value in a segment costs one column's worth of time.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.schema.columns import Column, Kind
from dagster_airbyte_proto.staging.changes import SIZE_LIMITATION, Changes, Misfit
from dagster_airbyte_proto.staging.raw_json import Raw, elements

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


def _value(raw: Raw, kind: Kind, depth: int, nulled: Callable[..., None], name: str) -> Any:
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
