"""Tests of the loads log."""

from datetime import timedelta

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding, Resolution
from dagster_airbyte_proto.checkpoints.store import Lease, LoadStatus, StateStore
from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.model import State, StateScope, TableName
from tests.conformance.state_store.fixtures import (
    LOST,
    ORDERS,
    USERS,
    HandClock,
    StoreFixtures,
    committed_users,
    load_of,
    stream_state,
)


class LoadTests(StoreFixtures):
    """Announced, promoted and dropped loads."""

    # Loads

    def test_announced_loads_are_found_again_oldest_first_and_exact(self, store: StateStore, lease: Lease) -> None:
        odd = State(StateScope.GLOBAL, b'{"odd": "\xff\x00 \\u0000 \xc3\xa4"}', is_reset=True)
        loads = [load_of("z", stream_state(ORDERS, '{ "spaced" : 1 }'), odd, paths=("a/1", "a/2")), load_of("a")]
        for load in loads:
            store.announce(lease, load)
        assert store.announced_loads("shop") == loads
        assert [logged.ending for logged in store.loads("shop")] == [None, None]
        assert store.announced_loads("mine") == []

    def test_announcing_the_same_load_again_is_once(self, store: StateStore, lease: Lease) -> None:
        store.announce(lease, load_of("one"))
        store.announce(lease, load_of("one"))
        assert store.announced_loads("shop") == [load_of("one")]
        with pytest.raises(InternalError, match="another load has its id"):
            store.announce(lease, load_of("one", stream_state(USERS, "other")))

    def test_promoting_moves_states_and_ends_the_load(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        states = stream_state(USERS, "u"), stream_state(ORDERS, "o")
        load = load_of("one", *states, paths=("p",))
        store.announce(lease, load)
        clock.advance(5)
        store.promote(lease, load, states, [committed_users()])
        assert set(self.current_states(store)) == set(states)
        assert {(stored.version, stored.changed_at, stored.run_id) for stored in store.states("shop")} == {
            (1, clock.now, "run-1")
        }
        logged = store.load("one")
        assert logged is not None
        assert logged == store.loads("shop")[0]
        assert (logged.load, logged.status, logged.committed) == (load, LoadStatus.DONE, (committed_users(),))
        assert logged.ending is LoadEnding.PROMOTED
        assert (logged.announced_at, logged.ended_at) == (clock.now - timedelta(seconds=5), clock.now)
        assert store.announced_loads("shop") == []

    def test_promoting_only_some_states_leaves_the_others(self, store: StateStore, lease: Lease) -> None:
        load = load_of("one", stream_state(USERS, "u"), stream_state(ORDERS, "o"))
        store.announce(lease, load)
        store.promote(lease, load, [stream_state(ORDERS, "o")], [])
        assert self.current_states(store) == [stream_state(ORDERS, "o")]

    def test_promoting_a_done_load_changes_nothing(self, store: StateStore, lease: Lease) -> None:
        old, new = load_of("old", stream_state(USERS, "old")), load_of("new", stream_state(USERS, "new"))
        self.promoted(store, lease, old)
        self.promoted(store, lease, new)
        store.promote(lease, old, old.states, [committed_users("other")])
        assert self.current_states(store) == [stream_state(USERS, "new")]
        assert len(store.history("shop")) == 2

    def test_a_load_without_states_moves_no_version(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("one"))
        assert store.history("shop") == []

    def test_a_load_that_somebody_resolves_as_landed_moves_its_states(self, store: StateStore, lease: Lease) -> None:
        load = load_of("one", stream_state(USERS, "u"))
        store.announce(lease, load)
        for _ in range(2):
            store.resolve(lease, load, load.states, [], Resolution(as_landed=True, who="ann"))
        logged = store.load("one")
        assert logged is not None
        assert (logged.status, logged.reason) == (LoadStatus.DONE, "resolved as landed by ann")
        assert logged.ending is LoadEnding.RESOLVED_AS_LANDED
        assert self.current_states(store) == list(load.states)
        assert [(change.who, change.why) for change in store.history("shop")] == [("ann", "resolve")]

    def test_a_load_that_somebody_resolves_as_lost_moves_none(self, store: StateStore, lease: Lease) -> None:
        load = load_of("one", stream_state(USERS, "u"))
        store.announce(lease, load)
        for _ in range(2):
            store.resolve(lease, load, [], [], LOST)
        logged = store.load("one")
        assert logged is not None
        assert (logged.status, logged.reason) == (LoadStatus.DROPPED, "resolved as lost by ann")
        assert logged.ending is LoadEnding.RESOLVED_AS_LOST
        with pytest.raises(InternalError, match="it is dropped already"):
            store.promote(lease, load, load.states, [])
        assert self.current_states(store) == []

    def test_a_load_that_was_never_announced_cannot_end(self, store: StateStore, lease: Lease) -> None:
        with pytest.raises(InternalError, match="never announced"):
            store.promote(lease, load_of("one"), [], [])
        with pytest.raises(InternalError, match="never announced"):
            store.resolve(lease, load_of("one"), [], [], LOST)
        assert store.load("one") is None

    def test_loads_are_listed_newest_first(self, store: StateStore, lease: Lease) -> None:
        for load_id in ("a", "b", "c"):
            self.promoted(store, lease, load_of(load_id))
        assert [logged.load.load_id for logged in store.loads("shop", limit=2)] == ["c", "b"]
        store.announce(lease, load_of("open"))
        store.announce(lease, load_of("lost"))
        store.resolve(lease, load_of("lost"), (), [], LOST)
        listed = [logged.load.load_id for logged in store.loads("shop", limit=4)]
        assert listed == ["lost", "open", "c", "b"], "whatever has become of them"
        numbers = [logged.number for logged in store.loads("shop")]
        assert numbers == sorted(set(numbers), reverse=True)
        assert [logged.load.load_id for logged in store.loads("shop", limit=2, before=numbers[1])] == ["c", "b"]
        assert store.loads("shop", before=numbers[-1]) == []

    def test_the_tables_of_all_loads_are_known_but_not_what_went_to_a_destination(
        self, store: StateStore, lease: Lease
    ) -> None:
        assert store.loaded_tables("shop") == []
        for load_id, table in (("a", "users"), ("b", "orders"), ("c", "users")):
            self.promoted(store, lease, _into(table, load_of(load_id)))
        store.announce(lease, _into("items", load_of("open")))
        store.announce(lease, _relayed(_into("elsewhere", load_of("relayed"))))
        assert store.loaded_tables("shop") == [TableName("shop", name) for name in ("items", "orders", "users")]

    def test_a_sweep_must_leave_the_files_of_every_load(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("done", paths=("d1", "d2")))
        store.announce(lease, load_of("announced", paths=("a",)))
        dropped = load_of("dropped", paths=("x",))
        store.announce(lease, dropped)
        store.resolve(lease, dropped, [], [], LOST)
        store.announce(lease, load_of("of another run", run_id="run-2", paths=("o",)))
        assert store.referenced_files("shop", "run-1") == {"d1", "d2", "a", "x"}

    def test_a_sweep_may_take_the_files_of_an_ended_load_that_went_to_a_destination(
        self, store: StateStore, lease: Lease
    ) -> None:
        loads = [_relayed(load_of(load_id, paths=(load_id,))) for load_id in ("given up", "lost", "announced")]
        for load in loads:
            store.announce(lease, load)
        store.promote(lease, loads[0], [], [])
        store.resolve(lease, loads[1], [], [], LOST)
        assert store.referenced_files("shop", "run-1") == {"announced"}

    def test_the_history_tells_a_recovered_load_from_a_synced_one(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        self.promoted(store, lease, load_of("one", stream_state(USERS, "1")))
        load = load_of("two", stream_state(USERS, "2"))
        store.announce(lease, load)
        store.promote(self.taken_over(store, clock, "run-2"), load, load.states, [])
        told = [(change.why, change.who, change.run_id) for change in store.history("shop")]
        assert told == [("recover", "run-2 on host", "run-1"), ("sync", "run-1 on host", "run-1")]


def _relayed(load: Load) -> Load:
    parts = tuple(msgspec.structs.replace(part, table_id="relay airbyte local a program") for part in load.parts)
    return msgspec.structs.replace(load, parts=parts)


def _into(table: str, load: Load) -> Load:
    parts = (msgspec.structs.replace(part, table=TableName("shop", table)) for part in load.parts)
    return msgspec.structs.replace(load, parts=tuple(parts))
