"""Conformance tests of a StateStore: the states of transforms, which move with the rows that they are about."""

from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.checkpoints.transform_states import stored_transform_states
from dagster_airbyte_proto.loads.load import BranchPosition, Load, TransformState
from dagster_airbyte_proto.model import State, StateScope, WriteMode
from dagster_airbyte_proto.sync.maintenance.landed_loads import VersionTimes
from tests.conformance.state_store.fixtures import (
    USERS,
    HandClock,
    StoreFixtures,
    committed_users,
    load_of,
    shared_state,
    stream_state,
)

SHARED = [StateScope.GLOBAL, StateScope.LEGACY]


def counted(load_id: str, rows: int, *states: State, **changes: Any) -> Load:
    """A load after which a transform has counted so many rows; without rows it keeps nothing."""
    kept = (TransformState("tally", "", {"rows": str(rows)}),) if rows else ()
    load = load_of(load_id, *states)
    part = msgspec.structs.replace(load.parts[0], write=WriteMode.APPEND, transform_states=kept, **changes)
    return msgspec.structs.replace(load, parts=(part,))


class TransformStateTests(StoreFixtures):
    @pytest.fixture
    def keeper(self, store: DeliveryStore) -> DeliveryStore:
        return store

    def count(self, keeper: DeliveryStore, generation: int | None = None) -> int:
        states = stored_transform_states(keeper, Asset("shop", USERS), generation)
        return sum(int(each.values["rows"]) for each in states)

    @pytest.mark.parametrize("scope", SHARED)
    def test_a_rollback_finds_a_shared_state_and_those_of_transforms_together(
        self, keeper: DeliveryStore, lease: Lease, clock: HandClock, scope: StateScope
    ) -> None:
        for rows in (3, 5):
            clock.advance(1)
            self.promoted(keeper, lease, counted(f"l{rows}", rows, shared_state(f"[{rows}]", scope)))
        first, second = reversed(keeper.loads("shop"))
        times = VersionTimes(keeper, "shop")
        versions = [each.version for each in keeper.history("shop") if each.stream is None]
        assert [times.of(second), times.of(first)] == versions
        assert {each.version for each in keeper.history("shop")} == set(versions)
        keeper.rollback(lease, versions[1], who="ann")
        assert (self.current_states(keeper), self.count(keeper)) == ([shared_state("[3]", scope)], 3)

    @pytest.mark.parametrize("state", [shared_state("[5]"), shared_state("[5]", SHARED[1]), stream_state(USERS, "[5]")])
    def test_a_load_that_landed_by_the_word_of_a_person_moves_them(
        self, keeper: DeliveryStore, lease: Lease, state: State
    ) -> None:
        load = counted("l5", 5, state)
        keeper.announce(lease, load)
        keeper.resolve(lease, load, [state], [], Resolution(as_landed=True, who="ann"))
        assert self.count(keeper) == 5

    def test_the_log_of_loads_has_no_copy_of_them(self, keeper: DeliveryStore, lease: Lease) -> None:
        load = counted("l5", 5)
        keeper.announce(lease, load)
        assert keeper.announced_loads("shop") == [load]
        for _ in range(2):  # The outcome of the first call may have been unknown.
            keeper.promote(lease, load, (), [committed_users()])
        [logged] = keeper.loads("shop")
        assert (self.count(keeper), logged.load.parts[0].transform_states) == (5, ())
        assert msgspec.structs.replace(load.parts[0], transform_states=()) == logged.load.parts[0]

    def test_a_load_that_is_lost_moves_none(self, keeper: DeliveryStore, lease: Lease) -> None:
        load = counted("l5", 5)
        keeper.announce(lease, load)
        keeper.resolve(lease, load, [], [], Resolution(as_landed=False, who="ann"))
        assert self.count(keeper) == 0

    @pytest.mark.parametrize("position", [None, BranchPosition("branch-3", None, publishes=True)])
    @pytest.mark.parametrize("rows", [0, 3])
    def test_rows_that_replace_all_others_leave_none_of_these(
        self, keeper: DeliveryStore, lease: Lease, rows: int, position: BranchPosition | None
    ) -> None:
        """Also where the new state is equal to the old one."""
        self.promoted(keeper, lease, counted("l3", 3))
        assert self.count(keeper) == 3
        new = counted("l4", rows, generation_id=3, branch_position=position)
        part = msgspec.structs.replace(new.parts[0], write=WriteMode.OVERWRITE)
        self.promoted(keeper, lease, msgspec.structs.replace(new, parts=(part,)))
        assert (self.count(keeper), self.count(keeper, 3)) == (rows, rows)

    def test_those_of_a_branch_end_when_rows_come_in_its_place(self, keeper: DeliveryStore, lease: Lease) -> None:
        self.promoted(keeper, lease, counted("l3", 3))
        on_branch = BranchPosition("branch-3", None)
        self.promoted(keeper, lease, counted("b9", 9, generation_id=3, branch_position=on_branch))
        assert (self.count(keeper), self.count(keeper, 3)) == (3, 9)
        self.promoted(keeper, lease, counted("l5", 5))
        assert (self.count(keeper), self.count(keeper, 3)) == (5, 0)

    def test_the_last_part_of_a_branch_shows_them_without_rows_of_its_own(
        self, keeper: DeliveryStore, lease: Lease
    ) -> None:
        self.promoted(keeper, lease, counted("l3", 3))
        self.promoted(keeper, lease, counted("b9", 9, generation_id=3, branch_position=BranchPosition("b", None)))
        last = BranchPosition("b", "b9", publishes=True)
        keeper.announce(lease, load := counted("b10", 0, generation_id=3, branch_position=last))
        keeper.promote(lease, load, (), [committed_users()])
        assert self.count(keeper) == self.count(keeper, 3) == 9
