"""A process of an enrichment: rows go to its stdin, and what it sends until its end are the rows that came of them.

It gets its opening message, rows, and the end of its input. If it fails, so do all of its rows: those that it had
answered may be among those that it had not.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dagster_airbyte_proto.checkpoints.kept_values import Asset, KeptValue, Key
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtocolViolation
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.events import ErrorEvent, LogEvent, PlainLine
from dagster_airbyte_proto.protocols.syncmaven import enrichment, messages
from dagster_airbyte_proto.protocols.syncmaven.state_calls import speaks_as_specified
from dagster_airbyte_proto.sync.push.push_context import Destination
from dagster_airbyte_proto.sync.state_server.served_values import served_values

ENRICHING = "enriching rows"
_WAIT_SECONDS = 0.25
_LAST_WORDS_SECONDS = 10.0
_HANG_SECONDS = 900.0
_MAX_LINE_BYTES = 64 << 20


def check_connector(connector: Destination, doing: str) -> None:
    """Raises ConfigError if the connector is no enrichment, or its config does not fit its schema."""
    reason = enrichment.refusal(connector.spec().message)
    if reason is not None:
        raise ConfigError(doing, reason)
    connector.check_config()


@contextmanager
def enrichment_process(connector: Destination, options: Mapping[str, Any]) -> Iterator["EnrichmentProcess"]:
    """Starts a process of the connector, and sends its opening message. The process is stopped at the end."""
    is_as_specified = speaks_as_specified(connector.spec().message)
    name = connector.connection.name
    with served_values(connector, _NothingKept(), Asset(name, StreamId.of("rows")), check=lambda: None) as served:
        running = connector.connector.launch(enrichment.invocation(), served.variables)
        try:
            process = EnrichmentProcess(connector, running)
            process.write(
                enrichment.opening_line(connector.config.current, options, name, is_as_specified=is_as_specified)
            )
            yield process
        finally:
            running.stop()


class EnrichmentProcess:
    """A running enrichment: its input, and the rows that it has sent so far."""

    def __init__(self, connector: Destination, running: RunningConnector) -> None:
        self._connector, self._running = connector, running
        self._unfinished = b""
        self._rows: list[Mapping[str, Any]] = []
        self._error: str | None = None
        self._hang_seconds = connector.connection.connector.timeouts.result_seconds or _HANG_SECONDS

    def write(self, data: bytes | memoryview) -> None:
        """Writes lines, and takes in what comes meanwhile. Raises ConnectorError."""
        view, moved_at = memoryview(data), time.monotonic()
        while view:
            try:
                taken = self._running.write(view, _WAIT_SECONDS)
            except ConnectorError as error:
                self._read_to_end()
                report = self._running.wait(_LAST_WORDS_SECONDS)
                raise self._failure(report.how_it_ended_and_why if report else error.found) from error
            view = view[taken:]
            chunk = self._running.read(0.0)
            self._take(chunk or b"")
            if taken or chunk:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._hang_seconds:
                raise self._failure("it reads nothing any more")

    def write_rows(self, batch: pa.RecordBatch) -> None:
        """Writes rows, all of which can be sent."""
        self.write(record_lines(batch, RecordFrame(*enrichment.ROW_FRAME)))

    def end(self) -> None:
        """Closes the input, and takes in the rest until the process has ended. Raises ConnectorError if it failed."""
        self._running.close_input()
        self._read_to_end()
        report = self._running.wait(self._hang_seconds)
        if report is None or not report.ended_cleanly:
            raise self._failure(report.how_it_ended_and_why if report else "it closed its output and did not end")

    def taken_rows(self) -> list[Mapping[str, Any]]:
        """Returns the rows that have come since the last call."""
        taken, self._rows = self._rows, []
        return taken

    def _read_to_end(self) -> None:
        moved_at = time.monotonic()
        while (chunk := self._running.read(_WAIT_SECONDS)) != b"":
            self._take(chunk or b"")
            if chunk:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._hang_seconds:
                raise self._failure("it hangs")
        self._take(b"\n")

    def _take(self, chunk: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        if len(self._unfinished) > _MAX_LINE_BYTES:
            raise ProtocolViolation(ENRICHING, f"a line of over {_MAX_LINE_BYTES:,} bytes")
        for line in filter(None, lines):
            found = messages.reply(line)
            if isinstance(found, messages.EnrichedRow):
                self._rows.append(found.row)
            elif isinstance(found, ErrorEvent):
                self._error = self._error or found.summary
            elif isinstance(found, LogEvent):
                self._connector.log.write(found.level, found.message)
            elif isinstance(found, PlainLine):
                self._connector.log.write("DEBUG", found.line.decode(errors="replace")[:4000])
        if self._error is not None:
            raise self._failure(self._error)

    def _failure(self, found: str) -> ConnectorError:
        return ConnectorError(ENRICHING, self._connector.mask.text(self._error or found))


class _NothingKept:
    """A ValueStore without values."""

    def kept_value(self, asset: Asset, key: Key) -> bytes | None:  # noqa: ARG002 - there is none
        return None

    def kept_values(self, asset: Asset, prefix: Key = ()) -> Iterator[KeptValue]:  # noqa: ARG002 - there are none
        return iter(())

    def count_kept_values(self, asset: Asset) -> tuple[int, int]:  # noqa: ARG002 - there are none
        return 0, 0
