"""Parses one line of an Airbyte connector's output into an event. Never raises, whatever the bytes.

1. A line that fits a run of records is a record of that run's stream, whole or broken: see records.py.
2. A line that is no object, or has no `type` that is a string, is a PlainLine.
3. A message of an unknown type, without what its type needs, or cut off, is an UnknownEvent that says why.
4. Where the specification and real connectors spell a name in two ways, both are accepted.
5. Logs and errors, which only people read, are parsed leniently; records and states keep their bytes.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.masking import UnmaskedText, cut_text
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.airbyte.catalog import parse_catalog
from dagster_airbyte_proto.protocols.airbyte.records import record_stream, run_stream
from dagster_airbyte_proto.protocols.airbyte.states import parse_state, source_record_count
from dagster_airbyte_proto.protocols.events import (
    AnalyticsEvent,
    CatalogEvent,
    CheckEvent,
    ConfigEvent,
    ErrorEvent,
    EstimateEvent,
    Event,
    FailureKind,
    LogEvent,
    LogLevel,
    PlainLine,
    RecordLine,
    SpecEvent,
    StateEvent,
    StatusEvent,
    StreamStatus,
)
from dagster_airbyte_proto.protocols.lines import complete_line, event_of_no_object, message_type, unreadable_message
from dagster_airbyte_proto.protocols.raw_json import MemberError, members, value

# A line that begins like this was meant as a message, even if the rest is broken.
_MESSAGE_START = re.compile(rb'\s*+\{\s*+"type"\s*+:\s*+"([A-Z_]{1,64})"')

# Connectors also send the level names of Python's logging.
_LEVELS = {level.name: level for level in LogLevel} | {"WARNING": LogLevel.WARN, "CRITICAL": LogLevel.FATAL}
_FAILURE_KINDS = {kind.value: kind for kind in FailureKind}
# An error goes into reports, the store and the user's screen, which need no dump of the connector's memory.
_MAX_ERROR_CHARACTERS = 16 << 10
# A config goes to each later run, and into the store.
_MAX_CONFIG_BYTES = 16 << 20
_STATUSES = {status.value: status for status in StreamStatus}


def event(line: bytes) -> Event:
    """The event of one line, with or without its newline."""
    whole = complete_line(line)
    parts = members(whole)
    stream = run_stream(whole, parts.get("record") if parts else None)
    if stream is not None:
        return RecordLine(stream, whole)
    if parts is None:
        return event_of_no_object(line, _MESSAGE_START)
    kind = message_type(parts)
    if kind is None:
        return PlainLine(line)
    try:
        return _record(parts, whole) if kind == "RECORD" else _message(kind, parts)
    except (MemberError, ProtocolViolation) as error:
        return unreadable_message(kind, error)


def _record(parts: Mapping[str, bytes], line: bytes) -> Event:
    stream = record_stream(parts.get("record", b"null"))
    if stream is None:
        raise MemberError("the record names no stream")
    return RecordLine(stream, line)


def _message(kind: str, parts: Mapping[str, bytes]) -> Event:
    if kind == "DEBUG":
        # A CDK source prints this under --debug. Its `data` may hold a record, so the event leaves it out.
        return LogEvent(LogLevel.DEBUG, _text(value(parts.get("message", b'""'))))
    if kind not in _READERS:
        raise MemberError("a type of message that is not known")
    names, read = _READERS[kind]
    for name in names:
        if parts.get(name, b"null") != b"null":
            return read(parts[name])
    raise MemberError(f"the message has no {names[0]}")


def _state(raw: bytes) -> Event:
    return StateEvent(parse_state(raw), source_record_count(raw))


def _log(raw: bytes) -> Event:
    log = _object(value(raw), "log")
    message, stack_trace = _text(log.get("message")), _text(log.get("stack_trace"))
    level = _LEVELS.get(_text(log.get("level")).upper(), LogLevel.INFO)
    return LogEvent(level, f"{message}\n{stack_trace}" if stack_trace else message)


def _trace(raw: bytes) -> Event:
    trace = _object(value(raw), "trace")
    kind = _text(trace.get("type"))
    if kind not in _TRACES:
        raise MemberError("a type of trace that is not known")
    return _TRACES[kind](trace)


def _error(trace: Mapping[str, Any]) -> Event:
    error = _object(trace.get("error"), "error")
    return ErrorEvent(
        message=UnmaskedText(_short_text(error.get("message"))),
        kind=_FAILURE_KINDS.get(_text(error.get("failure_type")), FailureKind.SYSTEM),
        stream=_stream_of_descriptor(error.get("stream_descriptor")),
        internal_message=UnmaskedText(_short_text(error.get("internal_message"))),
        stack_trace=UnmaskedText(_short_text(error.get("stack_trace"))),
        emitted_at_milliseconds=_number(trace.get("emitted_at")) or 0.0,
    )


def _estimate(trace: Mapping[str, Any]) -> Event:
    estimate = _object(trace.get("estimate"), "estimate")
    stream = None if estimate.get("type") == "SYNC" else _stream_of_descriptor(estimate)
    if stream is None and estimate.get("type") != "SYNC":
        raise MemberError("the estimate names no stream")
    return EstimateEvent(
        stream, _whole_number(estimate.get("row_estimate")), _whole_number(estimate.get("byte_estimate"))
    )


def _stream_status(trace: Mapping[str, Any]) -> Event:
    body = _object(trace.get("stream_status"), "stream_status")
    stream, status = _stream_of_descriptor(body.get("stream_descriptor")), _STATUSES.get(_text(body.get("status")))
    if stream is None:
        raise MemberError("the status names no stream")
    if status is None:
        raise MemberError("a stream status that is not known")
    return StatusEvent(stream, status, _quota_reset(body.get("reasons")))


def _quota_reset(reasons: Any) -> float | None:
    for reason in reasons if isinstance(reasons, list) else []:
        if isinstance(reason, dict) and reason.get("type") == "RATE_LIMITED":
            limit = reason.get("rate_limited")
            return _number((limit if isinstance(limit, dict) else reason).get("quota_reset"))
    return None


def _analytics(trace: Mapping[str, Any]) -> Event:
    analytics = _object(trace.get("analytics"), "analytics")
    return AnalyticsEvent(_text(analytics.get("type")), _text(analytics.get("value")))


def _control(raw: bytes) -> Event:
    if len(raw) > _MAX_CONFIG_BYTES:
        raise MemberError(f"the config has {len(raw):,} bytes; at most {_MAX_CONFIG_BYTES:,} are taken")
    control = _object(value(raw), "control")
    if control.get("type") != "CONNECTOR_CONFIG":
        raise MemberError("a type of control that is not known")
    rewritten = _object(control.get("connectorConfig", control.get("connector_config")), "connectorConfig")
    return ConfigEvent(_object(rewritten.get("config"), "config"))


def _spec(raw: bytes) -> Event:
    spec = _object(value(raw), "spec")
    schema = spec.get("connectionSpecification", spec.get("connection_specification"))
    return SpecEvent(_object(schema, "connectionSpecification"), spec)


def _check(raw: bytes) -> Event:
    body = _object(value(raw), "connectionStatus")
    if body.get("status") not in ("SUCCEEDED", "FAILED"):
        raise MemberError("a connection status that is not known")
    return CheckEvent(body["status"] == "SUCCEEDED", UnmaskedText(_text(body.get("message"))))


def _catalog(raw: bytes) -> Event:
    return CatalogEvent(parse_catalog(raw))


def _object(part: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(part, dict):
        raise MemberError(f"the message has no {name}")
    return part


def _stream_of_descriptor(descriptor: Any) -> StreamId | None:
    """The stream of an object with a `name` and perhaps a `namespace`; None without a name."""
    if not isinstance(descriptor, dict) or not isinstance(descriptor.get("name"), str):
        return None
    namespace = descriptor.get("namespace")
    return StreamId.of(descriptor["name"], namespace if isinstance(namespace, str) else None)


def _text(part: Any) -> str:
    if part is None:
        return ""
    return part if isinstance(part, str) else str(part)


def _short_text(part: Any) -> str:
    return cut_text(_text(part), _MAX_ERROR_CHARACTERS)


def _number(part: Any) -> float | None:
    if isinstance(part, bool) or not isinstance(part, int | float):
        return None
    try:
        number = float(part)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole_number(part: Any) -> int | None:
    number = _number(part)
    return None if number is None else int(number)


_TRACES: Mapping[str, Callable[[Mapping[str, Any]], Event]] = {
    "ERROR": _error,
    "ESTIMATE": _estimate,
    "STREAM_STATUS": _stream_status,
    "ANALYTICS": _analytics,
}

# By message type: the names its body may have, and the function that reads the body.
_READERS: Mapping[str, tuple[tuple[str, ...], Callable[[bytes], Event]]] = {
    "STATE": (("state",), _state),
    "LOG": (("log",), _log),
    "TRACE": (("trace",), _trace),
    "CONTROL": (("control",), _control),
    "SPEC": (("spec",), _spec),
    "CONNECTION_STATUS": (("connectionStatus", "connection_status"), _check),
    "CATALOG": (("catalog",), _catalog),
}
