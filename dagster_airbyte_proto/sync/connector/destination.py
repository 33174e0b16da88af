"""A connection's destination, ready to be queried and to get rows, and the output of one process of it.

Enrichments and components among the transforms get rows by the protocols of destinations too.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.destination import DestinationProtocol
from dagster_airbyte_proto.protocols.events import (
    ErrorEvent,
    FailureKind,
    LogEvent,
    MetricEvent,
    PlainLine,
    UnknownEvent,
)
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector

Destination = ConfiguredConnector[DestinationProtocol]

_MAX_LINE_BYTES = 64 << 20


class ConnectorOutput:
    """The output of one process, line by line: its words go to the log, all else is for the caller.

    `read` says what a line means, and metrics are those of `stream`. `error` is the first error that the connector
    reported, without secrets. `is_final` once it has reported one that would come again, as far as is known.
    """

    def __init__(self, connector: Destination, read: Callable[[bytes], object], stream: StreamId | None = None) -> None:
        self._connector, self._log, self._read, self._stream = connector, connector.log, read, stream
        self._unfinished = b""
        self._skipped: Counter[str] = Counter()
        self.error: str | None = None
        self.is_transient = self.is_final = False
        self.pauses_seconds: tuple[float, ...] = ()

    def feed(self, chunk: bytes) -> Iterator[object]:
        """Takes in a piece of output, and returns what is in it. Raises ProtocolViolation for a line without an end."""
        lines, newline, rest = chunk.rpartition(b"\n")
        if newline:
            whole, self._unfinished = self._unfinished + lines, rest
            yield from self._taken(whole.split(b"\n"))
        else:
            self._unfinished += chunk
        if len(self._unfinished) > _MAX_LINE_BYTES:
            raise ProtocolViolation("reading the destination's output", f"a line of over {_MAX_LINE_BYTES:,} bytes")

    def finish(self) -> Iterator[object]:
        """Takes in the last line, if it has no end."""
        last, self._unfinished = self._unfinished, b""
        yield from self._taken([last])
        for kind, count in self._skipped.items():
            self._log.write("WARN", f"{count:,} messages {kind} were skipped")
        self._skipped.clear()

    def skip(self, kind: str) -> None:
        """Logs a message that is of no use here."""
        self._log.write("DEBUG", f"a message {kind} was skipped")

    def _taken(self, lines: list[bytes]) -> Iterator[object]:
        for line in lines:
            if not line.strip():
                continue
            found = self._read(line)
            if isinstance(found, ErrorEvent):
                self._note(found)
            elif isinstance(found, LogEvent):
                self._log.write(found.level, found.message)
            elif isinstance(found, MetricEvent):
                self._connector.take_metric(found, self._stream)
            elif isinstance(found, PlainLine):
                self._log.write("DEBUG", found.shown())
            elif isinstance(found, UnknownEvent):
                self._skipped[found.kind] += 1
                if self._skipped[found.kind] == 1:
                    self._log.write("WARN", f"a message {found.kind} was skipped: {found.reason}")
            else:
                yield found

    def _note(self, error: ErrorEvent) -> None:
        self.error = self.error or self._connector.mask.text(error.summary)
        self.pauses_seconds = self.pauses_seconds or error.pauses_seconds
        self.is_transient = self.is_transient or error.kind is FailureKind.TRANSIENT
        # What nobody caught is a system error of Airbyte, such as a connection that broke. Others say what may pass.
        is_uncaught = error.kind is FailureKind.SYSTEM and self._connector.protocol.name == "airbyte"
        self.is_final = self.is_final or not (error.kind is FailureKind.TRANSIENT or is_uncaught)
        self._log.write("ERROR", self._connector.mask.text(error.whole))
