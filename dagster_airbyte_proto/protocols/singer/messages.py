"""Parses one line of a Singer tap's output into an event. Never raises, whatever the bytes.

1. A line that fits a run of records is a record of that run's stream, whole or broken: see records.py.
2. A line that is no object, or has no `type` that is a string, is a PlainLine.
3. The case of a type does not matter. A message of an unknown type, without what its type needs, or cut off, is an
   UnknownEvent that says why.
4. Taps log to stderr: there are no logs, errors or statuses among the messages.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dagster_airbyte_proto.json_references import names_in
from dagster_airbyte_proto.protocols.events import (
    BatchEvent,
    Event,
    PlainLine,
    RecordLine,
    SchemaEvent,
    StateEvent,
    VersionEvent,
)
from dagster_airbyte_proto.protocols.lines import complete_line, event_of_no_object, message_type, unreadable_message
from dagster_airbyte_proto.protocols.raw_json import MemberError, members, value
from dagster_airbyte_proto.protocols.singer.records import run_stream, stream_of_message
from dagster_airbyte_proto.protocols.singer.states import is_provisional, parse_state

# A line that begins like this was meant as a message, even if the rest is broken.
_MESSAGE_START = re.compile(rb'\s*+\{\s*+"type"\s*+:\s*+"([A-Za-z_]{1,64})"')


def event(line: bytes) -> Event:
    """The event of one line, with or without its newline."""
    whole = complete_line(line)
    stream = run_stream(whole)
    if stream is not None:
        return RecordLine(stream, whole)
    parts = members(whole)
    if parts is None:
        return event_of_no_object(line, _MESSAGE_START)
    kind = message_type(parts)
    if kind is None:
        return PlainLine(line)
    try:
        if kind.upper() == "RECORD":
            return RecordLine(stream_of_message(parts), whole)
        return _reader(kind)(parts, whole)
    except MemberError as error:
        return unreadable_message(kind, error)


def _reader(kind: str) -> Callable[[Mapping[str, bytes], bytes], Event]:
    if kind.upper() not in _READERS:
        raise MemberError("a type of message that is not known")
    return _READERS[kind.upper()]


def _state(parts: Mapping[str, bytes], line: bytes) -> Event:
    state = parse_state(line.strip())
    return StateEvent(state, is_provisional=is_provisional(value(parts["value"])))


def _schema(parts: Mapping[str, bytes], _: bytes) -> Event:
    stream, schema = stream_of_message(parts), value(parts.get("schema", b"null"))
    if not isinstance(schema, dict):
        raise MemberError("the message has no schema")
    keys = names_in(value(parts.get("key_properties", b"null")))
    bookmarks = names_in(value(parts.get("bookmark_properties", b"null")))
    return SchemaEvent(stream, schema, tuple((key,) for key in keys), bookmarks)


def _version(parts: Mapping[str, bytes], _: bytes) -> Event:
    stream, version = stream_of_message(parts), value(parts.get("version", b"null"))
    if not isinstance(version, int) or isinstance(version, bool):
        raise MemberError("the message has no version")
    return VersionEvent(stream, version)


def _batch(parts: Mapping[str, bytes], _: bytes) -> Event:
    """Reads a BATCH message: with a `manifest` of files (meltano's SDK), or with one `filepath` (singer-python)."""
    stream, encoding = stream_of_message(parts), value(parts.get("encoding", b"null"))
    files = names_in(value(parts.get("manifest", parts.get("filepath", b"null"))))
    if not isinstance(encoding, dict):
        encoding = {name: value(parts.get(name, b"null")) for name in ("format", "compression")}
    if not files:
        raise MemberError("the message names no file")
    frame = b'{"type":"RECORD","stream":' + parts["stream"] + b',"record":', b"}"
    return BatchEvent(
        stream, files, _text(encoding.get("format")) or "jsonl", _text(encoding.get("compression")), frame
    )


def _text(part: Any) -> str:
    return part if isinstance(part, str) else ""


_READERS: Mapping[str, Callable[[Mapping[str, bytes], bytes], Event]] = {
    "STATE": _state,
    "SCHEMA": _schema,
    "ACTIVATE_VERSION": _version,
    "BATCH": _batch,
}
