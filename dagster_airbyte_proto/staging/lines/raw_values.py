"""Reads raw JSON texts into arrays of their column's wire type, for values that Arrow's parser does not read.

A column is split as a whole: lists into all their elements, objects into their members, down to plain values. Each
array of plain values is then read in steps, so that a few values that do not fit cost little more than none:

1. All values at once, by a decoder of the column's type.
2. If that fails: blocks of values by a decoder of any type. Values of the right type are taken.
3. Only the values of another type one by one, by the functions at the end of this module.
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

from dagster_airbyte_proto.schema.columns import DECIMAL_SCALE, Column, Member, ValueKind, ValueType
from dagster_airbyte_proto.staging.lines.raw_members import (
    MISSING,
    Raw,
    elements,
    members,
    members_struct,
    text_array,
)
from dagster_airbyte_proto.staging.values.changes import (
    SIZE_LIMITATION,
    TYPECAST_ERROR,
    Changes,
    ValueDoesNotFit,
    ValueLocations,
)

_NULL = b"null"
_NEGATIVE_ZERO = Raw(b"-0")
_PLAIN_NUMBERS = {
    ValueKind.INTEGER: r"^-?\d{1,18}(\.0+)?$",
    ValueKind.BIG_INTEGER: r"^-?\d{1,38}(\.0+)?$",
    ValueKind.DECIMAL: r"^-?\d{1,29}(\.\d{1,9})?$",
}
_POINT_ZERO = r"\.0+$"
_BLOCK_VALUES = 64
_NUMBER = re.compile(rb"([+-]?\d++(?:\.\d++)?)(?:[eE]([+-]?)(\d++))?")
# Python's decimals have no larger exponents. No number of a line is long enough to make up for one of this size.
_MAX_EXPONENT_DIGITS = 9
_DECIMAL_CONTEXT = Context(prec=40)
_SMALLEST_FRACTION = Decimal(1).scaleb(-DECIMAL_SCALE)
_LARGEST_FRACTION = Decimal(f"{'9' * (38 - DECIMAL_SCALE)}.{'9' * DECIMAL_SCALE}")
_TEXT = msgspec.json.Decoder(str)
_RAWS = msgspec.json.Decoder(list[Raw])
_LISTS = msgspec.json.Decoder(list[list[Raw] | None])
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TIMES = (ValueKind.DATE, ValueKind.TIME, ValueKind.TIMESTAMP, ValueKind.LOCAL_TIMESTAMP, ValueKind.BINARY)
_UNIFORM_DECODERS: Mapping[ValueKind, msgspec.json.Decoder[list[Any]]] = {
    ValueKind.BOOLEAN: msgspec.json.Decoder(list[bool | None]),
    ValueKind.INTEGER: msgspec.json.Decoder(list[int | None]),
    ValueKind.NUMBER: msgspec.json.Decoder(list[float | None]),
    **dict.fromkeys((ValueKind.STRING, *_TIMES), msgspec.json.Decoder(list[str | None])),
}
# A number is a float here whatever it looks like, and so an integer is never one.
_ANY_NUMBER = msgspec.json.Decoder(list[float | bool | str | list[Any] | dict[str, Any] | None])
_ANYTHING = msgspec.json.Decoder(list[Any])
_MIXED_DECODERS: Mapping[ValueKind, tuple[msgspec.json.Decoder[list[Any]], type]] = {
    ValueKind.BOOLEAN: (_ANYTHING, bool),
    ValueKind.NUMBER: (_ANY_NUMBER, float),
    **dict.fromkeys((ValueKind.STRING, *_TIMES), (_ANYTHING, str)),
}


def wire_array(column: Column, raws: Sequence[Raw], changes: Changes) -> pa.Array:
    """Returns raw texts as an array of the column's wire type. A value that does not fit is null, with an entry in
    `changes`."""
    return _array(column.type, raws, ValueLocations(column.path), changes)


def _array(kind: ValueType, raws: Sequence[Raw], locations: ValueLocations, changes: Changes) -> pa.Array:
    if kind.depth:
        return _lists(kind, raws, locations, changes)
    if kind.kind is ValueKind.STRUCT:
        return _objects(kind, raws, locations, changes)
    if kind.is_json_text:
        return _json_texts(raws, locations, changes)
    return _scalars(kind, raws, locations, changes)


def _lists(kind: ValueType, raws: Sequence[Raw], locations: ValueLocations, changes: Changes) -> pa.Array:
    lists = _decode_all(_LISTS, raws)
    if lists is None:
        lists = _read_each(raws, locations, changes, elements)
    offsets = np.zeros(len(raws) + 1, dtype=np.int32)
    np.cumsum(np.fromiter((len(each or ()) for each in lists), np.int32, len(lists)), out=offsets[1:])
    flat = [element for each in lists if each for element in each]
    values = _array(kind.element_type, flat, locations.elements(offsets), changes)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind.wire_type, mask=_null_mask(lists))


def _objects(kind: ValueType, raws: Sequence[Raw], locations: ValueLocations, changes: Changes) -> pa.Array:
    decoder, getters = _struct_decoder(kind.members)
    objects = _decode_all(decoder, raws)
    if objects is None:
        objects = _read_each(raws, locations, changes, members)
        getters = [_member_getter(member.source) for member in kind.members]
    inside = [
        _array(
            member.type,
            [MISSING if each is None else getter(each) for each in objects],
            locations.member(member.source),
            changes,
        )
        for member, getter in zip(kind.members, getters, strict=True)
    ]
    return pa.StructArray.from_arrays(inside, fields=list(kind.wire_type), mask=_null_mask(objects))


@cache
def _struct_decoder(inside: tuple[Member, ...]) -> tuple[msgspec.json.Decoder[Any], Sequence[Callable[[Any], Raw]]]:
    made: Any = members_struct([member.source for member in inside])
    if made is None:
        return msgspec.json.Decoder(list[dict[str, Raw] | None]), [_member_getter(member.source) for member in inside]
    return msgspec.json.Decoder(list[made | None]), [attrgetter(f"field{number}") for number in range(len(inside))]


def _member_getter(name: str) -> Callable[[Any], Raw]:
    return lambda inside: inside.get(name, MISSING)


def _json_texts(raws: Sequence[Raw], locations: ValueLocations, changes: Changes) -> pa.Array:
    if _decode_all(_RAWS, raws) is not None:
        array = text_array(raws)
        with suppress(pa.ArrowInvalid):
            array.validate(full=True)
            return array
    return pa.array(_read_each(raws, locations, changes, _json), pa.string())


def _scalars(kind: ValueType, raws: Sequence[Raw], locations: ValueLocations, changes: Changes) -> pa.Array:
    decoder = _UNIFORM_DECODERS.get(kind.kind)
    values = None if decoder is None else _decode_all(decoder, raws)
    if values is not None:
        with suppress(pa.ArrowInvalid, OverflowError):
            return _with_negative_zeros(raws, pa.array(values, kind.wire_type))
    if kind.kind in _PLAIN_NUMBERS:
        return _numbers(kind, raws, locations, changes)
    misfits: list[tuple[int, str]] = []
    read = _SCALARS.get(kind.kind, _string_only)
    values = [
        _read(read, raw, position, misfits) if known is _UNREAD else known
        for position, (raw, known) in enumerate(zip(raws, _values_by_block(kind.kind, raws), strict=True))
    ]
    changes.note_nulled_each(locations, misfits)
    return _with_negative_zeros(raws, pa.array(values, kind.wire_type))


def _with_negative_zeros(raws: Sequence[Raw], values: pa.Array) -> pa.Array:
    """Gives `-0` its sign in a column of floats, as Arrow's parser does. msgspec reads it as the integer 0."""
    if values.type != pa.float64():
        return values
    zeros = np.flatnonzero(values.to_numpy(zero_copy_only=False) == 0)
    negative = [position for position in zeros.tolist() if raws[position] == _NEGATIVE_ZERO]
    if not negative:
        return values
    mask = np.zeros(len(values), bool)
    mask[negative] = True
    return pc.if_else(pa.array(mask), pa.scalar(-0.0), values)


def _numbers(kind: ValueType, raws: Sequence[Raw], locations: ValueLocations, changes: Changes) -> pa.Array:
    """Casts the texts that are plainly such a number together, and reads the rest one by one."""
    text = text_array(raws)
    is_plain = pc.match_substring_regex(text, _PLAIN_NUMBERS[kind.kind])
    plain = pc.if_else(is_plain, text, pa.scalar(None, pa.string()))
    if kind.kind is not ValueKind.DECIMAL and pc.any(pc.match_substring(plain, ".")).as_py():
        plain = pc.replace_substring_regex(plain, _POINT_ZERO, "")
    plain = plain.cast(kind.wire_type)
    is_odd = pc.fill_null(pc.invert(is_plain), False)
    odd = np.flatnonzero(is_odd.to_numpy(zero_copy_only=False))
    if not len(odd):
        return plain
    misfits: list[tuple[int, str]] = []
    values = [_read(_SCALARS[kind.kind], raws[position], position, misfits) for position in odd.tolist()]
    changes.note_nulled_each(locations, misfits)
    if kind.kind is ValueKind.DECIMAL:
        values = _round_to_scale(values, odd, locations, changes)
    return pc.replace_with_mask(plain, is_odd, pa.array(values, kind.wire_type))


_UNREAD: Any = object()


def _values_by_block(kind: ValueKind, raws: Sequence[Raw]) -> Iterator[Any]:
    """Yields each value that has the right type, and `_UNREAD` for each that must be read alone."""
    if kind not in _MIXED_DECODERS:
        yield from [_UNREAD] * len(raws)
        return
    decoder, expected = _MIXED_DECODERS[kind]
    for start in range(0, len(raws), _BLOCK_VALUES):
        block = raws[start : start + _BLOCK_VALUES]
        values = _decode_all(decoder, block)
        if values is None:
            yield from [_UNREAD] * len(block)
        else:
            yield from (v if v is None or type(v) is expected else _UNREAD for v in values)


def _round_to_scale(
    values: Sequence[Decimal | None],
    positions: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    locations: ValueLocations,
    changes: Changes,
) -> list[Decimal | None]:
    """Rounds values to the digits that the column holds, and notes those that had more."""
    rounded = [
        None if each is None else each.quantize(_SMALLEST_FRACTION, ROUND_HALF_EVEN, _DECIMAL_CONTEXT)
        for each in values
    ]
    is_cut = [old != new for old, new in zip(values, rounded, strict=True)]
    changes.note_truncated(locations, positions[np.array(is_cut, bool)])
    return rounded


def _decode_all(decoder: msgspec.json.Decoder[Any], raws: Sequence[Raw]) -> Any | None:
    """Decodes all texts in one call; None if that fails."""
    try:
        texts = raws if all(map(len, raws)) else [raw if len(raw) else _NULL for raw in raws]
        values = decoder.decode(b"[%b]" % b",".join(texts))
    except _DECODE_ERRORS:
        return None
    return values if len(values) == len(raws) else None


def _read_each(
    raws: Sequence[Raw], locations: ValueLocations, changes: Changes, read: Callable[[Any], Any]
) -> list[Any]:
    misfits: list[tuple[int, str]] = []
    values = [_read(read, raw, position, misfits) for position, raw in enumerate(raws)]
    changes.note_nulled_each(locations, misfits)
    return values


def _read(read: Callable[[Any], Any], raw: Raw, position: int, misfits: list[tuple[int, str]]) -> Any:
    text = bytes(raw)
    if not text or text == _NULL:
        return None
    try:
        return read(text)
    except ValueDoesNotFit as misfit:
        misfits.append((position, misfit.reason))
    except ValueError:
        misfits.append((position, TYPECAST_ERROR))
    return None


def _null_mask(values: Sequence[Any]) -> pa.Array | None:
    absent = np.fromiter((each is None for each in values), bool, len(values))
    return pa.array(absent) if absent.any() else None


def _string_only(text: bytes) -> str:
    try:
        return _TEXT.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueDoesNotFit from error


def _string(text: bytes) -> str:
    """Returns a string's value; of any other value its own JSON text."""
    return _string_only(text) if text.startswith(b'"') else _json(text)


def _json(text: bytes) -> str:
    try:
        msgspec.json.decode(text, type=Raw)
    except RecursionError:
        pass  # Too deep to check. It was cut out at matching brackets.
    except msgspec.MsgspecError:
        _require_strict(text)
    return text.decode("utf-8")


def _require_strict(text: bytes) -> None:
    """Raises for a text that is not JSON. msgspec refuses half a surrogate pair too, which is JSON; NaN is not."""
    with suppress(RecursionError):
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_reject_constant)


def _reject_constant(_constant: str) -> None:
    raise ValueDoesNotFit


def _boolean(text: bytes) -> bool:
    if text not in (b"true", b"false"):
        raise ValueDoesNotFit
    return text == b"true"


def _integer(text: bytes) -> int:
    number = int(_whole_number(text))
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueDoesNotFit(SIZE_LIMITATION)
    return number


def _big_integer(text: bytes) -> Decimal:
    return _whole_number(_string_only(text).encode() if text.startswith(b'"') else text)


def _whole_number(text: bytes) -> Decimal:
    """Reads a whole number of at most 38 digits, in any spelling (1, 1.0, 1e3)."""
    number = _decimal(text, 38)
    try:
        whole = number.to_integral_value(context=_DECIMAL_CONTEXT)
    except InvalidOperation as error:
        raise ValueDoesNotFit(SIZE_LIMITATION) from error
    if whole != number:
        raise ValueDoesNotFit
    return whole


def _fraction(text: bytes) -> Decimal:
    """Reads a number of at most 29 digits before its decimal point."""
    number = _decimal(text, 38 - DECIMAL_SCALE)
    if abs(number) > _LARGEST_FRACTION:  # Rounding would give it one digit more.
        raise ValueDoesNotFit(SIZE_LIMITATION)
    return number


def _decimal(text: bytes, digits: int) -> Decimal:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueDoesNotFit
    mantissa, sign, exponent = match.groups()
    if exponent is not None and len(exponent.lstrip(b"0")) > _MAX_EXPONENT_DIGITS:
        text = mantissa + b"e" + sign + b"9" * _MAX_EXPONENT_DIGITS
    number = Decimal(text.decode())
    if not number:
        return Decimal(0)  # A zero may have any exponent, and Arrow takes none above 38.
    if number.adjusted() >= digits:
        raise ValueDoesNotFit(SIZE_LIMITATION)
    return number


def _float(text: bytes) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueDoesNotFit
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueDoesNotFit(SIZE_LIMITATION)
    return number


_SCALARS = {
    ValueKind.STRING: _string,
    ValueKind.BOOLEAN: _boolean,
    ValueKind.INTEGER: _integer,
    ValueKind.BIG_INTEGER: _big_integer,
    ValueKind.NUMBER: _float,
    ValueKind.DECIMAL: _fraction,
}
