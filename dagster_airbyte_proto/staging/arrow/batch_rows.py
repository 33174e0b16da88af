"""Converts Arrow batches of a connector to arrays of the table's types, whole columns at a time.

- Typed columns are cast from Arrow to Arrow. Only values of free-form columns become JSON text.
- A value that does not fit its column is null, with an entry in the row's changes; a value that loses digits gets an
  entry too. So a batch lands as the same records would as lines.
- The cast of a whole array refuses all of it for one value. Then the halves are cast, and so on: a few values that do
  not fit cost a few casts more.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.arrow_schema import is_bytes, is_list, written_out
from dagster_airbyte_proto.schema.columns import DECIMAL_SCALE, Columns, ValueKind, ValueType, null_array
from dagster_airbyte_proto.staging.arrow.typed_text import DecimalText, decimals_of_text
from dagster_airbyte_proto.staging.arrow.valid_values import is_valid, valid_values
from dagster_airbyte_proto.staging.lines.wire_rows import WireRows
from dagster_airbyte_proto.staging.values.changes import (
    SIZE_LIMITATION,
    TYPECAST_ERROR,
    Changes,
    ValueLocations,
    true_positions,
)
from dagster_airbyte_proto.staging.values.times import floor_to_microseconds, null_outside_years

_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=lambda value: _time_text(value))
_TIMES = (ValueKind.DATE, ValueKind.TIMESTAMP, ValueKind.LOCAL_TIMESTAMP)
_ZERO_ZONES = (None, "UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_WIDE_DECIMAL = pa.decimal256(76, 28)
_NUMBERS = (ValueKind.INTEGER, ValueKind.BIG_INTEGER, ValueKind.NUMBER, ValueKind.DECIMAL)


def batch_rows(batch: pa.RecordBatch, columns: Columns) -> WireRows:
    """Returns the rows of a valid batch. Their arrays have the table's types."""
    changes, fields = Changes(), dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = []
    for column in columns.parsed_fields:
        array = fields.pop(column.path[0], None)
        if array is None:
            array = pa.nulls(batch.num_rows)
        arrays.append(_convert(column.type, array, ValueLocations(column.path), changes))
    ignored = {
        name: len(array) - array.null_count for name, array in fields.items() if name not in columns.skipped_fields
    }
    emitted_at = pa.nulls(batch.num_rows, pa.string())
    return WireRows(tuple(arrays), emitted_at, None, changes, Counter(), +Counter(ignored), Counter())


def _convert(kind: ValueType, array: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    array = valid_values(written_out(array), locations, changes)
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.string()) if kind.is_json_text else null_array(len(array), kind.table_type)
    if kind.is_json_text:
        return _json_texts(array, locations, changes)
    if isinstance(array.type, DecimalText) and kind.kind in _NUMBERS and not kind.depth:
        array = decimals_of_text(array.storage, locations, changes)
    elif isinstance(array, pa.ExtensionArray):
        array = array.storage
    if kind.depth:
        return _lists(kind, array, locations, changes)
    if kind.kind is ValueKind.STRUCT:
        return _structs(kind, array, locations, changes)
    return _leaves(kind, array, locations, changes)


def _lists(kind: ValueType, array: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    if not is_list(array.type):
        return _none_fit(kind, array, locations, changes)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(), out=offsets[1:])
    inner = _convert(kind.element_type, array.flatten(), locations.elements(offsets), changes)
    return pa.ListArray.from_arrays(pa.array(offsets), inner, mask=array.is_null())


def _structs(kind: ValueType, array: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    if not pa.types.is_struct(array.type):
        return _none_fit(kind, array, locations, changes)
    found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    inside = [
        _convert(member.type, found.get(member.source, pa.nulls(len(array))), locations.member(member.source), changes)
        for member in kind.members
    ]
    return pa.StructArray.from_arrays(inside, fields=list(kind.table_type), mask=array.is_null())


def _leaves(kind: ValueType, array: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    if not _is_convertible(kind.kind, array.type):
        return _none_fit(kind, array, locations, changes)
    try:
        values = _cast(array, _cast_of(kind, array.type))
    except pa.ArrowNotImplementedError:
        return _none_fit(kind, array, locations, changes)
    if kind.kind in _TIMES:
        values = null_outside_years(values)
    elif kind.kind is ValueKind.NUMBER:
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    _note_misfits(kind.kind, array, values, locations, changes)
    if kind.kind is not ValueKind.STRING:
        _note_cut(array, values, locations, changes)
    return values


def _is_convertible(kind: ValueKind, given: pa.DataType) -> bool:
    """True if values of the Arrow type may be values of this kind. Arrow itself would cast a date to a number."""
    if kind in _NUMBERS:
        return bool(pa.types.is_integer(given) or pa.types.is_floating(given) or pa.types.is_decimal(given))
    if kind is ValueKind.STRING:
        return not (pa.types.is_nested(given) or is_bytes(given))
    return bool(_CLAIMS[kind](given))


_CLAIMS: dict[ValueKind, Callable[[pa.DataType], bool]] = {
    ValueKind.BOOLEAN: pa.types.is_boolean,
    ValueKind.BINARY: is_bytes,
    ValueKind.DATE: pa.types.is_date,
    ValueKind.TIME: pa.types.is_time,
    ValueKind.TIMESTAMP: pa.types.is_timestamp,
    ValueKind.LOCAL_TIMESTAMP: lambda given: pa.types.is_timestamp(given) and given.tz in _ZERO_ZONES,
}


def _cast_of(kind: ValueType, given: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    target = kind.table_type
    if kind.kind is ValueKind.DECIMAL and pa.types.is_decimal(given) and given.scale > DECIMAL_SCALE:
        # Not an unsafe cast: that makes other digits of a number that is too large.
        return lambda array: pc.round(array, DECIMAL_SCALE, "half_to_even").cast(target)
    if kind.kind is ValueKind.TIME:  # By way of microseconds: tables keep no more digits of a time.
        return lambda array: array.cast(pa.time64("us"), safe=False).cast(target)
    if kind.kind in _TIMES and pa.types.is_timestamp(given) and given.unit == "ns":
        return lambda array: floor_to_microseconds(array, given.tz).values.cast(target)
    if kind.kind is ValueKind.DECIMAL and pa.types.is_floating(given):
        return _decimals_of_floats
    if kind.kind in (ValueKind.INTEGER, ValueKind.BIG_INTEGER) and pa.types.is_floating(given):
        # Fractions first: where every value has one, halving would end at single values. A large number by its text, as
        # in JSON: Arrow makes 10000000000000000905969664 of 1e25.
        by_way_of = pa.string() if kind.kind is ValueKind.BIG_INTEGER else given
        return lambda array: _without_fractions(array).cast(by_way_of).cast(target)
    if kind.kind is ValueKind.NUMBER:  # An integer beyond 2**53 becomes the nearest double, as in JSON.
        return lambda array: array.cast(target, safe=False)
    return lambda array: array.cast(target)


def _without_fractions(array: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(array, pc.floor(array)), array, pa.scalar(None, array.type))


def _decimals_of_floats(array: pa.Array) -> pa.Array:
    """Returns floats as decimals by their text, as they would come in JSON: with the fewest digits that tell them."""
    size = pc.abs(array.cast(pa.float64()))
    text = pc.if_else(pc.less(size, 1e29), array.cast(pa.string()), pa.scalar(None, pa.string()))
    # From 1e-10 on, no digit of a float is beyond the 28th behind the point.
    text = pc.if_else(pc.less(size, 1e-10), "0", text)
    rounded = pc.round(text.cast(_WIDE_DECIMAL), DECIMAL_SCALE, "half_to_even")
    return rounded.cast(pa.decimal128(38, DECIMAL_SCALE))


def _cast(array: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> pa.Array:
    try:
        return cast(array)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, cast(array[:0]).type)
        middle = len(array) // 2
        return pa.concat_arrays([_cast(array[:middle], cast), _cast(array[middle:], cast)])


def _note_misfits(
    kind: ValueKind, array: pa.Array, values: pa.Array, locations: ValueLocations, changes: Changes
) -> None:
    if values.null_count == array.null_count:
        return
    misfits = true_positions(pc.and_(array.is_valid(), values.is_null()))
    is_size = kind in _TIMES or (kind in _NUMBERS and not pa.types.is_floating(array.type))
    changes.note_nulled(locations, misfits, SIZE_LIMITATION if is_size else TYPECAST_ERROR)


def _note_cut(array: pa.Array, values: pa.Array, locations: ValueLocations, changes: Changes) -> None:
    """Notes the values that lost digits behind the point."""
    given = array.type
    if pa.types.is_decimal(given) and pa.types.is_decimal(values.type) and given.scale > DECIMAL_SCALE:
        back = values.cast(pa.decimal256(76, given.scale))
        is_cut = pc.not_equal(back, array.cast(pa.decimal256(76, given.scale)))
    elif pa.types.is_floating(given) and pa.types.is_decimal(values.type):
        back = values.cast(pa.string()).cast(given).cast(pa.float64())  # Arrow does not compare floats of 16 bits.
        is_cut = pc.not_equal(back, array.cast(pa.float64()))
    elif (pa.types.is_timestamp(given) or pa.types.is_time64(given)) and given.unit == "ns":
        nanoseconds = array.view(pa.int64())
        whole = pc.multiply(pc.divide(nanoseconds, 1000), 1000)
        is_cut = pc.and_(pc.not_equal(whole, nanoseconds), values.is_valid())
    else:
        return
    changes.note_truncated(locations, true_positions(is_cut))


def _none_fit(kind: ValueType, array: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    changes.note_nulled(locations, true_positions(array.is_valid()))
    return null_array(len(array), kind.table_type)


def _json_texts(array: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    """Returns values of a free-form column as JSON text. Text of the type `arrow.json` stays as it is.

    A value with a part that Arrow calls invalid is null: Python has the day of a Date64 that is off midnight.
    """
    to_text: Callable[[pa.Scalar], str | None] = _checked_text if isinstance(array.type, pa.JsonType) else _encoded
    texts: list[str | None] = []
    misfits = []
    is_all_valid = is_valid(array)
    for position, scalar in enumerate(array):
        try:
            if not is_all_valid:
                array.take([position]).validate(full=True)
            texts.append(to_text(scalar) if scalar.is_valid else None)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - Arrow holds values that Python does not: years, zones, intervals
            texts.append(None)
            misfits.append(position)
    changes.note_nulled(locations, misfits)
    return pa.array(texts, pa.string())


def _checked_text(scalar: Any) -> str | None:
    text: str = scalar.as_py()
    return None if msgspec.json.decode(text) is None else text


def _encoded(scalar: Any) -> str:
    value = scalar.as_py(maps_as_pydicts="strict")
    text = _ENCODER.encode(value).decode()
    if "null" in text and _has_non_finite(value):
        raise ValueError("NaN and infinities are no JSON, and are encoded as null")
    return text


def _time_text(value: Any) -> str:
    """Returns a time of nanoseconds, which is one of pandas, as RFC 3339 has it."""
    text: str = value.isoformat()
    return text.replace("+00:00", "Z")


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_non_finite, value.values()))
    return isinstance(value, list) and any(map(_has_non_finite, value))
