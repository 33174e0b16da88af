"""The messages of Syncmaven, in the two dialects that connectors speak: the specification's, and its own packages'.

1. Each message is one JSON object a line, with a `type` and mostly a `payload`. Both names of a type are read. What the
   specification puts beside the type, the packages put into the payload: both places are looked at.
2. A line that is no such object was printed by the connector: it goes to the log. A message of another type is counted
   there.
3. Python prints NaN, and JavaScript half of a surrogate pair: a message with such is read all the same, and the row in
   it stays text.
4. A schema may be JSON Schema, or a Zod object that was printed as JSON. Of the latter nothing is left that could check
   anything, so it counts as no schema. Zod's converter writes `additionalProperties: false` for every object, though
   Zod itself takes more: so it does not count for the outermost object of a row.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.protocols.destination import StreamResult
from dagster_airbyte_proto.protocols.events import (
    ErrorEvent,
    Event,
    LogEvent,
    LogLevel,
    OperationsEvent,
    PlainLine,
    SpecEvent,
    UnknownEvent,
)
from dagster_airbyte_proto.protocols.lines import BYTE_ORDER_MARK
from dagster_airbyte_proto.protocols.raw_json import MemberError, members, value

_LEVELS = {"debug": LogLevel.DEBUG, "info": LogLevel.INFO, "warn": LogLevel.WARN, "error": LogLevel.ERROR}
_MAX_SHOWN = 2000


class EnrichedRow(NamedTuple):
    """A row that an enrichment sent back, as the text of its JSON object. Nothing says to which of the rows that it was
    sent it belongs."""

    row: bytes


class UntypedOk(NamedTuple):
    """A line of an enrichment with the status "ok" and without a type: a halt, or only a greeting."""

    message: str


EnrichmentReply = EnrichedRow | UntypedOk


class _EnrichedPayload(msgspec.Struct):
    row: msgspec.Raw


class _EnrichedMessage(msgspec.Struct):
    type: Literal["enrichment-response", "enrichment-reply"]
    payload: _EnrichedPayload


_ENRICHED = msgspec.json.Decoder(_EnrichedMessage)
_REPLY_KINDS = ("enrichment-response", "enrichment-reply")
_ENRICHED_TYPES = tuple(f'"{kind}"'.encode() for kind in _REPLY_KINDS)


def describe() -> bytes:
    return line("describe")


def describe_streams(credentials: Mapping[str, Any]) -> bytes:
    return line("describe-streams", {"credentials": credentials})


def line(kind: str, payload: Mapping[str, Any] | None = None, **beside: str) -> bytes:
    """Returns the line of a message."""
    message = {"type": kind, **beside, **({} if payload is None else {"payload": payload})}
    # Not msgspec, which refuses half a surrogate pair.
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def reply(text: bytes, *, may_halt: bool = True) -> StreamResult | EnrichmentReply | Event:
    """Returns what one line of a connector's output says. Never raises.

    Unless the connector `may_halt`, a halt is an error, whatever status it has; without a type, "ok" may be none then.
    """
    text = text.removeprefix(BYTE_ORDER_MARK)
    if b'"enrichment-re' in text and (row := _enriched_row(text)) is not None:
        return EnrichedRow(row)
    try:
        message = value(text)
    except MemberError:
        return PlainLine(text)
    if not isinstance(message, dict):
        return PlainLine(text)
    kind, payload = message.get("type"), message.get("payload")
    body = payload if isinstance(payload, dict) else message
    if kind is None and body.get("status") in ("ok", "error"):
        if body["status"] == "ok" and not may_halt:
            return UntypedOk(str(body.get("message") or "ok"))
        kind = "halt"  # The packages' own definition allows a halt without a type.
    if not isinstance(kind, str):
        return PlainLine(text)
    if kind == "halt":
        return _halt(body, is_error=not may_halt or body.get("status") != "ok")
    if kind in _REPLY_KINDS:
        return _odd_reply(body, is_enrichment=not may_halt)
    read = _READERS.get(kind)
    return read(body) if read else UnknownEvent(kind[:_MAX_SHOWN], "Syncmaven has no such message")


def specification(message: Mapping[str, Any]) -> SpecEvent:
    """The specification in the payload of a `spec`."""
    found = schema(message.get("connectionCredentials", message.get("credentialsSchema")), is_open=False)
    return SpecEvent(found or {}, message)


def schema(found: Any, *, is_open: bool) -> Mapping[str, Any] | None:
    """Returns a JSON Schema that was sent; None if it is none. An open one allows further members of its object."""
    if not isinstance(found, dict) or not found or "_def" in found:
        return None
    return {**found, "additionalProperties": True} if is_open and "additionalProperties" in found else found


def _specification(body: Mapping[str, Any]) -> Event:
    # The `type` stays out, also where there is no payload.
    return specification({name: part for name, part in body.items() if name != "type"})


def _specification_as_specified(body: Mapping[str, Any]) -> Event:
    """Its type is of the specification alone, also where a connector has no credentials to describe."""
    return _specification(body if "connectionCredentials" in body else {"credentialsSchema": {}, **body})


def _streams(body: Mapping[str, Any]) -> Event:
    streams = body.get("streams")
    if not isinstance(streams, list) or not all(isinstance(each, dict) and "name" in each for each in streams):
        return UnknownEvent("stream-spec", "its `streams` are no list of streams with names")
    return OperationsEvent(msgspec.json.encode({"defaultStream": body.get("defaultStream"), "streams": streams}))


def _result(body: Mapping[str, Any]) -> StreamResult:
    """Sums what it counts: for the stream, or for each of several names. A count of the stream itself comes first."""
    named: list[Mapping[str, Any]] = [each for each in body.values() if isinstance(each, dict)]
    own_failed = _failed(body)
    received = _received(body)
    if received is None:
        counts = [_received(each) for each in named]
        known = [count for count in counts if count is not None]
        received = sum(known) if known and len(known) == len(counts) else None
    skipped = _count(body, "skipped")
    return StreamResult(
        received=received,
        failed=sum(_failed(each) or 0 for each in named) if own_failed is None else own_failed,
        skipped=sum(_count(each, "skipped") or 0 for each in named) if skipped is None else skipped,
    )


def _received(part: Mapping[str, Any]) -> int | None:
    """The rows that it received: as many as it says, or all of which it says what became of them."""
    received, success = _count(part, "received"), _count(part, "success")
    if received is not None or success is None:
        return received
    return success + (_count(part, "failed") or 0) + (_count(part, "skipped") or 0)


def _failed(part: Mapping[str, Any]) -> int | None:
    """The rows that failed: as many as it says, and at least those that neither succeeded nor were skipped. None if
    that is not told."""
    failed, received, success = (_count(part, name) for name in ("failed", "received", "success"))
    if received is None or success is None:
        return failed
    return max(failed or 0, received - success - (_count(part, "skipped") or 0))


def _count(part: Mapping[str, Any], name: str) -> int | None:
    found = part.get(name)
    if not isinstance(found, int | float) or isinstance(found, bool) or not math.isfinite(found):
        return None
    return int(found) if found >= 0 else None


def _enriched_row(text: bytes) -> bytes | None:
    """Returns the row of a message, as it was sent; None for any other message."""
    try:
        row = bytes(_ENRICHED.decode(text).payload.row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parts = members(text) or {}
        if parts.get("type") not in _ENRICHED_TYPES:
            return None
        row = (members(parts.get("payload", b"")) or parts).get("row", b"")
    return row if row.startswith(b"{") else None


def _odd_reply(body: Mapping[str, Any], *, is_enrichment: bool) -> EnrichedRow | Event:
    """A reply whose row was not found in its text. With null in its place none came of a row. Anything else there may
    be rows, and the row that they came of would be dropped: that is an error of an enrichment."""
    row = body.get("row")
    if isinstance(row, dict):  # Its type was written with escapes.
        return EnrichedRow(msgspec.json.encode(row))
    if is_enrichment and (row is not None or "row" not in body):
        return ErrorEvent(UnmaskedText("a reply has no `row` that is an object"))
    return UnknownEvent("enrichment-response", "its `row` is no object")


def _log(body: Mapping[str, Any]) -> Event:
    params = body.get("params")
    shown = [] if params is None else params if isinstance(params, list) else [params]
    texts = [str(body.get("message", "")), *map(_shown, shown)]
    return LogEvent(_LEVELS.get(str(body.get("level")).lower(), LogLevel.INFO), " ".join(filter(None, texts)))


def _shown(param: Any) -> str:
    """The JSON of a value, all of it: half of a secret would not be masked. The log cuts its lines, once they are."""
    return json.dumps(param, separators=(",", ":"), ensure_ascii=False)


def _halt(body: Mapping[str, Any], *, is_error: bool) -> Event:
    message = str(body.get("message") or "it halted and did not say why")
    if not is_error:
        return LogEvent(LogLevel.WARN, f"the connector halted: {message}")
    data = body.get("data")
    shown = _shown(data) if data else ""
    is_brief = len(shown) <= _MAX_SHOWN  # else it is for the log alone
    return ErrorEvent(
        UnmaskedText(message.partition("\n")[0]),
        stack_trace=UnmaskedText(message if is_brief else f"{message}\n{shown}"),
        internal_message=UnmaskedText(shown if is_brief else ""),
    )


_READERS = {
    "spec": _specification,
    "connection-spec": _specification_as_specified,
    "stream-spec": _streams,
    "streams-spec": _streams,
    "stream-result": _result,
    "log": _log,
}
