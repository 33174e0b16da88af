"""Reads the output of one source connector to its end: stages its records and dispatches its events.

- Record lines go to the stage in runs, without an object per record. All other lines become events.
- States and failures go to the `CommitScheduler`, which decides which rows land when.
- A connector that sends neither a record nor a state for too long is stopped. Log lines do not count: a hung connector
  may go on logging. Time in which it waits for a rate limit does not count either.
- However the reading ends, the connector is stopped, and what its streams may still land is landed.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError
from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
from dagster_airbyte_proto.loads.batch_folder import remove_sources
from dagster_airbyte_proto.loads.bounded_counts import MAX_NAMES
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.protocols.conversation import parse_config_file
from dagster_airbyte_proto.protocols.events import (
    AnalyticsEvent,
    BatchEvent,
    ConfigEvent,
    ErrorEvent,
    EstimateEvent,
    Event,
    FailureKind,
    KeptValuesEvent,
    LogEvent,
    LogLevel,
    MetricEvent,
    PlainLine,
    RecordLine,
    RejectedRecordEvent,
    SchemaEvent,
    StateEvent,
    StatusEvent,
    StreamStatus,
    UnknownEvent,
    VersionEvent,
)
from dagster_airbyte_proto.staging.arrow.batch_demux import ArrowContent, BatchDemux
from dagster_airbyte_proto.staging.arrow.ipc_messages import record_batches
from dagster_airbyte_proto.staging.lines.demux import Demux, RecordLines
from dagster_airbyte_proto.sync.connector.connector_config import RewrittenConfigs
from dagster_airbyte_proto.sync.landing.commit_scheduler import CommitScheduler
from dagster_airbyte_proto.sync.landing.completeness import READING, ConnectorEnding, ended_by_itself
from dagster_airbyte_proto.sync.read.batch_files import locate_files, record_lines, replayed_batch_error
from dagster_airbyte_proto.sync.read.hang_detector import HangDetector
from dagster_airbyte_proto.sync.read.preparation import PreparedSync
from dagster_airbyte_proto.sync.read.reading_errors import ambiguous_stream_error, large_state_error, shared_state_error
from dagster_airbyte_proto.sync.read.stream_versions import StreamVersions
from dagster_airbyte_proto.sync.report import LineCounts
from dagster_airbyte_proto.sync.stream_run import StreamRun, append_bounded
from dagster_airbyte_proto.sync.sync_context import SyncContext

_READ_TIMEOUT_SECONDS = 0.25
_PROGRESS_SECONDS = 0.2
_MAX_RATE_LIMIT_SECONDS = 24 * 3600.0
_REWRITTEN_BESIDE = (
    "the connector rewrote its config while others of its processes ran, whose tokens it may have invalidated: one"
    " process reads all streams from now on"
)
_EVENT_NAMES = {SchemaEvent: "a schema", VersionEvent: "a version", BatchEvent: "a batch"}


class Pull:
    """One reading of a source connector. `run` is called once. When it ends, no load is being committed, and the states
    of the last one have not moved."""

    def __init__(
        self, context: SyncContext, prepared: PreparedSync, scheduler: CommitScheduler, given_config: Mapping[str, Any]
    ) -> None:
        self._context, self._scheduler, self._given_config = context, scheduler, given_config
        self._protocol, self._log = context.protocol, context.log
        self._timeouts = context.options.timeouts
        self._max_state_bytes = context.source.connection.load.max_state_bytes
        self._runs, self._stage = prepared.runs, prepared.stage
        self._targets, self._schema_updates = prepared.targets, prepared.schema_updates
        self._demux: Demux | BatchDemux = (
            BatchDemux()
            if context.protocol.sends_batches
            else Demux(context.protocol.record_wire, prepared.stage.stream_of)
        )
        self._has_statuses = False
        self._hang_detector = HangDetector(self._timeouts, time.monotonic())
        self._error_without_stream: ConnectorError | None = None
        self._unrequested_streams: set[StreamId] = set()
        self._provisional: StateEvent | None = None
        self._last_config = b""
        self._configs = RewrittenConfigs(self._save_config)
        self._versions = StreamVersions(None if context.request.starts_over else context.protocol.states)
        self.lines = LineCounts()
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.kept: Mapping[str, Mapping[str, str]] = {}
        self._unreadable_records = 0
        self.met_shared_state = self.was_cancelled = False
        self.exit: ExitReport | None = None
        self.seconds_waiting = self.seconds_staging = 0.0

    def run(self, connector: RunningConnector) -> None:
        """Reads the connector to its end. Raises errors that end the whole sync; those of streams are in their
        `StreamRun`s."""
        try:
            self._read_all(connector)
            self.exit = self._wait_for_exit(connector)
            if self._provisional is not None and ended_by_itself(self.exit):
                # From a provisional state the connector would send again rows of before. It ended by itself, so all its
                # rows are here.
                self._pass_on_state(self._provisional)
        except ConnectorError as error:
            append_bounded(self.errors, str(error))
            self._error_without_stream = error
        finally:
            connector.stop()
            self._configs.take_newest()
            self._check_config_file(connector, is_last=True)
        if self.exit is None:
            with suppress(ConnectorError):  # Reported above already: how it ended stays unknown.
                self.exit = connector.wait(0)
        self._complete_by_version()
        ending = ConnectorEnding(self.exit, self.was_cancelled, self._error_without_stream, self._has_statuses)
        if self.exit is not None:
            ending = ending._replace(how_it_ended=self._context.source.mask.text(self.exit.how_it_ended_and_why))
        self._scheduler.finish(ending)
        for stream, rows in self._stage.unconfigured.items():
            self._warn(f"{rows} records came for stream {stream}, which was not requested: ignored")
        if self._unreadable_records:
            self._warn(f"{self._unreadable_records} records could not be read, and are in no table: see the log")

    def _read_all(self, connector: RunningConnector) -> None:
        last_report = time.monotonic()
        while True:
            if self._context.is_cancelled():
                self.was_cancelled = True
                return
            self._scheduler.poll()
            before_read = time.monotonic()
            chunk = connector.read(_READ_TIMEOUT_SECONDS)
            after_read = time.monotonic()
            self.seconds_waiting += after_read - before_read
            if chunk is not None:
                self._process(self._demux.feed(chunk) if chunk else self._demux.finish())
                self._scheduler.provide_targets()
                self._scheduler.count_bytes(len(chunk))
                if self.lines.record:
                    self._targets.start()
            after_staging = time.monotonic()
            self.seconds_staging += after_staging - after_read
            if after_read - last_report > _PROGRESS_SECONDS:
                last_report = after_read
                self._scheduler.count_all()
                self._stage.close_old_files()
                self._configs.take_newest()
                self._check_config_file(connector)
                self._context.options.progress_listener.progressed()
            if chunk == b"":
                return
            # Checked also when a chunk came: log lines are no sign of life, and may come without a pause.
            self._hang_detector.check(self.lines, after_staging)

    def _process(self, items: Iterable[RecordLines | ArrowContent | bytes]) -> None:
        for item in items:
            if isinstance(item, RecordLines):
                self.lines.record += self._stage.add(item)
            elif isinstance(item, ArrowContent):
                self._add_batches(item)
            else:
                self._dispatch(self._protocol.event(item))

    def _add_batches(self, rows: ArrowContent) -> None:
        try:
            for batch in record_batches(rows.content, rows.stream):
                self.lines.record += self._stage.add_batch(rows.stream, batch)
                self._scheduler.provide_targets()
        except ConnectorError as error:
            run = self._runs.get(rows.stream)
            if run is None:
                raise
            self._scheduler.fail_stream(run, error)

    def _wait_for_exit(self, connector: RunningConnector) -> ExitReport | None:
        if self.was_cancelled:
            connector.stop()
            return connector.wait(0)
        report = connector.wait(self._timeouts.exit_seconds)
        if report is None:
            seconds = self._timeouts.exit_seconds
            self._warn(f"the connector closed its output but still ran {seconds:.0f} s later: it was stopped")
            connector.stop()
            report = connector.wait(0)
        return report

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, StateEvent):
            self.lines.state += 1
            self._on_state(event)
        elif isinstance(event, RecordLine):
            self.lines.record += 1
            self._stage.add_line(event.stream, event.line)
        elif isinstance(event, SchemaEvent | VersionEvent | BatchEvent):
            self.lines.other += 1
            self._on_schema_version_or_batch(event)
        elif isinstance(event, LogEvent):
            self.lines.log += 1
            self._log.write(event.level, event.message)
        elif isinstance(event, StatusEvent):
            self.lines.trace += 1
            self._on_status(event)
        elif isinstance(event, ErrorEvent):
            self.lines.trace += 1
            self._on_error(event)
        elif isinstance(event, RejectedRecordEvent):
            self.lines.other += 1
            self._on_rejected(event)
        elif isinstance(event, KeptValuesEvent):
            self.kept = event.values
        elif isinstance(event, EstimateEvent | AnalyticsEvent):
            self.lines.trace += 1
            self._log.write("DEBUG", repr(event))
        elif isinstance(event, MetricEvent):
            self.lines.trace += 1
            self._context.source.take_metric(event, event.stream)
        elif isinstance(event, ConfigEvent):
            self.lines.other += 1
            self._configs.receive(event)
        else:
            self.lines.other += 1
            self._unreadable_records += isinstance(event, UnknownEvent) and event.kind.upper() == "RECORD"
            self._log.write("DEBUG" if isinstance(event, PlainLine) else "WARN", _log_text(event))

    def _on_state(self, event: StateEvent) -> None:
        if event.state.stream is None or event.state.stream in self._runs:
            self._hang_detector.state_came(event.state)
        self._provisional = event if event.is_provisional else None
        if not event.is_provisional:
            self._pass_on_state(event)

    def _pass_on_state(self, event: StateEvent) -> None:
        stream = event.state.stream
        if stream is not None and stream not in self._runs:
            self._warn_unrequested(stream, "a state")
        elif len(event.state.message) > self._max_state_bytes:
            self._refuse_state(event.state)
            return
        if stream is None and self._context.is_group and self._scheduler.has_incremental_streams:
            self.met_shared_state = True
            raise shared_state_error(event.state)
        mismatch = self._scheduler.receive_state(event.state, event.record_count)
        if mismatch is not None:
            named = f"stream {stream}: " if stream else ""
            self._warn(f"{named}{mismatch.text}")

    def _refuse_state(self, state: State) -> None:
        """Fails the stream, or the sync if the state is shared. Rows that earlier states cover land all the same."""
        error = large_state_error(state, self._max_state_bytes)
        if state.stream is None:
            raise error
        self._scheduler.fail_stream(self._runs[state.stream], error)

    def _on_schema_version_or_batch(self, event: SchemaEvent | VersionEvent | BatchEvent) -> None:
        candidates = self._stage.candidates_for(event.stream)
        if not candidates:
            self._warn_unrequested(event.stream, _EVENT_NAMES[type(event)])
        for stream in candidates if len(candidates) > 1 else ():
            self._scheduler.fail_stream(self._runs[stream], ambiguous_stream_error(event.stream, stream, candidates))
        run = self._runs[candidates[0]] if len(candidates) == 1 else None
        if run is None or run.has_failed:
            return
        if isinstance(event, SchemaEvent):
            try:
                self._schema_updates.apply(run, event)
            except (ConfigError, ConnectorError) as error:
                self._scheduler.fail_stream(run, error)
        elif isinstance(event, VersionEvent):
            self._log.write("INFO", f"stream {event.stream}: version {event.version} is the current one")
            warning = self._versions.activate(run, event.version, self._stage.emitted(run.planned.id))
            if warning is not None:
                self._warn(warning)
        else:
            self._on_batch(run, event)

    def _on_batch(self, run: StreamRun, event: BatchEvent) -> None:
        try:
            if self._context.is_replay:
                raise replayed_batch_error(event)
            for url in locate_files(event, self._context.batch_folder):
                records = self._stage.add_file(run.planned.id, url, self._with_housekeeping(record_lines(event, url)))
                self.lines.record += records
                if not records:  # An empty file belongs to no part, so no promoted load would remove it.
                    remove_sources([url])
        except ConnectorError as error:
            self._scheduler.fail_stream(run, error)

    def _with_housekeeping(self, pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Passes the pieces of a file through, and after each does what the reading loop does after a chunk: a file may
        be long."""
        for lines, count in pieces:
            yield lines, count
            self._scheduler.provide_targets()
            self._scheduler.count_bytes(len(lines))
            self._scheduler.poll()

    def _on_rejected(self, event: RejectedRecordEvent) -> None:
        reason = self._context.source.mask.text(event.reason)
        self._log.write("WARN", f"stream {event.stream}: the connector rejected a record: {reason}")
        run = self._runs.get(event.stream)
        if run is None:
            self._warn_unrequested(event.stream, "a rejected record")
            return
        try:
            self._stage.reject(event.stream, event.record, reason, event.kind)
        except ConnectorError as error:
            self._scheduler.fail_stream(run, error)
        self._scheduler.provide_targets()

    def _complete_by_version(self) -> None:
        """Marks streams as complete that sent their version after their last record, however other streams ended."""
        for stream, run in self._runs.items():
            if self._versions.is_whole(stream, self._stage.emitted(stream)) and not run.has_failed:
                run.reported_status = run.reported_status or StreamStatus.COMPLETE

    def _on_status(self, event: StatusEvent) -> None:
        self._has_statuses = True
        run = self._runs.get(event.stream)
        if run is None:
            self._warn_unrequested(event.stream, "a status")
            return
        run.reported_status = event.status
        if event.limited_until_milliseconds is not None:
            self._note_rate_limit(event.stream, max(0.0, event.limited_until_milliseconds / 1000 - time.time()))
        if event.status is StreamStatus.INCOMPLETE:
            found = "the connector ended it as INCOMPLETE"
            self._scheduler.fail_stream(run, ConnectorError(READING, found, stream=str(event.stream), retryable=True))

    def _note_rate_limit(self, stream: StreamId, seconds: float) -> None:
        # At most a day: sources have sent seconds for milliseconds, and the other way round.
        self._hang_detector.rate_limited(time.monotonic() + min(seconds, _MAX_RATE_LIMIT_SECONDS))
        self._log.write("WARN", f"stream {stream} is rate limited: the connector waits {seconds:.0f} s")

    def _on_error(self, event: ErrorEvent) -> None:
        where = f"stream {event.stream}: " if event.stream else ""
        mask = self._context.source.mask
        found = mask.text(event.summary)
        append_bounded(self.errors, f"{where}{found}")
        self._log.write("ERROR", f"{where}{mask.text(event.whole)}")
        error = ConnectorError(
            READING,
            found,
            stream=str(event.stream) if event.stream else None,
            retryable=event.kind is not FailureKind.CONFIG,
        )
        run = self._runs.get(event.stream) if event.stream else None
        if run is None:
            self._error_without_stream = self._error_without_stream or error
        else:
            run.error = error
            self._scheduler.fail_stream(run, error)

    def _save_config(self, event: ConfigEvent) -> None:
        if self._context.is_group:
            if event.config == self._given_config:  # It changed nothing, and a process beside it may have.
                return
            self._warn(_REWRITTEN_BESIDE)
        try:
            self._context.save_config(event)
        except ProtoError as error:
            self._warn(f"the connector's new config could not be stored; its next run may be refused: {error}")

    def _check_config_file(self, connector: RunningConnector, *, is_last: bool = False) -> None:
        """Stores a config that the connector wrote to its config file instead of sending it as a message.

        The file may be half written until the connector has ended. Only then does unreadable content give a warning.
        """
        content = connector.rewritten_file()
        if content is None or content == self._last_config:
            return
        event = parse_config_file(content)
        if event is not None:
            self._last_config = content
            self._save_config(event)
        elif is_last:
            self._warn("the connector left a config behind that is no JSON object: it is not stored")

    def _warn_unrequested(self, stream: StreamId, event_name: str) -> None:
        if stream not in self._unrequested_streams and len(self._unrequested_streams) < MAX_NAMES:
            self._unrequested_streams.add(stream)
            self._log.write("WARN", f"{event_name} came for stream {stream}, which was not requested: ignored")

    def _warn(self, text: str) -> None:
        append_bounded(self.warnings, text)
        self._log.write(LogLevel.ERROR, text)


def _log_text(event: Event) -> str:
    return event.shown() if isinstance(event, PlainLine) else repr(event)
