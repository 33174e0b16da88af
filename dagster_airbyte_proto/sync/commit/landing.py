"""Which rows of a sync land when: with the states that cover them, or at their stream's end.

The rules of exactly-once that are kept here:

- Rows of a checkpointed stream are marked where a state covers them, and land in loads with that state. What follows
  the last state of a stream that failed is dropped: the connector sends it again.
- A stream that is read whole, or that replaces its table, lands at the end and only if it is complete. What replaces
  a table may be put aside in several loads until then: at the states of a stream that can be resumed, from the last of
  which the next attempt goes on; else whenever there is enough of it, and the next attempt begins anew.
- A shared state (GLOBAL, LEGACY) covers every incremental stream. Once one of them has failed, no later state is
  progress for any, and where one of them lands only at the end, the others wait for it: none may land rows that no
  state can follow. For the same reason nothing of them lands when the table of one refuses.
- A state of a stream that has said INCOMPLETE is no progress.
- A stream is complete if `verdict` says so.
"""

from collections.abc import Callable, Iterable, Mapping

from dagster_airbyte_proto.checkpoints.ledger import CountMismatch, Ledger
from dagster_airbyte_proto.errors import ConnectorError, ProtoError
from dagster_airbyte_proto.model import ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.conversation import one_scope
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit.loader import LEAST_ASIDE_BYTES, Loader
from dagster_airbyte_proto.sync.plan.stream_plan import is_checkpointed, is_resumable, lands_aside
from dagster_airbyte_proto.sync.read.verdict import READING, Ending, why_incomplete
from dagster_airbyte_proto.sync.stream_run import StreamRun, keep


class Landing:
    """Belongs to the reading thread: it is told of states and failures as they come, and of the end.

    `keeps_aside`: the tables are there by now, and can hold what nobody is to see yet.
    """

    def __init__(
        self,
        runs: Mapping[StreamId, StreamRun],
        staging: tuple[Stage, Ledger, Loader],
        settle_tables: Callable[[Iterable[StreamRun]], None],
        keeps_aside: Callable[[], bool],
    ) -> None:
        self._runs = runs
        self._stage, self._ledger, self._loader = staging
        self._settle_tables, self._keeps_aside = settle_tables, keeps_aside
        self._incremental = [stream for stream, run in runs.items() if run.planned.read is ReadMode.INCREMENTAL]
        # A dict for its order and its quick look-up: a shared state may cover a thousand streams.
        self._marked_at_states = dict.fromkeys(
            each for each in self._incremental if is_checkpointed(runs[each].planned)
        )
        self._resumable = dict.fromkeys(each for each, run in runs.items() if is_resumable(run.planned))
        self._replaced = [each for each, run in runs.items() if lands_aside(run.planned)]
        self._unweighed_bytes = 0
        self._scope: StateScope | None = None

    def look(self) -> None:
        """Takes note of a load that is in by now."""
        self._loader.look()

    def count_all(self) -> None:
        """Brings what is told of each stream up to date."""
        for stream in self._runs:
            self._count(stream)

    def fail(self, run: StreamRun, error: ProtoError) -> None:
        """None of the stream's later states is progress."""
        run.fail(error)
        self._count(run.planned.id)
        self._ledger.failed(run.planned.id)

    def take(self, state: State, record_count: float | None) -> CountMismatch | None:
        """A state has come, with the number of records that the source says it sent before it. Closes the load where
        it is due."""
        self._scope = one_scope(self._scope, state)
        covered = self._covered(state)
        if covered is None:
            return None
        for stream in covered if state.stream else self._runs:
            self._count(stream)
        for stream in covered:
            self._runs[stream].states_seen += 1
        mismatch = self._ledger.arrived(state, record_count)
        if mismatch is not None:
            found = f"the source counted {mismatch.source_count:g} records, and {mismatch.own_count} came"
            for stream in covered:
                keep(self._runs[stream].miscounts, found)
        self._mark(covered)
        return mismatch

    def took(self, new_bytes: int) -> None:
        """So much more has come. Lands what need not wait for a state, once it is much: should the stream fail, it is
        begun anew."""
        self._unweighed_bytes += new_bytes
        if not self._replaced or self._unweighed_bytes < LEAST_ASIDE_BYTES:
            return
        self._unweighed_bytes = 0
        streams = [each for each in self._replaced if not (self._waits_for_states(each) or self._runs[each].has_failed)]
        if not self._loader.is_large(sum(map(self._stage.uncut_bytes, streams))) or not self._keeps_aside():
            return
        for stream in streams:
            self._count(stream)
            self._stage.mark(stream)
        self._close_load(streams)

    def land_the_rest(self, ending: Ending) -> None:
        """The connector has come to its end: judges each stream, lands what may land, and drops what may not."""
        self.count_all()
        # A stream that sent nothing must have its table too. What was cancelled need not wait for tables to be made.
        self._hear_tables(run for run in self._runs.values() if run.emitted or not ending.was_cancelled)
        self._judge(ending)
        for stream, run in self._runs.items():
            if run.is_complete:
                self._stage.mark(stream)
                self._ledger.completed(stream)
            elif run.is_refused or not (is_checkpointed(run.planned) or self._waits_for_states(stream)):
                self._stage.discard(stream)
        self._loader.close(list(self._runs), is_last=True)
        self._loader.settle()
        # What a generation has changed in its table is told once that is published.
        self._settle_tables(run for run in self._runs.values() if run.landed is not None)
        for stream, run in self._runs.items():
            self._stage.discard(stream)
            run.drop_the_rest()

    def promote_last(self) -> None:
        """The states of the last load move."""
        self._loader.promote_last()

    def _mark(self, covered: Iterable[StreamId]) -> None:
        if self._shares_state and len(self._marked_at_states) < len(self._incremental):
            return
        for stream in covered:
            if stream in self._marked_at_states or (stream in self._resumable and self._keeps_aside()):
                self._stage.mark(stream)
        if self._loader.is_due():
            self._close_load()

    def _close_load(self, streams: Iterable[StreamId] = ()) -> None:
        self._hear_tables(run for run in self._runs.values() if run.emitted)
        self._loader.close(tuple(dict.fromkeys((*self._marked_at_states, *self._resumable, *streams))))

    def _waits_for_states(self, stream: StreamId) -> bool:
        """Whether the stream's generation is to be gone on with from its states. A shared one is not."""
        return stream in self._resumable and not (self._shares_state and stream in self._incremental)

    def _covered(self, state: State) -> list[StreamId] | None:
        """The streams whose rows the state covers; None when it is no progress."""
        if state.scope is not StateScope.STREAM:
            # Where every stream is read whole there is none whose rows could let a shared state move.
            return None if self._has_shared_failure or not self._incremental else self._incremental
        assert state.stream is not None, "a state of the STREAM scope names its stream"
        run = self._runs.get(state.stream)
        if run is None or run.has_failed:
            return None
        if run.planned.read is not ReadMode.INCREMENTAL and state.stream not in self._resumable:
            return None
        return [state.stream]

    @property
    def _shares_state(self) -> bool:
        return self._scope in (StateScope.GLOBAL, StateScope.LEGACY)

    @property
    def _has_shared_failure(self) -> bool:
        return self._shares_state and any(self._runs[stream].has_failed for stream in self._incremental)

    def _count(self, stream: StreamId) -> None:
        run, emitted = self._runs[stream], self._stage.emitted(stream)
        run.bytes = self._stage.received_bytes(stream)
        self._ledger.received(stream, emitted - run.emitted)
        run.emitted = emitted

    def _hear_tables(self, runs: Iterable[StreamRun]) -> None:
        """Learns which tables refuse, before anything is cut. What their streams hold can never land in this run."""
        self._loader.settle()
        self._settle_tables(runs)
        refused = {stream for stream, run in self._runs.items() if run.is_refused}
        if self._shares_state and not refused.isdisjoint(self._incremental):
            refused.update(self._incremental)
        for stream in refused:
            self._stage.discard(stream)
            self._ledger.failed(stream)

    def _judge(self, ending: Ending) -> None:
        for run in self._runs.values():
            if run.has_failed:
                continue
            why = why_incomplete(run, ending, is_covered=self._is_covered(run))
            run.is_complete = why is None
            if why is not None:
                self.fail(run, why)
        if self._has_shared_failure:
            for stream in self._incremental:
                found = "it shares its state with a stream that failed"
                self.fail(self._runs[stream], ConnectorError(READING, found, stream=str(stream), retryable=True))

    def _is_covered(self, run: StreamRun) -> bool:
        whole = run.planned.read is ReadMode.FULL_REFRESH
        return whole or self._ledger.covered(run.planned.id) >= run.emitted
