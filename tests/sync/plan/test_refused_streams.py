"""A stream that cannot be planned is refused, alone: the others are synced, and it goes on once it can be."""

from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH

COMPLETE, FAILED, PARTIAL = SyncStatus.COMPLETE, SyncStatus.FAILED, SyncStatus.PARTIAL
_TAGS = {"tags": {"type": "array", "items": {"type": "string"}}}
_PLACE = {"place": {"type": "object", "properties": {"city": {"type": "string"}}}}


def _offered(users: dict[str, Any], **whole: Any) -> dict[str, Any]:
    streams = {"users": {"records": 3, **users}, "orders": {"records": 4}, "carts": {"records": 5}}
    return {"streams": streams, "state_every": 2, **whole}


def _statuses(report: SyncReport) -> dict[str, SyncStatus]:
    return {name: stream.status for name, stream in report.streams.items()}


@pytest.mark.parametrize(
    ("options", "users", "found"),
    [
        ({}, {"primary_key": [["uid"]]}, "the schema has no field uid, which the source names as its key"),
        ({}, {"primary_key": [["tags"]], "properties": _TAGS}, "tags is an array, which cannot be a key"),
        (
            {"types": {"objects": "struct"}},
            {"primary_key": [["place"]], "properties": _PLACE},
            "place is an object, which cannot be a key",
        ),
        ({"write": "append_dedup"}, {"primary_key": []}, "needs a primary key, and the source names none"),
        ({"write": "soft_delete"}, {"primary_key": [["uid"]]}, "the schema has no field uid"),
        ({"read": "incremental"}, {"incremental": False}, "the source offers no incremental read"),
        ({"primary_key": ["nr"]}, {}, "the schema has no field nr"),
        ({"write": "append", "select": ["id", "email"]}, {}, "the schema has no field email"),
        ({"formerly": {"mail": "email"}}, {}, "the stream has no field mail"),
    ],
)
def test_a_stream_that_cannot_be_planned_is_refused_alone(
    options: dict[str, Any], users: dict[str, Any], found: str, shop: OpenShop
) -> None:
    place = shop()
    place.modes = {"users": options, "*": {}}
    report = place.sync_of(_offered(users))
    assert (report.status, _statuses(report)) == (PARTIAL, {"users": FAILED, "orders": COMPLETE, "carts": COMPLETE})
    refused = report.streams["users"]
    assert found in str(refused.error)
    assert (refused.table, refused.emitted, refused.retryable) == ("shop.users", 0, False)
    assert (place.column("orders"), place.column("carts")) == (list(range(4)), list(range(5)))
    assert place.positions() == {"orders": 4, "carts": 5}
    place.modes = {"*": {}}
    report = place.sync_of(_offered({}))
    assert (report.status, report.streams["orders"].emitted) == (COMPLETE, 0)
    assert place.column("users") == [0, 1, 2]


def test_a_format_that_lacks_the_mode_of_one_stream_takes_the_others(shop: OpenShop) -> None:
    place = shop(settings={"catalog": {"format": "parquet"}})
    place.modes = {"users": {}, "*": {"write": "append"}}
    report = place.sync_of(_offered({}))
    assert _statuses(report) == {"users": FAILED, "orders": COMPLETE, "carts": COMPLETE}
    assert "tables of the format parquet have no write mode append_dedup" in str(report.streams["users"].error)


def test_a_transform_that_does_not_fit_one_stream_refuses_that_one(shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [{"validate": [{"assert_not_null": "name"}]}]}
    offered = _offered({})
    offered["streams"]["users"] = {"rows": [{"id": 1}], "properties": {"id": {"type": "integer"}}, "cursor": ["id"]}
    report = place.sync_of(offered)
    assert _statuses(report) == {"users": FAILED, "orders": COMPLETE, "carts": COMPLETE}
    assert "there is no column name" in str(report.streams["users"].error)


def test_what_the_settings_say_of_no_stream_stops_all(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"userz": {}, "*": {}}
    with pytest.raises(ConfigError, match="there is no stream 'userz'"):
        place.sync_of(_offered({"primary_key": [["uid"]]}))
    assert place.positions() == {}


def test_a_stream_that_was_not_requested_stops_no_other(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"*": {"read": "incremental", "write": "append_dedup"}}
    place.offer(_offered({"primary_key": []}, state="global"))
    for _ in range(2):  # The second time there is a state that they may share.
        assert place.sync(SyncRequest(only=["orders"])).status is COMPLETE
    with pytest.raises(ConfigError, match="write: append_dedup needs a primary key"):
        place.sync(SyncRequest(only=["users"]))


def test_streams_that_share_a_state_with_a_refused_one_wait_for_it(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.modes["orders"] = {"read": "full_refresh", "write": "overwrite"}
    place.sync_of(_offered({}, state="global"))
    more = {name: {"records": 9} for name in ("users", "orders", "carts")}
    bad = {**more, "users": {"records": 9, "primary_key": [["uid"]]}}
    report = place.sync_of({"streams": bad, "state": "global"})
    assert _statuses(report) == {"users": FAILED, "orders": COMPLETE, "carts": FAILED}
    assert "shares a state with users" in str(report.streams["carts"].error)
    assert place.positions() == {"users": 3, "carts": 5}
    assert place.sync_of({"streams": more, "state": "global"}).status is COMPLETE
    assert place.column("users") == place.column("carts") == list(range(9))


@pytest.mark.parametrize("users", [{"primary_key": [["uid"]]}, {"primary_key": []}])
def test_where_no_stream_is_left_the_error_is_that_of_the_one_at_fault(users: dict[str, Any], shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    streams: dict[str, dict[str, Any]] = {"carts": {"records": 5}, "users": {"records": 3}}
    place.sync_of({"streams": streams, "state": "global"})
    streams["users"] |= users
    with pytest.raises(ConfigError, match=r"has no field uid|needs a primary key"):
        place.sync_of({"streams": streams, "state": "global"})


def test_a_refused_stream_keeps_what_an_interrupted_refresh_of_it_has_landed(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.sync_of(_offered({}))
    place.sync_of(_offered({"records": 60}, failure={"kind": "exit", "after": 37}), REFRESH)
    [before] = [each for each in place.store.open_generations("shop") if each.stream.name == "users"]
    place.sync_of(_offered({"records": 60, "primary_key": [["uid"]]}), REFRESH)
    [after] = [each for each in place.store.open_generations("shop") if each.stream.name == "users"]
    assert after == before
    refreshed = place.sync_of(_offered({"records": 60}), REFRESH).streams["users"]
    assert (refreshed.status, refreshed.emitted < 60) == (COMPLETE, True)
    assert place.column("users") == list(range(60))
