"""Dates and times at every limit and in every spelling; and that nothing hangs on what stands beside a value."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.schema.columns import Column, ValueKind, ValueType
from dagster_airbyte_proto.staging.rows.coercion import coerce
from dagster_airbyte_proto.staging.values.changes import Changes

_UTC = dt.UTC
_TYPECAST = "DESTINATION_TYPECAST_ERROR"
_SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"
_KINDS = (ValueKind.DATE, ValueKind.TIMESTAMP, ValueKind.LOCAL_TIMESTAMP, ValueKind.TIME)


def _landed(kind: ValueKind, texts: Sequence[str | None]) -> list[tuple[Any, list[str]]]:
    """Each value as its table has it, and what was noted of it."""
    changes = Changes()
    values = coerce(Column("v", ("v",), ValueType(kind)), pa.array(texts, pa.string()), changes)
    raw = (
        values if pa.types.is_string(values.type) else values.view(pa.int32() if kind is ValueKind.DATE else pa.int64())
    )
    noted = [[entry["reason"] for entry in row] for row in changes.entry_lists(len(texts)).to_pylist()]
    return list(zip(raw.to_pylist(), noted, strict=True))


def _microseconds(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=moment.tzinfo)) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0001-01-01T00:00:00Z", dt.datetime(1, 1, 1, tzinfo=_UTC)),
        ("0001-01-01T00:00:00.000001Z", dt.datetime(1, 1, 1, microsecond=1, tzinfo=_UTC)),
        ("0001-01-01T05:30:00+05:30", dt.datetime(1, 1, 1, tzinfo=_UTC)),
        ("9999-12-31T23:59:59.999999Z", dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, _UTC)),
        ("9999-12-31T21:59:59-02", dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=_UTC)),
        ("1582-10-04T00:00:00Z", dt.datetime(1582, 10, 4, tzinfo=_UTC)),
        ("1582-10-10T00:00:00Z", dt.datetime(1582, 10, 10, tzinfo=_UTC)),
        ("1900-02-28T00:00:00Z", dt.datetime(1900, 2, 28, tzinfo=_UTC)),
        ("2000-02-29T12:00:00+14:00", dt.datetime(2000, 2, 28, 22, tzinfo=_UTC)),
        ("2020-01-01T00:00:00-1200", dt.datetime(2020, 1, 1, 12, tzinfo=_UTC)),
        ("2020-01-01T00:00:00+05", dt.datetime(2019, 12, 31, 19, tzinfo=_UTC)),
        ("2020-01-01T00:00:00-00:00", dt.datetime(2020, 1, 1, tzinfo=_UTC)),
        ("2020-01-01T00:00:00 Z", dt.datetime(2020, 1, 1, tzinfo=_UTC)),
        ("2020-01-01 00:00:00 +01:00", dt.datetime(2019, 12, 31, 23, tzinfo=_UTC)),
        ("2020-01-01t00:00:00z", dt.datetime(2020, 1, 1, tzinfo=_UTC)),
        ("2020-01-01 00:00:00 UTC", dt.datetime(2020, 1, 1, tzinfo=_UTC)),
        ("2020-01-01T00:00:00GMT", dt.datetime(2020, 1, 1, tzinfo=_UTC)),
        ("2020-01-01T00:00:00+01:00[Europe/Paris]", dt.datetime(2019, 12, 31, 23, tzinfo=_UTC)),
        ("2020-01-01T00:00:00\u221201:00", dt.datetime(2020, 1, 1, 1, tzinfo=_UTC)),
        ("2020-01-01T00:00:00,25Z", dt.datetime(2020, 1, 1, microsecond=250_000, tzinfo=_UTC)),
        ("2020-01-01T00:00Z", dt.datetime(2020, 1, 1, tzinfo=_UTC)),
        ("2020-01-01T00:00:00.123456000000Z", dt.datetime(2020, 1, 1, microsecond=123_456, tzinfo=_UTC)),
    ],
)
def test_an_instant_lands_exactly_however_it_is_spelled(text: str, moment: dt.datetime) -> None:
    expected: tuple[Any, list[str]] = (_microseconds(moment), [])
    for others in ([], ["2020-01-01"], ["2020-01-01T00:00:00"], ["2020-01-01T00:00:00Z", None]):
        assert _landed(ValueKind.TIMESTAMP, [text, *others])[0] == expected, others


@pytest.mark.parametrize(("kind", "text", "reason"), [
    (ValueKind.DATE, "0000-12-31", _SIZE),
    (ValueKind.DATE, "10000-01-01", _SIZE),
    (ValueKind.DATE, "+10000-01-01", _SIZE),
    (ValueKind.DATE, "-0044-03-15", _SIZE),
    (ValueKind.DATE, "0044-03-15 BC", _SIZE),
    (ValueKind.DATE, "2023-02-29", _TYPECAST),
    (ValueKind.DATE, "1900-02-29", _TYPECAST),
    (ValueKind.DATE, "2020-1-1", _TYPECAST),
    (ValueKind.DATE, "2020-01-01 ", _TYPECAST),
    (ValueKind.DATE, "01/02/2020", _TYPECAST),
    (ValueKind.DATE, "", _TYPECAST),
    (ValueKind.DATE, "2020-01-01T00:00:01Z", _TYPECAST),
    (ValueKind.DATE, "2020-01-01T00:00:00+02:00", _TYPECAST),
    (ValueKind.DATE, "2023-02-29T00:00:00", _TYPECAST),
    (ValueKind.TIMESTAMP, "0000-12-31T23:59:59Z", _SIZE),
    (ValueKind.TIMESTAMP, "0001-01-01T00:00:00+00:01", _SIZE),
    (ValueKind.TIMESTAMP, "9999-12-31T23:59:59-00:01", _SIZE),
    (ValueKind.TIMESTAMP, "10000-01-01T00:00:00Z", _SIZE),
    (ValueKind.TIMESTAMP, "-0044-03-15T12:00:00Z", _SIZE),
    (ValueKind.TIMESTAMP, "0044-03-15T12:00:00Z BC", _SIZE),
    (ValueKind.TIMESTAMP, "2016-12-31T23:59:60Z", _TYPECAST),
    (ValueKind.TIMESTAMP, "2020-01-01T24:00:00Z", _TYPECAST),
    (ValueKind.TIMESTAMP, "2020-01-01T00:00:00+24:00", _TYPECAST),
    (ValueKind.TIMESTAMP, "2020-01-01T00:00:00+5:00", _TYPECAST),
    (ValueKind.TIMESTAMP, "2020-01-01T00:00:00 CET", _TYPECAST),
    (ValueKind.TIMESTAMP, "2020-02-30T00:00:00Z", _TYPECAST),
    (ValueKind.TIMESTAMP, "2020-01-01", _TYPECAST),
    (ValueKind.TIMESTAMP, "1577836800", _TYPECAST),
    (ValueKind.TIMESTAMP, "1577836800000000000", _TYPECAST),
    (ValueKind.TIMESTAMP, "", _TYPECAST),
    (ValueKind.LOCAL_TIMESTAMP, "0000-01-01T00:00:00", _SIZE),
    (ValueKind.LOCAL_TIMESTAMP, "12020-01-01T00:00:00", _SIZE),
    (ValueKind.LOCAL_TIMESTAMP, "2020-01-01T00:00:00+01:00", _TYPECAST),
    (ValueKind.LOCAL_TIMESTAMP, "2020-01-01T23:59:60", _TYPECAST),
    (ValueKind.TIME, "23:59:60", _TYPECAST),
    (ValueKind.TIME, "12:00:00+25:00", _TYPECAST),
    (ValueKind.TIME, "noon", _TYPECAST),
    (ValueKind.TIME, "1 day, 8:30:00", _TYPECAST),
])  # fmt: skip
def test_what_a_table_has_no_room_for_is_null_with_its_reason(kind: ValueKind, text: str, reason: str) -> None:
    fitting = {ValueKind.DATE: "2020-01-01", ValueKind.TIME: "12:00"}.get(kind, "2020-01-01T00:00:00")
    for others in ([], [fitting], [None, f"{fitting}Z"]):
        assert _landed(kind, [text, *others])[0] == (None, [reason]), others


@pytest.mark.parametrize(
    "clock", ["T00:00:00+00:00", "T00:00:00Z", " 00:00:00", "T00:00", "T00:00:00.000000", "T00:00:00-0000"]
)
def test_a_date_may_have_midnight_behind_it(clock: str) -> None:
    day = (dt.date(2024, 2, 29) - dt.date(1970, 1, 1)).days
    for others in ([], ["2020-01-01"], [None, "x"]):
        assert _landed(ValueKind.DATE, [f"2024-02-29{clock}", *others])[0] == (day, []), others


def test_an_hour_of_one_digit_gets_a_zero() -> None:
    found = _landed(ValueKind.TIME, ["8:30:00", "18:30", None, "0:00:00.5", "7:00Z", "7:60"])
    assert [text for text, _ in found] == ["08:30:00", "18:30", None, "00:00:00.5", "07:00Z", None]
    assert [noted for _, noted in found] == [[], [], [], [], [], [_TYPECAST]]


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00.1234567", "9999-12-31T23:59:59.9999999", "1000-06-01T00:00:00.123456789"]
)
def test_nanoseconds_are_cut_off_and_noted_in_any_year(text: str) -> None:
    expected = _microseconds(dt.datetime.fromisoformat(text[:26]))
    for kind in (ValueKind.TIMESTAMP, ValueKind.LOCAL_TIMESTAMP):
        for others in ([], ["2020-01-01T00:00:00"], ["2020-01-01T00:00:00.123456789"], ["x"]):
            assert _landed(kind, [text, *others])[0] == (expected, [_SIZE]), others


_DIGITS = st.text("0123456789-+:.TZ z,", max_size=30)
_PIECES = st.builds(
    "".join,
    st.tuples(
        st.dates().map(str) | st.sampled_from(["2023-02-29", "0000-01-01", "10000-01-01"]),
        st.sampled_from(["", "T", " ", "t"]),
        st.times().map(str) | st.sampled_from(["", "23:59:60", "12", "1200", "120000", "12:00", "12:00:00.1234567890"]),
        st.sampled_from(["", "Z", "z", " Z", "+01:00", "-1130", "+00", "+00:00", " UTC", "+24:00", " BC"]),
    ),
)


@given(st.sampled_from(_KINDS), st.lists(_PIECES | _DIGITS | st.none(), min_size=1, max_size=6))
def test_a_values_fate_does_not_hang_on_its_neighbours(kind: ValueKind, texts: list[str | None]) -> None:
    assert _landed(kind, texts) == [_landed(kind, [text])[0] for text in texts]


@given(st.datetimes(timezones=st.timezones() | st.just(_UTC)))
def test_every_instant_of_the_calendar_lands_as_it_is(moment: dt.datetime) -> None:
    text = moment.isoformat()
    try:
        expected = _microseconds(moment.astimezone(_UTC))
    except OverflowError:
        assert _landed(ValueKind.TIMESTAMP, [text])[0][0] is None
        return
    if len(text.partition("T")[2].rpartition("+")[0] or text) and text.count(":") > 3:
        return  # an offset of seconds, such as cities had before railways
    assert _landed(ValueKind.TIMESTAMP, [text]) == [(expected, [])]
