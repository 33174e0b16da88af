"""The state store: the interface, and the values that it takes and returns.

The rules:

- A run holds a connection, or one partition of it, by a lease. Every call that changes something passes the lease.
- Runs of several partitions may work side by side, as many as their slots allow. A run of the whole connection works
  alone. So does the run of a partition that finds something left of a run of the whole: it has to end it first.
- A lease has a fence number that only ever grows, and a random token. A call with another fence or token raises
  StateConflict and changes nothing, so a run that slept through its lease can do no harm. They alone decide: a run may
  go on with an expired lease that nobody took over. Expiry only permits others to take it over.
- Fences repeat where a database is lost, restored, or fails over to a replica that lags. Tokens never do, so a run from
  before holds no lease after.
- One partition of a connection has either states of streams or one state of the whole connection, never both: a
  connector is handed one kind. The newest change decides. The states it displaces go to the history as reset, and a
  rollback brings them back.
- A change by hand is of the lease's partition: with the lease of one partition nothing of another can change.
- Every call is one transaction, its changes one version. All but `acquire` may be repeated if the outcome is unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn, Protocol

from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding, Resolution
from dagster_airbyte_proto.checkpoints.slot import WHOLE, Slot
from dagster_airbyte_proto.checkpoints.stored_config import ConfigChange, ConfigOwner, StoredConfig
from dagster_airbyte_proto.loads.load import CommittedRows, Load
from dagster_airbyte_proto.model import State, StreamId, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import SchemaChange
from dagster_airbyte_proto.schema.stream_profile import StreamProfile

NO_LIMIT = 1_000_000_000
"""A `limit` that no list reaches. A greater one, which a database may not read as a number, means the same."""


class Lease(NamedTuple):
    """The right of one run, in the process `holder`, to change a connection or one partition of it.

    A random `token` tells two leases with the same fence apart. No lease is pickled: another process acquires its own.
    """

    connection: str
    run_id: str
    holder: str
    fence: int
    expires_at: datetime
    token: str
    partition: str = ""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease belongs to the process that acquired it")


class RunStart(NamedTuple):
    """The number of a run in its connection, and the generation of each stream."""

    sync_id: int
    generations: Mapping[StreamId, int]


class LoggedRun(NamedTuple):
    """One run of a connection. `ended_at` is None, `status` and `report` are empty until it has ended."""

    run_id: str
    started_at: datetime
    ended_at: datetime | None
    status: str
    report: str
    fence: int = 0


class LoadStatus(StrEnum):
    """The status of a load: announced, then done; or dropped, where somebody has resolved it as lost."""

    ANNOUNCED = "announced"
    DONE = "done"
    DROPPED = "dropped"


class LoggedLoad(NamedTuple):
    """One entry of the loads log.

    `ending` is None until it has ended, `reason` says for people who resolved it and how. `committed` is what the
    tables reported, `fence` that of its run, which was one of a `partition`; empty for none. The log is by `number`.
    """

    load: Load
    status: LoadStatus
    announced_at: datetime
    ended_at: datetime | None = None
    reason: str = ""
    committed: tuple[CommittedRows, ...] = ()
    fence: int = 0
    ending: LoadEnding | None = None
    partition: str = ""
    number: int = 0

    @property
    def order(self) -> tuple[int, datetime]:
        """Later loads of a connection are greater. The clock alone does not tell: it may have been set."""
        return self.fence, self.announced_at


class StoredState(NamedTuple):
    """The current state of a stream, or of the whole connection (its `stream` is None), in one partition."""

    state: State
    version: int
    changed_at: datetime
    run_id: str
    partition: str = ""


class LandedTable(NamedTuple):
    """The table of a stream's last load, in one partition. `load_id` is empty where a rollback has left no load in it.

    `is_covered` is false if that load moved no state: a state from before it says nothing of the table's rows.
    """

    table_id: str
    load_id: str
    write: WriteMode
    is_covered: bool


class StateChange(NamedTuple):
    """One entry of the history of states. `state` is None where it was reset.

    `why` is sync, set, reset, rollback, recover or resolve; or how many values changed beside the state.
    `run_id` is the run whose rows the state covers; for a change by hand it is the run of the lease.
    """

    version: int
    stream: StreamId | None
    state: State | None
    changed_at: datetime
    who: str
    why: str
    run_id: str
    partition: str = ""


class StreamChange(NamedTuple):
    """A change of a stream's profile, and the run that found it."""

    stream: StreamId
    change: SchemaChange
    changed_at: datetime
    run_id: str


class OpenGeneration(NamedTuple):
    """An incomplete generation of a stream, whose loads lie on a branch of its table.

    `load_id` is the load that landed last on the branch, or empty. `state` covers exactly the rows on the branch: a
    sync with the same `fingerprint` can resume from it. A generation without a state is dead: its branch is to be
    dropped.
    """

    stream: StreamId
    generation_id: int
    table: TableName
    branch: str
    fingerprint: str
    load_id: str
    state: State | None
    changed_at: datetime


class StateStore(Protocol):
    """The interface of a state store.

    Raises StateConflict for a lost or refused lease, StateUnavailable when the database does not answer.
    """

    def acquire(
        self,
        connection: str,
        *,
        run_id: str,
        holder: str,
        seconds: float,
        is_dead: Callable[[str], bool] = ...,
        slot: Slot = WHOLE,
    ) -> Lease:
        """Takes the lease of the slot, also from a run whose lease has expired or whose holder `is_dead`.

        By default no holder counts as dead. Raises StateConflict, which names a holder, while another run has it, or
        as many run as may. The lease is of the whole connection where an earlier run of the whole has left something.
        """
        ...

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Extends the lease to so many seconds from now."""
        ...

    def release(self, lease: Lease) -> None:
        """Gives the lease back. A lease that is lost already is no error."""
        ...

    def current_leases(self, connection: str, *, only_live: bool = False) -> Sequence[Lease]:
        """The leases on the connection, expired or not, or those alone that have not expired by the store's own clock.
        Other runs may hold them by the time the caller looks."""
        ...

    def begin_run(
        self,
        lease: Lease,
        *,
        refreshed: Sequence[StreamId],
        streams: Sequence[StreamId],
        resumed: Sequence[StreamId] = (),
        partition: str = "",
    ) -> RunStart:
        """Numbers the run, and starts a new generation of the streams in `refreshed`.

        Returns the generations of the streams of both lists. Open generations of these streams are dead from now on,
        except those of the streams in `resumed`.
        """
        ...

    def note_protocol(self, lease: Lease, protocol: str) -> None:
        """Notes the protocol that the connector speaks, by which its states are read from now on."""
        ...

    def protocol(self, connection: str) -> str:
        """The name of the protocol that was noted last; "" if none was."""
        ...

    def open_generations(self, connection: str) -> Sequence[OpenGeneration]:
        """The incomplete generations of the connection, dead ones too."""
        ...

    def forget_generation(self, lease: Lease, dropped: OpenGeneration) -> None:
        """Deletes an open generation whose branch has been dropped."""
        ...

    def note_folders(self, lease: Lease, folders: Sequence[str]) -> None:
        """Records the folders in which the run is about to stage files, before it writes the first."""
        ...

    def end_run(self, lease: Lease, *, status: str, report: str) -> None:
        """Records how the run ended. With status "complete" no unreferenced file is left: its folders are forgotten."""
        ...

    def prune_history(self, lease: Lease, *, days: float) -> None:
        """Deletes what is older than so many days of past states, ended loads, reports and recorded changes. What is
        current stays, and so does all that recovery, the witness, or a rollback to any time since then needs. Versions
        from before are folded into one."""
        ...

    def reports(self, connection: str, run_id: str) -> Sequence[str]:
        """The reports of the attempts of a run, oldest first. An attempt that died left none."""
        ...

    def newest_report(self, connection: str) -> str | None:
        """The report of the run that ended last; None where none did."""
        ...

    def runs(self, connection: str, *, limit: int = 100) -> Sequence[LoggedRun]:
        """The runs of the connection, newest first. The newest complete one is among them in any case."""
        ...

    def run_holders(self, connection: str, run_id: str) -> Sequence[str]:
        """The lease holders of the attempts of a run, oldest first. Empty where no run of that id is known."""
        ...

    def unfinished_folders(self, lease: Lease) -> Sequence[tuple[str, str]]:
        """(run id, folder) pairs of runs that never ended, or did not end as complete, under earlier leases of the
        lease's partition; of all, for a lease of the whole. A retry has the run id of the attempt before it, so a run
        id may be the caller's own."""
        ...

    def forget_folders(self, lease: Lease, run_id: str) -> None:
        """Forgets the swept folders that the run noted under earlier leases. Those of this lease stay."""
        ...

    def referenced_files(self, connection: str, run_id: str) -> frozenset[str]:
        """The paths of the files in the run's loads. A sweep must leave them. Those that were staged for a destination
        are needed until their load has ended."""
        ...

    def announce(self, lease: Lease, load: Load, *, partition: str = "") -> None:
        """Records the load, before anything of it is committed. Its states will be those of `partition`."""
        ...

    def promote(self, lease: Lease, load: Load, states: Sequence[State], committed: Sequence[CommittedRows]) -> None:
        """Moves `states`, adds them to the history and ends the load as done, in one transaction.

        Does nothing when the load is done already. The load's resume points are stored with their generations, except
        those of streams that are not in `committed`.
        """
        ...

    def resolve(
        self,
        lease: Lease,
        load: Load,
        states: Sequence[State],
        committed: Sequence[CommittedRows],
        resolution: Resolution,
    ) -> None:
        """Ends an announced load by the word of a person, as `promote` does, with the reason in the log.

        A load that is lost as a whole ends as dropped. A sweep leaves its files all the same: the word may be wrong.
        """
        ...

    def announced_loads(self, connection: str, *, partition: str | None = None) -> Sequence[Load]:
        """The loads that are announced and not ended, oldest first; with `partition`, those of it alone."""
        ...

    def loads(self, connection: str, *, limit: int = 100, before: int | None = None) -> Sequence[LoggedLoad]:
        """The loads log of the connection, newest first: those `before` a number, if one is given (see logs.py)."""
        ...

    def loaded_tables(self, connection: str) -> Sequence[TableName]:
        """The tables into which loads of the connection go or went, sorted. The records of a relay are in none."""
        ...

    def load(self, load_id: str) -> LoggedLoad | None: ...

    def connections(self) -> Sequence[str]: ...

    def partitions(self, connection: str) -> Sequence[str]:
        """The partitions of which the store has a state, a run, a load, a kept value or a lease."""
        ...

    def states(
        self, connection: str, *, partition: str | None = "", stream: StreamId | None = None
    ) -> Sequence[StoredState]:
        """The current states of the partition, or of every partition for None; with `stream`, those of it alone."""
        ...

    def landed_tables(self, connection: str, *, partition: str = "") -> Mapping[StreamId, LandedTable]:
        """The tables of the streams whose state no person has changed since their last load landed."""
        ...

    def history(
        self, connection: str, *, limit: int = 100, partition: str | None = None, with_states: bool = True
    ) -> Sequence[StateChange]:
        """The changes of states, newest first: of one `partition`, or of all; with the states, which may be large."""
        ...

    def change_state(
        self, lease: Lease, stream: StreamId | None, state: State | None, *, who: str, shared: State | None = None
    ) -> StateChange:
        """Sets the state of a stream (or of the whole connection) by hand, or resets it when `state` is None. With the
        lease of a partition it is that of the partition, else the one without a partition.

        Resetting the whole resets every stream too; states of other partitions stay. `shared` is the state of the whole
        after the change of one stream. Raises ConfigError where it is needed, and while a load is announced whose
        recovery would move both: one of the partition, or any for the lease of the whole.
        """
        ...

    def rollback(
        self, lease: Lease, version: int, *, who: str, landed: Mapping[StreamId, LandedTable | None] | None = None
    ) -> Sequence[StateChange]:
        """Sets all states of the connection, in every partition, to those of `version`; with the lease of a partition,
        those of it alone. Returns the changes. Raises ConfigError when there is no such version, and as `change_state`.
        `landed` are the streams whose tables go back too, with the last load that each had then; if it is given, all
        other tables are as they were then."""
        ...

    def stored_config(self, connection: str, owner: ConfigOwner = ConfigOwner.CONNECTOR) -> StoredConfig | None:
        """The config as its owner last rewrote it; None when it never did."""
        ...

    def save_config(
        self, lease: Lease, config: Mapping[str, Any], *, based_on: str, owner: ConfigOwner = ConfigOwner.CONNECTOR
    ) -> None:
        """Stores a config that its owner has rewritten. `based_on` is a digest of the user's own config."""
        ...

    def drop_config(self, lease: Lease, *, who: str) -> bool:
        """Drops the configs that connector and destination rewrote. False if there is none."""
        ...

    def config_changes(self, connection: str) -> Sequence[ConfigChange]:
        """The last 20 changes of the configs that connector and destination rewrote, newest first."""
        ...

    def stream_profiles(self, connection: str) -> Mapping[StreamId, StreamProfile]:
        """The last known profiles of the connection's streams, those that are gone included."""
        ...

    def save_stream_profiles(
        self,
        lease: Lease,
        profiles: Mapping[StreamId, StreamProfile],
        changes: Sequence[tuple[StreamId, SchemaChange]] = (),
    ) -> None:
        """Stores these profiles, and records the changes that led to them."""
        ...

    def stream_changes(self, connection: str, *, limit: int = 100) -> Sequence[StreamChange]:
        """The recorded changes of stream profiles, newest first."""
        ...
