"""A table that cannot be searched, or that refuses its part of a load, fails its own stream and those that share its
state."""

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.testing.faults import CallFault
from tests.sync.commit.test_unknown_outcomes import sync
from tests.sync.conftest import OpenShop
from tests.sync.test_sync import expect, two

COMPLETE, FAILED, PARTIAL = SyncStatus.COMPLETE, SyncStatus.FAILED, SyncStatus.PARTIAL
UNREADABLE = {("freshness shop.users", "*"): CallFault.BEFORE}


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_a_keyed_table_that_cannot_be_read_fails_its_stream_alone(max_bytes: int, shop: OpenShop) -> None:
    place = shop(write="append_dedup", max_bytes=max_bytes)
    place.sync_of(two(10, 5))
    place.offer(two(20, 15))
    report = sync(place, UNREADABLE)
    assert (report.status, report.streams["users"].status) == (PARTIAL, FAILED)
    assert (place.column("users"), place.column("orders")) == (list(range(10)), list(range(15)))
    assert place.positions() == {"users": 10, "orders": 15}
    assert place.sync().status is COMPLETE
    expect(place, 20, 15)


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_no_row_lands_beside_a_table_that_cannot_be_read_where_they_share_a_state(
    max_bytes: int, shop: OpenShop
) -> None:
    place = shop(write="append_dedup", max_bytes=max_bytes)
    place.sync_of(two(10, 5, state="global"))
    place.offer(two(20, 15, state="global"))
    report = sync(place, UNREADABLE)
    assert {each.status for each in report.streams.values()} == {FAILED}
    assert place.positions() == {"users": 10, "orders": 5}
    assert (place.column("users"), place.column("orders")) == (list(range(10)), list(range(5)))
    assert place.sync().status is COMPLETE
    expect(place, 20, 15)
