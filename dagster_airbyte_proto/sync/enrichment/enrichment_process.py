"""A process of an enrichment: rows go to its stdin, and what it sends until its end are the rows that came of them.

It gets its opening message, rows, and the end of its input. If it fails, so do all of its rows: those that it had
answered may be among those that it had not. Rows that it takes and replies are its progress, and words are none: a
connector that waits for a rate limit may log that for ever.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, TransformCancelled
from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.protocols.syncmaven import enrichment, messages
from dagster_airbyte_proto.protocols.syncmaven.state_calls import speaks_as_specified
from dagster_airbyte_proto.sync.connector.destination import ConnectorOutput, Destination
from dagster_airbyte_proto.sync.state_server.memory_values import LIMITS_OF_PROCESS, MemoryValues
from dagster_airbyte_proto.sync.state_server.served_values import served_in_memory

ENRICHING = "enriching rows"
_WAIT_SECONDS = 0.25
_LAST_WORDS_SECONDS = 10.0
_HANG_SECONDS = 900.0
_PIECE_BYTES = 4 << 20


class Pace:
    """The rate at which rows may be sent at most, over all processes of an enrichment. Threads may share it."""

    def __init__(self, rows_per_second: float) -> None:
        self.rows_per_second = rows_per_second
        self._free_at = 0.0
        self._lock = threading.Lock()

    def reserve(self, rows: int) -> float:
        """Returns the time, by the monotonic clock, at which so many rows may be sent."""
        with self._lock:
            starts_at = max(time.monotonic(), self._free_at)
            self._free_at = starts_at + rows / self.rows_per_second
            return starts_at


def _never_over() -> None:
    """The check of a run that no other can end."""


class Exchange(NamedTuple):
    """The way in which rows are sent: at what pace, one after the other or all at once, and until when.

    `check` raises ProtoError once the run is over: then no value is served any more.
    """

    pace: Pace | None = None
    is_one_at_a_time: bool = False
    cancel: threading.Event | None = None
    check: Callable[[], None] = _never_over


_AT_ONCE = Exchange()


def check_connector(connector: Destination, doing: str) -> None:
    """Raises ConfigError if the connector is no enrichment, or its config does not fit its schema."""
    reason = enrichment.refusal(connector.spec().message)
    if reason is not None:
        raise ConfigError(doing, reason, remedy="A destination gets rows by a `push`, or as the `to` of a relay.")
    connector.check_config()


@contextmanager
def enrichment_process(
    connector: Destination,
    options: Mapping[str, Any],
    exchange: Exchange = _AT_ONCE,
    values: MemoryValues | None = None,
) -> Iterator["EnrichmentProcess"]:
    """Starts a process of the connector, which sees and changes these values; without them it begins with none, and
    they end with it. The process is stopped at the end."""
    is_as_specified = speaks_as_specified(connector.spec().message)
    values = MemoryValues({}, LIMITS_OF_PROCESS) if values is None else values
    with served_in_memory(connector, values, exchange.check) as variables:
        running = connector.connector.launch(enrichment.invocation(), variables)
        try:
            name = connector.connection.name
            opening = enrichment.opening_line(connector.config.current, options, name, is_as_specified=is_as_specified)
            yield EnrichmentProcess(connector, running, opening, exchange)
        finally:
            running.stop()


class EnrichmentProcess:
    """A running enrichment, for one exchange of rows."""

    def __init__(self, connector: Destination, running: RunningConnector, opening: bytes, exchange: Exchange) -> None:
        self._connector, self._running, self._exchange = connector, running, exchange
        self._opening = opening
        self._output = ConnectorOutput(connector, enrichment.reply)
        self._rows: list[bytes] = []
        self._bytes = self._sent = self._received = 0
        self._last_word: str | None = None  # an "ok" after the last row
        self._hang_seconds = connector.connection.connector.timeouts.result_seconds or _HANG_SECONDS

    def replies(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[bytes]]:
        """Sends rows, all of which can be sent, then the end of its input. Returns the rows that come back, as JSON.

        They come in pieces of some megabytes. As long as a piece is not taken, nothing is sent or read, so the process
        waits too. Raises ConnectorError if the process fails, which may be after its last piece.
        """
        yield from self._write(self._opening)
        for batch in batches:
            for lines, rows in self._lines(batch):
                yield from self._wait_for_pace(rows)
                self._sent += rows
                yield from self._write(lines)
                if self._exchange.is_one_at_a_time:
                    yield from self._wait_for_reply()
        self._running.close_input()
        yield from self._read_to_end()
        report = self._report()
        if report is None or not report.ended_cleanly:
            raise self._failure(report.how_it_ended_and_why if report else "it closed its output and did not end")
        if self._exchange.is_one_at_a_time and self._received != self._sent:
            raise self._failure(f"it sent {self._received:,} replies to {self._sent:,} rows")
        if self._last_word is not None and self._received < self._sent:
            raise self._failure(
                f"it ended with the status ok ({self._last_word}), and sent {self._received:,} replies to"
                f" {self._sent:,} rows: what it prints besides its messages belongs on stderr"
            )
        yield self._taken()

    def _report(self) -> ExitReport | None:
        """Waits for the end of the process, whose output has ended."""
        ends_at = time.monotonic() + self._hang_seconds
        while (report := self._running.wait(_WAIT_SECONDS)) is None and time.monotonic() < ends_at:
            self._check_cancelled()
        return report

    def _check_cancelled(self) -> None:
        if self._exchange.cancel is not None and self._exchange.cancel.is_set():
            raise TransformCancelled(ENRICHING, "it was cancelled", retryable=True)

    def _lines(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | memoryview, int]]:
        """Returns the lines of the rows that are sent at once, with their number."""
        lines, count = record_lines(batch, RecordFrame(*enrichment.ROW_FRAME)), batch.num_rows
        pace, step = self._exchange.pace, count
        if pace is not None:
            step = max(1, min(count, int(pace.rows_per_second * _WAIT_SECONDS)))
        if self._exchange.is_one_at_a_time:
            step = 1
        if step >= count:
            yield lines, count
            return
        each = bytes(lines).splitlines(keepends=True)  # JSON has no line ends but those between rows.
        for start in range(0, count, step):
            part = each[start : start + step]
            yield b"".join(part), len(part)

    def _wait_for_pace(self, rows: int) -> Iterator[list[bytes]]:
        if self._exchange.pace is None:
            return
        starts_at = self._exchange.pace.reserve(rows)
        while (left := starts_at - time.monotonic()) > 0:
            if self._read(min(left, _WAIT_SECONDS)) == b"":
                return  # Writing to it will tell why.
            yield from self._full_piece()

    def _wait_for_reply(self) -> Iterator[list[bytes]]:
        moved_at = time.monotonic()
        while self._received < self._sent:
            if self._read(_WAIT_SECONDS) == b"":
                raise self._ended("it closed its output")
            if time.monotonic() - moved_at > self._hang_seconds:
                raise self._failure("it sent no reply to a row")
        yield from self._full_piece()
        if self._received > self._sent:
            raise self._failure("it sent several replies to one row")

    def _write(self, data: bytes | memoryview) -> Iterator[list[bytes]]:
        view, moved_at = memoryview(data), time.monotonic()
        while view:
            try:
                taken = self._running.write(view, _WAIT_SECONDS)
            except ConnectorError as error:
                raise self._ended(error.found) from error
            view, received = view[taken:], self._received
            self._read(0.0)
            if taken or self._received > received:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._hang_seconds:
                raise self._failure("it reads nothing any more")
            if full := self._full_piece():
                yield from full
                moved_at = time.monotonic()

    def _read_to_end(self) -> Iterator[list[bytes]]:
        moved_at, received = time.monotonic(), self._received
        while self._read(_WAIT_SECONDS) != b"":
            if full := self._full_piece():
                yield from full
            if self._received > received or full:
                moved_at, received = time.monotonic(), self._received
            elif time.monotonic() - moved_at > self._hang_seconds:
                raise self._failure("it hangs")

    def _read(self, seconds: float) -> bytes | None:
        """Takes in what comes within so many seconds: None if nothing came, nothing at its end."""
        self._check_cancelled()
        chunk = self._running.read(seconds)
        for found in self._output.feed(chunk) if chunk else self._output.finish() if chunk == b"" else ():
            if isinstance(found, messages.EnrichedRow):
                self._rows.append(found.row)
                self._bytes += len(found.row)
                self._received += 1
                self._last_word = None
            elif isinstance(found, messages.UntypedOk):
                self._last_word = found.message
                self._connector.log.write("WARN", f"it said ok without saying of what: {found.message}")
            else:
                self._output.skip(type(found).__name__)
        if self._output.error is not None:
            raise self._failure(self._output.error)
        return chunk

    def _full_piece(self) -> tuple[list[bytes], ...]:
        return (self._taken(),) if self._bytes >= _PIECE_BYTES else ()

    def _taken(self) -> list[bytes]:
        taken, self._rows, self._bytes = self._rows, [], 0
        return taken

    def _ended(self, found: str) -> ConnectorError:
        """Returns why the process ended before its time: its own word if it has one, else how it ended."""
        for _ in self._read_to_end():
            continue
        report = self._running.wait(_LAST_WORDS_SECONDS)
        return self._failure(report.how_it_ended_and_why if report else found)

    def _failure(self, found: str | UnmaskedText) -> ConnectorError:
        return ConnectorError(ENRICHING, self._connector.mask.text(self._output.error or found))
