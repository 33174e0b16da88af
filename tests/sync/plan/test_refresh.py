"""Everything anew: a new generation takes the old one's place at its end, or not at all."""

import json

import pytest

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH, Shop
from tests.sync.test_sync import SCOPES, two

SIZES = (1, 1 << 30)


def generations(place: Shop, stream: str = "users") -> set[int]:
    rows = place.tables.rows(TableName("shop", stream))
    return set(rows.column("_airbyte_generation_id").to_pylist())


@pytest.mark.everyday("stream-append_dedup", "global-append", "legacy-append_dedup")
@pytest.mark.parametrize("write", ["append", "append_dedup"])
@pytest.mark.parametrize("scope", SCOPES)
def test_a_refresh_replaces_the_rows_and_the_state_and_the_next_sync_goes_on(
    scope: str, write: str, shop: OpenShop
) -> None:
    place = shop(write=write)
    place.sync_of(two(23, 12, state=scope))
    before = generations(place)
    report = place.sync_of(two(17, 12, state=scope), REFRESH)
    assert report.status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(17))
    assert place.positions() == {"users": 17, "orders": 12}
    assert generations(place) == {max(before) + 1}
    place.sync_of(two(19, 12, state=scope))
    assert place.column("users") == list(range(19))
    assert place.column("orders") == list(range(12))


@pytest.mark.everyday("append_dedup")
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_a_refresh_that_merges_keeps_the_rows_and_begins_the_state_anew(write: str, shop: OpenShop) -> None:
    place, merging = shop(write=write), SyncRequest(refresh=True, merges=True)
    place.sync_of(two(23, 12))
    report = place.sync_of(two(17, 12, failure={"kind": "exit", "after": 20}), merging)
    assert report.status is SyncStatus.FAILED
    reached = place.positions()
    assert 0 < reached["users"] < 17
    place.sync_of(two(17, 12))
    assert place.positions() == {"users": 17, "orders": 12}
    again = [] if write == "append_dedup" else list(range(17))
    assert place.column("users") == sorted([*range(23), *again])
    assert generations(place) == {0, 1}
    report = place.sync_of(two(23, 12), merging)
    assert (report.streams["users"].emitted, generations(place)) == (23, {2} if write == "append_dedup" else {0, 1, 2})


@pytest.mark.everyday("stream-1", "global-1073741824", "legacy-1")
@pytest.mark.parametrize("max_bytes", SIZES)
@pytest.mark.parametrize("scope", SCOPES)
def test_an_interrupted_refresh_leaves_the_old_rows_and_the_old_state(
    scope: str, max_bytes: int, shop: OpenShop
) -> None:
    place = shop(max_bytes=max_bytes)
    place.sync_of(two(23, 12, state=scope))
    report = place.sync_of(two(40, 30, state=scope, failure={"kind": "exit", "after": 37}), REFRESH)
    assert report.status is SyncStatus.FAILED
    assert place.positions() == {"users": 23, "orders": 12}
    assert place.column("users") == list(range(23))
    place.sync_of(two(40, 30, state=scope))
    assert place.column("users") == list(range(40))
    assert place.column("orders") == list(range(30))
    assert place.loose_files() == []


def test_a_refresh_that_ends_after_a_state_of_no_rows_leaves_the_old_state(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(two(23, 12))
    descriptors = [{"name": stream} for stream in ("users", "orders")]
    states = [{"stream_descriptor": descriptor, "stream_state": {"next": 0}} for descriptor in descriptors]
    at_nothing = [json.dumps({"type": "STATE", "state": {"type": "STREAM", "stream": state}}) for state in states]
    place.load["max_seconds"] = 0.000001
    place.sync_of(two(23, 12, lines=at_nothing * 2, failure={"kind": "exit", "after": 3}), REFRESH)
    assert place.positions() == {"users": 23, "orders": 12}
    place.sync_of(two(25, 12))
    assert place.column("users") == list(range(25))


def test_a_refresh_in_which_one_stream_fails_replaces_the_other(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(two(23, 12))
    broken = two(23, 9)
    broken["streams"]["users"]["incomplete_at"] = 20
    report = place.sync_of(broken, REFRESH)
    assert report.status is SyncStatus.PARTIAL
    assert (generations(place, "orders"), place.column("orders")) == ({1}, list(range(9)))
    assert (place.column("users"), place.positions()) == (list(range(23)), {"users": 23, "orders": 9})


def test_a_refresh_that_comes_out_empty_empties_the_table_and_moves_the_state(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(two(23, 12))
    assert place.sync_of(two(0, 12), REFRESH).status is SyncStatus.COMPLETE
    assert (place.column("users"), place.positions()) == ([], {"users": 0, "orders": 12})
