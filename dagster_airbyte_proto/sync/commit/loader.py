"""Cuts loads at states and has them committed while the next one is staged: one of each at the most.

What replaces a table may land in several loads too, aside of what readers see; the last one then publishes them. Where
one load is all there is, it replaces the table by itself, unless it changes the table's columns too: then it is put
aside and published in one.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar
from uuid import uuid4

import msgspec

from dagster_airbyte_proto.checkpoints.ledger import Ledger
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.load import Aside, Load, ResumePoint, StagedRows
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.staging.memory import give_back
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit.committer import Committer, LoadOutcome, rows_of
from dagster_airbyte_proto.sync.plan.stream_plan import lands_aside, replaces
from dagster_airbyte_proto.sync.stream_run import StreamRun

_Given = TypeVar("_Given", Load, LoadOutcome)


LEAST_ASIDE_BYTES = 8 << 20
"""Fewer bytes of a stream without states are not worth a load of their own: nothing but memory is won by it."""


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

    def is_large(self, size_bytes: int) -> bool:
        """Whether rows of so many bytes are worth a load aside, wherever their stream stands."""
        return size_bytes >= max(self._limits.max_bytes, LEAST_ASIDE_BYTES)

    def close(self, streams: Sequence[StreamId], *, is_last: bool = False) -> None:
        """Cuts what the marks allow and sets the commit going, once the load before it is in.

        The last load only lands: when it is settled, `last_landed` tells of it, and `promote_last` is to follow.
        """
        self.settle()
        self._opened = time.monotonic()
        run_id = self._lease.run_id
        load_id = f"{run_id}-{uuid4().hex[:12]}"
        parts = tuple(part for stream in streams if (part := self._cut(stream, load_id, is_last=is_last)) is not None)
        if not is_last:
            give_back()
        states = tuple(map(self._whole, self._ledger.freed_by(rows_of(parts))))
        resume_points = tuple(self._resume_points(parts))
        if not parts and not states and not resume_points:
            return
        load = Load(load_id, self._lease.connection, run_id, parts, states, resume_points)
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

    def _cut(self, stream: StreamId, load_id: str, *, is_last: bool) -> StagedRows | None:
        run = self._runs[stream]
        if run.is_refused:
            # Rows behind those that the table refused must not land without them.
            self._stage.discard(stream)
            return None
        part = self._stage.cut(stream, None if run.newest_aside is None else run.branch)
        is_whole = is_last and run.is_complete
        if part is None and is_whole and replaces(run.planned):
            planned = run.planned
            part = StagedRows(stream, planned.table, planned.write, planned.generation_id, slice=planned.slice)
        is_all_there_is = is_whole and run.newest_aside is None and run.schema_id is None
        if part is None or not lands_aside(run.planned) or is_all_there_is:
            return part
        aside = Aside(run.branch, run.newest_aside, is_whole, run.likeness, run.schema_id)
        run.newest_aside = load_id
        return msgspec.structs.replace(part, aside=aside)

    def _resume_points(self, parts: Sequence[StagedRows]) -> Iterable[ResumePoint]:
        for state in self._ledger.resumable_by(rows_of(parts)):
            run = self._runs[state.stream] if state.stream else None
            if run is not None and run.newest_aside is not None and not run.is_refused and not run.is_complete:
                yield ResumePoint(run.planned.generation_id, state)

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
        for point in outcome.load.resume_points:
            if point.state.stream is not None:
                self._runs[point.state.stream].can_go_on = True
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
