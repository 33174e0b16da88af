"""The output of a running connector of Rapidbyte, as its launcher writes it: JSON lines, and Arrow between them.

A component has no output of its own. It calls the functions of its host, and the launcher, which is the host, writes a
line for each thing that the rest of us must know. So a run of a component can be read, recorded and looked at like any
other. Each line is an object with a `type`:

| type | is |
|---|---|
| spec, check, catalog | the answer to a short request |
| started, finished | a stream's run; `finished` has the connector's own counts |
| batch | a batch of the stream that runs: so many `bytes` of Arrow's IPC stream format follow it |
| checkpoint | what a source said at a checkpoint, with the `values` that it keeps for the stream |
| error | a `connector-error`, of the stream that runs or of none |
| kept | the values that belong to no stream, by scope, after a read that came to a good end |
| rejected | a record that a connector rejects, and why |
| log, metric | what a connector reports beside that |

A destination's input has lines too, with batches between them: a `batch` says also how many `rows` it has, and a
`position` is a place in a plan, after the batches before it. In its output a `checkpoint`, and `finished`, have the
`position` that they prove, if one. A transform's input has batches alone, and its output a line `answered` where it
asks for a batch after the first, with all values that it keeps, by scope, if one of them is new.
"""

from collections.abc import Callable, Mapping
from math import inf, isfinite, nan
from types import MappingProxyType
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.destination import Echo, RejectedRecord, SentPosition
from dagster_airbyte_proto.protocols.events import (
    AnalyticsEvent,
    CatalogEvent,
    CheckEvent,
    ErrorEvent,
    Event,
    FailureKind,
    KeptValuesEvent,
    LogEvent,
    LogLevel,
    MetricEvent,
    PlainLine,
    RejectedRecordEvent,
    SpecEvent,
    StateEvent,
    StatusEvent,
    StreamStatus,
    UnknownEvent,
)
from dagster_airbyte_proto.protocols.rapidbyte.catalog import parse_catalog
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ErrorCategory, ReportedError
from dagster_airbyte_proto.protocols.rapidbyte.states import checkpoint_state
from dagster_airbyte_proto.protocols.raw_json import MemberError

ANSWERED, BATCH, POSITION = "answered", "batch", "position"
_CATEGORIES = frozenset(map(str, ErrorCategory))
_LEVELS = (LogLevel.ERROR, LogLevel.WARN, LogLevel.INFO, LogLevel.DEBUG)
"""The levels of `log`, from 0. A higher one is TRACE."""


class ProvedPosition(msgspec.Struct, frozen=True):
    """A position of ours that a destination has proved, with the rows that it says failed and did not show."""

    plan: str
    rows: int
    failed: int = 0


class _Line(msgspec.Struct, frozen=True):
    type: str
    stream: str | None = None
    bytes: int = 0
    status: str = ""
    message: str = ""
    level: int = 2
    warnings: tuple[str, ...] = ()
    error: ReportedError | None = None
    checkpoint: str = ""
    values: Mapping[str, str] = {}
    catalog: str = ""
    name: str = ""
    spec: Mapping[str, Any] = {}
    summary: Mapping[str, Any] = {}
    record: str = ""
    position: ProvedPosition | None = None
    kept: Mapping[str, Mapping[str, str]] = {}


class InputLine(msgspec.Struct, frozen=True):
    """A line of a destination's input."""

    type: str
    rows: int = 0
    bytes: int = 0
    plan: str = ""


INPUT_LINE = msgspec.json.Decoder(InputLine)
_LINE = msgspec.json.Decoder(_Line)
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def line(kind: str, **parts: Any) -> bytes:
    """One line of the output."""
    return msgspec.json.encode({"type": kind, **parts}) + b"\n"


def batch_head(text: bytes) -> tuple[StreamId, int] | None:
    """The stream of a batch and how many bytes of Arrow follow; None if the line heads no batch."""
    if not text.startswith(b'{"type":"batch",'):
        return None
    try:
        found = _LINE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if found.stream is None else (StreamId.of(found.stream), found.bytes)


def event(text: bytes) -> Event:
    """The event of one line. Never raises."""
    try:
        found = _LINE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PlainLine(text)
    read = _READERS.get(found.type)
    if read is None:
        return UnknownEvent(found.type[:100], "no launcher writes such a line")
    try:
        return read(found, None if found.stream is None else StreamId.of(found.stream))
    except (MemberError, ProtocolViolation) as error:
        return UnknownEvent(found.type, error.found if isinstance(error, ProtocolViolation) else str(error))


def destination_reply(text: bytes) -> Echo | RejectedRecord | Event:
    """Returns the meaning of one line of a destination's output. Never raises."""
    try:
        found = _LINE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PlainLine(text)
    if found.type == "rejected":
        return RejectedRecord(found.record, UnmaskedText(found.message))
    if found.type == "error" and found.error is not None:
        return _destination_error(found.error, None if found.stream is None else StreamId.of(found.stream))
    if found.position is not None or found.type == "finished":
        return _echo(found)
    if found.type in ("started", "checkpoint"):
        return LogEvent(LogLevel.DEBUG, f"{found.type} {found.checkpoint}".strip())
    return event(text)


def _echo(found: _Line) -> Echo:
    proved = found.position
    position = None if proved is None else SentPosition(proved.plan, proved.rows)
    kept = {"stream": found.values} if found.values else found.kept
    failed = proved.failed if proved is not None else 0
    return Echo(position, rejected=failed or None, kept=kept, is_end=found.type == "finished")


def _destination_error(error: ReportedError, stream: StreamId | None) -> ErrorEvent:
    """The error of a write. It may be tried again only where it says so, and nothing is committed: rows would be there
    twice."""
    pauses = error.pauses()
    kind = FailureKind.TRANSIENT if pauses else FailureKind.SYSTEM
    if error.kind is FailureKind.CONFIG:
        kind = FailureKind.CONFIG
    said = error.described(error.commit_outcome or "")
    details = UnmaskedText(error.details_json or "")
    return ErrorEvent(UnmaskedText(said), kind, stream, internal_message=details, pauses_seconds=pauses)


def specification(message: Mapping[str, Any]) -> SpecEvent:
    """The specification, from the `spec` that the launcher wrote."""
    schema = message.get("config_schema")
    return SpecEvent(schema if isinstance(schema, dict) else {}, message)


def _check(found: _Line, _: StreamId | None) -> Event:
    said = " ".join(filter(None, (found.message, *(f"Warning: {each}" for each in found.warnings))))
    return CheckEvent(found.status != "failed", UnmaskedText(said))


def _status(found: _Line, stream: StreamId | None) -> Event:
    if stream is None:
        return UnknownEvent(found.type, "it names no stream")
    return StatusEvent(stream, StreamStatus.STARTED if found.type == "started" else StreamStatus.COMPLETE)


def _checkpoint(found: _Line, stream: StreamId | None) -> Event:
    if stream is None:
        return UnknownEvent(found.type, "it names no stream")
    return StateEvent(checkpoint_state(found.checkpoint.encode(), stream, found.values))


def _error(found: _Line, stream: StreamId | None) -> Event:
    if found.error is None:
        return UnknownEvent(found.type, "it has no error")
    details = UnmaskedText(found.error.details_json or "")
    return ErrorEvent(UnmaskedText(str(found.error)), found.error.kind, stream, internal_message=details)


def _log(found: _Line, _: StreamId | None) -> Event:
    return LogEvent(_LEVELS[found.level] if 0 <= found.level < len(_LEVELS) else LogLevel.TRACE, found.message)


def _metric(found: _Line, stream: StreamId | None) -> Event:
    """A metric: `{"name", "value"}`. The value is a number, or says its type: `{"type": "counter", "value": 3}`."""
    try:
        payload = _OBJECT.decode(found.message)
    except (msgspec.DecodeError, RecursionError):
        payload = {}
    name, given = payload.get("name"), payload.get("value")
    typed = given if isinstance(given, dict) else {"value": given, "type": payload.get("type")}
    value, kind = typed.get("value"), typed.get("type")
    try:
        number = float(value) if isinstance(value, int | float) else nan
    except OverflowError:
        number = inf
    if not isinstance(name, str) or not isfinite(number):
        return AnalyticsEvent("metric", found.message)
    return MetricEvent(name, number, kind == "counter", stream)


def _rejected(found: _Line, stream: StreamId | None) -> Event:
    """A record that a source rejected. It is for the table of rejected rows: no log may have it."""
    if stream is None:
        return LogEvent(LogLevel.WARN, f"stream {found.name}: the connector rejected a record: {found.message}")
    category = found.message.partition(":")[0]
    kind = category if category in _CATEGORIES else "other"
    return RejectedRecordEvent(stream, found.record, UnmaskedText(found.message), kind)


_READERS: Mapping[str, Callable[[_Line, StreamId | None], Event]] = MappingProxyType(
    {
        "spec": lambda found, _: specification(found.spec),
        "check": _check,
        "catalog": lambda found, _: CatalogEvent(parse_catalog(found.catalog.encode())),
        "started": _status,
        "finished": _status,
        "checkpoint": _checkpoint,
        "error": _error,
        "log": _log,
        "metric": _metric,
        "rejected": _rejected,
        "kept": lambda found, _: KeptValuesEvent(found.kept),
    }
)
