"""The components among a connection's transforms: each batch of rows goes to a process of its own.

What a component keeps for the stream comes with the batch and goes with its replies: it belongs to the rows, and is
saved with them. What belongs to no stream stays here, and is saved when the run ends well.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from dagster_airbyte_proto.encoding.arrow_frames import arrow_frame, stream_columns
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, TransformError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.protocols.destination import Echo, RejectedRecord
from dagster_airbyte_proto.protocols.events import ErrorEvent, LogEvent, StateEvent
from dagster_airbyte_proto.protocols.rapidbyte import transform as protocol
from dagster_airbyte_proto.protocols.rapidbyte.states import checkpoint_of
from dagster_airbyte_proto.staging.arrow.batch_demux import ArrowContent, BatchDemux
from dagster_airbyte_proto.staging.arrow.ipc_messages import record_batches
from dagster_airbyte_proto.sync.push.push_context import Destination
from dagster_airbyte_proto.transforms.component import ComponentReplies
from dagster_airbyte_proto.transforms.enrichment import ROW_NUMBER

_DOING = "transforming rows by a component"
_WAIT_SECONDS = 0.25
_HANG_SECONDS = 900.0


def check_component(connector: Destination, doing: str) -> None:
    """Raises ConfigError if the connector is no transform, or its config does not fit its schema."""
    manifest = connector.spec().message.get("manifest")
    reason = protocol.refusal(manifest) if isinstance(manifest, dict) else None
    if reason is not None:
        raise ConfigError(doing, reason)
    connector.check_config()


class ComponentTransformer:
    """Sends batches to processes of a component. `shared` are the values that it keeps for no stream, by scope."""

    def __init__(self, connector: Destination, name: str, shared: Mapping[str, Mapping[str, str]]) -> None:
        self.name, self.shared, self._shared_before = name, shared, shared
        self._connector = connector

    @property
    def changed(self) -> Mapping[str, Mapping[str, str]]:
        """The values for no stream that are new, by scope."""
        return {
            scope: {key: text for key, text in values.items() if self._shared_before.get(scope, {}).get(key) != text}
            for scope, values in self.shared.items()
        }

    def transform(self, batch: pa.RecordBatch, on_error: str, state: TransformState) -> ComponentReplies:
        config = self._connector.config.current
        kept = protocol.KeptByTransform(state.checkpoint, state.values, self.shared)
        invocation = protocol.invocation(config, stream_columns(batch.schema), on_error, kept)
        try:
            with _stopped(self._connector.connector.launch(invocation, {})) as running:
                process = _ComponentProcess(self._connector, running)
                frame = arrow_frame(batch)
                process.write(protocol.batch_head(batch.num_rows, len(frame)))
                process.write(frame)
                process.end()
                self.shared = {scope: each for scope, each in process.kept.items() if scope != "stream"}
                now = TransformState(self.name, process.checkpoint or state.checkpoint, process.kept.get("stream", {}))
                return ComponentReplies(process.batches, process.rejected, now)
        except ConnectorError as error:
            text = self._connector.mask.text(error.found)
            raise TransformError(_DOING, text, remedy=error.remedy, retryable=error.retryable) from error


@contextmanager
def _stopped(running: RunningConnector) -> Iterator[RunningConnector]:
    try:
        yield running
    finally:
        running.stop()


class _ComponentProcess:
    """A running transform, and what has come back so far."""

    def __init__(self, connector: Destination, running: RunningConnector) -> None:
        self._connector, self._running = connector, running
        self._demux = BatchDemux()
        self.batches: list[pa.RecordBatch] = []
        self.rejected: dict[int, str] = {}
        self.kept: Mapping[str, Mapping[str, str]] = {}
        self.checkpoint = ""
        self._error: ErrorEvent | None = None
        self._hang_seconds = connector.connection.connector.timeouts.result_seconds or _HANG_SECONDS

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._running.write(view, _WAIT_SECONDS) :]
            except ConnectorError as error:
                self._read_to_end()
                raise self._failure(error.found) from error
            self._take(self._running.read(0.0) or b"")

    def end(self) -> None:
        """Closes the input, and reads all that comes back. Raises ConnectorError if the component failed."""
        self._running.close_input()
        self._read_to_end()
        report = self._running.wait(self._hang_seconds)
        if self._error is not None or report is None or not report.ended_cleanly:
            raise self._failure(report.how_it_ended_and_why if report else "it did not end")

    def _read_to_end(self) -> None:
        moved_at = time.monotonic()
        while (chunk := self._running.read(_WAIT_SECONDS)) != b"":
            self._take(chunk or b"")
            if chunk:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._hang_seconds:
                raise self._failure("it hangs")

    def _take(self, chunk: bytes) -> None:
        for each in self._demux.feed(chunk):
            if isinstance(each, ArrowContent):
                self.batches += record_batches(each.content, each.stream)
            else:
                self._take_line(each)

    def _take_line(self, line: bytes) -> None:
        found = protocol.reply(line)
        if isinstance(found, ErrorEvent):
            self._error = self._error or found
        elif isinstance(found, RejectedRecord):
            number = _row_number(found.record)
            if number is not None:
                self.rejected.setdefault(number, found.reason)
        elif isinstance(found, StateEvent):
            self.checkpoint = json.dumps(checkpoint_of(found.state).payload)
        elif isinstance(found, Echo):
            self.kept = found.kept
        elif isinstance(found, LogEvent):
            self._connector.log.write(found.level, found.message)

    def _failure(self, found: str) -> ConnectorError:
        is_transient = self._error is not None and bool(self._error.pauses_seconds)
        return ConnectorError(_DOING, self._error.summary if self._error else found, retryable=is_transient)


def _row_number(record: str) -> int | None:
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return None
    number = found.get(ROW_NUMBER) if isinstance(found, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None
