"""Queries a connector: spec, check or discover. Each query starts a process, reads its answer and ends it.

Some protocols have several ways to ask for the same thing, which older connectors do not all know. They are tried in
turn until one is answered; the timeout holds for all of them together.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from dagster_airbyte_proto.errors import ConnectorError, ProtocolViolation
from dagster_airbyte_proto.launchers.process import ExitReport, Launcher, RunningConnector
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.protocols.conversation import Conversation, Invocation, Transcript, Verb, parse_config_file
from dagster_airbyte_proto.protocols.events import (
    ConfigEvent,
    ErrorEvent,
    Event,
    FailureKind,
    LogEvent,
    MetricEvent,
    PlainLine,
    UnknownEvent,
)
from dagster_airbyte_proto.sync.connector.connector_config import RewrittenConfigs
from dagster_airbyte_proto.sync.run_log import RunLog

QUERY_TIMEOUT_SECONDS = 600.0

# Airbyte's own platform sets these for the connectors that it runs.
_ENVIRONMENT = {"DEPLOYMENT_MODE": "OSS", "USE_STREAM_CAPABLE_STATE": "true"}
_READ_TIMEOUT_SECONDS = 1.0
_LOOK_SECONDS = 10.0
_PURPOSES = {
    Verb.SPEC: "for its spec",
    Verb.CHECK: "to check its config",
    Verb.DISCOVER: "for its catalog",
    Verb.USAGE: "for its usage",
}
_MAX_ANSWER_BYTES = 256 << 20
_NAME_A_CATALOG = (
    "It has no --discover, so it is run once for the schemas of its streams. If that takes longer, write its catalog "
    "to a file and name it by catalog_file, beside launch."
)

Answer = TypeVar("Answer", bound=Event)


AnyConversation = TypeVar("AnyConversation", bound=Conversation)


class LaunchableConnector(NamedTuple, Generic[AnyConversation]):
    """A program and the protocol that it speaks."""

    launcher: Launcher
    protocol: AnyConversation

    def launch(self, invocation: Invocation, variables: Mapping[str, str] = _ENVIRONMENT) -> RunningConnector:
        return self.launcher.launch(invocation, environment={**_ENVIRONMENT, **variables})


class QueryListener(NamedTuple):
    """Receives what a connector sends beside its answer. `mask` removes secrets from the texts of errors.

    Errors name the connector by its `role` in the connection, and by the `program` that runs.
    """

    log: RunLog
    mask: Mask
    save_config: Callable[[ConfigEvent], None]
    role: str = "connector"
    program: str = "it"


def query_connector(
    connector: LaunchableConnector[AnyConversation],
    invocations: Sequence[Invocation],
    answer_type: type[Answer],
    listener: QueryListener,
    *,
    timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
) -> Answer:
    """Returns the answer to the first of the invocations that is answered.

    The exit code does not matter: some connectors answer and then fail. Raises ConnectorError if there is no answer.
    """
    deadline = time.monotonic() + timeout_seconds
    for invocation in invocations:
        running, verb = connector.launch(invocation), invocation.verb
        try:
            output, report = _output(
                running,
                invocation,
                deadline - time.monotonic(),
                partial(_is_answer, connector.protocol, verb, answer_type),
            )
        finally:
            # Also after a failure: if the connector renewed a token, the old one may be invalid by now.
            _save_changed_config(running, listener)
        transcript = _transcript(output, report)
        reply = _dispatch(connector.protocol.events_of_answer(verb, transcript), answer_type, listener)
        if reply.answer is not None:
            return reply.answer
    raise _missing_answer_error(invocations, reply, report, listener)


def _transcript(output: bytes, report: ExitReport | None) -> Transcript:
    if report is None:
        return Transcript(output, ended_cleanly=False)
    return Transcript(output, report.ended_cleanly, report.stderr_tail)


@dataclass(frozen=True)
class _Reply(Generic[Answer]):
    """The answer, if there is one, and the events that may explain why not."""

    answer: Answer | None
    errors: Sequence[ErrorEvent]
    unreadable: Sequence[UnknownEvent]


def _dispatch(events: Iterable[Event], answer_type: type[Answer], listener: QueryListener) -> _Reply[Answer]:
    """Writes the events to the log."""
    log = listener.log
    found: Answer | None = None
    errors: list[ErrorEvent] = []
    unreadable: list[UnknownEvent] = []
    configs = RewrittenConfigs(listener.save_config)
    for event in events:
        if isinstance(event, answer_type):
            found = event
        elif isinstance(event, ErrorEvent):
            errors.append(event)
            log.write("ERROR", listener.mask.text(event.whole))
        elif isinstance(event, ConfigEvent):
            configs.receive(event)
        elif isinstance(event, LogEvent):
            log.write(event.level, event.message)
        elif isinstance(event, UnknownEvent):
            unreadable.append(event)
            log.write("WARN", f"a message {event.kind} was skipped: {event.reason}")
        elif isinstance(event, MetricEvent):
            log.write("DEBUG", repr(event))
        elif isinstance(event, PlainLine):
            log.write("DEBUG", event.shown())
    configs.take_newest()
    return _Reply(found, errors, unreadable)


def _is_answer(
    protocol: Conversation, verb: Verb, answer_type: type[Any], output: bytes, *, or_failure: bool = False
) -> bool:
    wanted = (answer_type, ErrorEvent) if or_failure else answer_type
    events = protocol.events_of_answer(verb, Transcript(output, ended_cleanly=False))
    return any(isinstance(event, wanted) for event in events)


def _output(
    running: RunningConnector, invocation: Invocation, timeout_seconds: float, is_answered_by: Callable[..., bool]
) -> tuple[bytes, ExitReport | None]:
    """Returns the output and how it ended.

    A connector that is asked on its stdin may not end by itself: it is ended once it has answered and is quiet. One
    that logs for ever behind its answer, or behind its word that it failed, is ended some seconds later.
    """
    deadline = time.monotonic() + timeout_seconds
    look_seconds = min(_LOOK_SECONDS, timeout_seconds / 4)
    looks_at = time.monotonic() + look_seconds
    doing, answer = _doing(invocation.verb), _AnswerLines(invocation.keeps_lines_with)
    question = _Question(running, invocation.input)
    try:
        while (chunk := running.read(0.0 if question.send() else _READ_TIMEOUT_SECONDS)) != b"":
            if chunk is None and invocation.input and is_answered_by(answer.whole()):
                break
            answer.add(chunk or b"")
            if invocation.input and time.monotonic() > looks_at:
                lines = answer.whole_lines()
                if is_answered_by(lines, or_failure=True):
                    return lines, None
                looks_at = time.monotonic() + look_seconds
            if answer.size > _MAX_ANSWER_BYTES:
                raise ProtocolViolation(doing, f"it wrote over {_MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                remedy = _NAME_A_CATALOG if invocation.keeps_lines_with else ""
                raise ConnectorError(doing, f"no end within {timeout_seconds:.0f} s", remedy=remedy, retryable=True)
        else:
            return answer.whole(), running.wait(max(0.0, deadline - time.monotonic()))
        return answer.whole(), None
    finally:
        running.stop()


class _Question:
    """The text that a short request writes to the connector's stdin, which is closed then."""

    def __init__(self, running: RunningConnector, text: bytes) -> None:
        self._running, self._rest = running, memoryview(text)

    def send(self) -> bool:
        """Writes what the pipe takes. True if there is more."""
        if not self._rest:
            return False
        try:
            self._rest = self._rest[self._running.write(self._rest, _READ_TIMEOUT_SECONDS) :]
        except ConnectorError:
            self._rest = self._rest[:0]  # It has ended, and its output or its exit says why.
        if not self._rest:
            self._running.close_input()
        return bool(self._rest)


class _AnswerLines:
    """The output of a short request: all of it, or its lines that contain some bytes."""

    def __init__(self, kept: bytes) -> None:
        self._kept, self._pieces, self._unfinished = kept, list[bytes](), b""
        self.size = 0

    def add(self, chunk: bytes) -> None:
        if self._kept:
            lines, newline, self._unfinished = (self._unfinished + chunk).rpartition(b"\n")
            chunk = b"".join(line + newline for line in lines.split(b"\n") if self._kept in line)
        self._pieces.append(chunk)
        self.size += len(chunk) + max(0, len(self._unfinished) - _MAX_ANSWER_BYTES)

    def whole(self) -> bytes:
        return b"".join(self._pieces) + (self._unfinished if self._kept in self._unfinished else b"")

    def whole_lines(self) -> bytes:
        """The same, without a line that has no end: half of a secret would not be masked."""
        whole = self.whole()
        return whole[: whole.rfind(b"\n") + 1]


def _save_changed_config(running: RunningConnector, listener: QueryListener) -> None:
    content = running.rewritten_file()
    event = None if content is None else parse_config_file(content)
    if event is not None:
        listener.save_config(event)


def _doing(verb: Verb, role: str = "connector") -> str:
    return f"asking the {role} {_PURPOSES[verb]}"


def _missing_answer_error(
    tried: Sequence[Invocation], reply: _Reply[Answer], report: ExitReport | None, listener: QueryListener
) -> ConnectorError:
    verb, mask, remedy = tried[-1].verb, listener.mask, f"Its log: {listener.log.path}"
    doing = _doing(verb, listener.role)
    if reply.errors:
        # The first error in time is the cause; connectors often send others after it.
        first = min(reply.errors, key=lambda error: error.emitted_at_milliseconds)
        return ConnectorError(
            doing, mask.text(first.summary), remedy=remedy, retryable=first.kind is FailureKind.TRANSIENT
        )
    if report is None or report.ended_cleanly:
        found = (
            f"its answer cannot be read ({mask.text(reply.unreadable[-1].reason)})"
            if reply.unreadable
            else "it ended without an answer"
        )
        if verb is Verb.SPEC:
            remedy = f"{_how_it_was_started(tried, listener)} {remedy}"
        return ProtocolViolation(doing, found, remedy=remedy)
    found = f"it gave no answer, and {mask.text(report.how_it_ended_and_why)}"
    if verb is Verb.SPEC and not report.is_over_limit:
        remedy = f"Is its command right? {_how_it_was_started(tried, listener)} {remedy}"
    # One that was killed, mostly for want of memory, may answer the next time.
    is_killed = report.signal is not None and not report.is_over_limit
    return ConnectorError(doing, found, remedy=remedy, retryable=is_killed)


def _how_it_was_started(tried: Sequence[Invocation], listener: QueryListener) -> str:
    """The command of a spec's request, the first one, which a program of another protocol does not understand."""
    words = [" ".join(each for each in invocation.arguments if isinstance(each, str)) for invocation in tried]
    requests = ", then with ".join(f"`{each}`" for each in words if each)
    started = f"{listener.mask.text(listener.program)} was started" + (f" with {requests}" if requests else "")
    must = "must answer one of them" if len(words) > 1 else "must answer"
    return f"{started}, and {must}. Is the connection's `protocol` that of the program?"
