"""Runs of several partitions of a connection at once."""

import pytest

from dagster_airbyte_proto.checkpoints.slot import Slot
from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import StateConflict
from tests.conformance.state_store.fixtures import USERS, HandClock, StoreFixtures, load_of, stream_state


def slot(store: StateStore, run_id: str, partition: str = "", most_runs: int = 3) -> Lease:
    holder = f"{run_id} on host"
    return store.acquire("shop", run_id=run_id, holder=holder, seconds=60, slot=Slot(partition, most_runs))


class SlotTests(StoreFixtures):
    def test_partitions_are_leased_side_by_side_and_each_by_one_run(self, store: StateStore) -> None:
        leases = [slot(store, "run-1", "monday"), slot(store, "run-2", "tuesday")]
        assert [lease.partition for lease in store.current_leases("shop")] == ["monday", "tuesday"]
        with pytest.raises(StateConflict, match="run-1 on host has held its partition monday"):
            slot(store, "run-3", "monday")
        for lease in leases:
            store.note_folders(lease, [lease.partition])
            assert store.renew(lease, 60).token == lease.token
        store.release(leases[0])
        assert [lease.partition for lease in store.current_leases("shop")] == ["tuesday"]
        assert slot(store, "run-3", "monday").fence > leases[1].fence

    def test_no_more_runs_than_may_work_at_once(self, store: StateStore, clock: HandClock) -> None:
        for day in ("monday", "tuesday"):
            slot(store, day, day, most_runs=2)
        with pytest.raises(StateConflict, match=r"(?s)2 of its runs work now.*`parallel`"):
            slot(store, "run-3", "friday", most_runs=2)
        clock.advance(61)
        assert slot(store, "run-3", "friday", most_runs=1).partition == "friday"

    def test_the_whole_and_a_partition_exclude_each_other(self, store: StateStore, clock: HandClock) -> None:
        monday = slot(store, "run-1", "monday")
        with pytest.raises(StateConflict, match="run-1 on host has held its partition monday"):
            slot(store, "run-2")
        clock.advance(61)
        whole = slot(store, "run-2")
        with pytest.raises(StateConflict, match="run-2 on host has held it"):
            slot(store, "run-3", "tuesday")
        with pytest.raises(StateConflict, match="run-2 on host took it over"):
            store.note_folders(monday, ["late"])
        clock.advance(61)
        tuesday = slot(store, "run-3", "tuesday")
        with pytest.raises(StateConflict, match="run-3 on host took it over"):
            store.note_folders(whole, ["late"])
        store.note_folders(tuesday, ["in time"])

    def test_a_run_recovers_what_runs_of_its_own_partition_left(self, store: StateStore, clock: HandClock) -> None:
        for day in ("monday", "tuesday"):
            lease = slot(store, day, day)
            store.note_folders(lease, [f"folder of {day}"])
            store.announce(lease, load_of(f"load of {day}", stream_state(USERS, day)), partition=day)
        clock.advance(61)
        monday = slot(store, "run-3", "monday")
        assert store.unfinished_folders(monday) == [("monday", "folder of monday")]
        assert [load.load_id for load in store.announced_loads("shop", partition="monday")] == ["load of monday"]
        store.forget_folders(monday, "monday")
        store.forget_folders(monday, "tuesday")
        store.release(monday)
        clock.advance(61)
        assert store.unfinished_folders(slot(store, "run-4")) == [("tuesday", "folder of tuesday")]
        assert [load.load_id for load in store.announced_loads("shop")] == ["load of monday", "load of tuesday"]

    @pytest.mark.parametrize("left", ["folder", "load"])
    def test_what_a_run_of_the_whole_left_is_ended_by_a_run_that_works_alone(
        self, store: StateStore, clock: HandClock, left: str
    ) -> None:
        dead = slot(store, "run-1")
        if left == "folder":
            store.note_folders(dead, ["folder"])
        else:
            store.announce(dead, load_of("load", stream_state(USERS, "1")))
        clock.advance(61)
        healing = slot(store, "run-2", "monday")
        assert healing.partition == ""
        with pytest.raises(StateConflict, match="run-2 on host has held it"):
            slot(store, "run-3", "tuesday")
        if left == "folder":
            store.forget_folders(healing, "run-1")
        else:
            [load] = store.announced_loads("shop")
            store.promote(healing, load, load.states, [])
        store.release(healing)
        assert slot(store, "run-3", "tuesday").partition == "tuesday"

    def test_the_lease_of_a_dead_run_stays_with_its_partition(self, store: StateStore, clock: HandClock) -> None:
        paused = slot(store, "run-1", "monday")
        clock.advance(61)
        slot(store, "run-2", "tuesday")
        store.note_folders(paused, ["nobody took it over"])
        slot(store, "run-3", "monday")
        with pytest.raises(StateConflict, match="run-3 on host took it over"):
            store.note_folders(paused, ["too late"])

    def test_a_run_that_works_alone_takes_over_the_expired_leases_of_all_partitions(
        self, store: StateStore, clock: HandClock
    ) -> None:
        paused = slot(store, "run-1", "monday", most_runs=1)
        clock.advance(61)
        alone = slot(store, "run-2", "tuesday", most_runs=1)
        with pytest.raises(StateConflict, match="another run took it over"):
            store.renew(paused, 60)
        assert store.current_leases("shop") == [alone]

    def test_leases_of_other_connections_stay(self, store: StateStore, clock: HandClock) -> None:
        other = self.acquired(store, "run-1", "mine")
        slot(store, "run-2", "monday")
        clock.advance(61)
        slot(store, "run-3")
        assert store.current_leases("mine") == [other]
