"""Some streams of a connection whose streams share one state: refused, or synced with the others."""

import json

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.plan.stream_plan import SharedStatePolicy, SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.test_sync import expect, two

USERS = SyncRequest(only=["users"])


@pytest.mark.parametrize("wanted", [USERS, USERS._replace(refresh=True), SyncRequest(only=["orders"])])
@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_a_part_of_streams_that_share_a_state_is_refused(scope: str, wanted: SyncRequest, shop: OpenShop) -> None:
    place = shop()
    place.sync_of(two(23, 12, state=scope))
    place.offer(two(30, 20, state=scope))
    with pytest.raises(ConfigError, match="orders, users share one state"):
        place.sync(wanted)
    assert place.positions() == {"users": 23, "orders": 12}
    expect(place, 23, 12)


@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_the_others_are_synced_too_where_the_whole_is_wanted(scope: str, shop: OpenShop) -> None:
    place = shop()
    place.sync_of(two(23, 12, state=scope))
    report = place.sync_of(two(30, 20, state=scope), USERS._replace(shared_state=SharedStatePolicy.SYNC_ALL))
    assert set(report.streams) == {"users", "orders"}
    expect(place, 30, 20)


def test_streams_that_the_state_does_not_name_may_stay_out(shop: OpenShop) -> None:
    place = shop()
    for users in (23, 30):
        assert place.sync_of(two(users, 12, state="global"), USERS).status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(30))
    # The shared position is that of users alone, and would move on without them.
    with pytest.raises(ConfigError, match="without users"):
        place.sync(SyncRequest(only=["orders"]))
    place.sync()
    expect(place, 30, 12)


def test_a_stream_that_is_read_whole_can_be_synced_alone_and_moves_no_shared_state(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"users": place.modes["*"], "orders": {"read": "full_refresh", "write": "overwrite"}}
    place.sync_of(two(23, 12, state="global"))
    state = {"type": "GLOBAL", "global": {"shared_state": {"total": 99}, "stream_states": []}}
    stray = {"type": "STATE", "state": state}
    place.offer(two(30, 20, state="global", lines=[json.dumps(stray)]))
    report = place.sync(SyncRequest(only=["orders"]))
    assert report.status is SyncStatus.COMPLETE
    assert place.column("orders") == list(range(20))
    assert place.positions() == {"users": 23}
    place.sync()
    expect(place, 30, 20)
