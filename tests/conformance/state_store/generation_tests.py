"""Tests of open generations and stream profiles, and of a store that threads share."""

import threading

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.loads.load import (
    Load,
    ResumePoint,
)
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.evolution import ChangeKind, SchemaChange
from tests.conformance.state_store.fixtures import (
    ORDERS,
    USERS,
    HandClock,
    OpenStore,
    StoreFixtures,
    branch_load,
    load_of,
    profile_of,
    stream_state,
)


class GenerationTests(StoreFixtures):
    """Open generations and stream profiles."""

    # Durability and threads

    def test_another_handle_sees_all_of_it(
        self, store: StateStore, lease: Lease, open_store: OpenStore, clock: HandClock
    ) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        store.save_config(lease, {"token": 1}, based_on="a")
        assert self.stored_values(open_store(clock), lease) == self.stored_values(store, lease)

    def test_a_lease_is_renewed_while_loads_are_promoted(self, store: StateStore, lease: Lease) -> None:
        failures: list[BaseException] = []
        over = threading.Event()

        def renew() -> None:
            try:
                while not over.is_set():
                    store.renew(lease, 60)
            except BaseException as error:
                failures.append(error)
                raise

        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            for number in range(20):
                self.promoted(store, lease, load_of(f"{number}", stream_state(USERS, f"{number}")))
        finally:
            over.set()
            renewing.join()
        assert failures == []
        assert self.current_states(store) == [stream_state(USERS, "19")]

    # Stream profiles

    def test_stream_profiles_are_stored_and_their_changes_recorded(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        assert (store.stream_profiles("shop"), store.stream_changes("shop")) == ({}, [])
        odd = msgspec.structs.replace(
            profile_of("id", "Größe 🙂"),
            excluded={"a.b": ("", "string")},
            primary_key=(("a", "b"),),
            formerly={"x": "y"},
        )
        store.save_stream_profiles(
            lease, {USERS: profile_of("id"), ORDERS: odd}, [(ORDERS, SchemaChange(ChangeKind.STREAM_RETURNED))]
        )
        assert store.stream_profiles("shop") == {USERS: profile_of("id"), ORDERS: odd}
        clock.advance(5)
        added = SchemaChange(ChangeKind.COLUMN_ADDED, "email", "", "string")
        store.save_stream_profiles(
            lease, {USERS: profile_of("id", "email")}, [(USERS, added), (USERS, SchemaChange(ChangeKind.KEY_CHANGED))]
        )
        assert store.stream_profiles("shop") == {USERS: profile_of("id", "email"), ORDERS: odd}
        noted = store.stream_changes("shop")
        assert [(each.stream, each.change.kind.value) for each in noted] == [
            (USERS, "key_changed"),
            (USERS, "column_added"),
            (ORDERS, "stream_back"),
        ]
        assert (noted[1].change, noted[1].changed_at, noted[1].run_id) == (added, clock.now, "run-1")
        assert store.stream_changes("shop", limit=1) == noted[:1]
        assert (store.stream_profiles("other"), store.stream_changes("other")) == ({}, [])

    # Generations on branches

    def test_a_generation_is_open_from_its_first_announcement_until_it_is_published(
        self, store: StateStore, lease: Lease
    ) -> None:
        first, second = branch_load("l1", "{1}"), branch_load("l2", "{2}", after="l1")
        store.announce(lease, first)
        [begun] = store.open_generations("shop")
        assert (begun.stream, begun.generation_id, begun.table) == (USERS, 2, TableName("shop", "users"))
        assert (begun.branch, begun.fingerprint, begun.load_id, begun.state) == ("branch-2", "as it is", "", None)
        for load in (first, second):
            self.promoted(store, lease, load)
            [begun] = store.open_generations("shop")
            assert begun.load_id == load.load_id
            assert begun.state == load.resume_points[0].state
        assert store.announced_loads("shop") == []
        assert self.current_states(store) == []
        assert store.load("l2") is not None
        self.promoted(store, lease, branch_load("l3", "{3}", after="l2", publishes=True))
        assert store.open_generations("shop") == []
        assert self.current_states(store) == [stream_state(USERS, "{3}")]

    def test_a_refused_load_gives_no_resume_point(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, branch_load("l1", "{1}"))
        refused = branch_load("l2", "{2}", after="l1")
        store.announce(lease, refused)
        store.promote(lease, refused, [], [])
        [begun] = store.open_generations("shop")
        assert (begun.load_id, begun.state) == ("l1", stream_state(USERS, "{1}"))

    def test_rows_that_no_state_covers_leave_no_resume_point(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, branch_load("l1", "{1}"))
        self.promoted(store, lease, msgspec.structs.replace(branch_load("l2", "", after="l1"), resume_points=()))
        [begun] = store.open_generations("shop")
        assert (begun.load_id, begun.state) == ("l2", None)

    def test_a_state_alone_moves_the_resume_point(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, branch_load("l1", "{1}"))
        point = ResumePoint(2, stream_state(USERS, "{2}"))
        self.promoted(store, lease, Load("l2", "shop", "run-1", (), (), (point,)))
        [begun] = store.open_generations("shop")
        assert (begun.load_id, begun.state) == ("l1", point.state)

    @pytest.mark.parametrize("ended_by", ["run", "reset", "set", "reset of all", "rollback"])
    def test_a_generation_that_is_not_resumed_is_dead_until_it_is_forgotten(
        self, store: StateStore, lease: Lease, clock: HandClock, ended_by: str
    ) -> None:
        self.promoted(store, lease, branch_load("l1", "{1}"))
        lease = self.taken_over(store, clock, "run-2")
        if ended_by == "run":
            store.begin_run(lease, refreshed=[USERS], streams=[USERS])
        elif ended_by == "rollback":
            store.rollback(lease, 0, who="me")
        else:
            state = stream_state(USERS, "{0}") if ended_by == "set" else None
            store.change_state(lease, None if "all" in ended_by else USERS, state, who="me")
        [dead] = store.open_generations("shop")
        assert (dead.load_id, dead.state) == ("l1", None)
        for _ in range(2):
            store.forget_generation(lease, dead)
            assert store.open_generations("shop") == []

    def test_a_run_that_resumes_a_generation_keeps_its_number(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        for _ in range(2):
            lease = self.taken_over(store, clock, lease.run_id)
            store.begin_run(lease, refreshed=[USERS], streams=[USERS])
        self.promoted(store, lease, branch_load("l1", "{1}"))
        lease = self.taken_over(store, clock, "run-2")
        start = store.begin_run(lease, refreshed=[ORDERS], streams=[USERS, ORDERS], resumed=[USERS])
        assert start.generations == {USERS: 2, ORDERS: 1}
        store.change_state(lease, ORDERS, None, who="me")
        assert [each.state for each in store.open_generations("shop")] == [stream_state(USERS, "{1}")]

    def test_a_run_without_streams_begins_and_ends_no_generation(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        self.promoted(store, lease, branch_load("l1", "{1}"))
        lease = self.taken_over(store, clock, "run-2")
        assert store.begin_run(lease, refreshed=[], streams=[]).generations == {}
        [kept] = store.open_generations("shop")
        assert (kept.load_id, kept.state) == ("l1", stream_state(USERS, "{1}"))
