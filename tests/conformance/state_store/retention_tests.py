"""Tests of the pruning of old history."""

from collections import Counter
from itertools import count

import pytest

from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.evolution import ChangeKind, SchemaChange
from tests.conformance.state_store.fixtures import (
    ORDERS,
    USERS,
    HandClock,
    StoreFixtures,
    branch_load,
    load_of,
    profile_of,
    stream_state,
)

_DAY = 86400.0


class RetentionTests(StoreFixtures):
    """What is old is pruned; what is needed stays."""

    def _history(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        """Versions 1 to 5, one a day. Orders moved in the first alone, users in each."""
        self.promoted(store, lease, load_of("l1", stream_state(USERS, "1"), stream_state(ORDERS, "o"), paths=("f1",)))
        for number in range(2, 6):
            clock.advance(_DAY)
            self.promoted(store, lease, load_of(f"l{number}", stream_state(USERS, str(number)), paths=(f"f{number}",)))

    def test_versions_from_before_are_folded_into_one(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        self._history(store, lease, clock)
        for _ in range(2):
            store.prune_history(lease, days=2.5)
            assert {(each.version, each.state) for each in store.history("shop")} == {
                *((number, stream_state(USERS, str(number))) for number in range(2, 6)),
                (2, stream_state(ORDERS, "o")),
            }
        assert self.current_states(store) == [stream_state(USERS, "5"), stream_state(ORDERS, "o")]

    @pytest.mark.parametrize("version", [2, 3, 5])
    def test_a_rollback_goes_to_each_version_that_is_kept(
        self, store: StateStore, lease: Lease, clock: HandClock, version: int
    ) -> None:
        self._history(store, lease, clock)
        store.prune_history(lease, days=2.5)
        store.rollback(lease, version, who="me")
        assert self.current_states(store) == [stream_state(USERS, str(version)), stream_state(ORDERS, "o")]

    @pytest.mark.parametrize("version", [0, 1])
    def test_a_rollback_to_an_older_version_is_refused(
        self, store: StateStore, lease: Lease, clock: HandClock, version: int
    ) -> None:
        self._history(store, lease, clock)
        before = store.history("shop")
        store.prune_history(lease, days=100)
        assert store.history("shop") == before
        store.prune_history(lease, days=2.5)
        with pytest.raises(ConfigError, match=f"version {version} is no longer kept; the oldest is 2"):
            store.rollback(lease, version, who="me")

    def test_what_grows_old_waits_while_many_states_have_been_folded(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        streams = [StreamId.of(f"s{number}") for number in range(1100)]
        numbers = count(1)

        def versions(*moved: StreamId) -> list[tuple[int, int]]:
            number = next(numbers)
            self.promoted(store, lease, load_of(f"l{number}", *(stream_state(each, str(number)) for each in moved)))
            clock.advance(_DAY)
            store.prune_history(lease, days=0.5)
            return sorted(Counter(each.version for each in store.history("shop", limit=9999)).items())

        assert versions(*streams) == [(1, 1100)]
        assert versions(*streams[:99]) == [(1, 1100), (2, 99)]
        assert versions(*streams[:2]) == [(3, 1100)]
        store.rollback(lease, 3, who="me")
        assert [each.state for each in store.states("shop") if each.state.stream == streams[500]] == [
            stream_state(streams[500], "1")
        ]

    def test_loads_and_changes_of_versions_that_wait_stay_with_these(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        """A rollback with tables may still go to such a version. Without the load that a table had then, it would take
        the table for one that had no rows; without the changes since, its texts for those of today."""
        streams = [StreamId.of(f"s{number}") for number in range(1100)]
        numbers = count(1)

        def left(*moved: StreamId) -> tuple[list[str], int]:
            number = next(numbers)
            gone = USERS, SchemaChange(ChangeKind.STREAM_GONE)
            store.save_stream_profiles(lease, {USERS: profile_of("id")}, [gone])
            self.promoted(store, lease, load_of(f"l{number}", *(stream_state(each, str(number)) for each in moved)))
            clock.advance(_DAY)
            store.prune_history(lease, days=0.5)
            return [each.load.load_id for each in store.loads("shop")], len(store.stream_changes("shop"))

        assert left(*streams) == (["l1"], 0)
        assert left(*streams[:60]) == (["l2", "l1"], 1)
        assert left(*streams[:30]) == (["l3", "l2", "l1"], 2)
        assert left(*streams[:20]) == (["l4"], 0)

    def test_a_reset_stays_a_reset(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        self.promoted(store, lease, load_of("a", stream_state(USERS, "u"), stream_state(ORDERS, "o")))
        store.change_state(lease, USERS, None, who="me")
        clock.advance(_DAY)
        self.promoted(store, lease, load_of("b", stream_state(USERS, "v")))
        store.prune_history(lease, days=0.5)
        store.rollback(lease, 2, who="me")
        assert self.current_states(store) == [stream_state(ORDERS, "o")]

    def test_everything_may_be_old(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        self._history(store, lease, clock)
        clock.advance(9 * _DAY)
        store.prune_history(lease, days=1)
        assert {each.version for each in store.history("shop")} == {5}
        self.promoted(store, lease, load_of("l6", stream_state(USERS, "6")))
        store.rollback(lease, 5, who="me")
        assert self.current_states(store) == [stream_state(USERS, "5"), stream_state(ORDERS, "o")]

    def test_the_newest_old_load_of_a_table_stays(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        self._history(store, lease, clock)
        store.prune_history(lease, days=2.5)
        assert [each.load.load_id for each in store.loads("shop")] == ["l5", "l4", "l3", "l2"]
        clock.advance(9 * _DAY)
        store.prune_history(lease, days=1)
        assert [each.load.load_id for each in store.loads("shop")] == ["l5"]
        assert store.landed_tables("shop")[USERS].load_id == "l5"

    def test_a_load_that_a_person_said_has_landed_stays_and_so_does_the_one_before(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        """The table may name either as its newest one."""
        self.promoted(store, lease, load_of("before"))
        store.announce(lease, load_of("said"))
        store.resolve(lease, load_of("said"), (), [], Resolution(as_landed=True, who="ann"))
        clock.advance(9 * _DAY)
        store.prune_history(lease, days=1)
        assert [each.load.load_id for each in store.loads("shop")] == ["said", "before"]
        self.promoted(store, lease, load_of("after"))
        clock.advance(9 * _DAY)
        store.prune_history(lease, days=1)
        assert [each.load.load_id for each in store.loads("shop")] == ["after"]

    def test_an_announced_load_and_those_of_a_run_that_is_not_swept_stay(
        self, store: StateStore, lease: Lease, clock: HandClock
    ) -> None:
        store.note_folders(lease, ["folder"])
        self._history(store, lease, clock)
        store.announce(lease, load_of("open"))
        clock.advance(9 * _DAY)
        store.prune_history(lease, days=1)
        assert store.referenced_files("shop", "run-1") == {"f1", "f2", "f3", "f4", "f5"}
        assert [load.load_id for load in store.announced_loads("shop")] == ["open"]

    def test_the_load_of_an_open_generation_stays(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        store.begin_run(lease, refreshed=[USERS], streams=[USERS])
        self.promoted(store, lease, branch_load("b1", "1"))
        clock.advance(9 * _DAY)
        store.prune_history(lease, days=1)
        assert store.load("b1") is not None
        [generation] = store.open_generations("shop")
        assert generation.load_id == "b1"

    def test_reports_and_recorded_changes_are_pruned_but_for_the_newest_report(
        self, store: StateStore, clock: HandClock
    ) -> None:
        for run_id in ("run-1", "run-2"):
            lease = self.acquired(store, run_id)
            store.begin_run(lease, refreshed=[], streams=[USERS])
            store.save_stream_profiles(
                lease, {USERS: profile_of("id")}, [(USERS, SchemaChange(ChangeKind.STREAM_GONE))]
            )
            store.end_run(lease, status="complete", report=run_id)
            clock.advance(_DAY)
            store.prune_history(lease, days=0.5)
            store.release(lease)
        assert store.reports("shop", "run-1") == []
        assert [run.run_id for run in store.runs("shop")] == ["run-2"]
        assert store.newest_report("shop") == "run-2"
        assert store.stream_changes("shop") == []
        assert list(store.stream_profiles("shop")) == [USERS]

    def test_other_connections_keep_theirs(self, store: StateStore, lease: Lease, clock: HandClock) -> None:
        self._history(store, lease, clock)
        before = store.history("shop"), store.loads("shop")
        other = self.acquired(store, "run-1", "other")
        store.prune_history(other, days=0)
        assert (store.history("shop"), store.loads("shop")) == before
