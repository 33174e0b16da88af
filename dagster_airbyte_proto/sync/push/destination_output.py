"""Takes in the output of a destination: acknowledgements, errors, logs, and a config that it rewrote."""

from collections import Counter

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.acknowledgements import Acknowledgements
from dagster_airbyte_proto.protocols.destination import Echo, StreamResult
from dagster_airbyte_proto.protocols.events import (
    ConfigEvent,
    ErrorEvent,
    FailureKind,
    LogEvent,
    PlainLine,
    UnknownEvent,
)
from dagster_airbyte_proto.sync.push.push_context import Destination

_MAX_LINE_BYTES = 64 << 20


class DestinationOutput:
    """The output of one process, line by line. `error` is the first error that it reported, `result` its last word on
    its rows."""

    def __init__(self, destination: Destination, acknowledgements: Acknowledgements) -> None:
        self._destination = destination
        self._acknowledgements = acknowledgements
        self._unfinished = b""
        self.error: str | None = None
        self.result: StreamResult | None = None
        self.is_transient = False
        self._skipped: Counter[str] = Counter()

    def feed(self, chunk: bytes) -> None:
        """Takes in a piece of output. Raises ProtocolViolation for a line without an end."""
        lines, newline, rest = chunk.rpartition(b"\n")
        if newline:
            for line in (self._unfinished + lines).split(b"\n"):
                self._take(line)
            self._unfinished = rest
        else:
            self._unfinished += chunk
        if len(self._unfinished) > _MAX_LINE_BYTES:
            raise ProtocolViolation("reading the destination's output", f"a line of over {_MAX_LINE_BYTES:,} bytes")

    def finish(self) -> None:
        """Takes in the last line, if it has no end."""
        if self._unfinished:
            self._take(self._unfinished)
            self._unfinished = b""
        for kind, count in self._skipped.items():
            self._destination.log.write("WARN", f"{count:,} messages {kind} were skipped")
        self._skipped.clear()

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        log, found = self._destination.log, self._destination.protocol.reply(line)
        if isinstance(found, Echo):
            self._acknowledgements.received(found)
        elif isinstance(found, StreamResult):
            self.result = self.result or found
        elif isinstance(found, ErrorEvent):
            self.error = self.error or found.summary
            self.is_transient = self.is_transient or found.kind is FailureKind.TRANSIENT
            log.write("ERROR", "\n".join(filter(None, (found.message, found.internal_message, found.stack_trace))))
        elif isinstance(found, ConfigEvent):
            self._destination.try_rewritten_config(found)
        elif isinstance(found, LogEvent):
            log.write(found.level, found.message)
        elif isinstance(found, PlainLine):
            log.write("DEBUG", found.line.decode(errors="replace")[:4000])
        elif isinstance(found, UnknownEvent):
            self._skipped[found.kind] += 1
            if self._skipped[found.kind] == 1:
                log.write("WARN", f"a message {found.kind} was skipped: {found.reason}")
        else:
            log.write("DEBUG", f"a message {type(found).__name__} was skipped")
