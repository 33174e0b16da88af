"""Tests of states, their history and rollbacks, and of stored configs."""

import random

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.store import LandedTable, Lease, StateStore
from dagster_airbyte_proto.checkpoints.stored_config import ConfigOwner, StoredConfig
from dagster_airbyte_proto.errors import ConfigError, ProtocolViolation
from dagster_airbyte_proto.loads.load import CommittedRows
from dagster_airbyte_proto.model import State, StateScope, StreamId, WriteMode
from tests.conformance.state_store.fixtures import (
    ORDERS,
    USERS,
    HandClock,
    StoreFixtures,
    committed_users,
    load_of,
    shared_state,
    stream_state,
)


class StateTests(StoreFixtures):
    """States, history and stored configs."""

    # States

    def test_states_of_partitions_stand_side_by_side(self, store: StateStore, lease: Lease) -> None:
        for month in ("", "2026-01", "2026-02"):
            self.promoted(store, lease, load_of(f"load{month}", stream_state(USERS, month)), month)
        assert self.current_states(store, "2026-01") == [stream_state(USERS, "2026-01")]
        assert self.current_states(store) == [stream_state(USERS, "")]
        assert {stored.partition for stored in store.states("shop", partition=None)} == {"", "2026-01", "2026-02"}

    def test_the_state_of_one_stream_is_read_alone(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        self.promoted(store, lease, load_of("jan", stream_state(ORDERS, "jan")), "2026-01")
        assert [stored.state for stored in store.states("shop", stream=ORDERS)] == [stream_state(ORDERS, "o")]
        assert len(store.states("shop", partition=None, stream=ORDERS)) == 2
        assert store.states("shop", stream=StreamId.of("orders")) == []

    @pytest.mark.parametrize("scope", [StateScope.GLOBAL, StateScope.LEGACY])
    def test_a_shared_state_takes_the_place_of_those_of_streams(
        self, store: StateStore, lease: Lease, scope: StateScope
    ) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        self.promoted(store, lease, load_of("jan", stream_state(USERS, "jan")), "2026-01")
        self.promoted(store, lease, load_of("b", shared_state("all", scope)))
        assert self.current_states(store) == [shared_state("all", scope)]
        assert self.current_states(store, "2026-01") == [stream_state(USERS, "jan")]
        assert {(one.stream, one.state) for one in store.history("shop") if one.version == 3} == {
            (None, shared_state("all", scope)),
            (USERS, None),
            (ORDERS, None),
        }

    def test_a_streams_state_takes_the_place_of_a_shared_one(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", shared_state("all", StateScope.LEGACY)))
        self.promoted(store, lease, load_of("b", stream_state(USERS, "u")))
        assert self.current_states(store) == [stream_state(USERS, "u")]
        store.rollback(lease, 1, who="me")
        assert self.current_states(store) == [shared_state("all", StateScope.LEGACY)]

    def test_a_global_state_follows_a_legacy_one_in_one_place(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", shared_state("old", StateScope.LEGACY)))
        self.promoted(store, lease, load_of("b", shared_state("new")))
        assert self.current_states(store) == [shared_state("new")]

    def test_a_state_that_asks_to_start_over_is_a_reset(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        reset = State(StateScope.STREAM, b"{}", USERS, is_reset=True)
        self.promoted(store, lease, load_of("b", reset))
        assert self.current_states(store) == [stream_state(ORDERS, "o")]
        newest = store.history("shop", limit=1)[0]
        assert (newest.stream, newest.state, newest.why) == (USERS, None, "sync")

    def test_no_namespace_and_an_empty_one_are_the_same(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(StreamId("", "users"), "old")))
        self.promoted(store, lease, load_of("b", stream_state(StreamId(None, "users"), "new")))
        assert self.current_states(store) == [stream_state(USERS, "new")]

    def test_messages_come_back_byte_for_byte(self, store: StateStore, lease: Lease) -> None:
        message = b'{"b" :1,"a":"\\u0000\xff\x00"}\r'
        state = State(StateScope.STREAM, message, USERS)
        self.promoted(store, lease, load_of("a", state))
        assert self.current_states(store) == [state]

    def test_a_stream_without_a_name_has_no_state(self, store: StateStore, lease: Lease) -> None:
        with pytest.raises(ProtocolViolation, match="no name"):
            store.change_state(lease, StreamId.of(""), shared_state("x"), who="me")

    def test_states_are_set_and_reset_by_hand(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        change = store.change_state(lease, USERS, stream_state(USERS, "by hand"), who="ann")
        assert (change.version, change.stream, change.state) == (2, USERS, stream_state(USERS, "by hand"))
        assert (change.who, change.why, change.changed_at) == ("ann", "set", clock.now)
        change = store.change_state(lease, ORDERS, None, who="ann")
        assert (change.version, change.stream, change.state, change.why) == (3, ORDERS, None, "reset")
        assert self.current_states(store) == [stream_state(USERS, "by hand")]
        assert store.history("shop")[0] == change

    def test_resetting_the_whole_connection_resets_every_stream_of_the_partition(
        self, store: StateStore, lease: Lease
    ) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        self.promoted(store, lease, load_of("jan", stream_state(USERS, "jan")), "2026-01")
        change = store.change_state(lease, None, None, who="ann")
        assert (change.stream, change.state, change.why) == (None, None, "reset")
        assert self.current_states(store, None) == [stream_state(USERS, "jan")]

    def test_one_stream_cannot_be_removed_from_a_shared_state(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", shared_state("all")))
        with pytest.raises(ConfigError, match="state reset shop"):
            store.change_state(lease, USERS, None, who="ann")
        assert self.current_states(store) == [shared_state("all")]

    def test_by_hand_nothing_moves_while_a_load_is_announced(self, store: StateStore, lease: Lease) -> None:
        store.announce(lease, load_of("a", stream_state(USERS, "u")))
        with pytest.raises(ConfigError, match="recover shop"):
            store.change_state(lease, USERS, None, who="ann")
        with pytest.raises(ConfigError, match="recover shop"):
            store.rollback(lease, 0, who="ann")

    def test_a_rollback_is_a_change_like_any_other(self, store: StateStore, lease: Lease) -> None:
        for number in (1, 2, 3):
            self.promoted(store, lease, load_of(f"{number}", stream_state(USERS, f"{number}")))
        changes = store.rollback(lease, 1, who="ann")
        assert [(one.version, one.state, one.why, one.who) for one in changes] == [
            (4, stream_state(USERS, "1"), "rollback", "ann")
        ]
        assert [one.version for one in store.history("shop")] == [4, 3, 2, 1]
        store.rollback(lease, 3, who="ann")
        assert self.current_states(store) == [stream_state(USERS, "3")]

    def test_a_rollback_to_the_current_version_changes_nothing(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        assert store.rollback(lease, 1, who="ann") == []
        assert len(store.history("shop")) == 1

    def test_a_rollback_of_tables_is_a_version_of_its_own_and_what_they_hold_is_known(
        self, store: StateStore, lease: Lease
    ) -> None:
        for name in ("a", "b"):
            self.promoted(store, lease, load_of(name, stream_state(USERS, "same"), paths=(name,)))
        assert store.landed_tables("shop")[USERS].load_id == "b"
        first = LandedTable("table", "a", WriteMode.APPEND_DEDUP, is_covered=True)
        changes = store.rollback(lease, 1, who="ann", landed={USERS: first})
        assert [(one.version, one.state, one.why) for one in changes] == [(3, stream_state(USERS, "same"), "rollback")]
        assert store.landed_tables("shop") == {USERS: first}
        store.rollback(lease, 0, who="ann", landed={USERS: first})
        assert store.landed_tables("shop") == {}
        uncovered = first._replace(is_covered=False)
        store.rollback(lease, 0, who="ann", landed={USERS: uncovered})
        assert (store.landed_tables("shop"), self.current_states(store)) == ({USERS: uncovered}, [])

    def test_a_rollback_of_tables_forgets_none_that_stays(self, store: StateStore, lease: Lease) -> None:
        first = load_of("a", shared_state("1"), paths=("a",))
        orders = msgspec.structs.replace(first.parts[0], stream=ORDERS)
        first = msgspec.structs.replace(first, parts=(*first.parts, orders))
        store.announce(lease, first)
        store.promote(lease, first, first.states, [committed_users(), CommittedRows(ORDERS, "8", was_there=False)])
        self.promoted(store, lease, load_of("b", shared_state("2"), paths=("b",)))
        table = LandedTable("table", "a", WriteMode.APPEND_DEDUP, is_covered=True)
        store.rollback(lease, 1, who="ann", landed={USERS: table})
        assert {stream: one.load_id for stream, one in store.landed_tables("shop").items()} == {USERS: "a", ORDERS: "a"}
        store.rollback(lease, 2, who="ann")
        assert store.landed_tables("shop") == {}

    @pytest.mark.parametrize("version", [-1, 2])
    def test_a_rollback_to_an_unknown_version_is_refused(self, store: StateStore, lease: Lease, version: int) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        with pytest.raises(ConfigError, match=f"no version {version}"):
            store.rollback(lease, version, who="ann")

    @pytest.mark.parametrize("seed", range(2))
    def test_a_rollback_can_go_to_any_version(self, store: StateStore, lease: Lease, seed: int) -> None:
        chance = random.Random(seed)
        pictures: dict[int, set[tuple[str, State]]] = {0: set()}
        for step in range(15):
            self.change_anything(store, lease, chance, f"{seed}-{step}")
            version = max((one.version for one in store.history("shop")), default=0)
            stored_values = {(stored.partition, stored.state) for stored in store.states("shop", partition=None)}
            assert pictures.setdefault(version, stored_values) == stored_values
        for version in chance.sample(sorted(pictures), min(5, len(pictures))):
            store.rollback(lease, version, who="ann")
            now = {(stored.partition, stored.state) for stored in store.states("shop", partition=None)}
            assert now == pictures[version]

    def change_anything(self, store: StateStore, lease: Lease, chance: random.Random, label: str) -> None:
        partition = chance.choice(["", "jan"])
        stream = chance.choice([USERS, ORDERS, None])
        state = shared_state(label) if stream is None else stream_state(stream, label)
        match chance.choice(["promote", "promote", "reset", "rollback"]):
            case "promote":
                self.promoted(store, lease, load_of(label, state), partition)
            case "reset":
                store.change_state(lease, None, None, who="ann")
            case _:
                newest = max((one.version for one in store.history("shop")), default=0)
                store.rollback(lease, chance.randint(0, newest), who="ann")

    def test_connections_do_not_affect_each_other(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        other = self.acquired(store, "run-2", "mine")
        store.change_state(other, USERS, stream_state(USERS, "mine"), who="ann")
        assert self.current_states(store) == [stream_state(USERS, "u")]
        assert store.states("mine")[0].version == 1
        assert store.connections() == ["mine", "shop"]

    # Configs

    def test_the_config_that_the_connector_rewrote_is_stored(self, store: StateStore, lease: Lease) -> None:
        assert store.stored_config("shop") is None
        store.save_config(lease, {"token": "one"}, based_on="a")
        store.save_config(lease, {"token": "two", "at": {"n": [1, None, "ä"]}}, based_on="b")
        assert store.stored_config("shop") == StoredConfig({"token": "two", "at": {"n": [1, None, "ä"]}}, "b")

    def test_the_destination_of_a_relay_has_a_config_of_its_own(self, store: StateStore, lease: Lease) -> None:
        store.save_config(lease, {"token": "source"}, based_on="a")
        store.save_config(lease, {"token": "one"}, based_on="b", owner=ConfigOwner.DESTINATION)
        store.save_config(lease, {"token": "two"}, based_on="b", owner=ConfigOwner.DESTINATION)
        assert store.stored_config("shop") == StoredConfig({"token": "source"}, "a")
        assert store.stored_config("shop", ConfigOwner.DESTINATION) == StoredConfig({"token": "two"}, "b")
        assert store.drop_config(lease, who="ann") is True
        assert [store.stored_config("shop", owner) for owner in ConfigOwner] == [None, None]
        assert {change.owner for change in store.config_changes("shop")} == set(ConfigOwner)

    def test_a_dropped_config_stays_in_the_history(self, store: StateStore, lease: Lease) -> None:
        assert store.drop_config(lease, who="ann") is False
        store.save_config(lease, {"token": "one"}, based_on="a")
        assert store.drop_config(lease, who="ann") is True
        assert store.stored_config("shop") is None
        found = [(change.version, change.config, change.who) for change in store.config_changes("shop")]
        assert found == [(2, None, "ann"), (1, {"token": "one"}, "connector")]

    def test_the_history_of_configs_has_the_last_ones_only(self, store: StateStore, lease: Lease) -> None:
        for number in range(25):
            store.save_config(lease, {"token": number}, based_on="a")
        assert [change.config for change in store.config_changes("shop")] == [
            {"token": number} for number in range(24, 4, -1)
        ]
