"""A process of a component among the transforms: batches of rows go in one after the other, and others come back.

A batch is answered when the component asks for the next one, or ends. What comes back after that is for whoever uses
the process to judge.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from dagster_airbyte_proto.encoding.arrow_frames import arrow_frame
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, TransformCancelled
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.destination import Echo, RejectedRecord
from dagster_airbyte_proto.protocols.events import ErrorEvent, LogEvent, MetricEvent, StateEvent
from dagster_airbyte_proto.protocols.rapidbyte import transform as protocol
from dagster_airbyte_proto.protocols.rapidbyte.states import checkpoint_of
from dagster_airbyte_proto.protocols.raw_json import exact_json
from dagster_airbyte_proto.staging.arrow.batch_demux import ArrowContent, BatchDemux
from dagster_airbyte_proto.staging.arrow.ipc_messages import record_batches
from dagster_airbyte_proto.staging.arrow.unpacked_size import unpacked_bytes
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.transforms.component import ComponentReplies
from dagster_airbyte_proto.transforms.enrichment import ROW_NUMBER

TRANSFORMING = "transforming rows by a component"
_WAIT_SECONDS = 0.25
_HANG_SECONDS = 900.0
_MAX_BYTES = 256 << 20
_UNPACKED = 4
_MAX_UNNAMED = 100


def check_component(connector: Destination, doing: str) -> None:
    """Raises ConfigError if the connector is no transform, or its config does not fit its schema."""
    manifest = connector.spec().message.get("manifest")
    reason = protocol.refusal(manifest) if isinstance(manifest, dict) else None
    if reason is not None:
        raise ConfigError(doing, reason)
    connector.check_config()


class ComponentProcess:
    """A running transform of the rows of a stream. Its replies to one batch have at most `max_bytes`, and four times as
    many with each value written out.

    `kept` are the values that it keeps, by scope, `checkpoint` is its last one, both as far as it has said.
    """

    def __init__(
        self,
        connector: Destination,
        running: RunningConnector,
        cancel: threading.Event | None = None,
        stream: StreamId | None = None,
        *,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self._connector, self._running, self._cancel, self._stream = connector, running, cancel, stream
        self._demux, self._max_bytes = BatchDemux(), max_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rejected: dict[int, str] = {}
        self._unnamed: list[str] = []
        self._bytes = self._unpacked_bytes = 0
        self._is_answered = False
        self._error: ErrorEvent | None = None
        self._hang_seconds = connector.connection.connector.timeouts.result_seconds or _HANG_SECONDS
        self.kept: Mapping[str, Mapping[str, str]] = {}
        self.checkpoint = ""
        self.has_ended = False

    def answer(self, batch: pa.RecordBatch) -> ComponentReplies:
        """Sends a batch, and returns what comes back until it is answered. Raises ConnectorError."""
        self._is_answered = False
        frame = arrow_frame(batch)
        self._write(protocol.batch_head(batch.num_rows, len(frame)))
        self._write(frame)
        moved_at = time.monotonic()
        while not (self._is_answered or self.has_ended):
            self._check_cancelled()
            moved_at = self._moved(moved_at)
        return self._taken()

    def end(self) -> ComponentReplies:
        """Ends its input, and returns what else comes back until its end. Raises ConnectorError if it failed."""
        self._running.close_input()
        moved_at = time.monotonic()
        while not self.has_ended:
            before, moved_at = moved_at, self._moved(moved_at)
            if moved_at == before:  # One that is about to end may: its rows can land.
                self._check_cancelled()
        return self._taken()

    def stop(self) -> None:
        self._running.stop()

    def _write(self, data: bytes | memoryview) -> None:
        view, moved_at = memoryview(data), time.monotonic()
        while view:
            self._check_cancelled()
            try:
                view = view[self._running.write(view, _WAIT_SECONDS) :]
            except ConnectorError as error:
                while not self.has_ended:
                    moved_at = self._moved(moved_at)
                raise self._failure(error.found) from error
            self._take(self._running.read(0.0) or b"")

    def _moved(self, moved_at: float) -> float:
        """Takes in what comes, if anything. Returns the time at which something came last."""
        chunk = self._running.read(_WAIT_SECONDS)
        if chunk == b"":
            self._note_end()
        elif chunk:
            self._take(chunk)
        elif time.monotonic() - moved_at > self._hang_seconds:
            raise self._failure("it hangs")
        return time.monotonic() if chunk else moved_at

    def _note_end(self) -> None:
        self.has_ended = True
        report = self._running.wait(self._hang_seconds)
        if self._error is not None or report is None or not report.ended_cleanly:
            raise self._failure(report.how_it_ended_and_why if report else "it did not end")

    def _check_cancelled(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise TransformCancelled(TRANSFORMING, "it was cancelled", retryable=True)

    def _taken(self) -> ComponentReplies:
        taken = ComponentReplies(self._batches, self._rejected, self._unnamed)
        self._batches, self._rejected, self._unnamed = [], {}, []
        self._bytes = self._unpacked_bytes = 0
        return taken

    def _take(self, chunk: bytes) -> None:
        for each in self._demux.feed(chunk):
            if isinstance(each, ArrowContent):
                self._bytes += len(each.content)
                if self._bytes > self._max_bytes:
                    raise self._failure(f"its replies to one batch of rows have more than {self._max_bytes:,} bytes")
                self._take_batches(record_batches(each.content, each.stream, with_valid_values=True))
            else:
                self._take_line(each)

    def _take_batches(self, batches: Sequence[pa.RecordBatch]) -> None:
        # Each has its limit, and a frame of a few bytes has any number of them: nulls, say.
        self._unpacked_bytes += sum(unpacked_bytes(column) for batch in batches for column in batch.columns)
        most = _UNPACKED * self._max_bytes
        if self._unpacked_bytes > most:
            raise self._failure(f"its replies to one batch of rows unpack to more than {most:,} bytes")
        self._batches += batches

    def _take_line(self, line: bytes) -> None:
        found = protocol.reply(line)
        if isinstance(found, protocol.BatchAnswered):
            self._is_answered = True
            self.kept = found.kept or self.kept
        elif isinstance(found, ErrorEvent):
            self._error = self._error or found
        elif isinstance(found, RejectedRecord):
            number, reason = _row_number(found.record), self._connector.mask.text(found.reason)
            if number is not None:
                self._rejected.setdefault(number, reason)
            elif len(self._unnamed) < _MAX_UNNAMED:
                self._unnamed.append(reason)
                self._connector.log.write("WARN", f"it rejected a row, and does not say which one: {reason}")
        elif isinstance(found, StateEvent):
            self.checkpoint = exact_json(checkpoint_of(found.state).payload).decode()
        elif isinstance(found, Echo):
            self.kept = found.kept or self.kept
        elif isinstance(found, MetricEvent):
            self._connector.take_metric(found, self._stream)
        elif isinstance(found, LogEvent):
            self._connector.log.write(found.level, found.message)

    def _failure(self, found: str | UnmaskedText) -> ConnectorError:
        is_transient = self._error is not None and bool(self._error.pauses_seconds)
        text = self._connector.mask.text(self._error.summary if self._error else found)
        return ConnectorError(TRANSFORMING, text, retryable=is_transient)


def _row_number(record: str) -> int | None:
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return None
    number = found.get(ROW_NUMBER) if isinstance(found, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None
