"""Decides which rows of a sync land when: with the states that cover them, or at the end of their stream.

The rules of exactly-once that this module keeps:

- Rows of a checkpointed stream are marked at the state that covers them, and land in a load with that state. Rows after
  the last state of a stream that failed are dropped: the connector sends them again.
- A stream that is read whole, or that replaces its table, lands at its end, and only if it is complete. Until then its
  rows may land on a branch of the table, in several loads. A resumable stream is cut at its states, and the next
  attempt resumes from the last one. Any other stream is cut whenever it is large enough, and the next attempt starts
  over.
- A shared state (GLOBAL, LEGACY) covers every incremental stream. Once one of them has failed, no later state counts
  for any of them. Where one of them lands only at the end, the others wait for it: none may land rows that no state can
  follow. For the same reason none of them lands when the table of one refuses, or our own code fails on rows of one.
- A state of a stream with the status INCOMPLETE does not count.
- `why_incomplete` decides whether a stream is complete.
"""

from collections.abc import Collection, Iterable, Mapping

from dagster_airbyte_proto.checkpoints.ledger import CountMismatch
from dagster_airbyte_proto.errors import Cancelled, ConnectorError, ProtoError
from dagster_airbyte_proto.model import ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.state_codec import check_scope
from dagster_airbyte_proto.sync.commit.target_tables import TargetTables
from dagster_airbyte_proto.sync.landing.completeness import READING, ConnectorEnding, why_incomplete
from dagster_airbyte_proto.sync.landing.loader import MIN_BRANCH_LOAD_BYTES, Loader, LoadSteps
from dagster_airbyte_proto.sync.plan.stream_plan import (
    can_resume_generation,
    is_checkpointed,
    may_land_on_branch,
    replaces_table,
)
from dagster_airbyte_proto.sync.plan.stream_profiles import StreamProfiles
from dagster_airbyte_proto.sync.stream_run import StreamRun, append_bounded


class CommitScheduler:
    """Takes states and failures as they arrive, and has loads cut and committed where the rules allow it.

    Belongs to the reading thread.
    """

    def __init__(
        self,
        runs: Mapping[StreamId, StreamRun],
        steps: LoadSteps,
        loader: Loader,
        targets: TargetTables,
        profiles: StreamProfiles,
    ) -> None:
        self._runs = runs
        self._stage, self._ledger, self._loader = steps.stage, steps.ledger, loader
        self._targets, self._profiles = targets, profiles
        self._incremental = [stream for stream, run in runs.items() if run.planned.read is ReadMode.INCREMENTAL]
        # A dict is an ordered set here: a shared state may cover a thousand streams, so look-ups must be quick.
        self._marked_at_states = dict.fromkeys(
            each for each in self._incremental if is_checkpointed(runs[each].planned)
        )
        self._resumable = dict.fromkeys(each for each, run in runs.items() if can_resume_generation(run.planned))
        self._replaced = [each for each, run in runs.items() if may_land_on_branch(run.planned)]
        self._unchecked_bytes = 0
        self._scope: StateScope | None = None

    @property
    def has_incremental_streams(self) -> bool:
        return bool(self._incremental)

    def poll(self) -> None:
        """Records the outcome of a load whose commit has ended meanwhile, and fails faulty streams. Never waits."""
        self._loader.poll()
        self._loader.fail_faulty()

    def count_all(self) -> None:
        """Updates the counts of every stream."""
        for stream in self._runs:
            self._count(stream)

    def fail_stream(self, run: StreamRun, error: ProtoError) -> None:
        """Fails a stream: its later states no longer count."""
        run.fail(error)
        self._count(run.planned.id)
        self._ledger.failed(run.planned.id)

    def receive_state(self, state: State, record_count: float | None) -> CountMismatch | None:
        """Takes in a state, and closes the load if it is due. `record_count` is the source's own count of records."""
        self._loader.fail_faulty()
        self._scope = check_scope(self._scope, state)
        covered = self._covered(state)
        if covered is None:
            return self._compared_counts(state, record_count)
        for stream in covered if state.stream else self._runs:
            self._count(stream)
        for stream in covered:
            self._runs[stream].counts.states += 1
        mismatch = self._ledger.arrived(state, record_count)
        self._note_mismatch(covered, mismatch)
        self._mark(covered)
        return mismatch

    def provide_targets(self) -> None:
        """Gives the stage the table targets that it waits for. Waits until these tables are ready."""
        for stream in self._stage.awaiting_target:
            self._stage.set_target(stream, self._targets.target(self._runs[stream]))

    def count_bytes(self, new_bytes: int) -> None:
        """Counts received bytes, and lands streams that need not wait for a state once they are large enough.

        Such a stream starts over if it fails.
        """
        self._unchecked_bytes += new_bytes
        if not self._replaced or self._unchecked_bytes < MIN_BRANCH_LOAD_BYTES:
            return
        self._unchecked_bytes = 0
        streams = [each for each in self._replaced if not (self._waits_for_states(each) or self._runs[each].has_failed)]
        if (
            not self._loader.is_worth_a_load(sum(map(self._stage.uncut_bytes, streams)))
            or not self._targets.support_branches()
        ):
            return
        for stream in streams:
            self._count(stream)
            self._stage.mark(stream)
        self._close_load(streams)

    def finish(self, ending: ConnectorEnding) -> None:
        """Decides which streams are complete after the connector has ended, lands what may land and drops the rest."""
        self.count_all()
        # A stream without rows must have its table too. A cancelled sync does not wait for tables without rows.
        self._check_tables(run for run in self._runs.values() if run.counts.emitted or not ending.was_cancelled)
        self._decide_completeness(ending)
        for stream, run in self._runs.items():
            if run.is_complete:
                self._stage.mark(stream)
                if run.generation.resumed_state is not None and not run.counts.states:
                    # The source had nothing more to send, and some send no state then: theirs is the one they got.
                    self._ledger.arrived(run.generation.resumed_state)
                self._ledger.completed(stream)
            elif run.is_refused or not (is_checkpointed(run.planned) or self._waits_for_states(stream)):
                self._stage.discard(stream)
        self._profiles.begin_replacing(run for run in self._runs.values() if run.is_complete)
        self._loader.close_load(list(self._runs), self._tied, is_last=True)
        self._loader.wait_for_commit()
        self._profiles.end_replacing(self._runs.values())
        # Changes that a generation made in its table are reported only once it is published.
        self._wait_for_tables(run for run in self._runs.values() if run.outcome.last_commit is not None)
        for stream, run in self._runs.items():
            self._stage.discard(stream)
            run.drop_uncommitted()

    def _mark(self, covered: Iterable[StreamId]) -> None:
        if self._shares_state and len(self._marked_at_states) < len(self._incremental):
            # A stream that lands only at its end covers this state too, so the others must wait for it.
            return
        for stream in covered:
            if stream in self._marked_at_states or (stream in self._resumable and self._targets.support_branches()):
                self._stage.mark(stream)
        if self._loader.is_due():
            self._close_load()

    def _close_load(self, streams: Iterable[StreamId] = ()) -> None:
        self._check_tables(run for run in self._runs.values() if run.counts.emitted)
        self._loader.close_load(tuple(dict.fromkeys((*self._marked_at_states, *self._resumable, *streams))), self._tied)

    def _waits_for_states(self, stream: StreamId) -> bool:
        """True when the generation of the stream can be resumed from its states. With a shared state it cannot."""
        return stream in self._resumable and not (self._shares_state and stream in self._incremental)

    def _covered(self, state: State) -> list[StreamId] | None:
        """The streams whose rows the state covers; None when the state does not count."""
        if state.scope is not StateScope.STREAM:
            # Without an incremental stream there are no rows whose landing could free a shared state.
            return None if self._has_shared_failure or not self._incremental else self._incremental
        assert state.stream is not None, "a state of the STREAM scope names its stream"
        run = self._runs.get(state.stream)
        if run is None or run.has_failed:
            return None
        if run.planned.read is not ReadMode.INCREMENTAL and state.stream not in self._resumable:
            return None
        return [state.stream]

    def _compared_counts(self, state: State, record_count: float | None) -> CountMismatch | None:
        """Compares the counts of a state by which no row lands: that of a stream that is read whole.

        Such a state still says how many records came before it, and nothing else tells that one of them was lost.
        """
        run = self._runs.get(state.stream) if state.stream is not None else None
        if run is None or run.has_failed:
            return None
        self._count(run.planned.id)
        mismatch = self._ledger.arrived(state, record_count)
        self._note_mismatch([run.planned.id], mismatch)
        return mismatch

    def _note_mismatch(self, streams: Iterable[StreamId], mismatch: CountMismatch | None) -> None:
        if mismatch is not None:
            for stream in streams:
                append_bounded(self._runs[stream].miscounts, mismatch.text)

    @property
    def _shares_state(self) -> bool:
        return self._scope in (StateScope.GLOBAL, StateScope.LEGACY)

    @property
    def _tied(self) -> Collection[StreamId]:
        """The streams of a shared state."""
        return self._incremental if self._shares_state else ()

    @property
    def _has_shared_failure(self) -> bool:
        return self._shares_state and any(self._runs[stream].has_failed for stream in self._incremental)

    def _count(self, stream: StreamId) -> None:
        run, emitted = self._runs[stream], self._stage.emitted(stream)
        run.counts.bytes = self._stage.received_bytes(stream)
        self._ledger.received(stream, emitted - run.counts.emitted)
        run.counts.emitted = emitted

    def _wait_for_tables(self, runs: Iterable[StreamRun]) -> None:
        """Waits for the tables of these streams, and records what changed in them.

        A stream without rows needs its table only where that is replaced, or was never prepared in this way.
        """
        needed = [
            run
            for run in runs
            if run.counts.emitted or replaces_table(run.planned) or self._targets.has_to_be_made(run.planned.id)
        ]
        self._targets.wait_for_tables(needed)
        self._profiles.record_changes(needed)

    def _check_tables(self, runs: Iterable[StreamRun]) -> None:
        """Finds out which tables refuse, before a load is cut. The rows of their streams cannot land in this run."""
        self._loader.wait_for_commit()
        self._wait_for_tables(runs)
        self._loader.fail_faulty()
        refused = {stream for stream, run in self._runs.items() if run.is_refused}
        if self._shares_state and not refused.isdisjoint(self._incremental):
            # No shared state could follow the rows of the others.
            refused.update(self._incremental)
        for stream in refused:
            self._stage.discard(stream)
            self._ledger.failed(stream)
        for stream, run in self._runs.items():
            if self._stage.needs_target(stream):
                self._stage.set_target(stream, self._targets.target(run))

    def _decide_completeness(self, ending: ConnectorEnding) -> None:
        for run in self._runs.values():
            if run.has_failed:
                continue
            why = why_incomplete(run, ending, is_covered=self._is_covered(run))
            run.is_complete = why is None
            if why is not None:
                self.fail_stream(run, why)
        if self._has_shared_failure:
            for stream in self._incremental:
                self.fail_stream(self._runs[stream], _shared_failure(stream, ending))

    def _is_covered(self, run: StreamRun) -> bool:
        whole = run.planned.read is ReadMode.FULL_REFRESH
        return whole or self._ledger.covered(run.planned.id) >= run.counts.emitted


def _shared_failure(stream: StreamId, ending: ConnectorEnding) -> ProtoError:
    if ending.was_cancelled:
        return Cancelled(
            READING, "the sync was cancelled before all streams of its state were read", stream=str(stream)
        )
    found = "it shares its state with a stream that failed"
    return ConnectorError(READING, found, stream=str(stream), retryable=True)
