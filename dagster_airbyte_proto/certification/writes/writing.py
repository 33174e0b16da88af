"""Runs one write of scratch rows, and collects its evidence. Lines are made and read as in a push.

1. A state follows each batch. Each write has a plan of its own, so a state of another write is a stranger.
2. One thread writes and reads in turn, so that a destination that waits for us to read cannot hang.
3. A write ends by the end of the input, in the middle of a line, or by SIGTERM: its `Ending`. Before, what comes back
   is waited for a while: a destination that sends states only at its end is then told from one that sends each.
"""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.certification.watching.watched_launcher import WatchedConnector
from dagster_airbyte_proto.certification.writes.fitting_rows import no_fitting_rows
from dagster_airbyte_proto.certification.writes.write_evidence import ReceivedState, WriteEvidence, WriteMark
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.protocols.conversation import parse_config_file
from dagster_airbyte_proto.protocols.destination import Echo, RejectedRecord, SentPosition, StreamResult, WriteRequest
from dagster_airbyte_proto.protocols.events import ConfigEvent, PlainLine, RecordLine
from dagster_airbyte_proto.sync.connector.destination import ConnectorOutput, Destination
from dagster_airbyte_proto.sync.push.content.stream_encoder import StreamEncoder
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch

_READ_SECONDS = 0.25
_QUIET_SECONDS = 2.0
_RESULT_SECONDS = 10.0
_DOING = "writing to the destination"
_MAX_RECEIVED = 10_000
_COUNTS = ("sourceStats", "destinationStats", "source_stats", "destination_stats", "id")


class Ending(Enum):
    """The ways in which a write ends: after the last line, in the middle of one, or by SIGTERM with the input open."""

    CLOSED = "closed"
    CUT = "cut"
    CANCELLED = "cancelled"


class WriteScript(NamedTuple):
    """The rows of a write, batch by batch, and its end. It is not ended before `settle_seconds` have passed: then a
    destination has started, and taken what is in the pipe."""

    batches: Iterable[pa.RecordBatch] = ()
    ending: Ending = Ending.CLOSED
    settle_seconds: float = 0.0
    bound_seconds: float = 120.0


class StateCollector:
    """Collects what a destination sends back during one write."""

    def __init__(self, destination: Destination, request: WriteRequest) -> None:
        self._destination = destination
        self._output = ConnectorOutput(destination, self._reply, request.stream.id)
        self._plan_id = f"certify-{uuid.uuid4()}"
        self._sent: dict[int, Any] = {}
        self._back: set[int | None] = set()
        self._line = b""
        self._messages = 0
        self.is_open = True
        self.received: list[ReceivedState] = []
        self.rejections: list[str] = []
        self.result: StreamResult | None = None
        self.has_records = False
        self.plain_lines = 0

    @property
    def states(self) -> tuple[int, ...]:
        return tuple(self._sent)

    @property
    def reported(self) -> str | None:
        return self._output.error

    @property
    def has_all(self) -> bool:
        """True if the last state that was sent is back."""
        return not self._sent or any(each.rows == max(self._sent) for each in self.received)

    def position(self, rows: int, records: int) -> SentPosition:
        return SentPosition(self._plan_id, rows, records)

    def sent(self, rows: int, line: bytes) -> None:
        """Notes a state before it is written: it may come back while we still write."""
        self._sent[rows] = _state_in(line)

    def feed(self, chunk: bytes) -> None:
        self._take(self._output.feed(chunk))

    def finish(self) -> None:
        self._take(self._output.finish())

    def _reply(self, line: bytes) -> object:
        self._messages += 1
        self._line = line
        found = self._destination.protocol.reply(line)
        self.plain_lines += isinstance(found, PlainLine)
        return found

    def _take(self, events: Iterator[object]) -> None:
        for found in events:
            if isinstance(found, Echo):
                self._take_state(found)
            elif isinstance(found, StreamResult):
                self.result = self.result or found
            elif isinstance(found, RejectedRecord):
                self.rejections.append(self._destination.mask.text(found.reason))
            elif isinstance(found, RecordLine):
                self.has_records = True
            elif isinstance(found, ConfigEvent):
                self._destination.try_rewritten_config(found)

    def _take_state(self, echo: Echo) -> None:
        if echo.position is None and echo.is_end:
            return
        is_ours = echo.position is not None and echo.position.plan_id == self._plan_id
        rows = echo.position.rows if echo.position is not None and is_ours else None
        if len(self.received) >= _MAX_RECEIVED and (rows not in self._sent or rows in self._back):
            return  # No rule needs the ten-thousandth state that says nothing new.
        self._back.add(rows)
        message = _decoded(self._line)
        self.received.append(
            ReceivedState(
                self._messages,
                rows,
                self.is_open,
                isinstance(message, Mapping) and message.get("type") == "STATE",
                rows in self._sent and _without_counts(_state_in(self._line)) == _without_counts(self._sent[rows]),
                echo.records,
                echo.rejected,
            )
        )


class ScratchWriter:
    """Writes to one process of a destination."""

    def __init__(self, destination: Destination, request: WriteRequest, encoder: StreamEncoder) -> None:
        self._destination, self._request, self._encoder = destination, request, encoder
        self._protocol = destination.protocol
        self._collector = StateCollector(destination, request)
        self._marks: list[WriteMark] = []
        self._refused: list[str] = []
        self._rows = self._size_bytes = 0
        self._deadline = 0.0
        self._is_late = False

    def run(self, running: WatchedConnector, script: WriteScript) -> WriteEvidence:
        """Writes all, ends as the script says, and waits for the end of the process. Stops it in any case."""
        failure, ended_at = None, 0.0
        began_at = time.monotonic()
        self._deadline = began_at + script.bound_seconds
        try:
            try:
                self._send(running, script)
                ended_at = self._end(running, script, began_at)
            except ConnectorError as error:
                failure, ended_at = error, time.monotonic()
                self._read_on(running, _QUIET_SECONDS)
                running.wait(_QUIET_SECONDS)
        finally:
            running.stop()
            self._keep_config(running)
        return self._evidence(running, failure, time.monotonic() - ended_at)

    def _evidence(self, running: WatchedConnector, failure: ConnectorError | None, seconds: float) -> WriteEvidence:
        collector, mask, run = self._collector, self._destination.mask, running.run.without_stdout
        return WriteEvidence(
            rows=self._rows,
            states=collector.states,
            received=tuple(collector.received),
            result=collector.result,
            rejections=tuple(collector.rejections),
            reported=None if collector.reported is None else mask.text(collector.reported),
            failure=failure,
            is_late=self._is_late,
            has_records=collector.has_records,
            plain_lines=collector.plain_lines,
            refused=tuple(self._refused),
            marks=tuple(self._marks),
            end_seconds=seconds,
            end="" if run.report is None else mask.text(run.report.how_it_ended_and_why),
            run=run,
        )

    def _send(self, running: WatchedConnector, script: WriteScript) -> None:
        self._write(running, self._protocol.opening_lines(self._request))
        began_at = time.monotonic()
        for rows in script.batches:
            batch = PlanBatch(self._rows, rows, is_removal=False)
            sendable, refused = self._encoder.sendable(batch)
            self._refused += [f"row {each.row + 1}: {each.reason}" for found in refused for each in found]
            if self._refused and self._encoder.has_schema:
                raise no_fitting_rows(self._refused[0])
            for piece in self._encoder.pieces(sendable, batch):
                self._write(running, piece)
            self._rows = batch.end
            line = self._protocol.state_line(
                self._request.stream, self._collector.position(batch.end, sendable.num_rows)
            )
            if line:
                self._collector.sent(batch.end, line)
                self._write(running, line)
            seconds = time.monotonic() - began_at
            self._marks.append(WriteMark(self._rows, self._size_bytes, seconds, running.peak_memory_bytes))

    def _end(self, running: WatchedConnector, script: WriteScript, began_at: float) -> float:
        """Ends the write, and waits for the end of the process. Returns when it was to end."""
        if script.ending is Ending.CUT:
            self._write(running, self._cut_line())
        elif script.ending is Ending.CLOSED:
            now = time.time_ns() // 1_000_000
            self._write(running, self._protocol.closing_lines(self._request.stream, now, is_end=True))
        self._wait_for_states(running, began_at + script.settle_seconds)
        self._collector.is_open = False
        ended_at = time.monotonic()
        if script.ending is Ending.CANCELLED:
            running.request_stop()
        else:
            running.close_input()
        while (chunk := running.read(_READ_SECONDS)) != b"":
            self._collector.feed(chunk or b"")
            if self._collector.result is not None and time.monotonic() - ended_at > _RESULT_SECONDS:
                running.stop()  # As a push does: it has said all that counts.
            self._check_time("it did not end in time after the end of its input, and was stopped")
        self._collector.finish()
        if running.wait(max(1.0, self._deadline - time.monotonic())) is None:
            self._is_late = True
            raise ConnectorError(_DOING, "it closed its output and did not end")
        return ended_at

    def _cut_line(self) -> bytes:
        """Half of a line, which nobody can read."""
        before, after = self._protocol.record_frame(self._request.stream, time.time_ns() // 1_000_000)
        whole = f'{before}{{"id": 1, "name": "cut off"}}{after}'.encode()
        return whole[: len(whole) // 2]

    def _wait_for_states(self, running: RunningConnector, until: float) -> None:
        """Takes in what comes back while the input is open: for as long as it takes to settle, and then a while."""
        ends_at = max(time.monotonic(), until) + _QUIET_SECONDS
        while time.monotonic() < min(ends_at, self._deadline):
            if self._collector.has_all and (self._collector.received or time.monotonic() > until):
                return
            chunk = running.read(_READ_SECONDS)
            if chunk == b"":
                return
            self._collector.feed(chunk or b"")

    def _write(self, running: RunningConnector, data: bytes | memoryview) -> None:
        view = memoryview(data)
        self._size_bytes += len(view)
        while view:
            view = view[running.write(view, _READ_SECONDS) :]
            self._collector.feed(running.read(0.0) or b"")
            self._check_time("it took no more input in time, and was stopped")

    def _check_time(self, found: str) -> None:
        if time.monotonic() > self._deadline:
            self._is_late = True
            raise ConnectorError(_DOING, found)

    def _read_on(self, running: RunningConnector, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        with suppress(ConnectorError):
            while time.monotonic() < ends_at and (chunk := running.read(_READ_SECONDS)) != b"":
                self._collector.feed(chunk or b"")
            self._collector.finish()

    def _keep_config(self, running: RunningConnector) -> None:
        """Takes a config that the destination rewrote: the old one may be invalid by now."""
        content = running.rewritten_file()
        event = None if content is None else parse_config_file(content)
        if event is not None:
            self._destination.try_rewritten_config(event)


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _state_in(line: bytes) -> Any:
    """The state in a line, whatever is around it."""
    message = _decoded(line)
    if isinstance(message, Mapping) and message.get("type") == "STATE":
        return message.get("state", message.get("value"))
    return message


def _without_counts(state: Any) -> str:
    kept = {name: part for name, part in state.items() if name not in _COUNTS} if isinstance(state, dict) else state
    return json.dumps(kept, sort_keys=True)
