"""One stream fails, and only it, unless a state is shared. Other rows stay, and the next sync repairs it."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.testing.fake_source import record_data, trace
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

COMPLETE, FAILED, PARTIAL = SyncStatus.COMPLETE, SyncStatus.FAILED, SyncStatus.PARTIAL
SIZES = (1, 1 << 30)


def two(users: Mapping[str, Any], orders: Mapping[str, Any], **whole: Any) -> dict[str, Any]:
    return {"streams": {"users": users, "orders": orders}, "state_every": 5, "interleave": True, **whole}


def expect_all(shop: Shop, scope: str = "stream") -> None:
    assert shop.sync_of(two({"records": 23}, {"records": 12}, state=scope)).status is COMPLETE
    assert shop.column("users") == list(range(23))
    assert shop.column("orders") == list(range(12))
    assert shop.positions() == {"users": 23, "orders": 12}
    assert shop.loose_files() == []


@pytest.mark.everyday("0-1", "1-1073741824")
@pytest.mark.parametrize("max_bytes", SIZES)
@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_incomplete_stream_fails_alone_and_the_next_sync_completes_it(
    exit_code: int, max_bytes: int, shop: OpenShop
) -> None:
    place = shop(max_bytes=max_bytes)
    broken = {"records": 23, "incomplete_at": 13, "state_after_incomplete": True}
    report = place.sync_of(two(broken, {"records": 12}, exit_code=exit_code))
    users, orders = report.streams["users"], report.streams["orders"]
    assert (report.status, users.status, orders.status) == (PARTIAL, FAILED, COMPLETE)
    assert "users broke" in (users.error or "")
    assert place.column("users") == list(range(10))
    assert place.positions() == {"users": 10, "orders": 12}
    assert (users.emitted, users.committed) == (13, 10)
    expect_all(place)


@pytest.mark.everyday("global-1", "legacy-1073741824")
@pytest.mark.parametrize("max_bytes", SIZES)
@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_with_a_shared_state_an_incomplete_stream_blocks_the_others(scope: str, max_bytes: int, shop: OpenShop) -> None:
    place = shop(max_bytes=max_bytes)
    report = place.sync_of(two({"records": 23}, {"records": 12, "incomplete_at": 8}, state=scope))
    assert {told.status for told in report.streams.values()} == {FAILED}
    for stream, position in place.positions().items():
        assert place.column(stream) == list(range(position)), stream
    assert sum(place.positions().values()) >= 10
    expect_all(place, scope)


def test_exit_0_without_any_status_is_complete(shop: OpenShop) -> None:
    assert shop().sync_of(two({"records": 23}, {"records": 12}, statuses=False)).status is COMPLETE


def test_exit_1_without_any_status_fails_what_no_state_covers(shop: OpenShop) -> None:
    place = shop()
    failure = {"kind": "exit", "after": 17}
    report = place.sync_of(two({"records": 23}, {"records": 12}, statuses=False, failure=failure))
    assert report.status is FAILED
    assert "exited with code 1" in (report.streams["users"].error or "")
    expect_all(place)


def test_streams_that_were_complete_before_exit_1_stay_complete(shop: OpenShop) -> None:
    report = shop().sync_of(two({"records": 23}, {"records": 12}, exit_code=1))
    assert (report.status, report.connector.exit_code) == (PARTIAL, 1)
    assert {told.status for told in report.streams.values()} == {COMPLETE}


@pytest.mark.everyday("1-append_dedup", "1073741824-append")
@pytest.mark.parametrize("write", ["append", "append_dedup"])
@pytest.mark.parametrize("max_bytes", SIZES)
def test_rows_whose_late_state_never_came_are_read_again_and_not_doubled(
    max_bytes: int, write: str, shop: OpenShop
) -> None:
    place = shop(max_bytes=max_bytes, write=write)
    scenario = two({"records": 23}, {"records": 12})
    # The CDK sends the status COMPLETE and then the last state: here it dies between the two.
    records = [
        {"type": "RECORD", "record": {"stream": "users", "data": record_data("users", {}, number), "emitted_at": 1}}
        for number in range(12)
    ]
    reached = {"stream_descriptor": {"name": "users"}, "stream_state": {"next": 8}}
    state = {"type": "STATE", "state": {"type": "STREAM", "stream": reached}}
    status = {"stream_descriptor": {"name": "users"}, "status": "COMPLETE"}
    complete = trace({"type": "STREAM_STATUS", "stream_status": status})
    said = [json.dumps(line) for line in (*records[:8], state, *records[8:], complete)]
    report = place.sync_of({**scenario, "answers": {"read": {"lines": said, "exit_code": 1}}})
    users = report.streams["users"]
    assert (users.status, users.emitted, users.committed, users.state) == (FAILED, 12, 8, {"next": 8})
    expect_all(place)


def test_an_error_that_names_no_stream_fails_the_incomplete_ones(shop: OpenShop) -> None:
    place = shop()
    scenario = two({"records": 23}, {"records": 12}, failure={"kind": "error", "after": 30, "message": "no more quota"})
    report = place.sync_of(scenario)
    assert (report.streams["users"].status, report.streams["orders"].status) == (FAILED, COMPLETE)
    assert "no more quota" in (report.streams["users"].error or "")
    assert any("no more quota" in error for error in report.connector.errors)
    expect_all(place)


def refusing(place: Shop, stream: str) -> None:
    """Makes a table under the stream's name whose column `id` has another type."""
    place.tables.prepare(TableSpec(TableName("shop", stream), pa.schema([pa.field("id", pa.string())])))


@pytest.mark.parametrize("max_bytes", SIZES)
def test_a_table_that_refuses_fails_its_stream_alone(max_bytes: int, shop: OpenShop) -> None:
    place = shop(max_bytes=max_bytes)
    refusing(place, "users")
    report = place.sync_of(two({"records": 23}, {"records": 12}))
    users, orders = report.streams["users"], report.streams["orders"]
    assert (report.status, users.status, orders.status) == (PARTIAL, FAILED, COMPLETE)
    assert "id" in (users.error or "")
    assert users.committed == 0
    assert place.column("users") == []
    assert place.positions() == {"orders": 12}
    assert place.column("orders") == list(range(12))
    assert place.loose_files() == []


@pytest.mark.everyday("global-1073741824", "legacy-1")
@pytest.mark.parametrize("max_bytes", SIZES)
@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_a_table_that_refuses_fails_all_that_share_its_state(scope: str, max_bytes: int, shop: OpenShop) -> None:
    place = shop(max_bytes=max_bytes)
    refusing(place, "orders")
    for _ in range(2):
        report = place.sync_of(two({"records": 23}, {"records": 12}, state=scope))
        assert {told.status for told in report.streams.values()} == {FAILED}
        assert place.column("users") == place.column("orders") == []
        assert place.positions() == {}


def test_an_empty_stream_whose_table_refuses_fails_too(shop: OpenShop) -> None:
    place = shop()
    refusing(place, "users")
    report = place.sync_of(two({"records": 0}, {"records": 12}))
    assert (report.streams["users"].status, report.streams["orders"].status) == (FAILED, COMPLETE)
