"""Keys and cursors as sources have them: of several parts, inside objects, null, missing, of a changed type."""

from collections.abc import Sequence
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

_ANY: dict[str, Any] = {}
_INTEGER = {"type": "integer"}
_STRING = {"type": "string"}
_OBJECT = {"type": "object", "properties": {"id": _STRING, "at": _ANY}}
NO_KEY, BAD_KEY = "every part of the key is null", "a part of the key does not fit its column"


def sync(
    place: Shop,
    rows: Sequence[Any],
    properties: dict[str, Any],
    *,
    key: Sequence[Sequence[str]] = (("id",),),
    cursor: Sequence[str] = (),
) -> dict[str, int]:
    """Each record is a row, numbered by `n`. What was rejected."""
    numbered = [
        [row[0], {**row[1], "n": number}] if isinstance(row, list) else {**row, "n": number}
        for number, row in enumerate(rows)
    ]
    stream = {"rows": numbered, "properties": {**properties, "n": _INTEGER}, "primary_key": key, "cursor": cursor}
    report = place.sync_of({"streams": {"users": stream}, "state_every": 1})
    assert report.status is SyncStatus.COMPLETE, report
    return dict(report.streams["users"].rejections)


def stays(place: Shop) -> list[int]:
    return sorted(place.tables.rows(TableName("shop", "users")).column("n").to_pylist())


@pytest.fixture(params=[1 << 30, 1], ids=["in one load", "a load each"])
def place(request: pytest.FixtureRequest, shop: OpenShop) -> Shop:
    return shop(write="append_dedup", max_bytes=request.param)


def test_a_key_of_several_parts_may_be_null_in_some_but_not_in_all(place: Shop) -> None:
    rows = [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1, "b": None}, {"a": 1}, {"b": "x"}, {}, {"a": None, "b": None},
        {"a": 1, "b": "x"}, {"a": None, "b": "x"},
    ]  # fmt: skip
    rejected = sync(place, rows, {"a": _INTEGER, "b": _STRING}, key=[["a"], ["b"]])
    assert (stays(place), rejected) == ([1, 3, 7, 8], {NO_KEY: 2})


def test_a_key_inside_objects_finds_its_older_rows(place: Shop) -> None:
    rows = [
        {"o": {"id": "a"}, "id": 1}, {"o": {"id": "b"}, "id": 1}, {"id": 1, "o": {"x": [], "id": "a"}},
        {"o": {"id": None}}, {"o": None, "id": 2}, {"o": {}, "id": 2},
    ]  # fmt: skip
    rejected = sync(place, rows, {"o": _OBJECT, "id": _INTEGER}, key=[["o", "id"], ["id"]])
    assert (stays(place), rejected) == ([1, 2, 5], {NO_KEY: 1})


def test_a_key_that_its_column_cannot_hold_is_rejected_and_matches_no_other(place: Shop) -> None:
    rows = [{"id": 1, "b": "x"}, {"id": "one", "b": "x"}, {"id": "two", "b": "x"}, {"id": None, "b": "x"}, {"id": 2.0}]
    rejected = sync(place, rows, {"id": _INTEGER, "b": _STRING}, key=[["id"], ["b"]])
    assert (stays(place), rejected) == ([0, 3, 4], {BAD_KEY: 2})


def test_a_key_of_several_types_is_compared_as_json(place: Shop) -> None:
    rows = [{"id": 1}, {"id": "1"}, {"id": True}, {"id": 1}, {"id": {"a": 1}}, {"id": "1"}, {"id": None}]
    rejected = sync(place, rows, {"id": _ANY})
    assert (stays(place), rejected) == ([2, 3, 4, 5], {NO_KEY: 1})


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ({"type": "number"}, 0.5, -7e-300),
        ({"type": "boolean"}, True, False),
        ({"type": "string", "airbyte_type": "big_integer"}, "12345678901234567890123", "12345678901234567890124"),
        ({"type": "string", "format": "date"}, "2026-01-01", "0001-01-01"),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00"),
        ({"type": "string", "contentEncoding": "base64"}, "AAE=", "AAI="),
        (_STRING, "", " "),
    ],
)
def test_a_key_may_be_of_any_type(kind: dict[str, Any], one: object, other: object, shop: OpenShop) -> None:
    place = shop(write="append_dedup", max_bytes=1)
    assert sync(place, [{"id": value} for value in (one, other, one, other, one)], {"id": kind}) == {}
    assert stays(place) == [3, 4]


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        (_INTEGER, -5, 3),
        ({"type": "number"}, -1e10, 0.25),
        (_STRING, "2026-01-01", "2026-01-01T00"),
        ({"type": "string", "format": "date"}, "0999-12-31", "2026-01-01"),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00+02:00", "2025-12-31T23:00:00Z"),
        ({"type": "string", "airbyte_type": "big_integer"}, "9", "10000000000000000000000"),
        ({"type": "boolean"}, False, True),
        (_ANY, 9, 10),
        (_ANY, 10, "9"),
        (_ANY, 9007199254740992, 9007199254740993),
        (_ANY, 10**37, 1e300),
        (_INTEGER, None, -5),
        (_INTEGER, "no number", -5),
        (_ANY, None, False),
    ],
)
def test_the_row_with_the_later_cursor_stays_wherever_it_is(
    kind: dict[str, Any], older: object, newer: object, place: Shop
) -> None:
    rows = [
        {"id": 1, "at": older}, {"id": 1, "at": newer}, {"id": 2, "at": newer}, {"id": 2, "at": older},
        {"id": 3, "at": newer}, {"id": 3},
    ]  # fmt: skip
    assert sync(place, rows, {"id": _INTEGER, "at": kind}, cursor=["at"]) == {}
    assert stays(place) == [1, 2, 4]


def test_a_cursor_inside_an_object_decides_and_a_missing_one_is_oldest(place: Shop) -> None:
    ats = [{"at": 3}, {"at": 20}, {"at": "1"}, {}, None, {"at": "0"}]
    sync(place, [{"id": 1, "o": at} for at in ats], {"id": _INTEGER, "o": _OBJECT}, cursor=["o", "at"])
    assert stays(place) == [2]


def test_of_one_cursor_value_the_row_that_was_emitted_later_stays_and_then_the_one_that_came_later(
    place: Shop,
) -> None:
    rows = [[9, {"id": 1, "at": 1}], [8, {"id": 1, "at": 1}], [7, {"id": 2, "at": 1}], [7, {"id": 2, "at": 1}]]
    sync(place, rows, {"id": _INTEGER, "at": _INTEGER}, cursor=["at"])
    assert stays(place) == [0, 3]


def test_a_cursor_that_is_not_in_the_sources_schema_is_ignored(place: Shop) -> None:
    rows = [{"id": 1, "at": 2}, {"id": 1, "at": 1}]
    assert sync(place, rows, {"id": _INTEGER}, cursor=["at"]) == {}
    assert stays(place) == [1]


def test_a_cursor_or_key_that_the_user_names_must_be_in_the_schema(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.modes["*"]["primary_key"] = ["uid"]
    with pytest.raises(ConfigError, match="no field uid"):
        sync(place, [{"id": 1}], {"id": _INTEGER})
