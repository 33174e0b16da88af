"""The commit order: announce, commit, promote. Only this module and `checkpoints/ledger.py` know when a state may move.

1. *announce*: the store records the load, with every file it lands and every state it frees.
2. *commit*: each table commits its part under the load id. Tables commit in parallel.
3. *promote*: one transaction of the store moves the states and ends the load.

1 and 2 together *land* a load. Between the landing and the promotion of the last load of a sync, the commit listener
learns what is committed (`commit_listener.py`). If that fails, the load stays announced, and the next run promotes it.

A crash anywhere is safe:

- Before 1 nothing refers to the files. The next run sweeps them, and the connector sends the rows again, since the
  states have not moved.
- After 1 the next run commits and promotes the load. Each table finds out by the load id whether its part has landed.
- A branch is recorded with the load that begins it, until it is published or dropped.

A table that refuses fails only its own stream, unless a state is shared (GLOBAL, LEGACY) and another table has landed
its part. Then the load stays announced: the state may not move before the rest has landed too. A destination that gets
the rows of all such streams by key may get them again: there the load ends, none of them counts, and they come again.
Where all tables refuse, nothing has landed, and no state moves. A stream that is read whole shares no state: it is read
from its beginning.

The records that the source of a stream rejected are a part of their own, of a table of their own. It is committed once
the rows of the stream have landed: those of a part that is refused come again, and the rejected records with them.

An error is not a refusal. Where nobody can tell whether a part has landed, its load stays announced and CommitUnknown
ends the sync. The next run reads the table's log first: only a log that was read and lacks the load says that it has
not landed (`TableWriter.find_load`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.checkpoints.store import Lease, OpenGeneration, StateStore
from dagster_airbyte_proto.errors import (
    Cancelled,
    CommitUnknown,
    ConfigError,
    DeliveryCancelled,
    LandedUnseen,
    ProtoError,
    StateConflict,
    TableError,
)
from dagster_airbyte_proto.loads.batch_folder import remove_sources
from dagster_airbyte_proto.loads.load import CommittedRows, Load, StagedRows
from dagster_airbyte_proto.model import PushMode, State, StateScope, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder, remove_file
from dagster_airbyte_proto.staging.keys.dedup import LateRows, StagedKeys
from dagster_airbyte_proto.sync.commit.dead_run_files import DeadRunFiles, storage_of
from dagster_airbyte_proto.sync.commit.late_rows import LateRowLookup
from dagster_airbyte_proto.sync.commit.part_commit import commit_part, find_or_commit_part, find_part
from dagster_airbyte_proto.sync.commit.rejected_rows import parts_of_rejected
from dagster_airbyte_proto.sync.commit.table_witness import with_followed_loads
from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY, RunTelemetry
from dagster_airbyte_proto.tables.writer import SupportsBranches, TableWriter

_TABLES_AT_ONCE = 4


class LoadOutcome(NamedTuple):
    """The outcome of a load.

    No row of the `refused` streams has landed, and their states do not move. `moved` are the states of the other
    streams, which move when the load is promoted.
    """

    load: Load
    committed: tuple[CommittedRows, ...]
    moved: tuple[State, ...]
    refused: Mapping[StreamId, TableError]


class Committer:
    """Commits the loads of one leased connection, one load at a time.

    `tables` is called only when there is something to commit: a Spark session may still be starting. Announced loads
    belong to `partition`; recovered ones keep their own.
    """

    def __init__(
        self,
        store: StateStore,
        tables: Callable[[], TableWriter],
        lease: Lease,
        *,
        partition: str = "",
        telemetry: RunTelemetry = NO_TELEMETRY,
    ) -> None:
        self._store = store
        self._tables = tables
        self._lease = lease
        self._partition = partition
        self._telemetry = telemetry
        self._pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="commit")

    def for_other_streams(self) -> "Committer":
        """Returns a committer of the same lease, for loads of other streams that are committed at the same time."""
        return Committer(self._store, self._tables, self._lease, partition=self._partition, telemetry=self._telemetry)

    def __enter__(self) -> "Committer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)

    def find_late_rows(self, keys: StagedKeys, branch: str | None) -> LateRows:
        """Finds the rows of a coming load that are older than those in the table, or on a branch of it.

        The load before must have landed.
        """
        return LateRowLookup(self._tables, keys, branch).find()

    def name_followed(self, load: Load) -> Load:
        """Returns the load whose parts name the loads that they follow. The load before must have landed."""
        # Runs of partitions land side by side, in any order.
        return load if self._partition else with_followed_loads(self._store, load)

    def commit(self, load: Load) -> LoadOutcome:
        """Announces, commits and promotes a load. Durable on return."""
        return self.promote(self.land(load))

    def land(self, load: Load) -> LoadOutcome:
        """Announces and commits a load. On return its rows are in their tables and no state has moved: `promote` must
        follow."""
        with self._telemetry.load(load):
            return self._land(load)

    def _land(self, load: Load) -> LoadOutcome:
        reach("load.staged")
        try:
            self._store.announce(self._lease, load, partition=self._partition)
        except StateConflict:
            # The run that took over has swept this run's folders, or will forget them: nobody else removes these files.
            with suppress(ProtoError):
                # Over a link that was cut it is called again. If the first call had its effect, that run lands them.
                if self._store.load(load.load_id) is None:
                    self._remove_files(load)
            raise
        reach("load.announced")
        return self._commit_tables(load, commit_part)

    def promote(self, outcome: LoadOutcome) -> LoadOutcome:
        """Moves the states of a landed load. Durable on return."""
        # The connector's batch files go before the states move: no later run would remove them. Their rows have landed.
        sources = [url for part in outcome.load.parts if part.stream not in outcome.refused for url in part.sources]
        if sources:
            remove_sources(sources)
            reach("load.sources_removed")
        self._store.promote(self._lease, outcome.load, outcome.moved, outcome.committed)
        reach("load.promoted")
        return outcome

    def resolve(self, load: Load, resolution: Resolution, held_back: Collection[StreamId] = ()) -> LoadOutcome:
        """Ends a load by the word of a person, for those of its tables that cannot be read or refuse. The others tell
        themselves, and get the rows that they lack, but for the streams that are `held_back`: those are lost too then.

        Raises ConfigError where no person is needed, and where the word would double rows.
        """
        silent: set[StreamId] = set()

        def commit_if_readable(tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows | None:
            try:
                landed = find_part(tables, load, part)
            except CommitUnknown as error:
                if isinstance(error, LandedUnseen) and not resolution.as_landed:
                    remedy = "Resolve it as landed, or let a sync show its rows."
                    raise ConfigError(
                        f"resolving load {load.load_id} as lost", f"it has landed: {error.found}", remedy=remedy
                    ) from error
                silent.add(part.stream)
                return None
            if landed is None and part.stream in held_back:
                silent.add(part.stream)
                return None
            try:
                # An unknown outcome of this commit is raised: the word was not about it.
                return landed or commit_part(tables, load, part)
            except TableError:
                silent.add(part.stream)
                return None

        if all(part.is_relayed for part in load.parts):
            # A destination cannot be asked. To open tables for it would start Spark, which a relay does without.
            silent.update(part.stream for part in load.parts)
            outcome = LoadOutcome(load, (), load.states, {})
        else:
            outcome = self._commit_tables(load, commit_if_readable, silent if resolution.as_landed else ())
        if not silent:
            raise ConfigError(
                f"resolving load {load.load_id}",
                "all its tables can be read, so a sync can find out whether it landed",
                remedy=f"Run `airbyte-proto recover {load.connection}`.",
            )
        if not resolution.as_landed:
            outcome = _without_lost(outcome, silent)
        self._store.resolve(self._lease, load, outcome.moved, outcome.committed, resolution)
        return outcome

    def recover(self, waits: Callable[[Load], bool] = lambda _: False) -> list[LoadOutcome]:
        """Commits and promotes the loads that earlier runs announced, then removes the files of loads not announced.

        With the lease of a partition, only those of runs of the partition: others may be running. A load that `waits`
        is left to `recover_load` or `give_up`, and the folders of its run to the next recovery.
        """
        partition = self._lease.partition or None
        announced = self._store.announced_loads(self._lease.connection, partition=partition)
        waiting = {load.run_id for load in announced if waits(load)}
        outcomes = [self.recover_load(load) for load in announced if not waits(load)]
        DeadRunFiles(self._store, self._tables, self._lease).remove(waiting)
        self.drop_dead_generations()
        return outcomes

    def drop_dead_generations(self, outdated: Collection[OpenGeneration] = ()) -> None:
        """Drops the branches of generations that no run resumes: those without a state, and those that are `outdated`.

        Where the table refuses, the branch stays for the next run to drop: no reader sees it.
        """
        if self._lease.partition:  # Others may be dropping them. The store leases the whole where there is one.
            return
        for generation in self._store.open_generations(self._lease.connection):
            if generation.state is None or generation in outdated:
                with suppress(TableError, CommitUnknown):
                    self._drop(generation)

    def _drop(self, generation: OpenGeneration) -> None:
        tables = self._tables()
        if isinstance(tables, SupportsBranches):
            tables.drop_branch(generation.table, generation.branch)
        reach("recover.branch_dropped")
        self._store.forget_generation(self._lease, generation)

    def _remove_files(self, load: Load) -> None:
        """Removes the files of a load that was never announced. Raises StagingError."""
        for path in (file.path for part in load.parts for file in part.files):
            place, _, name = path.rpartition("/")
            folder = StagingFolder.at(place, storage_of(place, self._tables))
            remove_file(folder, folder.file(name)[0])

    def recover_load(self, load: Load) -> LoadOutcome:
        """Commits and promotes a load that an earlier run announced."""
        reach("recover.begun")
        with self._telemetry.load(load):
            return self.promote(self._commit_tables(load, find_or_commit_part))

    def give_up(self, load: Load, refusal: TableError, *, whole: bool = False) -> LoadOutcome:
        """Ends a load that an earlier run announced. Of its parts only those that have landed count; as a `whole` none
        does: all its rows come again, and may."""

        def find_or_refuse(tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows:
            if whole or (landed := find_part(tables, load, part)) is None:
                raise refusal
            return landed

        with self._telemetry.load(load):
            return self.promote(self._commit_tables(load, find_or_refuse))

    def _traced(self, load: Load, part: StagedRows, commit: Callable[[], CommittedRows | None]) -> CommittedRows | None:
        with self._telemetry.commit(load, part):
            return commit()

    def _commit_tables(
        self, load: Load, commit: "_CommitPart", counted_as_landed: Collection[StreamId] = ()
    ) -> LoadOutcome:
        """Commits the parts: what a source rejected behind the rows of its stream, and not without them."""
        of_rejected = parts_of_rejected(load.parts)
        rows = [part for part in load.parts if part.stream not in of_rejected]
        committed, refused = self._commit_parts(load, rows, commit)
        landed = {*(each.stream for each in committed), *counted_as_landed}
        behind = [part for part in load.parts if of_rejected.get(part.stream) in landed]
        more_committed, more_refused = self._commit_parts(load, behind, commit)
        committed, refused = (*committed, *more_committed), {**refused, **more_refused}
        reach("load.committed")
        sharing = sharing_state(load)
        landed_beside = [each for each in committed if each.stream in sharing]
        if landed_beside and (missing := {stream: refused[stream] for stream in refused if stream in sharing}):
            if not _may_come_again(load, sharing):
                raise _partly_landed_error(load, missing)
            committed = tuple(each for each in committed if each.stream not in sharing)
            refused |= {each.stream: _comes_again_error(load, each.stream, missing) for each in landed_beside}
        return LoadOutcome(load, committed, _states_without(load, refused), refused)

    def _commit_parts(
        self, load: Load, parts: Sequence[StagedRows], commit: "_CommitPart"
    ) -> tuple[tuple[CommittedRows, ...], dict[StreamId, TableError]]:
        tables = self._tables() if parts else None
        attempts = {
            # Each thread gets a copy of the context: spans nest by it.
            part.stream: self._pool.submit(
                copy_context().run, self._traced, load, part, partial(commit, tables, load, part)
            )
            for part in parts
            if tables
        }
        return _wait_for_tables(attempts)


_CommitPart = Callable[[TableWriter, Load, StagedRows], CommittedRows | None]


def _without_lost(outcome: LoadOutcome, lost: Collection[StreamId]) -> LoadOutcome:
    """The outcome where the parts of these streams have not landed: their states do not move.

    Raises ConfigError where a state covers them and streams that have landed.
    """
    sharing = sharing_state(outcome.load)
    landed = ", ".join(str(committed.stream) for committed in outcome.committed if committed.stream in sharing)
    if landed and not sharing.isdisjoint(lost):
        raise ConfigError(
            f"resolving load {outcome.load.load_id} as lost",
            f"its streams share one state, and the rows of {landed} have landed: they would be read again",
            remedy="Resolve it as landed, and read all of them again with"
            f" `airbyte-proto sync {outcome.load.connection} --refresh`.",
        )
    return outcome._replace(moved=_states_without(outcome.load, {*outcome.refused, *lost}))


def sharing_state(load: Load) -> set[StreamId]:
    """The streams of the load whose rows its shared state covers; none if it has no such state."""
    if all(state.scope is StateScope.STREAM for state in load.states):
        return set()
    return {part.stream for part in load.parts if not part.read_whole}


def _states_without(load: Load, missing: Collection[StreamId]) -> tuple[State, ...]:
    """The states of the load that move although the rows of the `missing` streams have not landed."""
    stopped: set[StreamId | None] = {*missing}
    if not sharing_state(load).isdisjoint(missing):
        stopped.add(None)  # a shared state is that of no stream
    return tuple(state for state in load.states if state.stream not in stopped)


def _wait_for_tables(
    attempts: Mapping[StreamId, Future[CommittedRows | None]],
) -> tuple[tuple[CommittedRows, ...], dict[StreamId, TableError]]:
    """Waits for every table, so that none is still committing when an error is raised. Raises all but refusals."""
    committed: list[CommittedRows] = []
    refused: dict[StreamId, TableError] = {}
    wait(attempts.values())
    for stream, attempt in attempts.items():
        try:
            if (landed := attempt.result()) is not None:
                committed.append(landed)
        except TableError as error:
            refused[stream] = error
    return tuple(committed), refused


def _partly_landed_error(load: Load, refused: Mapping[StreamId, TableError]) -> TableError:
    stream, first = next(iter(refused.items()))
    return TableError(
        f"committing load {load.load_id} of connection {load.connection}",
        f"its streams share one state, and {len(refused)} of their {len(sharing_state(load))} tables refused: {first}",
        remedy="No state has moved. Repair the table and sync again, or run"
        f" `airbyte-proto recover {load.connection}`: it ends the load. If nobody can repair it, run"
        f" `airbyte-proto loads resolve {load.load_id} --as landed`, and read all its streams again with"
        f" `airbyte-proto sync {load.connection} --refresh`.",
        stream=str(stream),
    )


def _may_come_again(load: Load, streams: Collection[StreamId]) -> bool:
    """True if a destination gets the rows of these streams by key: sent again, they are there once."""
    return all(part.relay_mode is PushMode.UPSERT for part in load.parts if part.stream in streams)


def _comes_again_error(load: Load, stream: StreamId, refused: Mapping[StreamId, TableError]) -> TableError:
    """The error of a part that was delivered, and whose state cannot move."""
    other, first = next(iter(refused.items()))
    kind = DeliveryCancelled if isinstance(first, Cancelled) else TableError
    failed = kind(
        f"delivering load {load.load_id} of connection {load.connection}",
        f"it shares its state with {other}, whose rows were not delivered",
        remedy="The next sync reads its rows again. By key they are there once.",
        stream=str(stream),
    )
    failed.retryable = first.retryable
    return failed


def rows_of(parts: Sequence[StagedRows]) -> dict[StreamId, int]:
    """The number of record lines of each stream that these parts account for, rejected ones included."""
    return {part.stream: part.emitted for part in parts}
