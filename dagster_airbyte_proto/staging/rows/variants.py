"""Encodes JSON texts as VARIANT, by Parquet's specification, into the same bytes as Spark's `parse_json`.

- A VARIANT has two parts: the encoded value, and the metadata, a dictionary of all member names in it. Objects refer to
  names by their number in the dictionary.
- The members of an object lie in the order in which they came. A list of offsets, sorted by name, finds them.
- A number without an exponent and with at most 38 digits keeps its digits, as an integer or a decimal. Any other is a
  double.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.schema.columns import VARIANT
from dagster_airbyte_proto.staging.rows.changes import (
    SIZE_LIMITATION,
    TYPECAST_ERROR,
    Changes,
    ValueDoesNotFit,
    ValueLocations,
)

LARGEST_BYTES = 16 << 20
"""The limit of the encoded value, and of the dictionary. Spark 4.0 reads no larger ones."""

_VERSION = 1
# Indexed by the integer itself: Python's negative indexes find the negative ones, at the end.
_TINY_INTEGERS = tuple(struct.pack("<BB", 3 << 2, byte) for byte in range(1 << 8))
_INTEGERS = tuple(
    (1 << 8 * size - 1, kind << 2, struct.Struct(f"<B{code}"))
    for size, kind, code in ((2, 4, "h"), (4, 5, "i"), (8, 6, "q"))
)
_DOUBLE, _DOUBLE_TYPE = struct.Struct("<Bd"), 7
# Decimals: the largest number of digits, the type, and its size in bytes.
_DECIMALS = ((9, 8, 4), (18, 9, 8), (38, 10, 16))
_SHORT_DECIMAL = struct.Struct("<BBi")
_LONG_TEXT, _LONG_TEXT_TYPE = struct.Struct("<BI"), 16
_SHORT_TEXTS = tuple(bytes([size << 2 | 1]) for size in range(64))
_OBJECT, _ARRAY = 2, 3
_BYTE = 0xFF


class _NameCaches(NamedTuple):
    """Encoded dictionaries and sort orders of names, cached for a batch: as a rule its objects have the same names."""

    dictionaries: dict[tuple[str, ...], bytes]
    orders: dict[tuple[str, ...], list[int]]


class _NameNumbers(dict[str, int]):
    """The names in one value, with their numbers in its dictionary."""

    def __init__(self, orders: dict[tuple[str, ...], list[int]]) -> None:
        self.orders = orders


def encode_variants(texts: pa.StringArray, locations: ValueLocations, changes: Changes) -> pa.StructArray:
    """Encodes JSON texts. A value that no VARIANT can hold is null, with an entry in `changes`."""
    raws = texts.cast(pa.binary()).to_pylist()
    metadata, values = [b""] * len(raws), [b""] * len(raws)
    misfits: list[tuple[int, str]] = []
    caches = _NameCaches({}, {})
    for position, (raw, decoded) in enumerate(zip(raws, _decode_all(raws), strict=True)):
        if raw is None:
            continue
        try:
            metadata[position], values[position] = _encode(decoded, caches)
        except ValueDoesNotFit as misfit:
            misfits.append((position, misfit.reason))
    changes.note_nulled_each(locations, misfits)
    is_null = pa.array([not value for value in values]) if misfits else texts.is_null()
    parts = [pa.array(metadata, pa.binary()), pa.array(values, pa.binary())]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=is_null)


def _decode_all(raws: Sequence[bytes | None]) -> Iterable[Any]:
    """Decodes all texts; yields a `ValueDoesNotFit` for a text that cannot be read."""
    try:
        return _DECODER.decode(b"[%b]" % b",".join([b"null" if raw is None else raw for raw in raws]))  # type: ignore[no-any-return]  # it is a list
    except (msgspec.MsgspecError, RecursionError):
        return map(_decode_alone, raws)


def _decode_alone(raw: bytes | None) -> Any:
    try:
        return None if raw is None else _DECODER.decode(raw)
    except RecursionError:
        return ValueDoesNotFit(SIZE_LIMITATION)
    except msgspec.MsgspecError:  # Half a surrogate pair is JSON, but not Unicode text.
        return ValueDoesNotFit(TYPECAST_ERROR)


def _encode(value: Any, caches: _NameCaches) -> tuple[bytes, bytes]:
    names = _NameNumbers(caches.orders)
    try:
        encoded = _ENCODERS[type(value)](value, names)
    except RecursionError as error:
        raise ValueDoesNotFit(SIZE_LIMITATION) from error
    if (metadata := caches.dictionaries.get(inside := tuple(names))) is None:
        metadata = caches.dictionaries[inside] = _encode_dictionary(inside)
    if max(len(metadata), len(encoded)) > LARGEST_BYTES:
        raise ValueDoesNotFit(SIZE_LIMITATION)
    return metadata, encoded


def _encode_dictionary(names: tuple[str, ...]) -> bytes:
    texts = [name.encode() for name in names]
    ends = [0, *accumulate(map(len, texts))]
    width = _byte_width(max(ends[-1], len(texts)))
    return b"".join([bytes([_VERSION | (width - 1) << 6]), _encode_numbers([len(texts), *ends], width), *texts])


def _order_by_name(names: tuple[str, ...]) -> list[int]:
    # Spark searches names in Java's order of strings, which is that of UTF-16. It differs from UTF-8's order only for
    # characters after the first 65,536.
    return sorted(range(len(names)), key=lambda at: names[at].encode("utf-16-be"))


def _encode_object(members: Mapping[str, Any], names: _NameNumbers) -> bytes:
    ids, parts = [], []
    for name, value in members.items():
        ids.append(names.setdefault(name, len(names)))
        parts.append(_ENCODERS[type(value)](value, names))
    starts = [0, *accumulate(map(len, parts))]
    if (order := names.orders.get(inside := tuple(members))) is None:
        order = names.orders[inside] = _order_by_name(inside)
    size = starts[-1]
    ordered, found = [ids[at] for at in order], [starts[at] for at in order]
    if (
        size <= _BYTE and len(names) <= _BYTE
    ):  # A fast path for almost all objects. The code below gives the same bytes in twice the time.
        return bytes([_OBJECT, len(parts), *ordered, *found, size]) + b"".join(parts)
    id_width, width = _byte_width(max(ids, default=0)), _byte_width(size)
    count, is_large = _encode_count(len(parts))
    header = _OBJECT | (is_large << 4 | (id_width - 1) << 2 | width - 1) << 2
    return b"".join(
        [bytes([header]), count, _encode_numbers(ordered, id_width), _encode_numbers([*found, size], width), *parts]
    )


def _encode_array(elements: Sequence[Any], names: _NameNumbers) -> bytes:
    parts = [_ENCODERS[type(value)](value, names) for value in elements]
    starts = [0, *accumulate(map(len, parts))]
    if starts[-1] <= _BYTE:
        return bytes([_ARRAY, len(parts), *starts]) + b"".join(parts)
    width = _byte_width(starts[-1])
    count, is_large = _encode_count(len(parts))
    header = _ARRAY | (is_large << 2 | width - 1) << 2
    return b"".join([bytes([header]), count, _encode_numbers(starts, width), *parts])


def _encode_count(parts: int) -> tuple[bytes, bool]:
    """Encodes the number of members or elements, in one byte or four."""
    is_large = parts > _BYTE
    return parts.to_bytes(4 if is_large else 1, "little"), is_large


def _byte_width(largest: int) -> int:
    return (largest.bit_length() + 7) // 8 or 1


def _encode_numbers(values: Sequence[int], width: int) -> bytes:
    return bytes(values) if width == 1 else b"".join([value.to_bytes(width, "little") for value in values])


def _encode_text(value: str, _names: _NameNumbers) -> bytes:
    text = value.encode()
    if len(text) < len(_SHORT_TEXTS):
        return _SHORT_TEXTS[len(text)] + text
    return _LONG_TEXT.pack(_LONG_TEXT_TYPE << 2, len(text)) + text


def _encode_integer(value: int, _names: _NameNumbers) -> bytes:
    if -0x80 <= value < 0x80:
        return _TINY_INTEGERS[value]
    for bound, header, packing in _INTEGERS:
        if -bound <= value < bound:
            return packing.pack(header, value)
    return _ENCODERS[type(number := _encode_number(str(value)))](number, _names)


def _encode_number(text: str) -> bytes | float:
    """Encodes a number that is not a 64-bit integer. Returns infinity for one that is too large."""
    whole, _, fraction = text.partition(".")
    digits = whole + fraction
    if len(digits) <= _DECIMALS[0][0] and digits.isdecimal():
        return _SHORT_DECIMAL.pack(_DECIMALS[0][1] << 2, len(fraction), int(digits))
    if digits.removeprefix("-").isdecimal():
        unscaled, scale = int(digits), len(fraction)
        most = max(len(str(abs(unscaled))), scale)
        for longest, kind, size_bytes in _DECIMALS:
            if most <= longest:
                return bytes([kind << 2, scale]) + unscaled.to_bytes(size_bytes, "little", signed=True)
    number = float(text)
    return _DOUBLE.pack(_DOUBLE_TYPE << 2, number) if abs(number) < float("inf") else number


def _raise_misfit(misfit: ValueDoesNotFit, _names: _NameNumbers) -> NoReturn:
    raise misfit


def _raise_too_large(_value: float, _names: _NameNumbers) -> NoReturn:
    raise ValueDoesNotFit(SIZE_LIMITATION)


_ENCODERS: Mapping[type, Callable[[Any, _NameNumbers], bytes]] = {
    dict: _encode_object,
    list: _encode_array,
    str: _encode_text,
    int: _encode_integer,
    bytes: lambda encoded, _: encoded,
    bool: lambda value, _: b"\x04" if value else b"\x08",
    type(None): lambda _value, _names: b"\x00",
    float: _raise_too_large,
    ValueDoesNotFit: _raise_misfit,
}
_DECODER = msgspec.json.Decoder(float_hook=_encode_number)
