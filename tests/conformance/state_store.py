"""What every StateStore must do. A subclass gives the fixture `open_store`, and takes all tests from here."""

import random
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.store import KeptConfig, Lease, LoadStatus, OpenGeneration, StateStore
from dagster_airbyte_proto.errors import ConfigError, InternalError, ProtocolViolation, StateConflict
from dagster_airbyte_proto.loads.load import (
    Aside,
    CommittedRows,
    FileContent,
    Load,
    ResumePoint,
    StagedFile,
    StagedRows,
)
from dagster_airbyte_proto.model import ColumnName, State, StateScope, StreamId, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import Change, What
from dagster_airbyte_proto.schema.shape import StreamShape

USERS, ORDERS = StreamId.of("users"), StreamId.of("orders", "eu")


class HandClock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 29, 0, 59, 59, 123456, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


OpenStore = Callable[[HandClock], StateStore]


def stream_state(stream: StreamId, text: str) -> State:
    return State(StateScope.STREAM, text.encode(), stream)


def shared_state(text: str, scope: StateScope = StateScope.GLOBAL) -> State:
    return State(scope, text.encode())


def load_of(load_id: str, *states: State, run_id: str = "run-1", paths: tuple[str, ...] = ()) -> Load:
    files = tuple(StagedFile(path, FileContent.ROWS, 3, 1000) for path in paths)
    part = StagedRows(
        USERS, TableName("shop", "users"), WriteMode.APPEND_DEDUP, 2, files, ("id",), 4, 3, rejected={"too long": 1}
    )
    return Load(load_id, "shop", run_id, (part,), states)


def shape_of(*names: str) -> StreamShape:
    table = TableName("shop", "users")
    named = tuple(ColumnName((name,), name) for name in names)
    return StreamShape(table, table, named, dict.fromkeys(names, "string"), is_known=True)


def aside_load(load_id: str, text: str, *, after: str | None = None, publishes: bool = False) -> Load:
    """Users of generation 2 on their branch, with a state from which they can be gone on with."""
    aside = Aside("branch-2", after, publishes, "as it is")
    part = StagedRows(USERS, TableName("shop", "users"), WriteMode.OVERWRITE, 2, emitted=3, rows=3, aside=aside)
    points = () if publishes else (ResumePoint(2, stream_state(USERS, text)),)
    return Load(load_id, "shop", "run-1", (part,), (stream_state(USERS, text),) if publishes else (), points)


def committed_users(snapshot_id: str = "7") -> CommittedRows:
    return CommittedRows(USERS, snapshot_id, was_there=False, deleted=1, table_rows=9)


# Each changes something, and so must be refused to a run whose lease is lost.
FENCED: Mapping[str, Callable[[StateStore, Lease], object]] = {
    "renew": lambda store, lease: store.renew(lease, 60),
    "begin_run": lambda store, lease: store.begin_run(lease, refreshed=[USERS], streams=[USERS]),
    "note_folders": lambda store, lease: store.note_folders(lease, ["late"]),
    "end_run": lambda store, lease: store.end_run(lease, status="complete", report="{}"),
    "forget_folders": lambda store, lease: store.forget_folders(lease, "run-0"),
    "announce": lambda store, lease: store.announce(lease, load_of("late")),
    "promote": lambda store, lease: store.promote(
        lease, load_of("open"), [stream_state(USERS, "late")], [committed_users()]
    ),
    "drop": lambda store, lease: store.drop(lease, load_of("open"), "late"),
    "forget_generation": lambda store, lease: store.forget_generation(
        lease, OpenGeneration(USERS, 2, TableName("shop", "users"), "branch-2", "", "", None, lease.expires_at)
    ),
    "change_state": lambda store, lease: store.change_state(lease, USERS, None, who="late"),
    "rollback": lambda store, lease: store.rollback(lease, 0, who="late"),
    "keep_shapes": lambda store, lease: store.keep_shapes(
        lease, {USERS: shape_of("late")}, [(USERS, Change(What.STREAM_GONE))]
    ),
    "keep_config": lambda store, lease: store.keep_config(lease, {"late": 1}, based_on="x"),
}


class StateStoreConformance:
    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def store(self, open_store: OpenStore, clock: HandClock) -> StateStore:
        return open_store(clock)

    @pytest.fixture
    def lease(self, store: StateStore) -> Lease:
        return self.acquired(store, "run-1")

    @staticmethod
    def acquired(store: StateStore, run_id: str, connection: str = "shop") -> Lease:
        return store.acquire(connection, run_id=run_id, holder=f"{run_id} on host", seconds=60)

    @classmethod
    def taken_over(cls, store: StateStore, clock: HandClock, run_id: str) -> Lease:
        clock.advance(61)
        return cls.acquired(store, run_id)

    @staticmethod
    def promoted(store: StateStore, lease: Lease, load: Load, partition: str = "") -> None:
        store.announce(lease, load, partition=partition)
        store.promote(lease, load, load.states, [committed_users()])

    @staticmethod
    def standing(store: StateStore, partition: str | None = "") -> list[State]:
        return [stored.state for stored in store.states("shop", partition=partition)]

    # Leases

    @pytest.mark.usefixtures("lease")
    def test_a_second_run_is_told_who_holds_the_connection(self, store: StateStore) -> None:
        with pytest.raises(StateConflict) as refused:
            self.acquired(store, "run-2")
        for fact in ("shop", "run-1 on host", "run run-1", "2026-03-29 00:59:59 UTC", "2026-03-29 01:00:59 UTC"):
            assert fact in str(refused.value)
        assert "Wait until that run has ended, or stop it" in refused.value.remedy

    @pytest.mark.usefixtures("lease")
    def test_the_same_run_id_is_no_way_past_a_lease(self, store: StateStore) -> None:
        with pytest.raises(StateConflict):
            self.acquired(store, "run-1")

    @pytest.mark.usefixtures("lease")
    def test_another_connection_is_free(self, store: StateStore) -> None:
        assert self.acquired(store, "run-2", "mine").connection == "mine"

    def test_a_dead_holders_lease_is_taken_over(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        taken = self.taken_over(store, clock, "run-2")
        assert taken.fence > lease.fence
        assert taken.expires_at == clock.now + timedelta(seconds=60)

    def test_a_holder_known_to_be_dead_need_not_run_out(self, store: StateStore, lease: Lease) -> None:
        def is_dead(holder: str) -> bool:
            return holder == "run-1 on host"

        taken = store.acquire("shop", run_id="run-2", holder="run-2 on host", seconds=60, is_dead=is_dead)
        assert taken.fence > lease.fence
        with pytest.raises(StateConflict, match="run-2 on host holds it"):
            store.acquire("shop", run_id="run-3", holder="run-3 on host", seconds=60, is_dead=is_dead)

    def test_a_renewed_lease_is_not_taken_over(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        clock.advance(50)
        assert store.renew(lease, 60).expires_at == clock.now + timedelta(seconds=60)
        clock.advance(50)
        with pytest.raises(StateConflict):
            self.acquired(store, "run-2")

    def test_who_holds_a_connection_can_be_read(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        assert store.holder("shop") == lease
        assert store.holder("other") is None
        clock.now += timedelta(seconds=61)
        assert store.holder("shop") == lease
        store.release(lease)
        assert store.holder("shop") is None

    def test_fences_grow_over_releases_too(self, store: StateStore, lease: Lease) -> None:
        store.release(lease)
        second = self.acquired(store, "run-2")
        store.release(second)
        assert lease.fence < second.fence < self.acquired(store, "run-3").fence

    def test_a_lease_that_ran_out_and_nobody_took_is_still_good(
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
        before = self.picture(store, taker)
        with pytest.raises(StateConflict, match="run-2 on host took it over"):
            FENCED[call](store, lease)
        assert self.picture(store, taker) == before

    @pytest.mark.parametrize("call", FENCED)
    def test_a_lease_given_back_is_good_for_nothing(self, store: StateStore, lease: Lease, call: str) -> None:
        store.release(lease)
        with pytest.raises(StateConflict, match="not held any more"):
            FENCED[call](store, lease)

    def test_giving_back_a_lost_lease_leaves_the_takers(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        taker = self.taken_over(store, clock, "run-2")
        store.release(lease)
        store.release(lease)
        assert store.renew(taker, 60).fence == taker.fence

    @staticmethod
    def picture(store: StateStore, lease: Lease) -> tuple[object, ...]:
        folders = store.unfinished_folders(lease)
        return store.states("shop"), store.history("shop"), store.loads("shop"), store.config("shop"), folders

    # Runs

    def test_runs_are_numbered_and_refreshes_start_generations(self, store: StateStore, lease: Lease) -> None:
        first = store.begin_run(lease, refreshed=[USERS], streams=[USERS, ORDERS])
        assert (first.sync_id, first.generations) == (1, {USERS: 1, ORDERS: 0})
        store.release(lease)
        second = store.begin_run(self.acquired(store, "run-2"), refreshed=[ORDERS], streams=[USERS])
        assert (second.sync_id, second.generations) == (2, {USERS: 1, ORDERS: 1})

    def test_beginning_a_run_again_counts_nothing_up(self, store: StateStore, lease: Lease) -> None:
        first = store.begin_run(lease, refreshed=[USERS], streams=[ORDERS])
        assert store.begin_run(lease, refreshed=[USERS], streams=[ORDERS]) == first

    def test_generations_are_counted_by_partition(self, store: StateStore, lease: Lease) -> None:
        store.begin_run(lease, refreshed=[USERS], streams=[], partition="2026-01")
        store.release(lease)
        other = store.begin_run(self.acquired(store, "run-2"), refreshed=[], streams=[USERS], partition="2026-02")
        assert other.generations == {USERS: 0}

    def test_what_the_attempts_of_a_run_told_is_kept_in_their_order(self, store: StateStore, lease: Lease) -> None:
        first = lease.holder
        for report in ("first", "second"):
            store.begin_run(lease, refreshed=[], streams=[USERS])
            store.end_run(lease, status="failed", report=report)
            store.release(lease)
            lease = store.acquire("shop", run_id=lease.run_id, holder="again", seconds=60)
        store.begin_run(lease, refreshed=[], streams=[USERS])
        assert store.reports("shop", lease.run_id) == ["first", "second"]
        assert store.reports("shop", "another") == store.reports("other", lease.run_id) == []
        assert store.runners("shop", lease.run_id) == [first, "again", "again"]
        assert store.runners("shop", "another") == store.runners("other", lease.run_id) == []

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

    # Loads

    def test_announced_loads_are_found_again_oldest_first_and_exact(self, store: StateStore, lease: Lease) -> None:
        odd = State(StateScope.GLOBAL, b'{"odd": "\xff\x00 \\u0000 \xc3\xa4"}', is_reset=True)
        loads = [load_of("z", stream_state(ORDERS, '{ "spaced" : 1 }'), odd, paths=("a/1", "a/2")), load_of("a")]
        for load in loads:
            store.announce(lease, load)
        assert store.announced("shop") == loads
        assert store.announced("mine") == []

    def test_announcing_the_same_load_again_is_once(self, store: StateStore, lease: Lease) -> None:
        store.announce(lease, load_of("one"))
        store.announce(lease, load_of("one"))
        assert store.announced("shop") == [load_of("one")]
        with pytest.raises(InternalError, match="another load has its id"):
            store.announce(lease, load_of("one", stream_state(USERS, "other")))

    def test_promoting_moves_states_and_ends_the_load(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        states = stream_state(USERS, "u"), stream_state(ORDERS, "o")
        load = load_of("one", *states, paths=("p",))
        store.announce(lease, load)
        clock.advance(5)
        store.promote(lease, load, states, [committed_users()])
        assert set(self.standing(store)) == set(states)
        assert {(stored.version, stored.changed_at, stored.run_id) for stored in store.states("shop")} == {
            (1, clock.now, "run-1")
        }
        logged = store.load("one")
        assert logged is not None
        assert logged == store.loads("shop")[0]
        assert (logged.load, logged.status, logged.committed) == (load, LoadStatus.DONE, (committed_users(),))
        assert (logged.announced_at, logged.ended_at) == (clock.now - timedelta(seconds=5), clock.now)
        assert store.announced("shop") == []

    def test_promoting_only_some_states_leaves_the_others(self, store: StateStore, lease: Lease) -> None:
        load = load_of("one", stream_state(USERS, "u"), stream_state(ORDERS, "o"))
        store.announce(lease, load)
        store.promote(lease, load, [stream_state(ORDERS, "o")], [])
        assert self.standing(store) == [stream_state(ORDERS, "o")]

    def test_promoting_a_done_load_changes_nothing(self, store: StateStore, lease: Lease) -> None:
        old, new = load_of("old", stream_state(USERS, "old")), load_of("new", stream_state(USERS, "new"))
        self.promoted(store, lease, old)
        self.promoted(store, lease, new)
        store.promote(lease, old, old.states, [committed_users("other")])
        assert self.standing(store) == [stream_state(USERS, "new")]
        assert len(store.history("shop")) == 2

    def test_a_load_without_states_moves_no_version(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("one"))
        assert store.history("shop") == []

    def test_a_dropped_load_is_no_more(self, store: StateStore, lease: Lease) -> None:
        load = load_of("one", stream_state(USERS, "u"))
        store.announce(lease, load)
        store.drop(lease, load, "its table is gone")
        store.drop(lease, load, "again")
        logged = store.load("one")
        assert logged is not None
        assert (logged.status, logged.reason) == (LoadStatus.DROPPED, "its table is gone")
        with pytest.raises(InternalError, match="it is dropped already"):
            store.promote(lease, load, load.states, [])
        assert self.standing(store) == []

    def test_a_load_that_was_never_announced_cannot_end(self, store: StateStore, lease: Lease) -> None:
        with pytest.raises(InternalError, match="never announced"):
            store.promote(lease, load_of("one"), [], [])
        with pytest.raises(InternalError, match="never announced"):
            store.drop(lease, load_of("one"), "")
        assert store.load("one") is None

    def test_loads_are_listed_newest_first(self, store: StateStore, lease: Lease) -> None:
        for load_id in ("a", "b", "c"):
            self.promoted(store, lease, load_of(load_id))
        assert [logged.load.load_id for logged in store.loads("shop", limit=2)] == ["c", "b"]

    def test_a_sweep_must_leave_the_files_of_announced_and_done_loads(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("done", paths=("d1", "d2")))
        store.announce(lease, load_of("announced", paths=("a",)))
        dropped = load_of("dropped", paths=("x",))
        store.announce(lease, dropped)
        store.drop(lease, dropped, "")
        store.announce(lease, load_of("of another run", run_id="run-2", paths=("o",)))
        assert store.files("shop", "run-1") == {"d1", "d2", "a"}

    def test_a_recovered_load_is_told_from_a_synced_one(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        self.promoted(store, lease, load_of("one", stream_state(USERS, "1")))
        load = load_of("two", stream_state(USERS, "2"))
        store.announce(lease, load)
        store.promote(self.taken_over(store, clock, "run-2"), load, load.states, [])
        told = [(change.why, change.who, change.run_id) for change in store.history("shop")]
        assert told == [("recover", "run-2 on host", "run-1"), ("sync", "run-1 on host", "run-1")]

    # States

    def test_states_of_partitions_stand_side_by_side(self, store: StateStore, lease: Lease) -> None:
        for month in ("", "2026-01", "2026-02"):
            self.promoted(store, lease, load_of(f"load{month}", stream_state(USERS, month)), month)
        assert self.standing(store, "2026-01") == [stream_state(USERS, "2026-01")]
        assert self.standing(store) == [stream_state(USERS, "")]
        assert {stored.partition for stored in store.states("shop", partition=None)} == {"", "2026-01", "2026-02"}

    @pytest.mark.parametrize("scope", [StateScope.GLOBAL, StateScope.LEGACY])
    def test_a_shared_state_takes_the_place_of_those_of_streams(
        self, store: StateStore, lease: Lease, scope: StateScope
    ) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        self.promoted(store, lease, load_of("jan", stream_state(USERS, "jan")), "2026-01")
        self.promoted(store, lease, load_of("b", shared_state("all", scope)))
        assert self.standing(store) == [shared_state("all", scope)]
        assert self.standing(store, "2026-01") == [stream_state(USERS, "jan")]
        assert {(one.stream, one.state) for one in store.history("shop") if one.version == 3} == {
            (None, shared_state("all", scope)),
            (USERS, None),
            (ORDERS, None),
        }

    def test_a_streams_state_takes_the_place_of_a_shared_one(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", shared_state("all", StateScope.LEGACY)))
        self.promoted(store, lease, load_of("b", stream_state(USERS, "u")))
        assert self.standing(store) == [stream_state(USERS, "u")]
        store.rollback(lease, 1, who="me")
        assert self.standing(store) == [shared_state("all", StateScope.LEGACY)]

    def test_a_global_state_follows_a_legacy_one_in_one_place(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", shared_state("old", StateScope.LEGACY)))
        self.promoted(store, lease, load_of("b", shared_state("new")))
        assert self.standing(store) == [shared_state("new")]

    def test_a_state_that_asks_to_start_anew_is_a_reset(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        reset = State(StateScope.STREAM, b"{}", USERS, is_reset=True)
        self.promoted(store, lease, load_of("b", reset))
        assert self.standing(store) == [stream_state(ORDERS, "o")]
        newest = store.history("shop", limit=1)[0]
        assert (newest.stream, newest.state, newest.why) == (USERS, None, "sync")

    def test_no_namespace_and_an_empty_one_are_the_same(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(StreamId("", "users"), "old")))
        self.promoted(store, lease, load_of("b", stream_state(StreamId(None, "users"), "new")))
        assert self.standing(store) == [stream_state(USERS, "new")]

    def test_messages_come_back_byte_for_byte(self, store: StateStore, lease: Lease) -> None:
        message = b'{"b" :1,"a":"\\u0000\xff\x00"}\r'
        state = State(StateScope.STREAM, message, USERS)
        self.promoted(store, lease, load_of("a", state))
        assert self.standing(store) == [state]

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
        assert self.standing(store) == [stream_state(USERS, "by hand")]
        assert store.history("shop")[0] == change

    def test_to_reset_the_whole_resets_every_stream_of_the_partition(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        self.promoted(store, lease, load_of("jan", stream_state(USERS, "jan")), "2026-01")
        change = store.change_state(lease, None, None, who="ann")
        assert (change.stream, change.state, change.why) == (None, None, "reset")
        assert self.standing(store, None) == [stream_state(USERS, "jan")]

    def test_one_stream_cannot_be_taken_out_of_a_shared_state(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", shared_state("all")))
        with pytest.raises(ConfigError, match="state reset shop"):
            store.change_state(lease, USERS, None, who="ann")
        assert self.standing(store) == [shared_state("all")]

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
        assert self.standing(store) == [stream_state(USERS, "3")]

    def test_a_rollback_to_what_stands_changes_nothing(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        assert store.rollback(lease, 1, who="ann") == []
        assert len(store.history("shop")) == 1

    @pytest.mark.parametrize("version", [-1, 2])
    def test_a_rollback_to_no_version_is_refused(self, store: StateStore, lease: Lease, version: int) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        with pytest.raises(ConfigError, match=f"no version {version}"):
            store.rollback(lease, version, who="ann")

    @pytest.mark.parametrize("seed", range(2))
    def test_any_version_can_be_gone_back_to(self, store: StateStore, lease: Lease, seed: int) -> None:
        chance = random.Random(seed)
        pictures: dict[int, set[tuple[str, State]]] = {0: set()}
        for step in range(15):
            self.change_anything(store, lease, chance, f"{seed}-{step}")
            version = max((one.version for one in store.history("shop")), default=0)
            picture = {(stored.partition, stored.state) for stored in store.states("shop", partition=None)}
            assert pictures.setdefault(version, picture) == picture
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
                store.change_state(lease, None, None, who="ann", partition=partition)
            case _:
                newest = max((one.version for one in store.history("shop")), default=0)
                store.rollback(lease, chance.randint(0, newest), who="ann")

    def test_connections_know_nothing_of_each_other(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        other = self.acquired(store, "run-2", "mine")
        store.change_state(other, USERS, stream_state(USERS, "mine"), who="ann")
        assert self.standing(store) == [stream_state(USERS, "u")]
        assert store.states("mine")[0].version == 1
        assert store.connections() == ["mine", "shop"]

    # Configs

    def test_the_config_that_the_connector_made_is_kept(self, store: StateStore, lease: Lease) -> None:
        assert store.config("shop") is None
        store.keep_config(lease, {"token": "one"}, based_on="a")
        store.keep_config(lease, {"token": "two", "at": {"n": [1, None, "ä"]}}, based_on="b")
        assert store.config("shop") == KeptConfig({"token": "two", "at": {"n": [1, None, "ä"]}}, "b")

    # Durability and threads

    def test_another_handle_sees_all_of_it(
        self, store: StateStore, lease: Lease, open_store: OpenStore, clock: HandClock
    ) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u")))
        store.keep_config(lease, {"token": 1}, based_on="a")
        assert self.picture(open_store(clock), lease) == self.picture(store, lease)

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
        assert self.standing(store) == [stream_state(USERS, "19")]

    # What streams look like

    def test_shapes_are_kept_and_their_changes_noted(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        assert (store.shapes("shop"), store.stream_changes("shop")) == ({}, [])
        odd = msgspec.structs.replace(
            shape_of("id", "Größe 🙂"), withheld={"a.b": ("", "string")}, key=(("a", "b"),), formerly={"x": "y"}
        )
        store.keep_shapes(lease, {USERS: shape_of("id"), ORDERS: odd}, [(ORDERS, Change(What.STREAM_BACK))])
        assert store.shapes("shop") == {USERS: shape_of("id"), ORDERS: odd}
        clock.advance(5)
        added = Change(What.COLUMN_ADDED, "email", "", "string")
        store.keep_shapes(lease, {USERS: shape_of("id", "email")}, [(USERS, added), (USERS, Change(What.KEY_CHANGED))])
        assert store.shapes("shop") == {USERS: shape_of("id", "email"), ORDERS: odd}
        noted = store.stream_changes("shop")
        assert [(each.stream, each.change.what.value) for each in noted] == [
            (USERS, "key_changed"),
            (USERS, "column_added"),
            (ORDERS, "stream_back"),
        ]
        assert (noted[1].change, noted[1].changed_at, noted[1].run_id) == (added, clock.now, "run-1")
        assert store.stream_changes("shop", limit=1) == noted[:1]
        assert (store.shapes("other"), store.stream_changes("other")) == ({}, [])

    # Generations that lie aside

    def test_a_generation_is_open_from_its_first_announcement_until_it_is_published(
        self, store: StateStore, lease: Lease
    ) -> None:
        first, second = aside_load("l1", "{1}"), aside_load("l2", "{2}", after="l1")
        store.announce(lease, first)
        [begun] = store.open_generations("shop")
        assert (begun.stream, begun.generation_id, begun.table) == (USERS, 2, TableName("shop", "users"))
        assert (begun.branch, begun.likeness, begun.load_id, begun.state) == ("branch-2", "as it is", "", None)
        for load in (first, second):
            self.promoted(store, lease, load)
            [begun] = store.open_generations("shop")
            assert begun.load_id == load.load_id
            assert begun.state == load.resume_points[0].state
        assert store.announced("shop") == []
        assert self.standing(store) == []
        assert store.load("l2") is not None
        self.promoted(store, lease, aside_load("l3", "{3}", after="l2", publishes=True))
        assert store.open_generations("shop") == []
        assert self.standing(store) == [stream_state(USERS, "{3}")]

    def test_a_refused_load_gives_no_point_to_go_on_from(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, aside_load("l1", "{1}"))
        refused = aside_load("l2", "{2}", after="l1")
        store.announce(lease, refused)
        store.promote(lease, refused, [], [])
        [begun] = store.open_generations("shop")
        assert (begun.load_id, begun.state) == ("l1", stream_state(USERS, "{1}"))

    def test_rows_that_no_state_covers_leave_no_point_to_go_on_from(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, aside_load("l1", "{1}"))
        self.promoted(store, lease, msgspec.structs.replace(aside_load("l2", "", after="l1"), resume_points=()))
        [begun] = store.open_generations("shop")
        assert (begun.load_id, begun.state) == ("l2", None)

    def test_a_state_alone_moves_the_point_to_go_on_from(self, store: StateStore, lease: Lease) -> None:
        self.promoted(store, lease, aside_load("l1", "{1}"))
        point = ResumePoint(2, stream_state(USERS, "{2}"))
        self.promoted(store, lease, Load("l2", "shop", "run-1", (), (), (point,)))
        [begun] = store.open_generations("shop")
        assert (begun.load_id, begun.state) == ("l1", point.state)

    @pytest.mark.parametrize("ended_by", ["run", "reset", "set", "reset of all", "rollback"])
    def test_what_is_not_gone_on_with_is_dead_until_it_is_forgotten(
        self, store: StateStore, lease: Lease, clock: HandClock, ended_by: str
    ) -> None:
        self.promoted(store, lease, aside_load("l1", "{1}"))
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

    def test_a_run_that_goes_on_with_a_generation_keeps_its_number(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        for _ in range(2):
            lease = self.taken_over(store, clock, lease.run_id)
            store.begin_run(lease, refreshed=[USERS], streams=[USERS])
        self.promoted(store, lease, aside_load("l1", "{1}"))
        lease = self.taken_over(store, clock, "run-2")
        start = store.begin_run(lease, refreshed=[ORDERS], streams=[USERS, ORDERS], continued=[USERS])
        assert start.generations == {USERS: 2, ORDERS: 1}
        store.change_state(lease, ORDERS, None, who="me")
        assert [each.state for each in store.open_generations("shop")] == [stream_state(USERS, "{1}")]
