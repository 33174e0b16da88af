"""Where state lives: the interface. Everything that changes state names the lease it holds.

One run at a time holds a connection. A lease has a fence number that only ever grows; a call with an old fence
raises StateConflict and changes nothing, so a run that slept through its lease can do no harm.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.model import CommittedRows, Load, State, StreamId


class Lease(NamedTuple):
    connection: str
    run_id: str
    holder: str
    fence: int
    expires_at: datetime


class RunStart(NamedTuple):
    """What a run is given by the store: its number in the connection, and each stream's generation."""

    sync_id: int
    generations: Mapping[StreamId, int]


class LoadStatus(StrEnum):
    ANNOUNCED = "announced"
    DONE = "done"
    DROPPED = "dropped"


class LoggedLoad(NamedTuple):
    load: Load
    status: LoadStatus
    announced_at: datetime
    ended_at: datetime | None = None
    reason: str = ""
    committed: tuple[CommittedRows, ...] = ()


class StoredState(NamedTuple):
    """The current state of a stream in one partition, or of the connection as a whole (`stream` is None)."""

    state: State
    version: int
    changed_at: datetime
    run_id: str
    partition: str = ""


class StateChange(NamedTuple):
    """One entry of the history. `state` is None when it was reset. `why` is sync, set, reset, rollback or recover."""

    version: int
    stream: StreamId | None
    state: State | None
    changed_at: datetime
    who: str
    why: str
    run_id: str
    partition: str = ""


class StateStore(Protocol):
    """Raises StateConflict for a lost or refused lease, StateUnavailable when the database does not answer."""

    def acquire(self, connection: str, *, run_id: str, holder: str, seconds: float) -> Lease:
        """The connection's lease; a dead (expired) one is taken over. Raises StateConflict that names the holder."""
        ...

    def renew(self, lease: Lease, seconds: float) -> Lease: ...

    def release(self, lease: Lease) -> None: ...

    def begin_run(self, lease: Lease, *, refreshed: Sequence[StreamId], streams: Sequence[StreamId]) -> RunStart:
        """Numbers the run; streams in `refreshed` start a new generation."""
        ...

    def note_folders(self, lease: Lease, folders: Sequence[str]) -> None:
        """Writes down where the run is about to stage files, before the first is written."""
        ...

    def end_run(self, lease: Lease, *, status: str, report: str) -> None: ...

    def unfinished_folders(self, lease: Lease) -> Sequence[tuple[str, str]]:
        """(run id, folder) of every earlier run of the connection that never ended or ended badly."""
        ...

    def forget_folders(self, lease: Lease, run_id: str) -> None: ...

    def announce(self, lease: Lease, load: Load) -> None: ...

    def promote(self, lease: Lease, load: Load, states: Sequence[State], committed: Sequence[CommittedRows]) -> None:
        """One transaction: `states` move, history is kept, the load is done."""
        ...

    def drop(self, lease: Lease, load: Load, reason: str) -> None: ...

    def announced(self, connection: str) -> Sequence[Load]:
        """The loads that were written down and never finished, oldest first."""
        ...

    def loads(self, connection: str, *, limit: int = 100) -> Sequence[LoggedLoad]: ...

    def load(self, load_id: str) -> LoggedLoad | None: ...

    def connections(self) -> Sequence[str]: ...

    def states(self, connection: str, *, partition: str = "") -> Sequence[StoredState]: ...

    def history(self, connection: str, *, limit: int = 100) -> Sequence[StateChange]: ...

    def change_state(
        self, lease: Lease, stream: StreamId | None, state: State | None, *, who: str, why: str
    ) -> StateChange:
        """By hand: sets the state of a stream (or of the whole), or resets it when `state` is None."""
        ...

    def rollback(self, lease: Lease, version: int, *, who: str) -> Sequence[StateChange]:
        """All of the connection's states as they stood at `version`."""
        ...

    def config(self, connection: str) -> Mapping[str, Any] | None:
        """The config as the connector last rewrote it, with the `based_on` it was kept with; None when it never did."""
        ...

    def keep_config(self, lease: Lease, config: Mapping[str, Any], *, based_on: str) -> None:
        """Keeps what the connector made of its config. `based_on` is a digest of the user's own config."""
        ...
