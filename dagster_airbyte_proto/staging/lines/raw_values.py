"""Raw JSON texts as what their column reads from the wire, where Arrow's parser would not have them.

A column is taken apart whole: lists into all their elements, objects into their members, down to plain values. Each
such array is tried whole first; where values in it do not fit, blocks of it are read as whatever they are, and only
those that are something else are looked at one by one. So a few misfits cost little more than none.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import Column, Kind, Member, ValueType
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, elements, members, text_array
from dagster_airbyte_proto.staging.rows.changes import SIZE_LIMITATION, TYPECAST_ERROR, Changes, Misfit, Slots

_NULL = b"null"
_PLAIN_NUMBERS = {
    Kind.INTEGER: r"^-?\d{1,18}(\.0+)?$",
    Kind.BIG_INTEGER: r"^-?\d{1,38}(\.0+)?$",
    Kind.DECIMAL: r"^-?\d{1,29}(\.\d{1,9})?$",
}
_POINT_ZERO = r"\.0+$"
_BLOCK = 64
_NUMBER = re.compile(rb"[+-]?\d++(\.\d++)?([eE][+-]?\d{1,9})?")
_DIGITS = Context(prec=40)
_SCALE = 9
_TINY = Decimal(1).scaleb(-_SCALE)
_LARGEST_FRACTION = Decimal(f"{'9' * (38 - _SCALE)}.{'9' * _SCALE}")
_TEXT = msgspec.json.Decoder(str)
_RAWS = msgspec.json.Decoder(list[Raw])
_LISTS = msgspec.json.Decoder(list[list[Raw] | None])
_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TIMES = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP, Kind.BINARY)
_OF_ONE_TYPE: Mapping[Kind, msgspec.json.Decoder[list[Any]]] = {
    Kind.BOOLEAN: msgspec.json.Decoder(list[bool | None]),
    Kind.INTEGER: msgspec.json.Decoder(list[int | None]),
    Kind.NUMBER: msgspec.json.Decoder(list[float | None]),
    **dict.fromkeys((Kind.STRING, *_TIMES), msgspec.json.Decoder(list[str | None])),
}
# A number is a float here whatever it looks like, and so an integer is never one.
_ANY_NUMBER = msgspec.json.Decoder(list[float | bool | str | list[Any] | dict[str, Any] | None])
_ANYTHING = msgspec.json.Decoder(list[Any])
_OF_ANY_TYPE: Mapping[Kind, tuple[msgspec.json.Decoder[list[Any]], type]] = {
    Kind.BOOLEAN: (_ANYTHING, bool),
    Kind.NUMBER: (_ANY_NUMBER, float),
    **dict.fromkeys((Kind.STRING, *_TIMES), (_ANYTHING, str)),
}


def wire_array(column: Column, raws: Sequence[Raw], changes: Changes) -> pa.Array:
    """Raw texts as the column's wire type. What does not fit is null and has its entry in `changes`."""
    return _array(column.type, raws, Slots(column.path), changes)


def _array(kind: ValueType, raws: Sequence[Raw], slots: Slots, changes: Changes) -> pa.Array:
    if kind.depth:
        return _lists(kind, raws, slots, changes)
    if kind.kind is Kind.STRUCT:
        return _objects(kind, raws, slots, changes)
    if kind.is_json_text:
        return _texts(raws, slots, changes)
    return _scalars(kind, raws, slots, changes)


def _lists(kind: ValueType, raws: Sequence[Raw], slots: Slots, changes: Changes) -> pa.Array:
    lists = _whole(_LISTS, raws)
    if lists is None:
        lists = _each(raws, slots, changes, elements)
    offsets = np.zeros(len(raws) + 1, dtype=np.int32)
    np.cumsum(np.fromiter((len(each or ()) for each in lists), np.int32, len(lists)), out=offsets[1:])
    flat = [element for each in lists if each for element in each]
    values = _array(kind.item, flat, slots.elements(offsets), changes)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind.on_wire, mask=_absent(lists))


def _objects(kind: ValueType, raws: Sequence[Raw], slots: Slots, changes: Changes) -> pa.Array:
    decoder, getters = _struct_decoder(kind.members)
    objects = _whole(decoder, raws)
    if objects is None:
        objects = _each(raws, slots, changes, members)
        getters = [_member_getter(member.source) for member in kind.members]
    inside = [
        _array(
            member.type,
            [MISSING if each is None else getter(each) for each in objects],
            slots.member(member.source),
            changes,
        )
        for member, getter in zip(kind.members, getters, strict=True)
    ]
    return pa.StructArray.from_arrays(inside, fields=list(kind.on_wire), mask=_absent(objects))


@cache
def _struct_decoder(inside: tuple[Member, ...]) -> tuple[msgspec.json.Decoder[Any], Sequence[Callable[[Any], Raw]]]:
    names = {f"field{number}": member.source for number, member in enumerate(inside)}
    made: Any = msgspec.defstruct("Object", [(name, Raw, MISSING) for name in names], rename=names, gc=False)
    return msgspec.json.Decoder(list[made | None]), [attrgetter(name) for name in names]


def _member_getter(name: str) -> Callable[[Any], Raw]:
    return lambda inside: inside.get(name, MISSING)


def _texts(raws: Sequence[Raw], slots: Slots, changes: Changes) -> pa.Array:
    if _whole(_RAWS, raws) is not None:
        array = text_array(raws)
        with suppress(pa.ArrowInvalid):
            array.validate(full=True)
            return array
    return pa.array(_each(raws, slots, changes, _json), pa.string())


def _scalars(kind: ValueType, raws: Sequence[Raw], slots: Slots, changes: Changes) -> pa.Array:
    decoder = _OF_ONE_TYPE.get(kind.kind)
    values = None if decoder is None else _whole(decoder, raws)
    if values is not None:
        with suppress(pa.ArrowInvalid, OverflowError):
            return pa.array(values, kind.on_wire)
    if kind.kind in _PLAIN_NUMBERS:
        return _numbers(kind, raws, slots, changes)
    misfits: list[tuple[int, str]] = []
    read = _SCALARS.get(kind.kind, _string_only)
    values = [
        _read(read, raw, position, misfits) if known is _UNREAD else known
        for position, (raw, known) in enumerate(zip(raws, _guessed(kind.kind, raws), strict=True))
    ]
    changes.nulled_each(slots, misfits)
    return pa.array(values, kind.on_wire)


def _numbers(kind: ValueType, raws: Sequence[Raw], slots: Slots, changes: Changes) -> pa.Array:
    """What is plainly such a number is cast together; the rest is looked at one by one."""
    text = text_array(raws)
    is_plain = pc.match_substring_regex(text, _PLAIN_NUMBERS[kind.kind])
    plain = pc.if_else(is_plain, text, pa.scalar(None, pa.string()))
    if kind.kind is not Kind.DECIMAL and pc.any(pc.match_substring(plain, ".")).as_py():
        plain = pc.replace_substring_regex(plain, _POINT_ZERO, "")
    plain = plain.cast(kind.on_wire)
    is_odd = pc.fill_null(pc.invert(is_plain), False)
    odd = np.flatnonzero(is_odd.to_numpy(zero_copy_only=False))
    if not len(odd):
        return plain
    misfits: list[tuple[int, str]] = []
    values = [_read(_SCALARS[kind.kind], raws[position], position, misfits) for position in odd.tolist()]
    changes.nulled_each(slots, misfits)
    if kind.kind is Kind.DECIMAL:
        values = _scaled(values, odd, slots, changes)
    return pc.replace_with_mask(plain, is_odd, pa.array(values, kind.on_wire))


_UNREAD: Any = object()


def _guessed(kind: Kind, raws: Sequence[Raw]) -> Iterator[Any]:
    """Each value where it is what it should be, and `_UNREAD` where it has to be looked at."""
    if kind not in _OF_ANY_TYPE:
        yield from [_UNREAD] * len(raws)
        return
    decoder, expected = _OF_ANY_TYPE[kind]
    for start in range(0, len(raws), _BLOCK):
        block = raws[start : start + _BLOCK]
        values = _whole(decoder, block)
        if values is None:
            yield from [_UNREAD] * len(block)
        else:
            yield from (v if v is None or type(v) is expected else _UNREAD for v in values)


def _scaled(
    values: Sequence[Decimal | None],
    positions: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    slots: Slots,
    changes: Changes,
) -> list[Decimal | None]:
    """Rounded to the digits that the column has, where there are more."""
    rounded = [None if each is None else each.quantize(_TINY, ROUND_HALF_EVEN, _DIGITS) for each in values]
    is_cut = [old != new for old, new in zip(values, rounded, strict=True)]
    changes.truncated(slots, positions[np.array(is_cut, bool)])
    return rounded


def _whole(decoder: msgspec.json.Decoder[Any], raws: Sequence[Raw]) -> Any | None:
    """All of it at once; None where it cannot be read that way."""
    try:
        texts = raws if all(map(len, raws)) else [raw if len(raw) else _NULL for raw in raws]
        values = decoder.decode(b"[%b]" % b",".join(texts))
    except _REFUSALS:
        return None
    return values if len(values) == len(raws) else None


def _each(raws: Sequence[Raw], slots: Slots, changes: Changes, read: Callable[[Any], Any]) -> list[Any]:
    misfits: list[tuple[int, str]] = []
    values = [_read(read, raw, position, misfits) for position, raw in enumerate(raws)]
    changes.nulled_each(slots, misfits)
    return values


def _read(read: Callable[[Any], Any], raw: Raw, position: int, misfits: list[tuple[int, str]]) -> Any:
    text = bytes(raw)
    if not text or text == _NULL:
        return None
    try:
        return read(text)
    except Misfit as misfit:
        misfits.append((position, misfit.reason))
    except ValueError:
        misfits.append((position, TYPECAST_ERROR))
    return None


def _absent(values: Sequence[Any]) -> pa.Array | None:
    absent = np.fromiter((each is None for each in values), bool, len(values))
    return pa.array(absent) if absent.any() else None


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
    number = int(_whole_number(text))
    if not -(1 << 63) <= number < 1 << 63:
        raise Misfit(SIZE_LIMITATION)
    return number


def _big_integer(text: bytes) -> Decimal:
    return _whole_number(text.strip(b'"') if text.startswith(b'"') else text)


def _whole_number(text: bytes) -> Decimal:
    """A whole number of at most 38 digits, however it is written (1, 1.0, 1e3)."""
    number = _decimal(text, 38)
    try:
        whole = number.to_integral_value(context=_DIGITS)
    except InvalidOperation as error:
        raise Misfit(SIZE_LIMITATION) from error
    if whole != number:
        raise Misfit
    return whole


def _fraction(text: bytes) -> Decimal:
    """A number of at most 29 digits before its point."""
    number = _decimal(text, 38 - _SCALE)
    if abs(number) > _LARGEST_FRACTION:  # It would be rounded up to a digit more.
        raise Misfit(SIZE_LIMITATION)
    return number


def _decimal(text: bytes, digits: int) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise Misfit
    number = Decimal(text.decode())
    if number and number.adjusted() >= digits:
        raise Misfit(SIZE_LIMITATION)
    return number


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
    Kind.DECIMAL: _fraction,
}
