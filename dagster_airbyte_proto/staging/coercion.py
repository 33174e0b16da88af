"""From arrays as the JSON parser reads them to arrays as the table wants them, whole columns at a time.

Arrow's JSON parser takes a plain date for a timestamp, shifts a local time by an offset, and lets NaN pass. So times
are read as text and cast here, where each rule is ours. Both roads end here, which is why they agree.
The table's times are in microseconds: digits beyond the sixth are cut off, and where they were not zeros, noted.
"""

import base64
import binascii
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import INSTANT, Column, Kind
from dagster_airbyte_proto.staging.changes import Changes

_LOCAL = pa.timestamp("us")
_INT = pa.int64()
_Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
_SHORTEST_TIMESTAMP = len("2020-01-01T00:00")
_ZONE = r"([Zz]|[+-]\d{2}(:?\d{2})?)$"
_ZERO_ZONE = r"\s?([Zz]|[+-]00(:?00)?)$"
_DIGITS_BEYOND = r":\d{2}\.\d{6}\d*[1-9]"
_TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?\s?([Zz]|[+-]\d{2}(:?\d{2})?)?$"


class _Coerced(NamedTuple):
    """`is_cut` says of which values the table holds less than was sent; None: of none."""

    values: pa.Array
    is_cut: pa.Array | None = None


def coerced(column: Column, wire: pa.Array, changes: Changes) -> pa.Array:
    """The column's values as its table has them. What does not fit is null and has its entry in `changes`."""
    coerce = _COERCIONS.get(column.type.kind)
    if coerce is None:
        return wire
    if wire.null_count == len(wire):
        return pa.nulls(len(wire), column.type.in_table)
    lists: list[pa.ListArray] = []
    leaf = wire
    for _ in range(column.type.depth):
        lists.append(leaf)
        leaf = leaf.values
    values, is_cut = coerce(leaf)
    if values.null_count != leaf.null_count:
        for position in _hits(pc.and_(leaf.is_valid(), values.is_null())):
            row, path = _place(lists, int(position))
            changes.nulled(row, ".".join([*column.path, *path]))
    if is_cut is not None:
        _note_cut(column, lists, _hits(pc.and_(is_cut, values.is_valid())), changes)
    for outer in reversed(lists):
        values = pa.ListArray.from_arrays(outer.offsets, values, mask=outer.is_null())
    return values


def _note_cut(column: Column, lists: list[pa.ListArray], positions: _Positions, changes: Changes) -> None:
    name = ".".join(column.path)
    if not lists:
        changes.truncated(positions, name)
        return
    for position in positions:
        row, path = _place(lists, int(position))
        changes.truncated(np.array([row]), ".".join([name, *path]))


def _hits(claims: pa.Array) -> _Positions:
    """Where it is true; null is not."""
    return np.flatnonzero(pc.fill_null(claims, False).to_numpy(zero_copy_only=False))


def _place(lists: list[pa.ListArray], position: int) -> tuple[int, list[str]]:
    path: list[str] = []
    for outer in reversed(lists):
        offsets = outer.offsets.to_numpy()
        owner = int(np.searchsorted(offsets, position, side="right")) - 1
        path.insert(0, str(position - int(offsets[owner])))
        position = owner
    return position, path


def _finite(values: pa.Array) -> _Coerced:
    # The slots of nulls may hold anything, so that a hit is looked at again with the nulls known.
    if np.isfinite(values.to_numpy(zero_copy_only=False)).all():
        return _Coerced(values)
    return _Coerced(pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64())))


def _timestamps(text: pa.Array) -> _Coerced:
    whole = _cast_whole(text, "UTC", None)
    if whole is not None:
        return whole._replace(values=whole.values.cast(INSTANT))
    is_cut, text = pc.match_substring_regex(text, _DIGITS_BEYOND), _tidied(text)
    is_zoned = pc.match_substring_regex(text, _ZONE)
    nothing = pa.scalar(None, pa.string())
    zoned = _cast_each(pc.if_else(is_zoned, text, nothing), INSTANT)
    local = _cast_each(pc.if_else(is_zoned, nothing, text), _LOCAL)
    return _Coerced(pc.coalesce(zoned, local.cast(INSTANT)), is_cut)


def _local_timestamps(text: pa.Array) -> _Coerced:
    """A zone that shifts nothing may stand there; any other makes it unclear which time is meant."""
    whole = _cast_whole(text, None)
    if whole is not None:
        return whole
    local = pc.replace_substring_regex(_tidied(text), _ZERO_ZONE, "")
    return _Coerced(_cast_each(local, _LOCAL), pc.match_substring_regex(text, _DIGITS_BEYOND))


def _cast_whole(text: pa.Array, *zones: str | None) -> _Coerced | None:
    """All of it as Arrow reads it, in one of the zones; None where that would fail, or take a date for a time."""
    if not _is_long_enough(text):
        return None
    for unit in ("us", "ns"):
        for zone in zones:
            try:
                times = text.cast(pa.timestamp(unit, zone))
            except pa.ArrowInvalid:
                continue
            return _Coerced(times) if unit == "us" else _in_microseconds(times, zone)
    return None


def _in_microseconds(times: pa.Array, zone: str | None) -> _Coerced:
    """Cut towards the past, as the digits are; Arrow's division cuts towards 1970."""
    nanoseconds = times.cast(_INT)
    microseconds = pc.divide(nanoseconds, 1000)
    back = pc.multiply(microseconds, 1000)
    floored = pc.subtract(microseconds, pc.greater(back, nanoseconds).cast(_INT))
    return _Coerced(floored.cast(pa.timestamp("us", zone)), pc.not_equal(back, nanoseconds))


def _is_long_enough(text: pa.Array) -> bool:
    if not len(text):
        return True  # There may be no buffer to look at.
    lengths = np.diff(np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset))
    if lengths.min(initial=_SHORTEST_TIMESTAMP) >= _SHORTEST_TIMESTAMP:
        return True
    return bool(pc.all(pc.greater_equal(pc.binary_length(text), _SHORTEST_TIMESTAMP)).as_py())


def _tidied(text: pa.Array) -> pa.Array:
    """Nulls what is a date or less, and brings the rest nearer to what Arrow reads."""
    long_enough = pc.greater_equal(pc.binary_length(text), _SHORTEST_TIMESTAMP)
    text = pc.if_else(long_enough, text, pa.scalar(None, pa.string()))
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d{2}-\d{2})t", r"\1T")
    text = pc.replace_substring_regex(text, r"(:\d{2}\.\d{6})\d+", r"\1")
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"[Zz]$", "Z"), r"(\d)\s([Z+-])", r"\1\2")


def _dates(text: pa.Array) -> _Coerced:
    return _Coerced(_cast_each(text, pa.date32()))


def _times(text: pa.Array) -> _Coerced:
    return _Coerced(pc.if_else(pc.match_substring_regex(text, _TIME), text, pa.scalar(None, pa.string())))


def _bytes(text: pa.Array) -> _Coerced:
    return _Coerced(pa.array([None if value is None else _decoded(value) for value in text.to_pylist()], pa.binary()))


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


_COERCIONS: dict[Kind, Callable[[pa.Array], _Coerced]] = {
    Kind.NUMBER: _finite,
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.LOCAL_TIMESTAMP: _local_timestamps,
    Kind.BINARY: _bytes,
}
