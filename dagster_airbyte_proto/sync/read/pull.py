"""One connector's output, from its first byte to its last: heard, staged, and landed as `landing` says."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError
from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.conversation import SourceProtocol, config_in
from dagster_airbyte_proto.protocols.events import (
    AnalyticsEvent,
    BatchEvent,
    ConfigEvent,
    ErrorEvent,
    EstimateEvent,
    Event,
    FailureKind,
    LogEvent,
    LogLevel,
    PlainLine,
    RecordLine,
    SchemaEvent,
    StateEvent,
    StatusEvent,
    StreamStatus,
    VersionEvent,
)
from dagster_airbyte_proto.staging.lines.demux import Demux, Run
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit.landing import Landing
from dagster_airbyte_proto.sync.read.batch_files import record_lines, remove_sources
from dagster_airbyte_proto.sync.read.verdict import READING, Ending, ended_by_itself
from dagster_airbyte_proto.sync.report import LineCounts
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.stream_run import StreamRun, keep

_READ_TIMEOUT_SECONDS = 0.25
_PROGRESS_SECONDS = 0.2
_LONGEST_QUOTA_SECONDS = 24 * 3600.0
_TOLD = {SchemaEvent: "a schema", VersionEvent: "a version", BatchEvent: "a batch"}


class Patience(NamedTuple):
    """How long a connector may be silent before it counts as hung. While it says that it waits for a rate limit's reset
    it is not silent."""

    startup_seconds: float = 600.0
    heartbeat_seconds: float = 3 * 3600.0
    exit_seconds: float = 60.0


class Surroundings(NamedTuple):
    """What a pull turns to while it works. `is_cancelled` raises when the run has lost its right to go on. It
    `reads_files` that a connector names: not those of one that is confined, which could name any of ours."""

    log: RunLog
    is_cancelled: Callable[[], bool]
    keep_config: Callable[[ConfigEvent], None]
    progress: Callable[[], None]
    describe: Callable[[StreamRun, SchemaEvent], None]
    reads_files: bool
    deliver: Callable[[], None]


class Pull:
    """Reads, stages and closes loads. `run` is called once; when it returns or raises, no load is at work."""

    def __init__(
        self,
        protocol: SourceProtocol,
        runs: Mapping[StreamId, StreamRun],
        staging: tuple[Stage, Landing],
        around: Surroundings,
        patience: Patience,
    ) -> None:
        self._protocol = protocol
        self._runs = runs
        self._stage, self._landing = staging
        self._around = around
        self._patience = patience
        self._demux = Demux(protocol.shape, self._stage.stream_of)
        self._heard_statuses = False
        self._limited_until = 0.0
        self._unplaced_error: ConnectorError | None = None
        self._unknown_streams: set[StreamId] = set()
        self._provisional: StateEvent | None = None
        self._config_seen = b""
        self._whole_at: dict[StreamId, int] = {}
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
            keep(self.errors, str(error))
            self._unplaced_error = error
        finally:
            connector.stop()
            self._look_at_config(connector, is_last=True)
        if self.exit is None:
            with suppress(ConnectorError):  # told above: nobody knows how it ended
                self.exit = connector.wait(0)
        if self._provisional is not None and ended_by_itself(self.exit):
            # All that it would have sent again has come.
            self._take_state(self._provisional)
        self._take_versions()
        ending = Ending(self.exit, self.cancelled, self._unplaced_error, self._heard_statuses)
        self._landing.land_the_rest(ending)
        for stream, rows in self._stage.unconfigured.items():
            self._warn(f"{rows} records came for stream {stream}, which was not asked for: ignored")
        self._around.deliver()
        reach("run.delivered")
        self._landing.promote_last()

    def _read_all(self, connector: RunningConnector) -> None:
        began = last_beat = last_told = time.monotonic()
        beats = -1
        while True:
            if self._around.is_cancelled():
                self.cancelled = True
                return
            self._landing.look()
            asked = time.monotonic()
            chunk = connector.read(_READ_TIMEOUT_SECONDS)
            arrived = time.monotonic()
            self.seconds_waiting += arrived - asked
            if chunk is not None:
                self._take(self._demux.feed(chunk) if chunk else self._demux.finish())
                self._landing.took(len(chunk))
            taken = time.monotonic()
            self.seconds_staging += taken - arrived
            if beats != (beats := self.lines.record + self.lines.state):
                last_beat = taken
            if arrived - last_told > _PROGRESS_SECONDS:
                last_told = arrived
                self._landing.count_all()
                self._look_at_config(connector)
                self._around.progress()
            if chunk == b"":
                return
            # Asked also when something came: log lines are no sign of life, and may come without a pause.
            self._check_pulse(taken - began, taken - max(last_beat, self._limited_until))

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
        elif isinstance(event, SchemaEvent | VersionEvent | BatchEvent):
            self.lines.other += 1
            self._on_stream_event(event)
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
        self._provisional = event if event.is_provisional else None
        if not event.is_provisional:
            self._take_state(event)

    def _take_state(self, event: StateEvent) -> None:
        stream = event.state.stream
        if stream is not None and stream not in self._runs:
            self._note_unknown(stream, "a state")
        mismatch = self._landing.take(event.state, event.record_count)
        if mismatch is not None:
            self._warn(f"stream {stream}: {mismatch}")

    def _on_stream_event(self, event: SchemaEvent | VersionEvent | BatchEvent) -> None:
        meant = self._stage.meant_by(event.stream)
        if not meant:
            self._note_unknown(event.stream, _TOLD[type(event)])
        for stream in meant if len(meant) > 1 else ():
            self._landing.fail(self._runs[stream], _unclear(event.stream, stream, meant))
        run = self._runs[meant[0]] if len(meant) == 1 else None
        if run is None or run.has_failed:
            return
        if isinstance(event, SchemaEvent):
            try:
                self._around.describe(run, event)
            except (ConfigError, ConnectorError) as error:
                self._landing.fail(run, error)
        elif isinstance(event, VersionEvent):
            self._around.log.write("INFO", f"stream {event.stream}: version {event.version} is the one that counts")
            self._whole_at[run.planned.id] = self._stage.emitted(run.planned.id)
        else:
            self._on_batch(run, event)

    def _on_batch(self, run: StreamRun, event: BatchEvent) -> None:
        if not self._around.reads_files:
            found = "it hands records over in files, and one in a container could name any that we may read"
            remedy = "Take batch_config out of its config."
            self._landing.fail(run, ConnectorError(READING, found, remedy=remedy, stream=str(run.planned.id)))
            return
        try:
            for url in event.files:
                records = self._stage.add_file(run.planned.id, url, self._heeded(record_lines(event, url)))
                self.lines.record += records
                if not records:  # There may be no load that it could go with.
                    remove_sources([url])
        except ConnectorError as error:
            self._landing.fail(run, error)

    def _heeded(self, pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Pieces of a file, which may be long, with what has to be done beside them."""
        for lines, count in pieces:
            yield lines, count
            self._landing.took(len(lines))
            self._landing.look()

    def _take_versions(self) -> None:
        """A stream that has told of its version behind its last record is complete, whatever befell the others. One
        that is empty may have told of it at its beginning."""
        for stream, records in self._whole_at.items():
            if records and records == self._stage.emitted(stream) and not self._runs[stream].has_failed:
                self._runs[stream].said = self._runs[stream].said or StreamStatus.COMPLETE

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
            self._landing.fail(run, ConnectorError(READING, found, stream=str(event.stream), retryable=True))

    def _wait_for_reset(self, stream: StreamId, seconds: float) -> None:
        # Not for ever: sources have sent seconds for milliseconds, and the other way round.
        self._limited_until = time.monotonic() + min(seconds, _LONGEST_QUOTA_SECONDS)
        self._around.log.write("WARN", f"stream {stream} is rate limited: the connector waits {seconds:.0f} s")

    def _on_error(self, event: ErrorEvent) -> None:
        where = f"stream {event.stream}: " if event.stream else ""
        detail = f" ({event.internal_message})" if event.internal_message else ""
        keep(self.errors, f"{where}{event.message}{detail}")
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
            self._landing.fail(run, error)

    def _on_config(self, event: ConfigEvent) -> None:
        try:
            self._around.keep_config(event)
        except ProtoError as error:
            self._warn(f"the connector's new config could not be kept; its next run may be refused: {error}")

    def _look_at_config(self, connector: RunningConnector, *, is_last: bool = False) -> None:
        """A connector may write what it made of its config instead of saying it: half of it, until it has ended."""
        content = connector.changed_file()
        if content is None or content == self._config_seen:
            return
        event = config_in(content)
        if event is not None:
            self._config_seen = content
            self._on_config(event)
        elif is_last:
            self._warn("the connector left a config behind that is no JSON object: it is not kept")

    def _note_unknown(self, stream: StreamId, what: str) -> None:
        if stream not in self._unknown_streams:
            self._unknown_streams.add(stream)
            self._around.log.write("WARN", f"{what} came for stream {stream}, which was not asked for: passed over")

    def _warn(self, text: str) -> None:
        keep(self.warnings, text)
        self._around.log.write(LogLevel.ERROR, text)


def _hung(found: str) -> ConnectorError:
    return ConnectorError(READING, f"{found}: it was stopped", remedy="Its log is kept with the run.", retryable=True)


def _unclear(said: StreamId, stream: StreamId, meant: Iterable[StreamId]) -> ConnectorError:
    return ConnectorError(
        READING,
        f"its records call their stream {said}, and so may those of {' and '.join(map(str, meant))}",
        remedy="Give each of them a connection of its own.",
        stream=str(stream),
    )


def _plainly(event: Event) -> str:
    return event.line.decode(errors="replace")[:4000].rstrip() if isinstance(event, PlainLine) else repr(event)
