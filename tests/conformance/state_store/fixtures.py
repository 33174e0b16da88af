"""The fixtures, values and clock of the state store tests."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.loads.load import (
    BranchPosition,
    CommittedRows,
    FileContent,
    Load,
    ResumePoint,
    StagedFile,
    StagedRows,
)
from dagster_airbyte_proto.model import ColumnName, State, StateScope, StreamId, TableName, WriteMode
from dagster_airbyte_proto.schema.stream_profile import StreamProfile

LOST = Resolution(as_landed=False, who="ann")
USERS, ORDERS = StreamId.of("users"), StreamId.of("orders", "eu")


class HandClock:
    """A clock that a test moves by hand."""

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


def profile_of(*names: str) -> StreamProfile:
    table = TableName("shop", "users")
    named = tuple(ColumnName((name,), name) for name in names)
    return StreamProfile(table, table, named, dict.fromkeys(names, "string"), is_known=True)


def branch_load(load_id: str, text: str, *, after: str | None = None, publishes: bool = False) -> Load:
    """Users of generation 2 on their branch, with a state from which the generation can be resumed."""
    position = BranchPosition("branch-2", after, publishes, "as it is")
    part = StagedRows(
        USERS, TableName("shop", "users"), WriteMode.OVERWRITE, 2, emitted=3, rows=3, branch_position=position
    )
    points = () if publishes else (ResumePoint(2, stream_state(USERS, text)),)
    return Load(load_id, "shop", "run-1", (part,), (stream_state(USERS, text),) if publishes else (), points)


def committed_users(snapshot_id: str = "7") -> CommittedRows:
    return CommittedRows(USERS, snapshot_id, was_there=False, deleted=1, table_rows=9)


class StoreFixtures:
    """The fixtures and helpers of all state store tests. A subclass provides the fixture `open_store`."""

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
    def current_states(store: StateStore, partition: str | None = "") -> list[State]:
        return [stored.state for stored in store.states("shop", partition=partition)]

    @staticmethod
    def stored_values(store: StateStore, lease: Lease) -> tuple[object, ...]:
        folders = store.unfinished_folders(lease)
        return store.states("shop"), store.history("shop"), store.loads("shop"), store.stored_config("shop"), folders
