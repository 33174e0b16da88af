"""Tests of changes by hand in one partition of a connection."""

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.kept_values import Asset, ValueChanges
from dagster_airbyte_proto.checkpoints.slot import slot_by_hand
from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import ConfigError, StateConflict
from dagster_airbyte_proto.model import State, StateScope
from tests.conformance.state_store.fixtures import (
    ORDERS,
    USERS,
    HandClock,
    StoreFixtures,
    load_of,
    shared_state,
    stream_state,
)
from tests.conformance.state_store.slot_tests import slot

MONDAY, TUESDAY = "monday", "tuesday"


def by_hand(store: StateStore, partition: str) -> Lease:
    holder = f"a person in {partition}"
    return store.acquire("shop", run_id="hand", holder=holder, seconds=60, slot=slot_by_hand(partition))


class PartitionTests(StoreFixtures):
    """Changes by hand are of the lease's partition, and wait for nothing of another."""

    def _synced(self, store: StateStore, *states: State) -> None:
        for day in ("", MONDAY, TUESDAY):
            lease = slot(store, f"run of {day}", day)
            self.promoted(
                store, lease, load_of(f"load of {day}", *states, run_id=lease.run_id, paths=("users.parquet",)), day
            )
            store.release(lease)

    def test_a_reset_in_a_partition_leaves_all_others(self, store: StateStore) -> None:
        self._synced(store, stream_state(USERS, "u"), stream_state(ORDERS, "o"))
        lease = by_hand(store, MONDAY)
        change = store.change_state(lease, USERS, None, who="ann")
        assert (change.stream, change.partition, change.why) == (USERS, MONDAY, "reset")
        assert self.current_states(store, MONDAY) == [stream_state(ORDERS, "o")]
        change = store.change_state(lease, None, None, who="ann")
        assert (change.stream, change.partition) == (None, MONDAY)
        assert self.current_states(store, MONDAY) == []
        assert [len(self.current_states(store, other)) for other in ("", TUESDAY)] == [2, 2]
        assert store.landed_tables("shop", partition=MONDAY) == {}
        assert all(USERS in store.landed_tables("shop", partition=other) for other in ("", TUESDAY))

    def test_a_state_is_set_in_a_partition(self, store: StateStore) -> None:
        self._synced(store, stream_state(USERS, "u"))
        change = store.change_state(by_hand(store, MONDAY), USERS, stream_state(USERS, "by hand"), who="ann")
        assert (change.partition, change.why) == (MONDAY, "set")
        assert [self.current_states(store, each)[0].message for each in ("", MONDAY, TUESDAY)] == [
            b"u",
            b"by hand",
            b"u",
        ]

    @pytest.mark.parametrize("scope", [StateScope.GLOBAL, StateScope.LEGACY])
    def test_a_state_that_streams_share_is_one_in_each_partition(self, store: StateStore, scope: StateScope) -> None:
        self._synced(store, shared_state("all", scope))
        lease = by_hand(store, MONDAY)
        with pytest.raises(ConfigError, match="partition monday of connection shop") as refused:
            store.change_state(lease, USERS, None, who="ann")
        assert "state reset shop --partition monday" in refused.value.remedy
        store.change_state(lease, USERS, None, who="ann", shared=shared_state("rest", scope))
        assert self.current_states(store, MONDAY) == [shared_state("rest", scope)]
        store.change_state(lease, None, None, who="ann")
        assert self.current_states(store, MONDAY) == []
        assert self.current_states(store) == self.current_states(store, TUESDAY) == [shared_state("all", scope)]

    def test_a_rollback_of_a_partition_leaves_all_others(self, store: StateStore, clock: HandClock) -> None:
        self._synced(store, stream_state(USERS, "old"))
        before = store.history("shop", limit=1)[0].version
        for day in ("", MONDAY, TUESDAY):
            clock.advance(61)
            self.promoted(store, slot(store, f"new {day}", day), load_of(f"new {day}", stream_state(USERS, "new")), day)
        clock.advance(61)
        lease = by_hand(store, MONDAY)
        [change] = store.rollback(lease, before, who="ann")
        assert (change.partition, change.state, change.why) == (MONDAY, stream_state(USERS, "old"), "rollback")
        assert store.rollback(lease, before, who="ann") == []
        assert [self.current_states(store, day)[0].message for day in ("", MONDAY, TUESDAY)] == [b"new", b"old", b"new"]
        [change] = store.rollback(lease, 0, who="ann")
        assert (change.partition, change.state) == (MONDAY, None)
        with pytest.raises(ConfigError, match="no version 99"):
            store.rollback(lease, 99, who="ann")

    def test_only_a_load_of_the_partition_itself_is_waited_for(self, store: StateStore, clock: HandClock) -> None:
        dead = slot(store, "run-1", TUESDAY)
        load = load_of("a", stream_state(USERS, "u"))
        store.announce(dead, load, partition=TUESDAY)
        clock.advance(61)
        store.change_state(by_hand(store, MONDAY), USERS, stream_state(USERS, "m"), who="ann")
        tuesday = by_hand(store, TUESDAY)
        for change in (
            lambda: store.change_state(tuesday, USERS, None, who="ann"),
            lambda: store.rollback(tuesday, 0, who="ann"),
        ):
            with pytest.raises(ConfigError, match="its partition tuesday, is announced") as refused:
                change()
            assert "airbyte-proto recover shop --partition tuesday first" in refused.value.remedy
        store.promote(tuesday, load, load.states, [])
        store.change_state(tuesday, USERS, None, who="ann")
        assert self.current_states(store, None) == [stream_state(USERS, "m")]

    def test_only_a_run_of_the_partition_or_of_the_whole_is_waited_for(
        self, store: StateStore, clock: HandClock
    ) -> None:
        runs = [slot(store, f"run of {day}", day, most_runs=2) for day in (MONDAY, TUESDAY)]
        for busy in ("monday", ""):
            with pytest.raises(StateConflict, match=r"on host has held its partition (monday|tuesday) since"):
                by_hand(store, busy)
        store.release(runs[0])
        third = slot(store, "run of friday", "friday", most_runs=2)
        lease = by_hand(store, MONDAY)  # Though as many runs work as may.
        store.change_state(lease, USERS, stream_state(USERS, "m"), who="ann")
        store.release(lease)
        for run in (runs[1], third):
            store.note_folders(run, ["it works on"])
            store.release(run)
        slot(store, "whole")
        with pytest.raises(StateConflict, match="whole on host has held it"):
            by_hand(store, MONDAY)
        clock.advance(61)
        assert by_hand(store, MONDAY).partition == MONDAY

    def test_what_a_run_of_the_whole_left_keeps_nobody_from_a_change(self, store: StateStore, clock: HandClock) -> None:
        dead = slot(store, "run-1")
        store.note_folders(dead, ["folder"])
        store.announce(dead, load_of("a", stream_state(USERS, "u")))
        clock.advance(61)
        lease = by_hand(store, MONDAY)
        assert lease.partition == MONDAY
        store.change_state(lease, USERS, stream_state(USERS, "m"), who="ann")
        store.release(lease)
        assert slot(store, "run-2", MONDAY).partition == ""  # A run still has to end it first.

    def test_kept_values_go_with_the_state_of_their_partition(self, store: DeliveryStore, lease: Lease) -> None:
        assets = [Asset("shop", USERS, day) for day in ("", MONDAY, TUESDAY)]

        def values() -> list[bytes | None]:
            return [store.kept_value(asset, ("a",)) for asset in assets]

        for text in (b"1", b"2"):
            for asset in assets:
                store.keep_values(lease, asset, ValueChanges({("a",): text}))
        store.release(lease)
        monday = by_hand(store, MONDAY)
        store.change_state(monday, USERS, None, who="ann")
        assert values() == [b"2", None, b"2"]
        store.rollback(monday, 3, who="ann")
        assert values() == [b"2", b"1", b"2"]

    def test_partitions_are_known_by_all_that_is_stored_of_them(self, store: StateStore) -> None:
        assert store.partitions("shop") == []
        self._synced(store, stream_state(USERS, "u"))
        lease = by_hand(store, MONDAY)
        store.change_state(lease, None, None, who="ann")
        store.release(lease)
        begun = slot(store, "run-1", "friday")
        assert store.partitions("shop") == ["friday", MONDAY, TUESDAY]
        store.release(begun)
        assert store.partitions("shop") == [MONDAY, TUESDAY]
        begun = slot(store, "run-2", "whole refresh")
        store.begin_run(begun, refreshed=[USERS], streams=[], partition="whole refresh")
        store.release(begun)
        assert store.partitions("shop") == [MONDAY, TUESDAY, "whole refresh"]
        assert store.partitions("other") == []

    def test_the_history_of_a_partition_is_its_own(self, store: StateStore) -> None:
        self._synced(store, stream_state(USERS, "u"))
        assert [each.partition for each in store.history("shop")] == [TUESDAY, MONDAY, ""]
        assert [each.partition for each in store.history("shop", limit=1, partition=MONDAY)] == [MONDAY]
        assert [each.partition for each in store.history("shop", partition="")] == [""]
