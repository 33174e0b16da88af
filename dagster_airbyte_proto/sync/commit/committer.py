"""The commit order: announce, commit, promote. With `checkpoints/ledger.py` the only place that moves state.

1. *announce*: the load is written down, with every file it lands and every state it frees.
2. *commit*: each table takes its part, in the name of the load id. Tables commit side by side.
3. *promote*: one transaction moves the states and ends the load.

1 and 2 together *land* a load. The last load of a sync is handed over between landing and promotion to whoever records
what is in (`delivery.py`); where that fails it stays announced.

Dying anywhere is safe. Before 1 nothing refers to the files: the next run sweeps them, and the states that stand
make the connector send the rows again. After 1 the next run drives the load to its end, and each table knows by the
load id whether its part is in. What lies aside is written down with the load that begins it, until it is published or
dropped. A table that refuses fails its own stream only, unless a state is shared (GLOBAL, LEGACY): then the load stays
announced, for half of it may be in, and no state may move before the other half is.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.store import Lease, OpenGeneration, StateStore
from dagster_airbyte_proto.errors import CommitUnknown, ProtoError, StagingError, StateConflict, TableError
from dagster_airbyte_proto.loads.load import CommittedRows, Load, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, is_local
from dagster_airbyte_proto.model import State, StateScope, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.staging.files.area import Folder, remove, sweep
from dagster_airbyte_proto.sync.read.batch_files import remove_sources
from dagster_airbyte_proto.tables.writer import KeepsAside, TableWriter

_TABLES_AT_ONCE = 4


class LoadOutcome(NamedTuple):
    """What became of a load. `refused` streams have none of its rows, and their states do not move. `moved` are the
    states of the others: they move when the load is promoted."""

    load: Load
    committed: tuple[CommittedRows, ...]
    moved: tuple[State, ...]
    refused: Mapping[StreamId, TableError]


class Committer:
    """Brings the loads of one leased connection into their tables, one load at a time.

    `tables` is asked for when there is something to commit: a session may still be starting. The states of what is
    announced are those of `partition`; what is recovered keeps its own.
    """

    def __init__(
        self, store: StateStore, tables: Callable[[], TableWriter], lease: Lease, *, partition: str = ""
    ) -> None:
        self._store = store
        self._tables = tables
        self._lease = lease
        self._partition = partition
        self._pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="commit")

    def __enter__(self) -> "Committer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)

    def commit(self, load: Load) -> LoadOutcome:
        """All three steps. Durable on return."""
        return self.promote(self.land(load))

    def land(self, load: Load) -> LoadOutcome:
        """The rows are in their tables on return, and no state has moved: `promote` is to follow."""
        reach("load.staged")
        try:
            self._store.announce(self._lease, load, partition=self._partition)
        except StateConflict:
            # Who took over has swept this run's folders already, or is about to forget them.
            self._remove_files(load)
            raise
        reach("load.announced")
        return self._into_tables(load)

    def promote(self, outcome: LoadOutcome) -> LoadOutcome:
        """The states of a landed load move. Durable on return."""
        # Before the states, for after them nobody looks again; the rows are in, whatever comes.
        sources = [url for part in outcome.load.parts if part.stream not in outcome.refused for url in part.sources]
        if sources:
            remove_sources(sources)
            reach("load.sources_removed")
        self._store.promote(self._lease, outcome.load, outcome.moved, outcome.committed)
        reach("load.promoted")
        return outcome

    def recover(self) -> list[LoadOutcome]:
        """Ends what earlier runs announced, then removes what they staged and nobody announced."""
        outcomes = [self._recover(load) for load in self._store.announced(self._lease.connection)]
        noted = self._store.unfinished_folders(self._lease)
        for run_id in dict.fromkeys(run_id for run_id, _ in noted):
            kept = self._store.files(self._lease.connection, run_id)
            for folder in (folder for noting_run, folder in noted if noting_run == run_id):
                sweep(folder, kept, self._storage(folder))
                reach("recover.swept")
            # Only now: it forgets all of the run's folders at once.
            self._store.forget_folders(self._lease, run_id)
        self.drop_dead_generations()
        return outcomes

    def drop_dead_generations(self) -> None:
        """Removes the branches of generations that no run goes on with. One whose table refuses waits for the next run:
        nobody reads it."""
        for generation in self._store.open_generations(self._lease.connection):
            if generation.state is None:
                with suppress(TableError, CommitUnknown):
                    self._drop(generation)

    def _drop(self, generation: OpenGeneration) -> None:
        tables = self._tables()
        if isinstance(tables, KeepsAside):
            tables.drop_aside(generation.table, generation.branch)
        reach("recover.branch_dropped")
        self._store.forget_generation(self._lease, generation)

    def _storage(self, place: str) -> Storage:
        """Tables are waited for only where the place is none of this machine's."""
        return LOCAL if is_local(place) else self._tables().storage

    def _remove_files(self, load: Load) -> None:
        """The files of a load that nobody will ever know of."""
        with suppress(StagingError):
            for path in (file.path for part in load.parts for file in part.files):
                place, _, name = path.rpartition("/")
                folder = Folder.at(place, self._storage(place))
                remove(folder, folder.file(name)[0])

    def _recover(self, load: Load) -> LoadOutcome:
        reach("recover.begun")
        return self.promote(self._into_tables(load))

    def _into_tables(self, load: Load) -> LoadOutcome:
        tables = self._tables() if load.parts else None
        attempts = {part.stream: self._pool.submit(tables.commit, load.load_id, part) for part in load.parts if tables}
        committed, refused = _gathered(attempts)
        reach("load.committed")
        shared = [state for state in load.states if state.scope is not StateScope.STREAM]
        if refused and shared:
            raise _half_in(load, refused)
        moved = tuple(state for state in load.states if state.stream not in refused)
        return LoadOutcome(load, committed, moved, refused)


def _gathered(
    attempts: Mapping[StreamId, Future[CommittedRows]],
) -> tuple[tuple[CommittedRows, ...], dict[StreamId, TableError]]:
    """Waits for every table, so that none is at work when an error leaves here. Any error but a refusal is raised."""
    committed: list[CommittedRows] = []
    refused: dict[StreamId, TableError] = {}
    unknown: list[ProtoError] = []
    for stream, attempt in attempts.items():
        try:
            committed.append(attempt.result())
        except TableError as error:
            refused[stream] = error
        except ProtoError as error:
            unknown.append(error)
    if unknown:
        raise unknown[0]
    return tuple(committed), refused


def _half_in(load: Load, refused: Mapping[StreamId, TableError]) -> TableError:
    stream, first = next(iter(refused.items()))
    return TableError(
        f"committing load {load.load_id} of connection {load.connection}",
        f"its streams share one state, and {len(refused)} of {len(load.parts)} tables refused: {first}",
        remedy="No state has moved. Mend the table and sync again, or call `airbyte-proto recover`: it ends the load.",
        stream=str(stream),
    )


def rows_of(parts: Sequence[StagedRows]) -> dict[StreamId, int]:
    """How many of each stream's record lines these parts account for."""
    return {part.stream: part.emitted for part in parts}
