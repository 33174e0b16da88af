"""Transforms from the connection file to the table: its columns and rows, the counts, the streams that fail."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH, Shop

_NOT_NULL = {"validate": [{"assert_not_null": "name"}]}


def _rows(place: Shop, stream: str = "users") -> list[dict[str, Any]]:
    rows = place.tables.rows(TableName("shop", stream)).to_pylist()
    return [{name: value for name, value in row.items() if not name.startswith("_airbyte")} for row in rows]


def _users(*rows: tuple[int, int, str | None], **more: Any) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "at": {"type": "integer"}, "name": {"type": ["null", "string"]}}
    named = [{"id": id_, "at": at, "name": name} for id_, at, name in rows]
    return {"rows": named, "properties": properties, "primary_key": [["id"]], "cursor": ["at"], **more}


def test_rows_that_break_a_rule_are_counted_by_the_rule(shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [_NOT_NULL, {"validate": [{"assert_unique": "name"}], "on_error": "skip"}]}
    rows = [(1, 1, "a"), (2, 2, None), (3, 3, "a"), (4, 4, "b")]
    told = place.sync_of({"streams": {"users": _users(*rows)}, "state_every": 1}).streams["users"]
    assert told.status is SyncStatus.COMPLETE
    assert [row["id"] for row in _rows(place)] == [1, 4]
    assert (told.emitted, told.committed, told.rejected, told.dropped) == (4, 2, 2, 1)
    assert told.rejections == {"name is null": 1, "dropped by a transform": 1}
    assert place.positions() == {"users": 4}


@pytest.mark.parametrize(("on_error", "dropped"), [("reject", 0), ("skip", 1)])
def test_a_row_that_breaks_a_rule_leaves_the_older_row_of_its_key(on_error: str, dropped: int, shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.more = {"transforms": [{**_NOT_NULL, "on_error": on_error}]}
    for rows in ([(1, 1, "a"), (2, 2, "b")], [(1, 1, "a"), (2, 2, "b"), (1, 3, None)]):
        told = place.sync_of({"streams": {"users": _users(*rows)}}).streams["users"]
    assert (told.rejected, told.dropped) == (1, dropped)
    assert [(row["id"], row["name"]) for row in _rows(place)] == [(1, "a"), (2, "b")]


def test_a_value_is_unique_also_where_a_tap_adds_a_column_between_rows(shop: OpenShop) -> None:
    place = shop()
    place.protocol = "singer"
    place.more = {"transforms": [{"validate": [{"assert_unique": "id"}]}]}
    rows = [{"id": number % 4, "updated_at": "2024-01-01T00:00:00Z"} for number in range(6)]
    known = {"id": {"type": "integer"}, "updated_at": {"type": "string", "format": "date-time"}}
    stream = {"rows": rows, "properties": known, "declared_at": [[4, {"size": {"type": "integer"}}]]}
    told = place.sync_of({"streams": {"users": stream}, "state_every": 2}).streams["users"]
    assert (told.status, told.rejections) == (SyncStatus.COMPLETE, {"id is not unique": 2})
    assert [row["id"] for row in _rows(place)] == [0, 1, 2, 3]


def test_a_transform_that_fails_takes_no_other_stream_down(shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [{**_NOT_NULL, "on_error": "fail", "streams": ["users"]}]}
    streams = {"users": _users((1, 1, "a"), (2, 2, None)), "others": _users((1, 1, None))}
    report = place.sync_of({"streams": streams})
    assert report.status is SyncStatus.PARTIAL
    assert report.streams["others"].status is SyncStatus.COMPLETE
    told = report.streams["users"]
    assert (told.status, told.committed, told.emitted) == (SyncStatus.FAILED, 0, 2)
    assert told.error is not None
    assert "a batch break a rule: name is null" in told.error
    assert place.positions() == {"others": 1}
    place.more = {}
    assert place.sync_of({"streams": streams}).status is SyncStatus.COMPLETE
    assert [row["id"] for row in _rows(place)] == [1, 2]


@pytest.mark.parametrize(
    ("transform", "found"),
    [
        ({"validate": [{"assert_not_null": "nam"}]}, "there is no column nam"),
        ({**_NOT_NULL, "streams": ["user"]}, "there is no stream 'user'"),
    ],
)
def test_a_transform_that_does_not_fit_is_refused_before_the_connector_starts(
    transform: dict[str, Any], found: str, shop: OpenShop
) -> None:
    place = shop()
    place.more = {"transforms": [transform]}
    with pytest.raises(ConfigError, match=found):
        place.sync_of({"streams": {"users": _users((1, 1, "a"))}})


def _geo(**more: Any) -> dict[str, Any]:
    launch = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_enrichment"]}
    geo = {"connector": {"protocol": "syncmaven", "launch": launch}, "columns": {"city": "string"}}
    return {**geo, "options": {"prefix": "the "}, **more}


def test_an_enrichment_makes_none_one_or_several_rows_of_each(shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [_geo()]}
    told = place.sync_of({"streams": {"users": {"records": 6}}, "state_every": 4}).streams["users"]
    assert told.status is SyncStatus.COMPLETE
    assert [(row["id"], row["city"]) for row in _rows(place)] == [
        (id_, f"the city {id_}") for id_ in (1, 2, 2, 4, 5, 5)
    ]
    assert (told.emitted, told.added, told.committed, told.dropped) == (6, 2, 6, 2)
    ids = [row["_airbyte_raw_id"] for row in place.rows("users")]
    assert len(set(ids)) == 6
    assert place.positions() == {"users": 6}


@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_of_several_rows_of_one_some_may_break_a_rule(write: str, shop: OpenShop) -> None:
    place = shop(write=write)
    place.more = {"transforms": [_geo(config={"replies": 2}), {"validate": [{"assert_unique": "id"}]}]}
    told = place.sync_of({"streams": {"users": {"records": 3}}}).streams["users"]
    assert (told.status, told.emitted, told.added, told.committed) == (SyncStatus.COMPLETE, 3, 3, 3)
    assert told.rejections == {"id is not unique": 3}
    assert [row["id"] for row in _rows(place)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "printed", "found"),
    [
        ("double", "NaN", "its city does not fit double"),
        ("string", '"half a pair \\ud83d"', "its city does not fit string"),
        ("string", '"cut', "a reply of .* bytes is no JSON: its line is cut off or broken"),
    ],
)
def test_a_reply_that_no_strict_reader_takes_drops_no_row(kind: str, printed: str, found: str, shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    for config in ({"replies_of": 0.5}, {"prints": printed}):
        place.more = {"transforms": [_geo(columns={"city": kind}, config={"replies": 1, **config})]}
        again = SyncRequest(refresh=True, merges=True)
        told = place.sync_of({"streams": {"users": {"records": 2}}}, again).streams["users"]
    assert re.search(found, "".join([*told.rejections, told.error or ""]))
    assert (told.rejected, told.dropped) == (2, 0)
    assert [row["id"] for row in _rows(place)] == [0, 1]


def test_what_came_of_a_row_is_used_by_later_syncs(shop: OpenShop, tmp_path: Path) -> None:
    place, notes = shop(), tmp_path / "notes"
    config = {"notes": str(notes)}
    for records in (6, 8):
        place.more = {"transforms": [_geo(config=config, cache={"ttl": "1 day", "by": "id"})]}
        told = place.sync_of({"streams": {"users": {"records": records}}}, REFRESH).streams["users"]
        assert told.status is SyncStatus.COMPLETE
    assert notes.read_text().split() == [str(number) for number in range(8)]


def test_rows_of_one_key_cannot_become_several(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.more = {"transforms": [_geo()]}
    told = place.sync_of({"streams": {"users": {"records": 6}}}).streams["users"]
    assert told.status is SyncStatus.FAILED
    assert "the table has one row for each key" in str(told.error)
    place.more = {"transforms": [{"validate": [{"assert_range": {"id": {"max": 1}}}]}, _geo()]}
    assert place.sync_of({"streams": {"users": {"records": 6}}}).status is SyncStatus.COMPLETE
    assert [(row["id"], row["city"]) for row in _rows(place)] == [(1, "the city 1")]


def test_a_key_cannot_be_filled_where_rows_replace_each_other(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.more = {"transforms": [_geo(columns={"id": "bigint"})]}
    with pytest.raises(ConfigError, match="id is part of the primary key, and the transforms do not pass it on"):
        place.sync_of({"streams": {"users": {"records": 6}}})


@pytest.mark.parametrize(("fault", "found"), [("halts_at", "no more credits"), ("dies_at", "exited with code 7")])
def test_an_enrichment_that_fails_fails_its_stream_alone(fault: str, found: str, shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [_geo(config={fault: 4}, streams=["users"])]}
    report = place.sync_of({"streams": {"users": {"records": 6}, "others": {"records": 2}}})
    assert report.streams["others"].status is SyncStatus.COMPLETE
    told = report.streams["users"]
    assert (told.status, told.retryable) == (SyncStatus.FAILED, True)
    assert found in str(told.error)


def test_a_program_that_is_no_enrichment_is_refused_before_the_connector_starts(shop: OpenShop) -> None:
    place = shop()
    launch = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_syncmaven"]}
    place.more = {"transforms": [{**_geo(), "connector": {"protocol": "syncmaven", "launch": launch}}]}
    with pytest.raises(ConfigError, match="its connector is no enrichment"):
        place.sync_of({"streams": {"users": {"records": 6}}})
