"""Short conversations with a connector: spec, check, discover. One question, one answer, and it is gone.

Where a question can be put in several ways, they are tried in turn until one is answered.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from dagster_airbyte_proto.errors import ConnectorError, ProtocolViolation
from dagster_airbyte_proto.launchers.process import ExitReport, Launcher, RunningConnector
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.protocols.conversation import Heard, Invocation, SourceProtocol, Verb, config_in
from dagster_airbyte_proto.protocols.events import (
    ConfigEvent,
    ErrorEvent,
    Event,
    FailureKind,
    LogEvent,
    PlainLine,
    UnknownEvent,
)
from dagster_airbyte_proto.sync.run_log import RunLog

PATIENCE_SECONDS = 600.0

_ENVIRONMENT = {"DEPLOYMENT_MODE": "OSS", "USE_STREAM_CAPABLE_STATE": "true"}
_READ_TIMEOUT_SECONDS = 1.0
_QUESTIONS = {Verb.SPEC: "for its spec", Verb.CHECK: "to check its config", Verb.DISCOVER: "for its catalog"}
_MAX_ANSWER_BYTES = 256 << 20

Answer = TypeVar("Answer", bound=Event)


class Connector(NamedTuple):
    """A program and the protocol that it speaks."""

    launcher: Launcher
    protocol: SourceProtocol

    def launch(self, invocation: Invocation) -> RunningConnector:
        return self.launcher.launch(invocation, environment=_ENVIRONMENT)


class Listener(NamedTuple):
    """Who hears what a connector says beside its answer. `mask` takes the secrets out of what errors will show."""

    log: RunLog
    mask: Mask
    keep_config: Callable[[ConfigEvent], None]


def ask(
    connector: Connector,
    question: tuple[Verb, Sequence[Invocation]],
    answer: type[Answer],
    listener: Listener,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Answer:
    """The answer, whatever the exit code: some connectors answer and then fail. None at all is a ConnectorError."""
    verb, ways = question
    deadline = time.monotonic() + patience_seconds
    for way in ways:
        running = connector.launch(way)
        try:
            output, report = _output(running, verb, deadline - time.monotonic())
        finally:
            # Whatever it answered: the token that it replaced may be good for nothing any more.
            _hear_changed_config(running, listener)
        heard = _heard(output, report)
        found, errors, unread = _listened(connector.protocol.answer(verb, heard), answer, listener)
        if found is not None:
            return found
    raise _no_answer(verb, (errors, unread), report, listener.mask)


def _heard(output: bytes, report: ExitReport | None) -> Heard:
    if report is None:
        return Heard(output, ended_cleanly=False)
    return Heard(output, report.ended_cleanly, report.stderr_tail)


def _listened(
    events: Iterable[Event], answer: type[Answer], listener: Listener
) -> tuple[Answer | None, list[ErrorEvent], list[UnknownEvent]]:
    """The answer, if there is one, and what of the rest may tell why there is none."""
    log = listener.log
    found: Answer | None = None
    errors: list[ErrorEvent] = []
    unread: list[UnknownEvent] = []
    for event in events:
        if isinstance(event, answer):
            found = event
        elif isinstance(event, ErrorEvent):
            errors.append(event)
            log.write("ERROR", "\n".join(filter(None, (event.message, event.internal_message, event.stack_trace))))
        elif isinstance(event, ConfigEvent):
            listener.keep_config(event)
        elif isinstance(event, LogEvent):
            log.write(event.level, event.message)
        elif isinstance(event, UnknownEvent):
            unread.append(event)
            log.write("WARN", f"a message {event.kind} was passed over: {event.reason}")
        elif isinstance(event, PlainLine):
            log.write("DEBUG", event.line.decode(errors="replace")[:4000])
    return found, errors, unread


def _output(running: RunningConnector, verb: Verb, patience_seconds: float) -> tuple[bytes, ExitReport | None]:
    deadline = time.monotonic() + patience_seconds
    pieces: list[bytes] = []
    size = 0
    try:
        while (chunk := running.read(_READ_TIMEOUT_SECONDS)) != b"":
            if chunk is not None:
                pieces.append(chunk)
                size += len(chunk)
            if size > _MAX_ANSWER_BYTES:
                raise ProtocolViolation(_doing(verb), f"it wrote over {_MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise ConnectorError(_doing(verb), f"no end within {patience_seconds:.0f} s", retryable=True)
        return b"".join(pieces), running.wait(max(0.0, deadline - time.monotonic()))
    finally:
        running.stop()


def _hear_changed_config(running: RunningConnector, listener: Listener) -> None:
    content = running.changed_file()
    event = None if content is None else config_in(content)
    if event is not None:
        listener.keep_config(event)


def _doing(verb: Verb) -> str:
    return f"asking the connector {_QUESTIONS[verb]}"


def _no_answer(
    verb: Verb, said: tuple[list[ErrorEvent], list[UnknownEvent]], report: ExitReport | None, mask: Mask
) -> ConnectorError:
    doing = _doing(verb)
    errors, unread = said
    if errors:
        first = min(errors, key=lambda error: error.emitted_at_milliseconds)
        return ConnectorError(doing, mask.text(first.message), retryable=first.kind is FailureKind.TRANSIENT)
    if report is None or report.ended_cleanly:
        found = (
            f"its answer cannot be read ({mask.text(unread[-1].reason)})" if unread else "it ended without an answer"
        )
        return ProtocolViolation(doing, found)
    tail = mask.text("\n".join(report.stderr_tail[-10:]))
    return ConnectorError(
        doing, f"it {report.how}, and gave no answer", remedy=f"Its last words on stderr:\n{tail}" if tail else ""
    )
