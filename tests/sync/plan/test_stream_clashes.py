"""Streams whose names look alike: both are synced where they can be told apart, else they alone fail."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.sync.conftest import OpenShop

_ALIKE: dict[str, dict[str, Any]] = {"b.c": {"records": 7, "namespace": "a"}, "c": {"records": 5, "namespace": "a.b"}}
_OTHERS: dict[str, dict[str, Any]] = {"users": {"records": 3}, "orders": {"records": 4}}
_FIRST, _SECOND = 'a."b.c"', "a.b.c"


def _scenario(streams: dict[str, Any], **whole: Any) -> dict[str, Any]:
    return {"streams": streams, "state_every": 2, **whole}


def _statuses(report: SyncReport) -> dict[str, SyncStatus]:
    return {name: stream.status for name, stream in report.streams.items()}


def _discovers(catalog: dict[str, Any]) -> dict[str, Any]:
    return {"discover": {"lines": [json.dumps(catalog)]}}


def _catalog(*streams: dict[str, Any]) -> Catalog:
    return AirbyteSource().catalog(json.dumps({"streams": streams}).encode())


def test_streams_whose_joined_names_are_equal_are_both_synced(shop: OpenShop) -> None:
    place = shop()
    for records in (0, 3):
        place.offer(_scenario({name: {**each, "records": each["records"] + records} for name, each in _ALIKE.items()}))
        report = place.sync()
        assert _statuses(report) == {_FIRST: SyncStatus.COMPLETE, _SECOND: SyncStatus.COMPLETE}
    assert place.column("b.c") == list(range(10))
    assert place.column("c") == list(range(8))
    assert place.sync(SyncRequest(only=[_FIRST])).streams.keys() == {_FIRST}
    with pytest.raises(
        ConfigError, match=r"2 streams have the name 'a.b.c'\nDid you mean \"a\".\"b.c\" or \"a.b\".\"c\""
    ):
        place.sync(SyncRequest(only=["a.b.c"]))


def test_a_stream_with_nul_in_its_name_fails_alone(shop: OpenShop) -> None:
    place = shop()
    place.offer(_scenario({"bad\0name": {"records": 1}, **_OTHERS}))
    report = place.sync()
    assert _statuses(report) == {"bad\0name": SyncStatus.FAILED} | dict.fromkeys(_OTHERS, SyncStatus.COMPLETE)
    assert "NUL" in str(report.streams["bad\0name"].error)


def test_streams_that_the_connection_names_ambiguously_fail_alone_until_the_name_has_quotes(shop: OpenShop) -> None:
    place = shop()
    mode = place.modes["*"]
    place.modes = {"a.b.c": mode, "users": mode}
    place.offer(_scenario({**_ALIKE, **_OTHERS}))
    report = place.sync()
    assert report.status is SyncStatus.PARTIAL
    assert _statuses(report) == dict.fromkeys((_FIRST, _SECOND), SyncStatus.FAILED) | {"users": SyncStatus.COMPLETE}
    for name in (_FIRST, _SECOND):
        assert 'may mean "a"."b.c" or "a.b"."c"' in str(report.streams[name].error)
    assert place.column("users") == [0, 1, 2]
    place.modes = {'"a.b".c': mode, _FIRST: mode, "users": mode}
    place.offer(_scenario({**_ALIKE, **_OTHERS}))
    assert place.sync().status is SyncStatus.COMPLETE
    assert place.column("b.c") == list(range(7))


def test_two_entries_of_one_name_fail_alone(shop: OpenShop) -> None:
    place = shop()
    place.offer(_scenario(_OTHERS))
    users, orders = (catalog_stream(name, each) for name, each in _OTHERS.items())
    request = SyncRequest(catalog=_catalog(users, orders, {**users, "namespace": ""}))
    report = place.sync(request)
    assert _statuses(report) == {"users": SyncStatus.FAILED, "orders": SyncStatus.COMPLETE}
    assert "the catalog has 2 streams" in str(report.streams["users"].error)
    assert place.column("orders") == [0, 1, 2, 3]
    assert place.sync(request._replace(only=["orders"])).status is SyncStatus.COMPLETE
    with pytest.raises(ConfigError, match="a null namespace and an empty one are the same"):
        place.sync(request._replace(only=["users"]))


def test_a_stream_fails_alone_with_one_of_the_same_text(shop: OpenShop) -> None:
    place = shop()
    users = {"users": {"records": 3}}
    bare, spaced = catalog_stream("a.b", {"records": 1}), catalog_stream("b", {"records": 1, "namespace": "a"})
    place.offer(_scenario(users))
    catalog = _catalog(bare, spaced, catalog_stream("users", users["users"]))
    report = place.sync(SyncRequest(catalog=catalog))
    assert _statuses(report) == {"a.b": SyncStatus.FAILED, "users": SyncStatus.COMPLETE}
    assert '"a.b" and "a"."b" would both be a.b in reports' in str(report.streams["a.b"].error)


def test_streams_that_share_a_state_with_a_clashing_one_fail_with_it(shop: OpenShop) -> None:
    place = shop()
    place.modes["orders"] = {"read": "full_refresh", "write": "overwrite"}
    streams = {**_OTHERS, "carts": {"records": 2}}
    place.sync_of(_scenario(streams, state="global"))
    place.offer(_scenario({name: {"records": 9} for name in streams}, state="global"))
    users, orders, carts = (catalog_stream(name, each) for name, each in streams.items())
    report = place.sync(SyncRequest(catalog=_catalog(users, users, orders, carts)))
    assert report.streams["orders"].status is SyncStatus.COMPLETE
    assert "shares a state with users" in str(report.streams["carts"].error)
    assert place.positions() == {"users": 3, "carts": 2}
    place.sync()
    assert place.column("users") == place.column("carts") == list(range(9))


def test_duplicates_stay_in_a_catalog_that_is_saved() -> None:
    catalog = _catalog({"name": "a"}, {"name": "b"}, {"name": "a", "namespace": ""})
    assert AirbyteSource().catalog(AirbyteSource().catalog_message(catalog)) == catalog
    assert [stream.id.name for stream in catalog.duplicates] == ["a"]


def test_a_stream_whose_schema_is_no_object_fails_alone(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(_scenario(_OTHERS))
    users, orders = (catalog_stream(name, each) for name, each in _OTHERS.items())
    catalog = {"type": "CATALOG", "catalog": {"streams": [{**users, "json_schema": True}, orders]}}
    place.offer(_scenario({"users": {"records": 5}, "orders": {"records": 6}}, answers=_discovers(catalog)))
    report = place.sync()
    assert _statuses(report) == {"users": SyncStatus.FAILED, "orders": SyncStatus.COMPLETE}
    assert "its schema in the catalog is no object" in str(report.streams["users"].error)
    assert place.positions() == {"users": 3, "orders": 6}
    with pytest.raises(ConfigError, match="leave the stream out"):
        place.sync(SyncRequest(only=["users"]))
    assert place.sync_of(_scenario({"users": {"records": 5}, "orders": {"records": 6}})).status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(5))
