"""One line of a Singer tap's output, as an event. Never raises, whatever the bytes.

1. A line that a run of records would take is a record of that run's stream, whole or broken: see singer_records.py.
2. A line that is no object, or has no `type` that is a string, is the tap's chatter: PlainLine.
3. Types are read in any case. A message of a type we do not know, or without what its type needs, or cut off, is an
   UnknownEvent that says why.
4. Taps log to stderr: there are no logs, errors or statuses among the messages.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dagster_airbyte_proto.protocols.events import (
    BatchEvent,
    Event,
    PlainLine,
    RecordLine,
    SchemaEvent,
    StateEvent,
    VersionEvent,
)
from dagster_airbyte_proto.protocols.lines import kind_of, no_object, passed_over, whole_line
from dagster_airbyte_proto.protocols.raw_json import PartError, members, value
from dagster_airbyte_proto.protocols.singer.records import named_stream, run_stream
from dagster_airbyte_proto.protocols.singer.states import is_provisional, parse_state

# A line that begins so was meant as a message.
_MEANT = re.compile(rb'\s*+\{\s*+"type"\s*+:\s*+"([A-Za-z_]{1,64})"')


def event(line: bytes) -> Event:
    """The event of one line, with its newline or without."""
    whole = whole_line(line)
    stream = run_stream(whole)
    if stream is not None:
        return RecordLine(stream, whole)
    parts = members(whole)
    if parts is None:
        return no_object(line, _MEANT)
    kind = kind_of(parts)
    if kind is None:
        return PlainLine(line)
    try:
        if kind.upper() == "RECORD":
            return RecordLine(named_stream(parts), whole)
        return _read(kind)(parts, whole)
    except PartError as error:
        return passed_over(kind, error)


def names(written: Any) -> tuple[str, ...]:
    """A list of properties, also where a tap writes a bare name for a list of one."""
    found = [written] if isinstance(written, str) else written
    return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()


def _read(kind: str) -> Callable[[Mapping[str, bytes], bytes], Event]:
    if kind.upper() not in _READERS:
        raise PartError("a type of message that is not known")
    return _READERS[kind.upper()]


def _state(parts: Mapping[str, bytes], line: bytes) -> Event:
    state = parse_state(line.strip())
    return StateEvent(state, is_provisional=is_provisional(value(parts["value"])))


def _schema(parts: Mapping[str, bytes], _: bytes) -> Event:
    stream, schema = named_stream(parts), value(parts.get("schema", b"null"))
    if not isinstance(schema, dict):
        raise PartError("the message has no schema")
    keys = names(value(parts.get("key_properties", b"null")))
    return SchemaEvent(stream, schema, tuple((key,) for key in keys))


def _version(parts: Mapping[str, bytes], _: bytes) -> Event:
    stream, version = named_stream(parts), value(parts.get("version", b"null"))
    if not isinstance(version, int) or isinstance(version, bool):
        raise PartError("the message has no version")
    return VersionEvent(stream, version)


def _batch(parts: Mapping[str, bytes], _: bytes) -> Event:
    """As meltano's SDK writes it, with a manifest; or as singer-python does, with one file."""
    stream, encoding = named_stream(parts), value(parts.get("encoding", b"null"))
    files = names(value(parts.get("manifest", parts.get("filepath", b"null"))))
    if not isinstance(encoding, dict):
        encoding = {name: value(parts.get(name, b"null")) for name in ("format", "compression")}
    if not files:
        raise PartError("the message names no file")
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
