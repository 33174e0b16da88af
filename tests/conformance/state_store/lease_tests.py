"""Tests of leases, fences and runs."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest

from dagster_airbyte_proto.checkpoints.store import Lease, OpenGeneration, StateStore
from dagster_airbyte_proto.errors import StateConflict
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.evolution import ChangeKind, SchemaChange
from tests.conformance.state_store.fixtures import (
    LOST,
    ORDERS,
    USERS,
    HandClock,
    StoreFixtures,
    committed_users,
    load_of,
    profile_of,
    stream_state,
)

# Each of these calls changes something, so the store must refuse it to a run that has lost its lease.
FENCED: Mapping[str, Callable[[StateStore, Lease], object]] = {
    "renew": lambda store, lease: store.renew(lease, 60),
    "begin_run": lambda store, lease: store.begin_run(lease, refreshed=[USERS], streams=[USERS]),
    "note_protocol": lambda store, lease: store.note_protocol(lease, "singer"),
    "note_folders": lambda store, lease: store.note_folders(lease, ["late"]),
    "end_run": lambda store, lease: store.end_run(lease, status="complete", report="{}"),
    "prune_history": lambda store, lease: store.prune_history(lease, days=0),
    "forget_folders": lambda store, lease: store.forget_folders(lease, "run-0"),
    "announce": lambda store, lease: store.announce(lease, load_of("late")),
    "promote": lambda store, lease: store.promote(
        lease, load_of("open"), [stream_state(USERS, "late")], [committed_users()]
    ),
    "resolve": lambda store, lease: store.resolve(lease, load_of("open"), [], [], LOST),
    "forget_generation": lambda store, lease: store.forget_generation(
        lease, OpenGeneration(USERS, 2, TableName("shop", "users"), "branch-2", "", "", None, lease.expires_at)
    ),
    "change_state": lambda store, lease: store.change_state(lease, USERS, None, who="late"),
    "rollback": lambda store, lease: store.rollback(lease, 0, who="late"),
    "save_stream_profiles": lambda store, lease: store.save_stream_profiles(
        lease, {USERS: profile_of("late")}, [(USERS, SchemaChange(ChangeKind.STREAM_GONE))]
    ),
    "save_config": lambda store, lease: store.save_config(lease, {"late": 1}, based_on="x"),
}


class LeaseTests(StoreFixtures):
    """Leases, fences and runs."""

    # Leases

    @pytest.mark.usefixtures("lease")
    def test_the_error_of_a_second_run_names_the_holder_of_the_connection(self, store: StateStore) -> None:
        with pytest.raises(StateConflict) as refused:
            self.acquired(store, "run-2")
        for fact in ("shop", "run-1 on host", "run run-1", "2026-03-29 00:59:59 UTC", "2026-03-29 01:00:59 UTC"):
            assert fact in str(refused.value)
        assert "Wait until that run has ended, or stop it" in refused.value.remedy

    @pytest.mark.usefixtures("lease")
    def test_the_same_run_id_does_not_get_past_a_lease(self, store: StateStore) -> None:
        with pytest.raises(StateConflict):
            self.acquired(store, "run-1")

    @pytest.mark.usefixtures("lease")
    def test_another_connection_is_free(self, store: StateStore) -> None:
        assert self.acquired(store, "run-2", "mine").connection == "mine"

    def test_a_dead_holders_lease_is_taken_over(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        taken = self.taken_over(store, clock, "run-2")
        assert taken.fence > lease.fence
        assert taken.expires_at == clock.now + timedelta(seconds=60)

    def test_the_lease_of_a_dead_holder_is_taken_over_before_it_expires(self, store: StateStore, lease: Lease) -> None:
        def is_dead(holder: str) -> bool:
            return holder == "run-1 on host"

        taken = store.acquire("shop", run_id="run-2", holder="run-2 on host", seconds=60, is_dead=is_dead)
        assert taken.fence > lease.fence
        with pytest.raises(StateConflict, match="run-2 on host has held it"):
            store.acquire("shop", run_id="run-3", holder="run-3 on host", seconds=60, is_dead=is_dead)

    def test_a_refusal_names_the_holder_as_people_know_it(self, store: StateStore) -> None:
        holder = "pid 12 on vm (started 1456158, kernel 26588652)"
        store.acquire("shop", run_id="run-1", holder=holder, seconds=60)
        with pytest.raises(StateConflict, match=r"pid 12 on vm has held it since [-0-9]+ [0-9:]+ UTC \(run run-1\)\n"):
            self.acquired(store, "run-2")

    def test_a_renewed_lease_is_not_taken_over(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        clock.advance(50)
        assert store.renew(lease, 60).expires_at == clock.now + timedelta(seconds=60)
        clock.advance(50)
        with pytest.raises(StateConflict):
            self.acquired(store, "run-2")

    def test_the_current_lease_of_a_connection_can_be_read(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        assert store.current_leases("shop") == [lease]
        assert store.current_leases("other") == []
        clock.now += timedelta(seconds=61)
        assert store.current_leases("shop") == [lease]
        store.release(lease)
        assert store.current_leases("shop") == []

    def test_fences_grow_over_releases_too(self, store: StateStore, lease: Lease) -> None:
        store.release(lease)
        second = self.acquired(store, "run-2")
        store.release(second)
        assert lease.fence < second.fence < self.acquired(store, "run-3").fence

    def test_an_expired_lease_that_nobody_took_over_is_still_valid(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        clock.advance(1000)
        store.note_folders(lease, ["a"])
        assert store.renew(lease, 60).fence == lease.fence

    @pytest.mark.parametrize("call", FENCED)
    def test_a_run_that_was_taken_over_changes_nothing(
        self, store: StateStore, lease: Lease, clock: HandClock, call: str
    ) -> None:
        store.announce(lease, load_of("open"))
        store.note_folders(lease, ["early"])
        taker = self.taken_over(store, clock, "run-2")
        before = self.stored_values(store, taker)
        with pytest.raises(StateConflict, match="run-2 on host took it over"):
            FENCED[call](store, lease)
        assert self.stored_values(store, taker) == before

    @pytest.mark.parametrize("call", FENCED)
    def test_a_released_lease_is_refused(self, store: StateStore, lease: Lease, call: str) -> None:
        store.release(lease)
        with pytest.raises(StateConflict, match="no longer holds the lease"):
            FENCED[call](store, lease)

    def test_releasing_a_lost_lease_leaves_the_new_holders_lease(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        taker = self.taken_over(store, clock, "run-2")
        store.release(lease)
        store.release(lease)
        assert store.renew(taker, 60).fence == taker.fence

    # Runs

    def test_runs_are_numbered_and_refreshes_start_generations(self, store: StateStore, lease: Lease) -> None:
        first = store.begin_run(lease, refreshed=[USERS], streams=[USERS, ORDERS])
        assert (first.sync_id, first.generations) == (1, {USERS: 1, ORDERS: 0})
        store.release(lease)
        second = store.begin_run(self.acquired(store, "run-2"), refreshed=[ORDERS], streams=[USERS])
        assert (second.sync_id, second.generations) == (2, {USERS: 1, ORDERS: 1})

    def test_the_protocol_is_that_which_was_noted_last(self, store: StateStore, lease: Lease) -> None:
        assert (store.protocol("shop"), store.protocol("nobody")) == ("", "")
        for name in ("airbyte", "singer", "singer"):
            store.note_protocol(lease, name)
        store.release(lease)
        assert store.protocol("shop") == "singer"

    def test_beginning_a_run_twice_counts_once(self, store: StateStore, lease: Lease) -> None:
        first = store.begin_run(lease, refreshed=[USERS], streams=[ORDERS])
        assert store.begin_run(lease, refreshed=[USERS], streams=[ORDERS]) == first

    def test_generations_are_counted_by_partition(self, store: StateStore, lease: Lease) -> None:
        store.begin_run(lease, refreshed=[USERS], streams=[], partition="2026-01")
        store.release(lease)
        other = store.begin_run(self.acquired(store, "run-2"), refreshed=[], streams=[USERS], partition="2026-02")
        assert other.generations == {USERS: 0}

    def test_the_reports_of_the_attempts_of_a_run_are_stored_in_their_order(
        self, store: StateStore, lease: Lease
    ) -> None:
        first = lease.holder
        for report in ("first", "second"):
            store.begin_run(lease, refreshed=[], streams=[USERS])
            store.end_run(lease, status="failed", report=report)
            store.release(lease)
            lease = store.acquire("shop", run_id=lease.run_id, holder="again", seconds=60)
        store.begin_run(lease, refreshed=[], streams=[USERS])
        assert store.reports("shop", lease.run_id) == ["first", "second"]
        assert store.reports("shop", "another") == store.reports("other", lease.run_id) == []
        assert store.run_holders("shop", lease.run_id) == [first, "again", "again"]
        assert store.run_holders("shop", "another") == store.run_holders("other", lease.run_id) == []

    def test_the_newest_runs_are_listed_and_the_newest_complete_one_in_any_case(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        began = clock()
        for number, status in enumerate(("complete", "complete", "failed", "partial")):
            store.begin_run(lease, refreshed=[], streams=[USERS])
            clock.advance(10)
            store.end_run(lease, status=status, report=f"{number}")
            store.release(lease)
            lease = self.acquired(store, f"run-{number + 2}")
        store.begin_run(lease, refreshed=[], streams=[USERS])
        dead, partial, complete = store.runs("shop", limit=2)
        assert (dead.run_id, dead.ended_at, dead.status, dead.report) == ("run-5", None, "", "")
        assert (partial.status, partial.report) == ("partial", "3")
        assert (complete.run_id, complete.report) == ("run-2", "1")
        assert complete.ended_at is not None
        assert (complete.started_at - began).total_seconds() == 10
        assert (complete.ended_at - complete.started_at).total_seconds() == 10
        assert dead.fence == lease.fence > partial.fence > complete.fence
        assert len(store.runs("shop")) == 5
        assert store.runs("other") == []

    def test_folders_of_dead_runs_are_known_until_they_are_swept(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        store.note_folders(lease, ["b", "a"])
        store.note_folders(lease, ["a", "c"])
        assert store.unfinished_folders(lease) == []
        taker = self.taken_over(store, clock, "run-2")
        assert sorted(store.unfinished_folders(taker)) == [("run-1", "a"), ("run-1", "b"), ("run-1", "c")]
        store.forget_folders(taker, "run-1")
        assert store.unfinished_folders(taker) == []

    @pytest.mark.parametrize(("status", "left"), [("complete", []), ("partial", [("run-1", "a")])])
    def test_only_a_complete_run_leaves_no_folders(
        self, store: StateStore, lease: Lease, status: str, left: list[tuple[str, str]]
    ) -> None:
        store.begin_run(lease, refreshed=[], streams=[USERS])
        store.note_folders(lease, ["a"])
        store.end_run(lease, status=status, report="{}")
        store.release(lease)
        assert store.unfinished_folders(self.acquired(store, "run-2")) == left

    def test_a_retry_under_the_same_run_id_sweeps_the_attempt_before_it(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        store.note_folders(lease, ["first", "both"])
        retry = self.taken_over(store, clock, "run-1")
        store.note_folders(retry, ["second", "both"])
        assert sorted(store.unfinished_folders(retry)) == [("run-1", "both"), ("run-1", "first")]
        store.forget_folders(retry, "run-1")
        after = self.taken_over(store, clock, "run-2")
        assert sorted(store.unfinished_folders(after)) == [("run-1", "both"), ("run-1", "second")]
