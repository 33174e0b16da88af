"""One connector's output, from its first byte to its last, into loads.

The rules of exactly-once that are kept here:

- Rows of a checkpointed stream are marked where a state covers them, and land in loads with that state. What follows
  the last state of a stream that failed is dropped: the connector sends it again.
- A stream that is read whole, or that replaces its table, lands at the end and only if it is complete.
- A shared state (GLOBAL, LEGACY) covers every incremental stream. Once one of them has failed, no later state is
  progress for any, and where one of them lands only at the end, the others wait for it: none may land rows that no
  state can follow. For the same reason nothing of them lands when the table of one refuses.
- A state of a stream that has said INCOMPLETE is no progress.
- A stream is complete if `verdict` says so.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.ledger import Ledger
from dagster_airbyte_proto.errors import ConnectorError, ProtoError
from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
from dagster_airbyte_proto.model import ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.session import (
    AnalyticsEvent,
    ConfigEvent,
    ErrorEvent,
    EstimateEvent,
    Event,
    FailureKind,
    LogEvent,
    LogLevel,
    PlainLine,
    RecordLine,
    SourceProtocol,
    StateEvent,
    StatusEvent,
    StreamStatus,
    one_scope,
)
from dagster_airbyte_proto.staging.demux import Demux, Run
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.loads import Loader
from dagster_airbyte_proto.sync.plan import is_checkpointed
from dagster_airbyte_proto.sync.report import LineCounts
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.streams import StreamRun
from dagster_airbyte_proto.sync.verdict import READING, Ending, why_incomplete

_READ_TIMEOUT_SECONDS = 0.25
_PROGRESS_SECONDS = 0.2
_KEPT_TEXTS = 100
_LONGEST_QUOTA_SECONDS = 24 * 3600.0


class Patience(NamedTuple):
    """How long a connector may be silent before it counts as hung. While it says that it waits for a rate limit's reset
    it is not silent."""

    startup_seconds: float = 600.0
    heartbeat_seconds: float = 3 * 3600.0
    exit_seconds: float = 60.0


class Surroundings(NamedTuple):
    """What a pull turns to while it works. `is_cancelled` raises when the run has lost its right to go on."""

    log: RunLog
    is_cancelled: Callable[[], bool]
    keep_config: Callable[[ConfigEvent], None]
    progress: Callable[[], None]
    settle_tables: Callable[[Iterable[StreamRun]], None]
    deliver: Callable[[], None]


class Pull:
    """Reads, stages and closes loads. `run` is called once; when it returns or raises, no load is at work."""

    def __init__(
        self,
        protocol: SourceProtocol,
        runs: Mapping[StreamId, StreamRun],
        staging: tuple[Stage, Ledger, Loader],
        around: Surroundings,
        patience: Patience,
    ) -> None:
        self._protocol = protocol
        self._runs = runs
        self._stage, self._ledger, self._loader = staging
        self._around = around
        self._patience = patience
        self._demux = Demux(protocol.shape.run)
        self._incremental = [stream for stream, run in runs.items() if run.planned.read is ReadMode.INCREMENTAL]
        # A dict for its order and its quick look-up: a shared state may cover a thousand streams.
        self._marked_at_states = dict.fromkeys(
            each for each in self._incremental if is_checkpointed(runs[each].planned)
        )
        self._scope: StateScope | None = None
        self._heard_statuses = False
        self._limited_until = 0.0
        self._unplaced_error: ConnectorError | None = None
        self._unknown_streams: set[StreamId] = set()
        self.lines = LineCounts()
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.cancelled = False
        self.exit: ExitReport | None = None
        self.seconds_waiting = 0.0
        self.seconds_staging = 0.0

    def run(self, connector: RunningConnector) -> None:
        """Raises what ends the sync as a whole; what befell single streams is in their `StreamRun`s."""
        try:
            self._read_all(connector)
            self.exit = self._ended(connector)
        except ConnectorError as error:
            _keep(self.errors, str(error))
            self._unplaced_error = error
        finally:
            connector.stop()
        self.exit = self.exit or connector.wait(0)
        for stream in self._runs:
            self._count(stream)
        # A stream that sent nothing must have its table too. What was cancelled need not wait for tables to be made.
        self._hear_tables(run for run in self._runs.values() if run.emitted or not self.cancelled)
        self._judge(self.exit)
        self._land_the_rest()

    def _read_all(self, connector: RunningConnector) -> None:
        began = last_beat = last_told = time.monotonic()
        beats = -1
        while True:
            if self._around.is_cancelled():
                self.cancelled = True
                return
            self._loader.look()
            asked = time.monotonic()
            chunk = connector.read(_READ_TIMEOUT_SECONDS)
            arrived = time.monotonic()
            self.seconds_waiting += arrived - asked
            if chunk is not None:
                self._take(self._demux.feed(chunk) if chunk else self._demux.finish())
            taken = time.monotonic()
            self.seconds_staging += taken - arrived
            if beats != (beats := self.lines.record + self.lines.state):
                last_beat = taken
            if arrived - last_told > _PROGRESS_SECONDS:
                last_told = arrived
                self._tell()
            if chunk == b"":
                return
            # Asked also when something came: log lines are no sign of life, and may come without a pause.
            self._check_pulse(taken - began, taken - max(last_beat, self._limited_until))

    def _tell(self) -> None:
        for stream in self._runs:
            self._count(stream)
        self._around.progress()

    def _take(self, items: Iterable[Run | bytes]) -> None:
        for item in items:
            if isinstance(item, Run):
                self.lines.record += self._stage.add(item)
            else:
                self._hear(self._protocol.event(item))

    def _check_pulse(self, seconds_running: float, seconds_silent: float) -> None:
        heard_nothing = not any((self.lines.record, self.lines.state, self.lines.log, self.lines.trace))
        if heard_nothing and seconds_running > self._patience.startup_seconds:
            raise _hung(f"it said nothing in the first {self._patience.startup_seconds:.0f} s")
        if seconds_silent > self._patience.heartbeat_seconds:
            raise _hung(f"no record and no state came for {self._patience.heartbeat_seconds:.0f} s")

    def _ended(self, connector: RunningConnector) -> ExitReport | None:
        if self.cancelled:
            connector.stop()
            return connector.wait(0)
        report = connector.wait(self._patience.exit_seconds)
        if report is None:
            seconds = self._patience.exit_seconds
            self._warn(f"the connector closed its output but still ran {seconds:.0f} s later: it was stopped")
            connector.stop()
            report = connector.wait(0)
        return report

    # What the connector says beside its records

    def _hear(self, event: Event) -> None:
        if isinstance(event, StateEvent):
            self.lines.state += 1
            self._on_state(event)
        elif isinstance(event, RecordLine):
            self.lines.record += 1
            self._stage.add_line(event.stream, event.line)
        elif isinstance(event, LogEvent):
            self.lines.log += 1
            self._around.log.write(event.level, event.message)
        elif isinstance(event, StatusEvent):
            self.lines.trace += 1
            self._on_status(event)
        elif isinstance(event, ErrorEvent):
            self.lines.trace += 1
            self._on_error(event)
        elif isinstance(event, EstimateEvent | AnalyticsEvent):
            self.lines.trace += 1
            self._around.log.write("DEBUG", repr(event))
        elif isinstance(event, ConfigEvent):
            self.lines.other += 1
            self._on_config(event)
        else:
            self.lines.other += 1
            self._around.log.write("DEBUG" if isinstance(event, PlainLine) else "WARN", _plainly(event))

    def _on_state(self, event: StateEvent) -> None:
        state = event.state
        self._scope = one_scope(self._scope, state)
        covered = self._covered(state)
        if covered is None:
            return
        for stream in covered if state.stream else self._runs:
            self._count(stream)
        for stream in covered:
            self._runs[stream].states_seen += 1
        mismatch = self._ledger.arrived(state, event.record_count)
        if mismatch is not None:
            self._warn(f"stream {state.stream}: {mismatch}")
            found = f"the source counted {mismatch.source_count:g} records, and {mismatch.own_count} came"
            for stream in covered:
                _keep(self._runs[stream].miscounts, found)
        if self._shares_state and len(self._marked_at_states) < len(self._incremental):
            return
        for stream in covered:
            if stream in self._marked_at_states:
                self._stage.mark(stream)
        if self._loader.is_due():
            self._hear_tables(run for run in self._runs.values() if run.emitted)
            self._loader.close(tuple(self._marked_at_states))

    def _covered(self, state: State) -> list[StreamId] | None:
        """The streams whose rows the state covers; None when it is no progress."""
        if state.scope is not StateScope.STREAM:
            # Where every stream is read whole there is none whose rows could let a shared state move.
            return None if self._has_shared_failure or not self._incremental else self._incremental
        assert state.stream is not None, "a state of the STREAM scope names its stream"
        run = self._runs.get(state.stream)
        if run is None:
            self._note_unknown(state.stream, "a state")
            return None
        if run.planned.read is not ReadMode.INCREMENTAL or run.has_failed:
            return None
        return [state.stream]

    @property
    def _shares_state(self) -> bool:
        return self._scope in (StateScope.GLOBAL, StateScope.LEGACY)

    @property
    def _has_shared_failure(self) -> bool:
        return self._shares_state and any(self._runs[stream].has_failed for stream in self._incremental)

    def _on_status(self, event: StatusEvent) -> None:
        self._heard_statuses = True
        run = self._runs.get(event.stream)
        if run is None:
            self._note_unknown(event.stream, "a status")
            return
        run.said = event.status
        if event.limited_until_milliseconds is not None:
            self._wait_for_reset(event.stream, max(0.0, event.limited_until_milliseconds / 1000 - time.time()))
        if event.status is StreamStatus.INCOMPLETE:
            found = "the connector ended it as INCOMPLETE"
            self._fail(run, ConnectorError(READING, found, stream=str(event.stream), retryable=True))

    def _wait_for_reset(self, stream: StreamId, seconds: float) -> None:
        # Not for ever: sources have sent seconds for milliseconds, and the other way round.
        self._limited_until = time.monotonic() + min(seconds, _LONGEST_QUOTA_SECONDS)
        self._around.log.write("WARN", f"stream {stream} is rate limited: the connector waits {seconds:.0f} s")

    def _on_error(self, event: ErrorEvent) -> None:
        where = f"stream {event.stream}: " if event.stream else ""
        detail = f" ({event.internal_message})" if event.internal_message else ""
        _keep(self.errors, f"{where}{event.message}{detail}")
        self._around.log.write("ERROR", "\n".join(filter(None, (f"{where}{event.message}{detail}", event.stack_trace))))
        error = ConnectorError(
            READING,
            event.message,
            stream=str(event.stream) if event.stream else None,
            retryable=event.kind is not FailureKind.CONFIG,
        )
        run = self._runs.get(event.stream) if event.stream else None
        if run is None:
            self._unplaced_error = self._unplaced_error or error
        else:
            run.error = error
            self._fail(run, error)

    def _on_config(self, event: ConfigEvent) -> None:
        try:
            self._around.keep_config(event)
        except ProtoError as error:
            self._warn(f"the connector's new config could not be kept; its next run may be refused: {error}")

    def _fail(self, run: StreamRun, error: ProtoError) -> None:
        run.fail(error)
        self._count(run.planned.id)
        self._ledger.failed(run.planned.id)

    def _count(self, stream: StreamId) -> None:
        run, emitted = self._runs[stream], self._stage.emitted(stream)
        run.bytes = self._stage.received_bytes(stream)
        self._ledger.received(stream, emitted - run.emitted)
        run.emitted = emitted

    def _hear_tables(self, runs: Iterable[StreamRun]) -> None:
        """Learns which tables refuse, before anything is cut. What their streams hold can never land in this run."""
        self._loader.settle()
        self._around.settle_tables(runs)
        refused = {stream for stream, run in self._runs.items() if run.is_refused}
        if self._shares_state and not refused.isdisjoint(self._incremental):
            refused.update(self._incremental)
        for stream in refused:
            self._stage.discard(stream)
            self._ledger.failed(stream)

    def _note_unknown(self, stream: StreamId, what: str) -> None:
        if stream not in self._unknown_streams:
            self._unknown_streams.add(stream)
            self._around.log.write("WARN", f"{what} came for stream {stream}, which was not asked for: passed over")

    def _warn(self, text: str) -> None:
        _keep(self.warnings, text)
        self._around.log.write(LogLevel.ERROR, text)

    # The end

    def _judge(self, exit_report: ExitReport | None) -> None:
        ending = Ending(exit_report, self.cancelled, self._unplaced_error, self._heard_statuses)
        for run in self._runs.values():
            if run.has_failed:
                continue
            why = why_incomplete(run, ending, is_covered=self._is_covered(run))
            run.is_complete = why is None
            if why is not None:
                self._fail(run, why)
        if self._has_shared_failure:
            for stream in self._incremental:
                found = "it shares its state with a stream that failed"
                self._fail(self._runs[stream], ConnectorError(READING, found, stream=str(stream), retryable=True))

    def _is_covered(self, run: StreamRun) -> bool:
        whole = run.planned.read is ReadMode.FULL_REFRESH
        return whole or self._ledger.covered(run.planned.id) >= run.emitted

    def _land_the_rest(self) -> None:
        for stream, run in self._runs.items():
            if run.is_complete:
                self._stage.mark(stream)
                self._ledger.completed(stream)
            elif run.is_refused or not is_checkpointed(run.planned):
                self._stage.discard(stream)
        self._loader.close(list(self._runs), is_last=True)
        self._loader.settle()
        for stream, run in self._runs.items():
            self._stage.discard(stream)
            run.drop(run.emitted - run.committed - run.rejections.total())
        for stream, rows in self._stage.unconfigured.items():
            self._warn(f"{rows} records came for stream {stream}, which was not asked for: ignored")
        self._around.deliver()
        reach("run.delivered")
        self._loader.promote_last()


def _keep(texts: list[str], text: str) -> None:
    """A connector may repeat itself without end; the log has it all."""
    if len(texts) < _KEPT_TEXTS:
        texts.append(text)
    elif len(texts) == _KEPT_TEXTS:
        texts.append("There is more of this in the log.")


def _hung(found: str) -> ConnectorError:
    return ConnectorError(READING, f"{found}: it was stopped", remedy="Its log is kept with the run.", retryable=True)


def _plainly(event: Event) -> str:
    return event.line.decode(errors="replace")[:4000].rstrip() if isinstance(event, PlainLine) else repr(event)
