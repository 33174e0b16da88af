"""JSON text of Arrow arrays, by Arrow's own kernels: no Python object for a row or a value.

1. `json_texts` gives one text for each value, null where the value is null. Numbers, decimals and times keep every
   digit. Only binary values, and values that kernels cannot escape, take a slower way.
2. NaN, infinities and broken text have no JSON. Callers take such rows out first (`sendable.py`).
3. A column of Arrow's JSON type holds JSON text, which is taken as it is.
4. A struct is one object for each row, with the names of its members in their order.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.errors import InternalError

TEXT: Final = pa.large_string()
_NULL: Final = "null"
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = 0x22, 0x5C, 0x20


def literal(text: str) -> pa.Scalar:
    return pa.scalar(text, TEXT)


def joined(*parts: Any) -> pa.Array:
    """Joins the parts of each row. A null part makes the whole null."""
    return pc.binary_join_element_wise(*parts, literal(""))


def json_texts(array: pa.Array, *, omits_nulls: bool = False) -> pa.Array:
    """Returns the JSON text of each value, null where the value is null.

    With `omits_nulls` a struct leaves out the members that are null.
    """
    kind = array.type
    if isinstance(kind, pa.JsonType):
        return array.storage.cast(TEXT)
    if pa.types.is_dictionary(kind):
        return json_texts(array.dictionary, omits_nulls=omits_nulls).take(array.indices)
    if pa.types.is_null(kind):
        return pa.nulls(len(array), TEXT)
    if pa.types.is_struct(kind):
        return _struct_texts(array, omits_nulls=omits_nulls)
    if pa.types.is_map(kind):
        return _map_texts(array, omits_nulls=omits_nulls)
    if _is_list(kind):
        return _list_texts(array, omits_nulls=omits_nulls)
    return _plain_texts(array)


def object_texts(
    names: Sequence[str],
    columns: Sequence[pa.Array],
    rows: int,
    *,
    around: tuple[str, str] = ("", ""),
    omits_nulls: bool,
) -> pa.Array:
    """Returns a JSON object for each row, with fixed text before and after it."""
    before, after = around
    if not columns:
        return pa.array([f"{before}{{}}{after}"] * rows, TEXT)
    labels = [f"{json.dumps(name)}:" for name in names]
    values = [json_texts(column, omits_nulls=omits_nulls) for column in columns]
    if omits_nulls:
        return _objects_without_nulls(labels, values, before, after)
    parts: list[Any] = []
    for number, (label, value) in enumerate(zip(labels, values, strict=True)):
        parts += [literal(("," if number else f"{before}{{") + label), pc.fill_null(value, _NULL)]
    return joined(*parts, literal(f"}}{after}"))


def _objects_without_nulls(labels: Sequence[str], values: Sequence[pa.Array], before: str, after: str) -> pa.Array:
    """Puts a comma before each member that is there, then makes the first comma of each row a brace, in the bytes.

    To skip nulls in the join itself would be simpler, but Arrow then leaves out the rows that have nothing but nulls.
    """
    members = [
        pc.fill_null(joined(literal(f",{label}"), value), literal(""))
        for label, value in zip(labels, values, strict=True)
    ]
    bodies = joined(*members)
    bodies = pc.if_else(pc.equal(bodies, literal("")), literal(","), bodies)
    texts = joined(literal(before), bodies, literal(f"}}{after}"))
    data, starts = _own_bytes(texts)
    data[starts + len(before.encode())] = ord("{")
    return _with_bytes(texts, data)


def _plain_texts(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _quoted(array)
    if pa.types.is_boolean(kind):
        return pc.if_else(array, literal("true"), literal("false"))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        # A decimal may be 0E-9, a float 1e+300: both are valid JSON, and exact.
        return array.cast(pa.string()).cast(TEXT)
    if pa.types.is_timestamp(kind):
        return _timestamp_texts(array)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return joined(literal('"'), array.cast(pa.string()).cast(TEXT), literal('"'))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        coded = [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
        return joined(literal('"'), pa.array(coded, TEXT), literal('"'))
    raise InternalError("writing values as JSON", f"a column of type {kind} has no form in JSON")


def _quoted(texts: pa.Array) -> pa.Array:
    """Returns texts as JSON strings. Escapes what the array really holds: mostly one look over its bytes is all."""
    texts = texts.cast(TEXT)
    data = texts.buffers()[2]
    if len(texts) and data is not None:
        offsets = _offsets(texts)
        used = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        if (used == _BACKSLASH).any():
            texts = pc.replace_substring(texts, "\\", "\\\\")
        if (used == _QUOTE).any():
            texts = pc.replace_substring(texts, '"', '\\"')
        for code in np.unique(used[used < _FIRST_PRINTABLE]):
            texts = pc.replace_substring(texts, chr(code), json.dumps(chr(code))[1:-1])
    return joined(literal('"'), texts, literal('"'))


def _timestamp_texts(array: pa.Array) -> pa.Array:
    """Returns times as RFC 3339 has them, with Z where they are points in time.

    These are formatted as if they had no zone: otherwise Arrow looks each one up in the zone database, which takes
    twelve times as long.
    """
    unit, zone = array.type.unit, array.type.tz
    plain = array.view(pa.timestamp(unit)) if zone else array
    texts = plain.cast(pa.string()).cast(TEXT)
    return joined(literal('"'), _with_letter_t(texts), literal('Z"' if zone else '"'))


def _with_letter_t(texts: pa.Array) -> pa.Array:
    """Returns `2024-02-29 12:00:00` as `2024-02-29T12:00:00`."""
    data, starts = _own_bytes(texts)
    blanks = starts[np.diff(_offsets(texts)) > 0] + len("2024-02-29")
    if not (data[blanks] == ord(" ")).all():  # A year of other than four digits.
        return pc.replace_substring_regex(texts, r"^(-?\d+-\d\d-\d\d) ", r"\1T")
    data[blanks] = ord("T")
    return _with_bytes(texts, data)


def _struct_texts(array: pa.StructArray, *, omits_nulls: bool) -> pa.Array:
    names = [field.name for field in array.type]
    return _null_as(array, object_texts(names, array.flatten(), len(array), omits_nulls=omits_nulls))


def _list_texts(array: pa.Array, *, omits_nulls: bool) -> pa.Array:
    array = array.cast(pa.large_list(array.type.value_type))
    starts, first, last = _own_range(array.offsets)
    items = json_texts(array.values.slice(first, last - first), omits_nulls=omits_nulls)
    lists = pa.LargeListArray.from_arrays(starts, pc.fill_null(items, _NULL))
    return _null_as(array, joined(literal("["), pc.binary_join(lists, literal(",")), literal("]")))


def _map_texts(array: pa.MapArray, *, omits_nulls: bool) -> pa.Array:
    starts, first, last = _own_range(array.offsets)  # `keys` and `items` do not know of a slice.
    keys, items = (part.slice(first, last - first) for part in (array.keys, array.items))
    names = _quoted(keys if pa.types.is_string(keys.type) else keys.cast(pa.string()))
    pairs = joined(names, literal(":"), pc.fill_null(json_texts(items, omits_nulls=omits_nulls), _NULL))
    texts = pc.binary_join(pa.ListArray.from_arrays(starts, pairs), literal(","))
    return _null_as(array, joined(literal("{"), texts, literal("}")))


def _own_range(offsets: pa.Array) -> tuple[pa.Array, int, int]:
    """Returns offsets that begin at 0, with the first and the last of the given ones."""
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, offsets[0]), first, last


def _null_as(array: pa.Array, texts: pa.Array) -> pa.Array:
    """Returns the texts, null where the array is."""
    return texts if array.null_count == 0 else pc.if_else(array.is_valid(), texts, pa.scalar(None, TEXT))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _offsets(texts: pa.Array) -> Any:
    """The offsets of the array's own texts in its buffer."""
    return np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]


def _own_bytes(texts: pa.Array) -> tuple[Any, Any]:
    """Returns a copy of the bytes of an array that begins at its buffer's first text, and where each text begins."""
    data = texts.buffers()[2]
    return (np.frombuffer(data, np.uint8).copy() if data is not None else np.empty(0, np.uint8)), _offsets(texts)[:-1]


def _with_bytes(texts: pa.Array, data: Any) -> pa.Array:
    valid, offsets, _ = texts.buffers()
    return pa.LargeStringArray.from_buffers(
        len(texts), offsets, pa.py_buffer(data), valid, texts.null_count, texts.offset
    )
