"""Reset and rollback of one partition as jobs, launched with the values of their forms."""

from collections.abc import Mapping

import pytest

from dagster_airbyte_proto.checkpoints.slot import Slot
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.airbyte.states import AirbyteStates
from dagster_airbyte_proto.protocols.lookup import PUSH
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.dagster_defs.automation.test_operations import TWO, launch
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.shop_runs import Runs
from tests.sync.shop import Shop

KEYS = ("monday", "tuesday")
USERS = StreamId.of("users")


def synced(runs: OpenRuns, state: str = "stream") -> Runs:
    """A shop with runs of both partitions, and a state without a partition beside theirs."""
    shop = runs()
    for key in KEYS:
        report = shop.place.sync_of({**TWO, "state": state}, SyncRequest(slice=Slice(key)))
        assert report.status is SyncStatus.COMPLETE, report.error
    store = shop.place.store
    with acquire_lease(store, "shop", "by hand", 60) as keeper:
        store.change_state(keeper.lease, USERS, AirbyteStates().from_value(USERS, {"next": 1}), who="ann")
    return shop


def states(place: Shop) -> Mapping[str, list[str]]:
    """The names of the streams that have a state, by partition; "" for one that all share."""
    found: dict[str, list[str]] = {}
    for each in place.store.states("shop", partition=None):
        found.setdefault(each.partition, []).append(str(each.state.stream or ""))
    return found


def test_a_reset_of_a_partition_leaves_all_others(runs: OpenRuns) -> None:
    shop, both = synced(runs), ["orders", "users"]
    run = launch(shop, "reset", {"partition": "monday", "streams": ["users"]})
    assert run.succeeded, run.failures
    assert states(shop.place) == {"": ["users"], "monday": ["orders"], "tuesday": both}
    assert launch(shop, "reset", {"partition": "monday"}).succeeded
    assert states(shop.place) == {"": ["users"], "tuesday": both}
    newest = shop.place.store.history("shop", limit=1)[0]
    assert (newest.partition, newest.why) == ("monday", "reset")
    assert launch(shop, "reset", {}).succeeded
    assert states(shop.place) == {"tuesday": both}
    run = launch(shop, "reset", {"streams": ["users"]})
    assert "Set `partition`. They are of tuesday." in run.descriptions[0]


@pytest.mark.parametrize("kind", ["reset", "rollback"])
def test_a_partition_that_nobody_knows_is_reported_with_those_that_are_known(kind: str, runs: OpenRuns) -> None:
    shop = synced(runs)
    before = states(shop.place)
    run = launch(shop, kind, {"partition": "munday", **({} if kind == "reset" else {"tables": False})})
    assert not run.succeeded
    assert "The nearest is monday. It knows monday, tuesday." in run.descriptions[0]
    assert states(shop.place) == before


@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_a_state_that_streams_share_is_one_in_each_partition(scope: str, runs: OpenRuns) -> None:
    shop = synced(runs, scope)
    run = launch(shop, "reset", {"partition": "monday", "streams": ["users"]})
    assert run.succeeded == (scope == "global"), run.failures
    if scope == "legacy":
        assert "airbyte-proto state reset shop --partition monday" in run.descriptions[0]
    assert launch(shop, "reset", {"partition": "monday"}).succeeded
    assert states(shop.place) == {"": ["users"], "tuesday": [""]}


def test_a_rollback_of_a_partition_undoes_its_newest_run_or_goes_to_a_version(runs: OpenRuns) -> None:
    shop = synced(runs)

    def positions() -> list[bytes]:
        stored = shop.place.store.states("shop", partition=None)
        return [each.state.message for each in stored if each.state.stream == USERS]

    whole, old, _ = positions()
    for key in KEYS:
        shop.place.sync_of({"streams": {"users": {"records": 20}}}, SyncRequest(slice=Slice(key)))
    _, _, new = before = positions()
    assert len({whole, old, new}) == 3
    refused = launch(shop, "rollback", {"partition": "monday"})
    assert "a table goes back as a whole" in refused.descriptions[0] and "Unset `tables`" in refused.descriptions[0]
    assert positions() == before
    for _ in range(2):  # As a run retry does it.
        run = launch(shop, "rollback", {"partition": "monday", "tables": False})
        assert run.succeeded, run.failures
        assert positions() == [whole, old, new]
    assert launch(shop, "rollback", {"partition": "monday", "tables": False, "version": 0}).succeeded
    assert positions() == [whole, new]


def test_a_run_holds_up_its_own_partition_alone(runs: OpenRuns) -> None:
    shop = synced(runs)
    with acquire_lease(shop.place.store, "shop", "run-of-monday", 60, slot=Slot("monday", 4)):
        waited = launch(shop, "reset", {"partition": "monday"}, lease_wait_seconds=0.0)
        assert "has held its partition monday since" in waited.descriptions[0]
        assert launch(shop, "reset", {"partition": "tuesday"}, lease_wait_seconds=0.0).succeeded
    assert sorted(states(shop.place)) == ["", "monday"]


def test_a_load_that_is_announced_holds_up_its_own_partition_alone(runs: OpenRuns) -> None:
    shop = synced(runs)
    place = shop.place
    with acquire_lease(place.store, "shop", "dead", 60, slot=Slot("monday", 4)) as keeper:
        place.store.announce(keeper.lease, Load("load", "shop", "dead", (), ()), partition="monday")
    run = launch(shop, "reset", {"partition": "monday"})
    assert "airbyte-proto recover shop --partition monday" in run.descriptions[0]
    assert launch(shop, "reset", {"partition": "tuesday"}).succeeded
    assert sorted(states(place)) == ["", "monday"]


def test_a_push_has_one_position_for_all_partitions(runs: OpenRuns) -> None:
    shop = synced(runs)
    with acquire_lease(shop.place.store, "shop", "a push", 60) as keeper:
        shop.place.store.note_protocol(keeper.lease, PUSH)
    run = launch(shop, "reset", {"partition": "monday"})
    assert "one position for all its partitions" in run.descriptions[0]
