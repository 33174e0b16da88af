"""Cuts loads at states and has them committed while the next one is staged: one of each at the most."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar
from uuid import uuid4

from dagster_airbyte_proto.checkpoints.ledger import Ledger
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.model import Load, StagedRows, State, StreamId
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit import Committer, LoadOutcome, rows_of
from dagster_airbyte_proto.sync.plan import replaces
from dagster_airbyte_proto.sync.streams import StreamRun

_Given = TypeVar("_Given", Load, LoadOutcome)


class LoadLimits(NamedTuple):
    """A load is closed at the first state after either is reached."""

    max_bytes: int = 128 << 20
    max_seconds: float = 60.0


class Loader:
    """Belongs to the reading thread. A slow table makes `close` wait, and so the connector: nothing piles up.

    `whole` completes a shared state with what it leaves unsaid.
    """

    def __init__(
        self,
        lease: Lease,
        parts: tuple[Stage, Ledger, Committer],
        runs: Mapping[StreamId, StreamRun],
        limits: LoadLimits,
        whole: Callable[[State], State],
    ) -> None:
        self._lease = lease
        self._stage, self._ledger, self._committer = parts
        self._runs = runs
        self._limits = limits
        self._whole = whole
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._at_work: Future[LoadOutcome] | None = None
        self._unpromoted: LoadOutcome | None = None
        self._opened = time.monotonic()
        self.committed_loads = 0
        self.seconds_committing = 0.0

    def is_due(self) -> bool:
        """Whether the load has grown or waited enough. Ask when a state has come."""
        return (
            self._stage.marked_bytes >= self._limits.max_bytes
            or time.monotonic() - self._opened >= self._limits.max_seconds
        )

    def close(self, streams: Sequence[StreamId], *, is_last: bool = False) -> None:
        """Cuts what the marks allow and sets the commit going, once the load before it is in.

        The last load only lands: when it is settled, `last_landed` tells of it, and `promote_last` is to follow.
        """
        self.settle()
        self._opened = time.monotonic()
        parts = tuple(part for stream in streams if (part := self._cut(stream, is_last=is_last)) is not None)
        states = tuple(map(self._whole, self._ledger.freed_by(rows_of(parts))))
        if not parts and not states:
            return
        run_id = self._lease.run_id
        load = Load(f"{run_id}-{uuid4().hex[:12]}", self._lease.connection, run_id, parts, states)
        self._at_work = self._pool.submit(self._timed, self._land_last if is_last else self._committer.commit, load)

    def settle(self) -> None:
        """Waits for the load at work and takes note of it. Raises what stopped it; no table is at work then."""
        if self._at_work is None:
            return
        at_work, self._at_work = self._at_work, None
        self._note(at_work.result())

    def look(self) -> None:
        """`settle`, if that takes no waiting."""
        if self._at_work is not None and self._at_work.done():
            self.settle()

    @property
    def last_landed(self) -> LoadOutcome | None:
        """The sync's last load, from when its rows are in until its states move. None also where it has none."""
        return self._unpromoted

    def promote_last(self) -> None:
        """The states of the last load move."""
        if self._unpromoted is not None:
            self._states_moved(self._timed(self._committer.promote, self._unpromoted))
            self._unpromoted = None

    def shut(self) -> None:
        """Waits for the load at work. Raises nothing, whatever became of it: an earlier error is on its way."""
        with suppress(ProtoError):
            self.settle()
        self._pool.shutdown(wait=True)

    def _cut(self, stream: StreamId, *, is_last: bool) -> StagedRows | None:
        run = self._runs[stream]
        if run.is_refused:
            # Rows behind those that the table refused must not land without them.
            self._stage.discard(stream)
            return None
        part = self._stage.cut(stream)
        if part is None and is_last and run.is_complete and replaces(run.planned):
            planned = run.planned
            return StagedRows(stream, planned.table, planned.write, planned.generation_id, slice=planned.slice)
        return part

    def _timed(self, step: Callable[[_Given], LoadOutcome], given: _Given) -> LoadOutcome:
        began = time.monotonic()
        try:
            return step(given)
        finally:
            self.seconds_committing += time.monotonic() - began

    def _land_last(self, load: Load) -> LoadOutcome:
        self._unpromoted = self._committer.land(load)
        return self._unpromoted

    def _note(self, outcome: LoadOutcome) -> None:
        landed = {committed.stream: committed for committed in outcome.committed}
        for part in outcome.load.parts:
            if part.stream in landed:
                self._runs[part.stream].land(outcome.load.load_id, part, landed[part.stream])
            else:
                self._runs[part.stream].refuse(part, outcome.refused[part.stream])
                self._ledger.failed(part.stream)
        good = tuple(part for part in outcome.load.parts if part.stream in landed)
        self._ledger.landed(rows_of(good))
        self.committed_loads += 1
        for state in outcome.moved:
            for run in self._covered(state):
                run.next_state = state
        if outcome is not self._unpromoted:
            self._states_moved(outcome)

    def _states_moved(self, outcome: LoadOutcome) -> None:
        for state in outcome.moved:
            for run in self._covered(state):
                run.state = state

    def _covered(self, state: State) -> Iterable[StreamRun]:
        return self._runs.values() if state.stream is None else (self._runs[state.stream],)
