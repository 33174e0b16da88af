"""Cuts loads at states, and has one committed while the next one is staged.

- At most one load is being committed and one being staged.
- A generation that replaces a table may land in several loads, on a branch that readers do not see. Its last load
  publishes the branch.
- Rows that our own code failed on are in no load (`fail_faulty`), nor are rows whose table cannot be searched for
  newer ones. With them go the streams that share a state with theirs: no state could follow those.
- A generation that fits into one load replaces the table directly. If it also changes the columns of the table, it goes
  to a branch and is published in the same commit.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import NamedTuple, TypeVar
from uuid import uuid4

import msgspec

from dagster_airbyte_proto.checkpoints.ledger import Ledger
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ConnectorError, ProtoError, TableError
from dagster_airbyte_proto.loads.load import BranchPosition, Load, ResumePoint, StagedRows
from dagster_airbyte_proto.model import ReadMode, State, StreamId
from dagster_airbyte_proto.staging.keys.dedup import NONE_LATE
from dagster_airbyte_proto.staging.memory import release_free_memory
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit.committer import Committer, LoadOutcome, rows_of
from dagster_airbyte_proto.sync.commit.rejected_rows import RejectedRows
from dagster_airbyte_proto.sync.plan.stream_plan import may_land_on_branch, replaces_table
from dagster_airbyte_proto.sync.stream_run import StreamRun

_Input = TypeVar("_Input", Load, LoadOutcome)


MIN_BRANCH_LOAD_BYTES = 8 << 20
"""The least size of a load on a branch for a stream without states. Landing such a load early only saves memory."""


class LoadSteps(NamedTuple):
    """The steps of a load: the stage cuts its rows, the ledger frees its states, the committer lands it.

    `rejected_rows` makes parts of the records that the source rejected; None if nothing has room for them.
    """

    stage: Stage
    ledger: Ledger
    committer: Committer
    rejected_rows: RejectedRows | None = None


class LoadThresholds(NamedTuple):
    """The limits of a load. It is closed at the first state after one of them is reached."""

    max_bytes: int = 128 << 20
    max_seconds: float = 60.0


class _RunningCommit(NamedTuple):
    load: Load
    outcome: Future[LoadOutcome]


class Loader:
    """Cuts and commits the loads of one sync. Belongs to the reading thread.

    A slow table makes `close_load` wait, and with it the connector (back-pressure), so that nothing piles up.
    `complete_state` gives a shared state the parts that are stored of streams that were not requested.
    """

    def __init__(
        self,
        lease: Lease,
        steps: LoadSteps,
        runs: Mapping[StreamId, StreamRun],
        limits: LoadThresholds,
        complete_state: Callable[[State], State],
    ) -> None:
        self._lease = lease
        self._stage, self._ledger, self._committer, self._rejected_rows = steps
        self._runs = runs
        self._limits = limits
        self._complete_state = complete_state
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._running: _RunningCommit | None = None
        self._last_landed: LoadOutcome | None = None
        self._opened = time.monotonic()
        self.committed_loads = 0
        self.seconds_committing = 0.0

    def is_due(self) -> bool:
        """True when the load is large or old enough to be closed. Asked at each state."""
        return (
            self._stage.marked_bytes >= self._limits.max_bytes
            or time.monotonic() - self._opened >= self._limits.max_seconds
        )

    def is_worth_a_load(self, size_bytes: int) -> bool:
        """True when rows of this size are worth a load on a branch, without a state."""
        return size_bytes >= max(self._limits.max_bytes, MIN_BRANCH_LOAD_BYTES)

    def fail_faulty(self) -> None:
        """Fails the streams whose rows the stage failed on. None of their rows land any more in this sync."""
        for stream, error in self._stage.faults.items():
            if not self._runs[stream].is_refused:
                self._fail_table(stream, error)

    def close_load(
        self, streams: Sequence[StreamId], tied: Collection[StreamId] = (), *, is_last: bool = False
    ) -> None:
        """Cuts a load up to the marks and starts its commit, once the load before it is committed.

        The `tied` streams share a state: where the rows of one cannot land, those of none of them do.
        The last load of a sync only lands. After `wait_for_commit` it is `last_landed`, and `promote_last` must follow.
        """
        self.wait_for_commit()
        self._opened = time.monotonic()
        run_id = self._lease.run_id
        load_id = f"{run_id}-{uuid4().hex[:12]}"
        cut = self._cut_all(streams, tied, load_id, is_last=is_last)
        parts = (*(self._addressed(part) for part in cut), *self._rejected_parts(cut, load_id))
        if not is_last:
            release_free_memory()
        freed = self._ledger.freed_by(rows_of(parts))
        states = tuple(self._complete_state(state) for state in freed if not self._is_refused(state, tied))
        resume_points = tuple(self._resume_points(parts))
        if not parts and not states and not resume_points:
            return
        load = Load(load_id, self._lease.connection, run_id, parts, states, resume_points)
        step = self._land_last if is_last else self._commit
        self._running = _RunningCommit(load, self._pool.submit(copy_context().run, self._measure, step, load))

    def wait_for_commit(self) -> None:
        """Waits for the running commit and records its outcome. Raises its error; no table is being written then."""
        if self._running is None:
            return
        running, self._running = self._running, None
        try:
            outcome = running.outcome.result()
        except ProtoError as error:
            # Announced or not, landed or not: the next run finds out.
            for part in running.load.parts:
                if part.stream in self._runs:
                    self._runs[part.stream].record_unknown(part)
            _name_load(error, running.load)
            raise
        self._record_outcome(outcome)

    def poll(self) -> None:
        """Records the outcome of the running commit if it has ended. Never waits."""
        if self._running is not None and self._running.outcome.done():
            self.wait_for_commit()

    @property
    def last_landed(self) -> LoadOutcome | None:
        """The last load of the sync, between its landing and its promotion; None otherwise."""
        return self._last_landed

    def promote_last(self) -> None:
        """Moves the states of the last load."""
        if self._last_landed is not None:
            self._record_moved_states(self._measure(self._committer.promote, self._last_landed))
            self._last_landed = None

    def shutdown(self) -> None:
        """Waits for the running commit. Raises no error of it: an earlier error is being raised already."""
        with suppress(ProtoError):
            self.wait_for_commit()
        self._pool.shutdown(wait=True)

    def _cut_all(
        self, streams: Sequence[StreamId], tied: Collection[StreamId], load_id: str, *, is_last: bool
    ) -> tuple[StagedRows, ...]:
        parts = [part for stream in streams if (part := self._cut(stream, load_id, is_last=is_last)) is not None]
        self.fail_faulty()
        if not any(self._runs[stream].is_refused for stream in tied):
            return tuple(parts)
        for stream in tied:
            self._fail_table(stream, _shared_refusal(stream))
            self._stage.discard(stream)
        # Nobody announces the files of the other parts: they are orphans, which the next run removes.
        return tuple(part for part in parts if part.stream not in tied)

    def _fail_table(self, stream: StreamId, error: ProtoError) -> None:
        self._runs[stream].fail_table(error)
        self._ledger.failed(stream)

    def _rejected_parts(self, cut: Sequence[StagedRows], load_id: str) -> Iterator[StagedRows]:
        """Yields a part for the records that each cut part's source rejected: they land with it, in their own table."""
        for part in cut:
            rejected = self._stage.take_rejected(part.stream)
            if rejected and self._rejected_rows is not None:
                made = self._rejected_rows.part(self._runs[part.stream].planned, rejected, load_id)
                if made is not None:
                    yield made

    def _is_refused(self, state: State, tied: Collection[StreamId]) -> bool:
        """True for a state of a stream that takes no row. It may cover none, and yet a table that was to be replaced
        was not."""
        return any(self._runs[stream].is_refused for stream in (tied if state.stream is None else (state.stream,)))

    def _cut(self, stream: StreamId, load_id: str, *, is_last: bool) -> StagedRows | None:
        run = self._runs[stream]
        if run.is_refused:
            # Rows that follow refused ones must not land without them.
            self._stage.discard(stream)
            return None
        branch = None if run.generation.newest_load is None else run.generation.branch
        keys = self._stage.marked_keys(stream)
        try:
            late_rows = NONE_LATE if keys is None else self._committer.find_late_rows(keys, branch)
        except TableError as error:
            self._fail_table(stream, error)
            self._stage.discard(stream)
            return None
        part = self._stage.cut(stream, late_rows, follows_on_branch=branch is not None)
        is_whole = is_last and run.is_complete
        if stream in self._stage.faults:
            return None
        if part is None and is_whole and replaces_table(run.planned):
            # A complete generation without rows must still empty its table, or its slice.
            planned = run.planned
            part = StagedRows(stream, planned.table, planned.write, planned.generation_id, slice=planned.slice)
        is_only_load = is_whole and run.generation.newest_load is None and run.table.schema_id is None
        if part is None or not may_land_on_branch(run.planned) or is_only_load:
            return part
        position = BranchPosition(
            run.generation.branch, run.generation.newest_load, is_whole, run.generation.fingerprint, run.table.schema_id
        )
        run.generation.newest_load = load_id
        return msgspec.structs.replace(part, branch_position=position)

    def _addressed(self, part: StagedRows) -> StagedRows:
        run = self._runs[part.stream]
        return msgspec.structs.replace(
            part,
            connection=self._lease.connection,
            table_id=run.table.table_id,
            log_position=run.table.log_position,
            relayed_as=run.planned.relay.fingerprint if run.planned.relay else "",
            relay_mode=run.planned.relay.mode if run.planned.relay else None,
            read_whole=run.planned.read is ReadMode.FULL_REFRESH,
        )

    def _resume_points(self, parts: Sequence[StagedRows]) -> Iterable[ResumePoint]:
        for state in self._ledger.resumable_by(rows_of(parts)):
            run = self._runs[state.stream] if state.stream else None
            if (
                run is not None
                and run.generation.newest_load is not None
                and not run.is_refused
                and not run.is_complete
            ):
                yield ResumePoint(run.planned.generation_id, state)

    def _measure(self, step: Callable[[_Input], LoadOutcome], value: _Input) -> LoadOutcome:
        began = time.monotonic()
        try:
            return step(value)
        finally:
            self.seconds_committing += time.monotonic() - began

    def _commit(self, load: Load) -> LoadOutcome:
        return self._committer.commit(self._committer.name_followed(load))

    def _land_last(self, load: Load) -> LoadOutcome:
        self._last_landed = self._committer.land(self._committer.name_followed(load))
        return self._last_landed

    def _record_outcome(self, outcome: LoadOutcome) -> None:
        landed = {committed.stream: committed for committed in outcome.committed}
        for part in outcome.load.parts:
            if part.stream not in self._runs:
                if part.stream in outcome.refused and self._rejected_rows is not None:
                    self._rejected_rows.warn(part.stream, outcome.refused[part.stream])
            elif part.stream in landed:
                self._runs[part.stream].outcome.record_commit(outcome.load.load_id, part, landed[part.stream])
                self._runs[part.stream].table.note_commit(landed[part.stream])
            else:
                self._runs[part.stream].record_refusal(part, outcome.refused[part.stream])
                self._ledger.failed(part.stream)
        for point in outcome.load.resume_points:
            if point.state.stream is not None:
                self._runs[point.state.stream].generation.can_be_resumed = True
        good = tuple(part for part in outcome.load.parts if part.stream in landed)
        self._ledger.landed(rows_of(good))
        self.committed_loads += 1
        for state in outcome.moved:
            for run in self._runs_covered_by(state):
                run.outcome.next_state = state
        if outcome is not self._last_landed:
            self._record_moved_states(outcome)

    def _record_moved_states(self, outcome: LoadOutcome) -> None:
        for state in outcome.moved:
            for run in self._runs_covered_by(state):
                run.outcome.state = state

    def _runs_covered_by(self, state: State) -> Iterable[StreamRun]:
        return self._runs.values() if state.stream is None else (self._runs[state.stream],)


def _shared_refusal(stream: StreamId) -> ConnectorError:
    found = "it shares its state with a stream whose rows cannot land"
    return ConnectorError("cutting a load", found, stream=str(stream), retryable=True)


def _name_load(error: ProtoError, load: Load) -> None:
    """Has an error tell of the load that it left, which that of a state store does not know."""
    if load.load_id not in str(error):
        way_out = f"the next sync, or `airbyte-proto recover {load.connection}`, finds out"
        error.remedy = f"{error.remedy} Load {load.load_id} may have landed: {way_out}.".lstrip()
