"""From arrays as the JSON parser reads them to arrays as the table wants them, whole columns at a time.

Arrow's JSON parser takes a plain date for a timestamp, shifts a local time by an offset, and lets NaN pass. So times
are read as text and cast here, where each rule is ours. Both roads end here, which is why they agree.
The table's times are in microseconds: digits beyond the sixth are cut off, as a float is rounded; that is no change.
"""

import base64
import binascii
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import INSTANT, Column, Kind
from dagster_airbyte_proto.staging.changes import Changes

_LOCAL = pa.timestamp("us")
_SHORTEST_TIMESTAMP = len("2020-01-01T00:00")
_ZONE = r"([Zz]|[+-]\d{2}(:?\d{2})?)$"
_ZERO_ZONE = r"\s?([Zz]|[+-]00(:?00)?)$"
_TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?\s?([Zz]|[+-]\d{2}(:?\d{2})?)?$"


def coerced(column: Column, wire: pa.Array, changes: Changes) -> pa.Array:
    """The column's values as its table has them. What does not fit is null and has its entry in `changes`."""
    coerce = _COERCIONS.get(column.type.kind)
    if coerce is None or wire.null_count == len(wire):
        return wire if wire.type == column.type.in_table else wire.cast(column.type.in_table)
    lists: list[pa.ListArray] = []
    leaf = wire
    for _ in range(column.type.depth):
        lists.append(leaf)
        leaf = leaf.values
    values = coerce(leaf)
    if values.null_count != leaf.null_count:
        for position in np.flatnonzero(_mask(pc.and_(leaf.is_valid(), values.is_null()))):
            row, path = _place(lists, int(position))
            changes.nulled(row, ".".join([*column.path, *path]))
    for outer in reversed(lists):
        values = pa.ListArray.from_arrays(outer.offsets, values, mask=outer.is_null())
    return values


def _mask(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]] = values.to_numpy(zero_copy_only=False)
    return mask


def _place(lists: list[pa.ListArray], position: int) -> tuple[int, list[str]]:
    path: list[str] = []
    for outer in reversed(lists):
        offsets = outer.offsets.to_numpy()
        owner = int(np.searchsorted(offsets, position, side="right")) - 1
        path.insert(0, str(position - int(offsets[owner])))
        position = owner
    return position, path


def _finite(values: pa.Array) -> pa.Array:
    # The slots of nulls may hold anything, so that a hit is looked at again with the nulls known.
    if np.isfinite(values.to_numpy(zero_copy_only=False)).all():
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))


def _timestamps(text: pa.Array) -> pa.Array:
    if _is_long_enough(text):
        for target in (INSTANT, _LOCAL):
            try:
                return text.cast(target).cast(INSTANT)
            except pa.ArrowInvalid:
                continue
    text = _tidied(text)
    is_zoned = pc.match_substring_regex(text, _ZONE)
    nothing = pa.scalar(None, pa.string())
    zoned = _cast_each(pc.if_else(is_zoned, text, nothing), INSTANT)
    return pc.coalesce(zoned, _cast_each(pc.if_else(is_zoned, nothing, text), _LOCAL).cast(INSTANT))


def _local_timestamps(text: pa.Array) -> pa.Array:
    """A zone that shifts nothing may stand there; any other makes it unclear which time is meant."""
    if _is_long_enough(text):
        try:
            return text.cast(_LOCAL)
        except pa.ArrowInvalid:
            pass
    return _cast_each(pc.replace_substring_regex(_tidied(text), _ZERO_ZONE, ""), _LOCAL)


def _is_long_enough(text: pa.Array) -> bool:
    shortest = pc.min(pc.binary_length(text)).as_py()
    return shortest is None or bool(shortest >= _SHORTEST_TIMESTAMP)


def _tidied(text: pa.Array) -> pa.Array:
    """Nulls what is a date or less, and brings the rest nearer to what Arrow reads."""
    long_enough = pc.greater_equal(pc.binary_length(text), _SHORTEST_TIMESTAMP)
    text = pc.if_else(long_enough, text, pa.scalar(None, pa.string()))
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d{2}-\d{2})t", r"\1T")
    text = pc.replace_substring_regex(text, r"(:\d{2}\.\d{6})\d+", r"\1")
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"[Zz]$", "Z"), r"(\d)\s([Z+-])", r"\1\2")


def _dates(text: pa.Array) -> pa.Array:
    return _cast_each(text, pa.date32())


def _times(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, _TIME), text, pa.scalar(None, pa.string()))


def _bytes(text: pa.Array) -> pa.Array:
    return pa.array([None if value is None else _decoded(value) for value in text.to_pylist()], pa.binary())


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _cast_each(text: pa.Array, target: pa.DataType) -> pa.Array:
    """Casts what can be cast, and nulls the rest; finds the rest by halving, so that a few cost little."""
    try:
        return text.cast(target)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, target)
    half = len(text) // 2
    return pa.concat_arrays([_cast_each(text[:half], target), _cast_each(text[half:], target)])


_COERCIONS: dict[Kind, Callable[[pa.Array], pa.Array]] = {
    Kind.NUMBER: _finite,
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.LOCAL_TIMESTAMP: _local_timestamps,
    Kind.BINARY: _bytes,
}
