"""Parses dates and times from text, whole arrays at a time.

- Tables hold the years 1 to 9999, and microseconds. A value outside of these years is null, and so is a leap second
  (23:59:60).
- Digits after the sixth are cut off. If they were not all zeros, the value is noted as cut.
- An array of one format is cast by Arrow in one call. Otherwise the plain values are cast together, by kind of zone,
  and only the rest is tidied first. So a few odd values cost little.
- The result of a value does not depend on its neighbours, whichever of these ways it takes.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import INSTANT, ValueKind

_LOCAL: Final = pa.timestamp("us")
_INT: Final = pa.int64()
_FIRST_DAY: Final = -719_162
_DAY: Final = 86_400_000_000
_FIRST: Final = _FIRST_DAY * _DAY
_LAST: Final = 2_932_897 * _DAY - 1
_SHORTEST_TIMESTAMP: Final = len("2020-01-01T00:00")
_PROBED_VALUES: Final = 32

_LEAP = r"(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = (
    r"(\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|"
    rf"{_LEAP}-02-29)"
)
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?"
_OFFSET = r"[+-]([01]\d|2[0-3])(:?[0-5]\d)?"
_PLAIN_DATE: Final = rf"^{_DATE}$"
_MIDNIGHT: Final = r"[T ]00:00(:00(\.0+)?)?(Z|[+-]00(:?00)?)?$"
_PLAIN_LOCAL: Final = rf"^{_DATE}[T ]{_CLOCK}$"
_PLAIN_ZULU: Final = rf"^{_DATE}[T ]{_CLOCK}Z$"
_PLAIN_ZONED: Final = rf"^{_DATE}[T ]{_CLOCK}(Z|{_OFFSET})$"
_TIME_PATTERN: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}[0-9:.]*([Z+-][0-9:]*)?$"
_ZONE: Final = r"(Z|[+-]\d{2}(:?\d{2})?)$"
_ZERO_ZONE: Final = r"(Z|[+-]00(:?00)?)$"
_DIGITS_BEYOND: Final = r":\d{2}[.,]\d{6}\d*[1-9]"
_TIME: Final = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?\s?([Zz]|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?$"
_SHORT_HOUR: Final = r"^(\d:)"
_MONTH_DAY = r"-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_OTHER_YEAR = rf"(\+\d{{5,}}|-\d{{4,}}|\d{{5,}}|0000){_MONTH_DAY}"
_BEFORE_CHRIST = rf"\d{{4,}}{_MONTH_DAY}"
_ANY_CLOCK = r"[Tt ]([01]\d|2[0-3]):?[0-5]\d[^A-Za-z]*[Zz]?"
_OUTSIDE_DATE: Final = rf"^({_OTHER_YEAR}|{_BEFORE_CHRIST} ?BC)$"
_OUTSIDE_TIME: Final = (
    rf"^({_OTHER_YEAR}{_ANY_CLOCK}|{_BEFORE_CHRIST}{_ANY_CLOCK} ?BC|(0001-01-01|9999-12-31){_ANY_CLOCK})$"
)
_TIDYING_STEPS: Final = (
    (r"^(\d{4}-\d{2}-\d{2})t", r"\1T"),
    (r"(:\d{2}),(\d)", r"\1.\2"),
    (r"(:\d{2}\.\d{6})\d+", r"\1"),
    (r"([Zz]|[+-]\d{2}(:?\d{2})?)\[[A-Za-z0-9_/+-]+\]$", r"\1"),
    (r"(\d) ?(z|UTC|GMT|utc|gmt)$", r"\1Z"),
    ("\u2212", "-"),
    (r"(\d) ([Z+-])", r"\1\2"),
)


class Coerced(NamedTuple):
    """Values of a column's type. `is_cut` is a mask of the values that lost digits; None if there are none."""

    values: pa.Array
    is_cut: pa.Array | None = None


def dates(text: pa.Array) -> Coerced:
    """Parses dates of the years 1 to 9999, also with midnight behind them.

    Taps on Meltano's SDK before 0.39.1 send each DATE of a database as `2024-01-31T00:00:00+00:00`.
    """
    try:
        days = text.cast(pa.date32())
    except pa.ArrowInvalid:
        plain = pc.replace_substring_regex(text, _MIDNIGHT, "")
        plain = _null_unless(pc.match_substring_regex(plain, _PLAIN_DATE), plain)
        days = _cast_each(plain, pa.date32())
    return Coerced(_null_outside(days, pa.int32(), _FIRST_DAY))


def times(text: pa.Array) -> Coerced:
    """Checks times of day, which stay text. Those before ten get two digits for the hour.

    pipelinewise's tap for MySQL sends `8:30:00`, which is no RFC 3339.
    """
    text = pc.replace_substring_regex(text, _SHORT_HOUR, r"0\1")
    return Coerced(_null_unless(pc.match_substring_regex(text, _TIME), text))


def timestamps(text: pa.Array) -> Coerced:
    """Parses instants. A time without a zone is in UTC."""
    found = _cast_all(text, "UTC", None)
    if found is None:
        found = _cast_by_groups(text, ((_PLAIN_ZONED, "UTC"), (_PLAIN_LOCAL, None)), INSTANT, _cast_odd_timestamps)
    return _null_out_of_range(found._replace(values=found.values.cast(INSTANT)))


def local_timestamps(text: pa.Array) -> Coerced:
    """Parses local times. The zone UTC may follow; with any other it is unclear which time is meant."""
    found = _cast_all(text, None)
    if found is None:
        found = _cast_by_groups(text, ((_PLAIN_LOCAL, None), (_PLAIN_ZULU, "UTC")), _LOCAL, _cast_odd_local_timestamps)
    return _null_out_of_range(found)


def are_out_of_range(kind: ValueKind, misfits: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Returns a mask of the misfits that are dates or times, but of years that tables do not hold."""
    patterns = {
        ValueKind.DATE: _OUTSIDE_DATE,
        ValueKind.TIMESTAMP: _OUTSIDE_TIME,
        ValueKind.LOCAL_TIMESTAMP: _OUTSIDE_TIME,
    }
    if kind not in patterns:
        return np.zeros(len(misfits), bool)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.match_substring_regex(misfits, patterns[kind]).to_numpy(
        zero_copy_only=False
    )
    return found


def _cast_by_groups(
    text: pa.Array,
    groups: Sequence[tuple[str, str | None]],
    target: pa.DataType,
    cast_odd: Callable[[pa.Array], Coerced],
) -> Coerced:
    """Casts the values that match a group's pattern together, in the group's zone, and the rest with `cast_odd`."""
    values, is_cut = pa.nulls(len(text), target), pa.nulls(len(text), pa.bool_())
    left = text.is_valid()
    for pattern, zone in groups:
        is_of_group = pc.and_(left, pc.fill_null(pc.match_substring_regex(text, pattern), False))
        found = _cast_all(_null_unless(is_of_group, text), zone)
        if found is not None:
            left = pc.and_not(left, is_of_group)
            values = pc.coalesce(values, found.values.cast(target))
            is_cut = is_cut if found.is_cut is None else pc.coalesce(is_cut, found.is_cut)
    rest = cast_odd(text.filter(left))
    values = pc.replace_with_mask(values, left, rest.values)
    return Coerced(values, is_cut if rest.is_cut is None else pc.replace_with_mask(is_cut, left, rest.is_cut))


def _cast_odd_timestamps(text: pa.Array) -> Coerced:
    is_cut, text = pc.match_substring_regex(text, _DIGITS_BEYOND), _tidy(text)
    is_zoned = pc.match_substring_regex(text, _ZONE)
    zoned = _cast_each(_null_unless(is_zoned, text), INSTANT)
    local = _cast_each(_null_unless(pc.invert(is_zoned), text), _LOCAL)
    return Coerced(pc.coalesce(zoned, local.cast(INSTANT)), is_cut)


def _cast_odd_local_timestamps(text: pa.Array) -> Coerced:
    local = pc.replace_substring_regex(_tidy(text), _ZERO_ZONE, "")
    return Coerced(_cast_each(local, _LOCAL), pc.match_substring_regex(text, _DIGITS_BEYOND))


def _cast_all(text: pa.Array, *zones: str | None) -> Coerced | None:
    """Casts all values with Arrow, in one of the zones; None if that fails, or would take a date for a time."""
    # A few values are cast first: a failing cast is expensive, because Arrow formats an error for each bad value.
    if not _is_long_enough(text):
        return None
    few = text[:_PROBED_VALUES]
    for unit in ("us", "ns"):
        for zone in zones:
            try:
                few.cast(pa.timestamp(unit, zone))
                found = text.cast(pa.timestamp(unit, zone))
            except pa.ArrowInvalid:
                continue
            return Coerced(found) if unit == "us" else floor_to_microseconds(found, zone)
    return None


def floor_to_microseconds(found: pa.Array, zone: str | None) -> Coerced:
    """Rounds nanoseconds down to microseconds, as cutting digits does. Arrow's division rounds towards 1970."""
    nanoseconds = found.cast(_INT)
    microseconds = pc.divide(nanoseconds, 1000)
    back = pc.multiply(microseconds, 1000)
    floored = pc.subtract(microseconds, pc.greater(back, nanoseconds).cast(_INT))
    return Coerced(floored.cast(pa.timestamp("us", zone)), pc.not_equal(back, nanoseconds))


def _is_long_enough(text: pa.Array) -> bool:
    if not len(text):
        return True  # An empty array may have no buffer.
    lengths = np.diff(np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset))
    if lengths.min(initial=_SHORTEST_TIMESTAMP) >= _SHORTEST_TIMESTAMP:
        return True
    return bool(pc.all(pc.greater_equal(pc.binary_length(text), _SHORTEST_TIMESTAMP)).as_py())


def _tidy(text: pa.Array) -> pa.Array:
    """Replaces texts no longer than a date with null, and rewrites the rest towards the formats that Arrow reads."""
    text = _null_unless(pc.greater_equal(pc.binary_length(text), _SHORTEST_TIMESTAMP), text)
    for pattern, replacement in _TIDYING_STEPS:
        text = pc.replace_substring_regex(text, pattern, replacement)
    return _null_unless(pc.match_substring_regex(text, _TIME_PATTERN), text)


def _null_out_of_range(found: Coerced) -> Coerced:
    return found._replace(values=_null_outside(found.values, _INT, _FIRST, _LAST))


def null_outside_years(values: pa.Array) -> pa.Array:
    """Replaces dates and timestamps outside of the years 1 to 9999 with null."""
    if pa.types.is_date32(values.type):
        return _null_outside(values, pa.int32(), _FIRST_DAY, _LAST // _DAY)
    return _null_outside(values, _INT, _FIRST, _LAST)


def _null_outside(values: pa.Array, raw: pa.DataType, first: int, last: int | None = None) -> pa.Array:
    """Replaces values out of range with null. `last` may be None: four digits for the year cannot exceed it."""
    numbers = values.view(raw)
    lowest, highest = pc.min_max(numbers).values()
    if lowest.as_py() is None or (lowest.as_py() >= first and (last is None or highest.as_py() <= last)):
        return values
    fits = pc.greater_equal(numbers, pa.scalar(first, raw))
    if last is not None:
        fits = pc.and_(fits, pc.less_equal(numbers, pa.scalar(last, raw)))
    return _null_unless(fits, values)


def _null_unless(claims: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the values for which the claim is true; the others are null."""
    return pc.if_else(claims, values, pa.scalar(None, values.type))


def _cast_each(text: pa.Array, target: pa.DataType) -> pa.Array:
    """Casts the values that can be cast; the rest is null. Finds the rest by halving, so that a few cost little."""
    try:
        return text.cast(target)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, target)
    half = len(text) // 2
    return pa.concat_arrays([_cast_each(text[:half], target), _cast_each(text[half:], target)])
