"""JSON texts in the binary encoding of VARIANT, by Parquet's specification: the very bytes of Spark's `parse_json`.

A value is its bytes, and a dictionary of all names in it, by whose numbers objects speak of their members. These stand
in the order in which they came, and are found by a list in the order of their names.

A number without an exponent keeps its digits, if it has 38 at the most: it is an integer or a decimal. Any other is a
double.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.schema.columns import VARIANT
from dagster_airbyte_proto.staging.rows.changes import SIZE_LIMITATION, TYPECAST_ERROR, Changes, Misfit, Slots

LARGEST_BYTES = 16 << 20
"""Of the bytes, and of the dictionary. Spark 4.0 reads no larger ones."""

_VERSION = 1
# By their last byte: negative ones stand at the end.
_TINY_INTEGERS = tuple(struct.pack("<BB", 3 << 2, byte) for byte in range(1 << 8))
_INTEGERS = tuple(
    (1 << 8 * size - 1, kind << 2, struct.Struct(f"<B{code}"))
    for size, kind, code in ((2, 4, "h"), (4, 5, "i"), (8, 6, "q"))
)
_DOUBLE, _DOUBLE_TYPE = struct.Struct("<Bd"), 7
# The most digits, the type, and its bytes.
_DECIMALS = ((9, 8, 4), (18, 9, 8), (38, 10, 16))
_SHORT_DECIMAL = struct.Struct("<BBi")
_LONG_TEXT, _LONG_TEXT_TYPE = struct.Struct("<BI"), 16
_SHORT_TEXTS = tuple(bytes([size << 2 | 1]) for size in range(64))
_OBJECT, _ARRAY = 2, 3
_BYTE = 0xFF


class _Kept(NamedTuple):
    """What is made of names, for all values of a batch: as a rule they are alike."""

    dictionaries: dict[tuple[str, ...], bytes]
    orders: dict[tuple[str, ...], list[int]]


class _Names(dict[str, int]):
    """Those of one value, and their numbers."""

    def __init__(self, orders: dict[tuple[str, ...], list[int]]) -> None:
        self.orders = orders


def variants(texts: pa.StringArray, slots: Slots, changes: Changes) -> pa.StructArray:
    """Of JSON texts. What no VARIANT holds is null and has its entry in `changes`."""
    raws = texts.cast(pa.binary()).to_pylist()
    metadata, values = [b""] * len(raws), [b""] * len(raws)
    misfits: list[tuple[int, str]] = []
    kept = _Kept({}, {})
    for position, (raw, decoded) in enumerate(zip(raws, _decoded(raws), strict=True)):
        if raw is None:
            continue
        try:
            metadata[position], values[position] = _variant(decoded, kept)
        except Misfit as misfit:
            misfits.append((position, misfit.reason))
    changes.nulled_each(slots, misfits)
    is_null = pa.array([not value for value in values]) if misfits else texts.is_null()
    parts = [pa.array(metadata, pa.binary()), pa.array(values, pa.binary())]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=is_null)


def _decoded(raws: Sequence[bytes | None]) -> Iterable[Any]:
    """Their values; a `Misfit` for what cannot be read."""
    try:
        return _DECODER.decode(b"[%b]" % b",".join([b"null" if raw is None else raw for raw in raws]))  # type: ignore[no-any-return]  # it is a list
    except (msgspec.MsgspecError, RecursionError):
        return map(_decoded_alone, raws)


def _decoded_alone(raw: bytes | None) -> Any:
    try:
        return None if raw is None else _DECODER.decode(raw)
    except RecursionError:
        return Misfit(SIZE_LIMITATION)
    except msgspec.MsgspecError:  # Half a surrogate pair is JSON, and no text.
        return Misfit(TYPECAST_ERROR)


def _variant(value: Any, kept: _Kept) -> tuple[bytes, bytes]:
    names = _Names(kept.orders)
    try:
        encoded = _ENCODERS[type(value)](value, names)
    except RecursionError as error:
        raise Misfit(SIZE_LIMITATION) from error
    if (metadata := kept.dictionaries.get(inside := tuple(names))) is None:
        metadata = kept.dictionaries[inside] = _dictionary(inside)
    if max(len(metadata), len(encoded)) > LARGEST_BYTES:
        raise Misfit(SIZE_LIMITATION)
    return metadata, encoded


def _dictionary(names: tuple[str, ...]) -> bytes:
    texts = [name.encode() for name in names]
    ends = [0, *accumulate(map(len, texts))]
    width = _width(max(ends[-1], len(texts)))
    return b"".join([bytes([_VERSION | (width - 1) << 6]), _numbers([len(texts), *ends], width), *texts])


def _by_name(names: tuple[str, ...]) -> list[int]:
    # Java's order, in which Spark looks for a name. UTF-8's is another beyond the first 65,536 characters alone.
    return sorted(range(len(names)), key=lambda at: names[at].encode("utf-16-be"))


def _object(members: Mapping[str, Any], names: _Names) -> bytes:
    ids, parts = [], []
    for name, value in members.items():
        ids.append(names.setdefault(name, len(names)))
        parts.append(_ENCODERS[type(value)](value, names))
    starts = [0, *accumulate(map(len, parts))]
    if (order := names.orders.get(inside := tuple(members))) is None:
        order = names.orders[inside] = _by_name(inside)
    size = starts[-1]
    ordered, found = [ids[at] for at in order], [starts[at] for at in order]
    if size <= _BYTE and len(names) <= _BYTE:  # Almost all are; the rest would come to the same, in twice the time.
        return bytes([_OBJECT, len(parts), *ordered, *found, size]) + b"".join(parts)
    id_width, width = _width(max(ids, default=0)), _width(size)
    count, is_large = _count(len(parts))
    header = _OBJECT | (is_large << 4 | (id_width - 1) << 2 | width - 1) << 2
    return b"".join([bytes([header]), count, _numbers(ordered, id_width), _numbers([*found, size], width), *parts])


def _array(elements: Sequence[Any], names: _Names) -> bytes:
    parts = [_ENCODERS[type(value)](value, names) for value in elements]
    starts = [0, *accumulate(map(len, parts))]
    if starts[-1] <= _BYTE:
        return bytes([_ARRAY, len(parts), *starts]) + b"".join(parts)
    width = _width(starts[-1])
    count, is_large = _count(len(parts))
    header = _ARRAY | (is_large << 2 | width - 1) << 2
    return b"".join([bytes([header]), count, _numbers(starts, width), *parts])


def _count(parts: int) -> tuple[bytes, bool]:
    """How many there are, in one byte or four."""
    is_large = parts > _BYTE
    return parts.to_bytes(4 if is_large else 1, "little"), is_large


def _width(largest: int) -> int:
    return (largest.bit_length() + 7) // 8 or 1


def _numbers(values: Sequence[int], width: int) -> bytes:
    return bytes(values) if width == 1 else b"".join([value.to_bytes(width, "little") for value in values])


def _text(value: str, _names: _Names) -> bytes:
    text = value.encode()
    if len(text) < len(_SHORT_TEXTS):
        return _SHORT_TEXTS[len(text)] + text
    return _LONG_TEXT.pack(_LONG_TEXT_TYPE << 2, len(text)) + text


def _integer(value: int, _names: _Names) -> bytes:
    if -0x80 <= value < 0x80:
        return _TINY_INTEGERS[value]
    for bound, header, packing in _INTEGERS:
        if -bound <= value < bound:
            return packing.pack(header, value)
    return _ENCODERS[type(number := _number(str(value)))](number, _names)


def _number(text: str) -> bytes | float:
    """A number that is no integer of 64 bits, encoded; infinite where it is too large."""
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


def _misfit(misfit: Misfit, _names: _Names) -> NoReturn:
    raise misfit


def _infinite(_value: float, _names: _Names) -> NoReturn:
    raise Misfit(SIZE_LIMITATION)


_ENCODERS: Mapping[type, Callable[[Any, _Names], bytes]] = {
    dict: _object,
    list: _array,
    str: _text,
    int: _integer,
    bytes: lambda encoded, _: encoded,
    bool: lambda value, _: b"\x04" if value else b"\x08",
    type(None): lambda _value, _names: b"\x00",
    float: _infinite,
    Misfit: _misfit,
}
_DECODER = msgspec.json.Decoder(float_hook=_number)
