"""Tests the ledger by example, and against a slow model that remembers every row and every state."""

import sys
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dagster_airbyte_proto.checkpoints.ledger import CountMismatch, Ledger
from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.model import State, StateScope, StreamId

USERS, ORDERS, ALL_ANEW = StreamId.of("users"), StreamId.of("orders", "eu"), StreamId.of("all_anew")
TRACKED = (USERS, ORDERS)


def stream_state(stream: StreamId, label: object = "") -> State:
    return State(StateScope.STREAM, f"{stream} {label}".encode(), stream)


def shared_state(label: object = "", scope: StateScope = StateScope.GLOBAL) -> State:
    return State(scope, f"{scope} {label}".encode())


def test_a_state_waits_for_its_rows() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 10)
    ledger.arrived(stream_state(USERS))
    assert ledger.freed_by({}) == ()
    assert ledger.freed_by({USERS: 9, ORDERS: 100}) == ()
    assert ledger.freed_by({USERS: 10}) == (stream_state(USERS),)


def test_rows_after_the_state_are_not_covered() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 10)
    ledger.arrived(stream_state(USERS))
    ledger.received(USERS, 5)
    assert ledger.covered(USERS) == 10
    assert ledger.covered(ORDERS) == 0


def test_of_several_free_states_only_the_newest_is_returned() -> None:
    ledger = Ledger(TRACKED)
    for label in range(3):
        ledger.received(USERS, 1)
        ledger.arrived(stream_state(USERS, label))
    assert ledger.freed_by({USERS: 3}) == (stream_state(USERS, 2),)


def test_a_state_that_has_moved_is_not_returned_again() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 1)
    ledger.arrived(stream_state(USERS))
    ledger.freed_by({USERS: 1})
    ledger.landed({USERS: 1})
    assert ledger.freed_by({}) == ()


def test_a_state_repeated_while_its_rows_land_is_returned_afterwards() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 1)
    ledger.arrived(stream_state(USERS, "first"))
    ledger.freed_by({USERS: 1})
    ledger.arrived(stream_state(USERS, "repeated"))
    ledger.landed({USERS: 1})
    assert ledger.freed_by({}) == (stream_state(USERS, "repeated"),)


def test_states_never_go_back_when_a_newer_one_came_while_rows_landed() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 1)
    ledger.arrived(stream_state(USERS, 1))
    ledger.freed_by({USERS: 1})
    ledger.received(USERS, 1)
    ledger.arrived(stream_state(USERS, 2))
    ledger.landed({USERS: 1})
    assert ledger.freed_by({}) == ()
    assert ledger.freed_by({USERS: 1}) == (stream_state(USERS, 2),)


@pytest.mark.parametrize("scope", [StateScope.GLOBAL, StateScope.LEGACY])
def test_a_shared_state_waits_for_every_tracked_stream_and_for_no_other(scope: StateScope) -> None:
    ledger = Ledger(TRACKED)
    for stream in (USERS, ORDERS, ALL_ANEW):
        ledger.received(stream, 2)
    ledger.arrived(shared_state(scope=scope))
    assert ledger.freed_by({USERS: 2}) == ()
    assert ledger.freed_by({USERS: 2, ORDERS: 2}) == (shared_state(scope=scope),)
    assert [ledger.covered(stream) for stream in (USERS, ORDERS, ALL_ANEW)] == [2, 2, 0]


def test_the_state_of_an_untracked_stream_is_never_free() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(ALL_ANEW, 2)
    ledger.arrived(stream_state(ALL_ANEW))
    assert ledger.freed_by({ALL_ANEW: 2}) == ()


def test_a_state_after_a_failure_does_not_count_and_one_before_it_does() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 2)
    ledger.arrived(stream_state(USERS, "before"))
    ledger.received(USERS, 2)
    ledger.failed(USERS)
    ledger.arrived(stream_state(USERS, "after"))
    assert ledger.covered(USERS) == 2
    assert ledger.freed_by({USERS: 4}) == (stream_state(USERS, "before"),)


def test_rows_of_a_failed_stream_block_the_shared_state() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 2)
    ledger.received(ORDERS, 2)
    ledger.failed(ORDERS)
    ledger.arrived(shared_state())
    assert ledger.freed_by({USERS: 2, ORDERS: 1}) == ()


def test_a_stream_that_lands_as_a_whole_blocks_its_states_until_it_is_completed() -> None:
    ledger = Ledger(TRACKED, whole=[USERS])
    ledger.arrived(stream_state(USERS, "of no row"))
    assert ledger.freed_by({}) == ()
    ledger.received(USERS, 2)
    assert ledger.freed_by({USERS: 2}) == ()
    ledger.completed(USERS)
    assert ledger.freed_by({USERS: 2}) == (stream_state(USERS, "of no row"),)


def test_a_stream_that_lands_as_a_whole_blocks_shared_states_too() -> None:
    ledger = Ledger(TRACKED, whole=[USERS])
    ledger.received(ORDERS, 2)
    ledger.arrived(shared_state())
    assert ledger.freed_by({ORDERS: 2}) == ()
    ledger.completed(USERS)
    assert ledger.freed_by({ORDERS: 2}) == (shared_state(),)


def test_landing_more_rows_than_were_received_is_an_internal_error_and_changes_nothing() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 2)
    ledger.arrived(stream_state(USERS))
    with pytest.raises(InternalError, match="0 \\+ 3 landed of 2 received"):
        ledger.landed({USERS: 3})
    assert ledger.freed_by({}) == ()


def test_the_source_counts_from_state_to_state() -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 4)
    assert ledger.arrived(stream_state(USERS), 4.0) is None
    assert ledger.arrived(stream_state(USERS), 0.0) is None
    ledger.received(USERS, 3)
    assert ledger.arrived(stream_state(USERS)) is None
    ledger.received(USERS, 2)
    assert ledger.arrived(stream_state(USERS), 5.0) == CountMismatch(USERS, 5.0, 2)


@pytest.mark.parametrize("source_count", [5.0, 12.0])
def test_a_shared_count_may_leave_out_untracked_streams(source_count: float) -> None:
    ledger = Ledger(TRACKED)
    ledger.received(USERS, 2)
    ledger.received(ORDERS, 3)
    ledger.received(ALL_ANEW, 7)
    assert ledger.arrived(shared_state(), source_count) is None
    assert ledger.arrived(shared_state(), 1.0) == CountMismatch(None, 1.0, 0)


def test_a_million_states_of_one_stream_do_not_pile_up() -> None:
    ledger = Ledger(TRACKED)
    message = b"one message for all of them"
    per_stream, shared = State(StateScope.STREAM, message, USERS), State(StateScope.GLOBAL, message)
    ledger.received(USERS, 10)
    ledger.arrived(per_stream)
    ledger.freed_by({USERS: 10})
    references = sys.getrefcount(per_stream), sys.getrefcount(shared)
    for _ in range(100_000):
        ledger.received(USERS, 10)
        ledger.arrived(per_stream)
        ledger.arrived(shared)
    assert sys.getrefcount(per_stream) - references[0] <= 1
    assert sys.getrefcount(shared) - references[1] <= 1


@pytest.mark.parametrize("tracked", [TRACKED, (ORDERS,)])
def test_a_generation_is_resumed_from_the_state_that_covers_exactly_what_landed(
    tracked: tuple[StreamId, ...],
) -> None:
    ledger = Ledger(tracked, whole=(USERS,) if USERS in tracked else (), resumable=(USERS,))
    assert ledger.resumable_by({}) == ()
    ledger.received(USERS, 5)
    ledger.arrived(stream_state(USERS, "first"))
    ledger.received(USERS, 3)
    assert [ledger.resumable_by({USERS: rows}) for rows in (4, 6)] == [(), ()]
    assert ledger.resumable_by({USERS: 5}) == (stream_state(USERS, "first"),)
    assert ledger.freed_by({USERS: 5}) == ()
    ledger.landed({USERS: 5})
    ledger.arrived(stream_state(USERS, "second"))
    assert ledger.resumable_by({}) == ()
    assert ledger.resumable_by({USERS: 3}) == (stream_state(USERS, "second"),)
    ledger.completed(USERS)
    free = (stream_state(USERS, "second"),) if USERS in tracked else ()
    assert (ledger.freed_by({USERS: 3}), ledger.resumable_by({USERS: 3}) == ()) == (free, USERS in tracked)


def test_no_generation_is_resumed_from_a_reset_a_shared_state_or_after_a_failure() -> None:
    ledger = Ledger(TRACKED, whole=TRACKED, resumable=TRACKED)
    ledger.arrived(State(StateScope.STREAM, b"null", USERS, is_reset=True))
    ledger.arrived(shared_state())
    ledger.failed(ORDERS)
    ledger.arrived(stream_state(ORDERS))
    assert ledger.resumable_by({}) == ()


class Covering(NamedTuple):
    """A state with every row that it covers."""

    state: State
    rows: frozenset[tuple[StreamId, int]]


streams = st.sampled_from((USERS, ORDERS, ALL_ANEW))


class AgainstTheModel(RuleBasedStateMachine):
    """Any order of rows, states, failures and loads. At most one load is being committed, as in a sync."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(TRACKED)
        self.rows: list[tuple[StreamId, int]] = []
        self.landed: set[tuple[StreamId, int]] = set()
        self.states: dict[StreamId | None, list[Covering]] = {None: [], USERS: [], ORDERS: []}
        self.failed: set[StreamId] = set()
        self.refused: set[StreamId] = set()
        self.at_work: dict[StreamId, int] | None = None
        self.given: tuple[State, ...] = ()
        self.labels = 0

    def count(self, stream: StreamId) -> int:
        return sum(1 for of, _ in self.rows if of == stream)

    def landed_of(self, stream: StreamId) -> int:
        return sum(1 for of, _ in self.landed if of == stream)

    def with_further(self, further: dict[StreamId, int]) -> set[tuple[StreamId, int]]:
        firsts = {stream: self.landed_of(stream) for stream in further}
        return self.landed | {
            (stream, firsts[stream] + number) for stream in further for number in range(further[stream])
        }

    def newest_free(self, key: StreamId | None, landed: set[tuple[StreamId, int]]) -> tuple[State, ...]:
        return tuple(one.state for one in self.states[key] if one.rows <= landed)[-1:]

    def cut(self, which: tuple[StreamId, ...]) -> dict[StreamId, int]:
        return {
            stream: self.ledger.covered(stream) - self.landed_of(stream)
            for stream in which
            if stream not in self.refused
        }

    @rule(stream=streams, number=st.integers(1, 4))
    def rows_come(self, stream: StreamId, number: int) -> None:
        first = self.count(stream)
        self.rows += [(stream, first + more) for more in range(number)]
        self.ledger.received(stream, number)

    @rule(stream=streams)
    def a_stream_state_comes(self, stream: StreamId) -> None:
        self.labels += 1
        state = stream_state(stream, self.labels)
        if stream in TRACKED and stream not in self.failed:
            covered = frozenset(row for row in self.rows if row[0] == stream)
            self.states[stream].append(Covering(state, covered))
        self.ledger.arrived(state)

    @rule()
    def a_shared_state_comes(self) -> None:
        self.labels += 1
        state = shared_state(self.labels)
        self.states[None].append(Covering(state, frozenset(row for row in self.rows if row[0] in TRACKED)))
        self.ledger.arrived(state)

    @rule(stream=streams)
    def a_stream_fails(self, stream: StreamId) -> None:
        self.failed.add(stream)
        self.ledger.failed(stream)

    @precondition(lambda self: self.at_work is None)
    @rule()
    def a_load_of_all_streams_is_cut(self) -> None:
        cut = self.cut(TRACKED)
        landed = self.with_further(cut)
        self.given = self.ledger.freed_by(cut)
        expected = {state for key in self.states for state in self.newest_free(key, landed)}
        # Where a table refuses, the rows of the newest state may never land, and it has replaced an older one.
        hit = {None, *self.refused} if self.refused else set()
        unsure = {state for state in expected if state.stream in hit}
        older = {one.state for key in hit for one in self.states[key] if one.rows <= landed}
        assert expected - unsure <= set(self.given) <= expected | older
        self.at_work = cut

    @precondition(lambda self: self.at_work is None)
    @rule(stream=st.sampled_from(TRACKED))
    def a_load_of_one_stream_is_cut(self, stream: StreamId) -> None:
        cut = self.cut((stream,))
        landed = self.with_further(cut)
        self.given = self.ledger.freed_by(cut)
        sure = {*TRACKED} - self.refused
        free = {one.state for key in sure for one in self.states[key] if one.rows <= landed}
        # Where the newest state has to wait, it may have replaced an older one while a load was being committed.
        newest = {self.states[key][-1].state for key in sure if self.states[key]}
        assert newest & free <= {state for state in self.given if state.stream in sure} <= free
        self.at_work = cut

    @precondition(lambda self: self.at_work is None)
    @rule(further=st.dictionaries(st.sampled_from(TRACKED), st.integers(0, 5)))
    def nothing_is_given_before_its_rows(self, further: dict[StreamId, int]) -> None:
        landed = self.with_further(further)
        covering = {one.state: one.rows for states in self.states.values() for one in states}
        given = self.ledger.freed_by(further)
        assert all(covering[state] <= landed for state in given)
        assert len({state.stream for state in given}) == len(given)

    @precondition(lambda self: self.at_work is not None)
    @rule(refused=st.sets(st.sampled_from(TRACKED), max_size=1))
    def the_load_is_in(self, refused: set[StreamId]) -> None:
        assert self.at_work is not None
        good = {stream: rows for stream, rows in self.at_work.items() if stream not in refused}
        for stream in refused & set(self.at_work):
            self.failed.add(stream)
            self.refused.add(stream)
            self.ledger.failed(stream)
        self.landed = self.with_further(good)
        self.ledger.landed(good)
        self.forget_what_moved()
        self.at_work = None

    def forget_what_moved(self) -> None:
        for key, states in self.states.items():
            moved = [at for at, one in enumerate(states) if one.state in self.given and one.rows <= self.landed]
            self.states[key] = states[moved[-1] + 1 :] if moved else states

    @invariant()
    def covered_is_where_the_newest_state_stands(self) -> None:
        for stream in TRACKED:
            assert self.landed_of(stream) <= self.ledger.covered(stream) <= self.count(stream)

    def teardown(self) -> None:
        if self.at_work is not None:
            self.the_load_is_in(set())
        self.a_load_of_all_streams_is_cut()
        self.the_load_is_in(set())
        if not self.refused:
            assert not any(self.states.values()), "every state moved once its rows were in"


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = settings(max_examples=60, stateful_step_count=30)
