"""Where state lives: the interface. Everything that changes state names the lease it holds.

One run at a time holds a connection. A lease has a fence number that only ever grows; a call with an old fence
raises StateConflict and changes nothing, so a run that slept through its lease can do no harm. The fence alone decides:
a lease that has run out and that nobody took is still its holder's, and expiry only permits the taking over.

In one partition of a connection stand either states of streams or one of the whole, never both: a connector is handed
one kind. The newest change decides, and what it displaces goes to the history as reset, from where a rollback
brings it back. All that one call changes has one version.

Every call is one transaction. All but `acquire` may be made again when nobody knows what became of it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.loads.load import CommittedRows, Load
from dagster_airbyte_proto.model import State, StreamId, TableName
from dagster_airbyte_proto.schema.evolution import Change
from dagster_airbyte_proto.schema.shape import StreamShape


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
    """One entry of the history. `state` is None when it was reset. `why` is sync, set, reset, rollback or recover;
    `run_id` is the run whose rows the state covers, and for a change by hand the run of the lease."""

    version: int
    stream: StreamId | None
    state: State | None
    changed_at: datetime
    who: str
    why: str
    run_id: str
    partition: str = ""


class KeptConfig(NamedTuple):
    """A config as the connector last rewrote it. `based_on` is the digest of the user's own config at that time."""

    config: Mapping[str, Any]
    based_on: str


class StreamChange(NamedTuple):
    """Something that changed in what a stream looks like, and the run that found it."""

    stream: StreamId
    change: Change
    changed_at: datetime
    run_id: str


class OpenGeneration(NamedTuple):
    """A generation of a stream, parts of which lie on a branch of its table. `load_id` landed there last, or is empty.
    With a `state`, which covers exactly what landed, it can be gone on with by a sync of the same `likeness`; else it
    is dead."""

    stream: StreamId
    generation_id: int
    table: TableName
    branch: str
    likeness: str
    load_id: str
    state: State | None
    changed_at: datetime


class StateStore(Protocol):
    """Raises StateConflict for a lost or refused lease, StateUnavailable when the database does not answer."""

    def acquire(
        self,
        connection: str,
        *,
        run_id: str,
        holder: str,
        seconds: float,
        is_dead: Callable[[str], bool] = ...,
    ) -> Lease:
        """The connection's lease. One that ran out is taken over, and one whose holder `is_dead`, which by default is
        known of nobody. Raises StateConflict that names the holder."""
        ...

    def renew(self, lease: Lease, seconds: float) -> Lease: ...

    def release(self, lease: Lease) -> None:
        """Gives the lease back. One that is lost already is no error: there is nothing to give back."""
        ...

    def holder(self, connection: str) -> Lease | None:
        """Who has the connection, be the lease run out or not. It may be another's by the time it is read."""
        ...

    def begin_run(
        self,
        lease: Lease,
        *,
        refreshed: Sequence[StreamId],
        streams: Sequence[StreamId],
        continued: Sequence[StreamId] = (),
        partition: str = "",
    ) -> RunStart:
        """Numbers the run; streams in `refreshed` start a new generation. Generations of both lists are returned.

        Open generations of these streams are dead from now on, but those of the `continued` ones.
        """
        ...

    def open_generations(self, connection: str) -> Sequence[OpenGeneration]: ...

    def forget_generation(self, lease: Lease, dropped: OpenGeneration) -> None:
        """Its branch is no more."""
        ...

    def note_folders(self, lease: Lease, folders: Sequence[str]) -> None:
        """Writes down where the run is about to stage files, before the first is written."""
        ...

    def end_run(self, lease: Lease, *, status: str, report: str) -> None:
        """Status "complete" says that nothing unreferenced is left: the folders that the run noted are forgotten."""
        ...

    def reports(self, connection: str, run_id: str) -> Sequence[str]:
        """What the attempts of a run told when they ended, oldest first. One that died told nothing."""
        ...

    def runners(self, connection: str, run_id: str) -> Sequence[str]:
        """The holders of the leases under which the attempts of a run began. Empty where no run of that id is known."""
        ...

    def unfinished_folders(self, lease: Lease) -> Sequence[tuple[str, str]]:
        """(run id, folder) noted under earlier leases of the connection, of runs that never ended or ended badly.

        A retry has the run id of the attempt before it, so a run id may be the caller's own.
        """
        ...

    def forget_folders(self, lease: Lease, run_id: str) -> None:
        """The run's folders of earlier leases are swept; what this lease noted stays."""
        ...

    def files(self, connection: str, run_id: str) -> frozenset[str]:
        """The paths of the files in the run's loads that are announced or done: what a sweep must leave."""
        ...

    def announce(self, lease: Lease, load: Load, *, partition: str = "") -> None:
        """Writes the load down. Its states will be those of `partition`."""
        ...

    def promote(self, lease: Lease, load: Load, states: Sequence[State], committed: Sequence[CommittedRows]) -> None:
        """One transaction: `states` move, history is kept, the load is done. Nothing when it is done already.

        The load's resume points are kept with the generations that they are of, but for streams that are not in
        `committed`.
        """
        ...

    def drop(self, lease: Lease, load: Load, reason: str) -> None:
        """Ends an announced load of which no table has a row. Nothing when it is dropped already."""
        ...

    def announced(self, connection: str) -> Sequence[Load]:
        """The loads that were written down and never finished, oldest first."""
        ...

    def loads(self, connection: str, *, limit: int = 100) -> Sequence[LoggedLoad]:
        """Newest first."""
        ...

    def load(self, load_id: str) -> LoggedLoad | None: ...

    def connections(self) -> Sequence[str]: ...

    def states(self, connection: str, *, partition: str | None = "") -> Sequence[StoredState]:
        """What a run of the partition is handed. None: those of every partition."""
        ...

    def history(self, connection: str, *, limit: int = 100) -> Sequence[StateChange]:
        """Newest first."""
        ...

    def change_state(
        self, lease: Lease, stream: StreamId | None, state: State | None, *, who: str, partition: str = ""
    ) -> StateChange:
        """By hand: sets the state of a stream (or of the whole), or resets it when `state` is None.

        To reset the whole resets every stream too. Refused with ConfigError while a load is announced, whose
        recovery would move the state once more, and for one stream of a connection whose state is of the whole.
        """
        ...

    def rollback(self, lease: Lease, version: int, *, who: str) -> Sequence[StateChange]:
        """All of the connection's states, in every partition, as they stood at `version`; what changed by it.

        Refused with ConfigError when there is no such version, or while a load is announced.
        """
        ...

    def config(self, connection: str) -> KeptConfig | None:
        """The config as the connector last rewrote it; None when it never did."""
        ...

    def keep_config(self, lease: Lease, config: Mapping[str, Any], *, based_on: str) -> None:
        """Keeps what the connector made of its config. `based_on` is a digest of the user's own config."""
        ...

    def shapes(self, connection: str) -> Mapping[StreamId, StreamShape]:
        """What the connection's streams looked like last, those of today and gone."""
        ...

    def keep_shapes(
        self, lease: Lease, shapes: Mapping[StreamId, StreamShape], changes: Sequence[tuple[StreamId, Change]] = ()
    ) -> None:
        """Keeps these shapes, and writes down what has changed for them."""
        ...

    def stream_changes(self, connection: str, *, limit: int = 100) -> Sequence[StreamChange]:
        """Newest first."""
        ...
