"""The destination side of the Airbyte protocol.

1. Destinations were seen to echo a state enveloped or bare, with or without its id and statistics, each at once or the
   last one at their end, and twice. `reply` reads all of these, and takes no other JSON for a state. We send a state
   for each stream: a GLOBAL one that comes back is none of ours, whatever is in it.
2. A removed row is its key with `_ab_cdc_deleted_at`, in the mode `append_dedup`.
3. Destinations that write to objects of a service list them by `discover`: object, mode, the keys by which it finds
   a row, and the schema of its rows. The configured stream then names its object, which here has the stream's name.
   No spec says whether a connector is a source or a destination. A source answers `discover` with streams to read; the
   specs of destinations list their sync modes; and the page that a spec names mostly is one on sources, or one on
   destinations. A program on Airbyte's CDK has a usage text for `read` or for `write`, and fails for the other.
4. A state says how many records come before it, since the state before. Airbyte's bulk CDK, in its versions since 2025,
   fails for one that does not, and sends it back once so many are written.
5. A stream ends with STREAM_STATUS COMPLETE: without it, a destination may not show the rows of a new generation. On
   the bulk CDK it fails if its input ends without. So each process gets one, but for a part of a new generation.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.airbyte import messages as airbyte_messages
from dagster_airbyte_proto.protocols.airbyte.requests import CATALOG, CONFIG, AirbyteRequests
from dagster_airbyte_proto.protocols.conversation import (
    Invocation,
    Transcript,
    Verb,
    encode_config,
)
from dagster_airbyte_proto.protocols.destination import (
    DestinationOperation,
    Echo,
    HasCatalog,
    JsonDialect,
    PushedStream,
    SentPosition,
    WriteRequest,
)
from dagster_airbyte_proto.protocols.events import CatalogEvent, Event, OperationsEvent, SpecEvent, UsageEvent
from dagster_airbyte_proto.protocols.raw_json import members, value

NO_OPERATIONS = b'{"operations":[]}'
_WIRE_MODES = {
    PushMode.APPEND: "append",
    PushMode.INSERT: "append",
    PushMode.UPDATE: "update",
    PushMode.UPSERT: "append_dedup",
    PushMode.MIRROR: "append_dedup",
    PushMode.OVERWRITE: "overwrite",
}


_STATE_MEMBERS = {"STREAM": "stream", "GLOBAL": "global", "LEGACY": "data"}
_MAX_NAMES = 20
_SOURCE_PAGE = "/integrations/sources/"


class AirbyteDestination(AirbyteRequests):
    """The DestinationProtocol of every connector that speaks Airbyte."""

    dialect: JsonDialect = JsonDialect.AIRBYTE
    deletion_column: str = "_ab_cdc_deleted_at"
    has_catalog: HasCatalog = HasCatalog.SOME
    keeps_values: bool = False
    omits_nulls: bool = False
    proves_by_result: bool = False
    takes_batches: bool = False
    has_versions: bool = False

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:
        # A program that does not know `--help` may end well all the same, and say nothing.
        if verb is Verb.USAGE and transcript.ended_cleanly and b"--catalog" in transcript.output:
            return iter([UsageEvent(transcript.output.decode(errors="replace"))])
        read = _catalog_event if verb is Verb.DISCOVER else airbyte_messages.event
        return map(read, transcript.output.splitlines())

    def adapted_to(self, spec: SpecEvent) -> "AirbyteDestination":  # noqa: ARG002 - all speak alike
        return self

    def refusal(self, spec: SpecEvent, mode: PushMode) -> str | None:
        supported = _sync_modes(spec)
        if not supported:
            page = spec.message.get("documentationUrl")
            if isinstance(page, str) and _SOURCE_PAGE in page:
                return f"its connector is a source, by the page that its spec names ({page}): name a destination"
            return None
        if _WIRE_MODES[mode] in supported:
            return None
        names = ", ".join(map(str, supported))
        return f"mode {mode} needs its sync mode {_WIRE_MODES[mode]}, and it has {names}"

    def operations(self, message: bytes) -> tuple[DestinationOperation, ...]:
        parts = msgspec.json.decode(message)
        listed = parts.get("operations") if isinstance(parts, dict) else None
        return tuple(filter(None, map(_operation, listed if isinstance(listed, list) else ())))

    def mismatch(self, operations: Sequence[DestinationOperation], stream: PushedStream) -> str | None:
        same_object = [each for each in operations if each.object_name == stream.id.name]
        if not same_object:
            objects = _listed(each.object_name for each in operations)
            return f"the destination has no object {stream.id.name}; it has {objects}"
        mode = _WIRE_MODES[stream.mode]
        same_mode = [each for each in same_object if each.mode == mode]
        if not same_mode:
            modes = _listed(each.mode for each in same_object)
            return f"mode {stream.mode} needs the sync mode {mode} of object {stream.id.name}, which has {modes}"
        keys = [key for each in same_mode for key in each.matching_keys]
        if keys and mode != "append" and set(stream.keys) not in map(set, keys):
            wanted, found = "+".join(stream.keys) or "no key", _listed("+".join(key) for key in keys)
            return f"object {stream.id.name} finds its rows by {found}, and the stream has {wanted}"
        return None

    def usage(self, verb: Verb, spec: SpecEvent) -> Invocation | None:
        return None if _sync_modes(spec) else Invocation((verb, "--help"), verb=Verb.USAGE)

    def write(self, request: WriteRequest) -> Invocation:
        files = {CONFIG.name: encode_config(request.config), CATALOG.name: _configured_catalog(request)}
        return Invocation(("write", "--config", CONFIG, "--catalog", CATALOG), files, verb=Verb.WRITE, takes_input=True)

    def opening_lines(self, request: WriteRequest) -> bytes:  # noqa: ARG002 - the catalog says it all
        return b""

    def record_frame(self, stream: PushedStream, emitted_at_milliseconds: int) -> tuple[str, str]:
        namespace = f'"namespace":{json.dumps(stream.id.namespace)},' if stream.id.namespace else ""
        name = json.dumps(stream.id.name)
        head = f'{{"type":"RECORD","record":{{{namespace}"stream":{name},"emitted_at":{emitted_at_milliseconds},"data":'
        return head, "}}"

    def batch_line(self, stream: PushedStream, path: str) -> bytes:  # noqa: ARG002 - no connection may ask for it
        raise InternalError("naming a file of records", "the protocol has no such message", stream=str(stream.id))

    def batch_head(self, stream: PushedStream, rows: int, size: int) -> bytes:  # noqa: ARG002 - its records are lines
        raise InternalError("heading a batch of Arrow", "the protocol has no batches", stream=str(stream.id))

    def state_line(self, stream: PushedStream, position: SentPosition) -> bytes:
        body = {"plan": position.plan_id, "rows": position.rows}
        of_stream = {"stream_descriptor": _descriptor(stream.id), "stream_state": body}
        counts = {} if position.records is None else {"sourceStats": {"recordCount": float(position.records)}}
        return _line({"type": "STATE", "state": {"type": "STREAM", "stream": of_stream, **counts}})

    def closing_lines(self, stream: PushedStream, emitted_at_milliseconds: int, *, is_end: bool) -> bytes:
        if not is_end and stream.mode is PushMode.OVERWRITE:
            return b""
        status = {"stream_descriptor": _descriptor(stream.id), "status": "COMPLETE"}
        trace = {"type": "STREAM_STATUS", "emitted_at": emitted_at_milliseconds, "stream_status": status}
        return _line({"type": "TRACE", "trace": trace})

    def reply(self, line: bytes) -> Echo | Event:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return airbyte_messages.event(line)
        if not isinstance(message, dict):
            return airbyte_messages.event(line)
        is_enveloped = message.get("type") == "STATE"
        state = message.get("state") if is_enveloped else message
        if not isinstance(state, dict) or not _is_state(state, is_enveloped=is_enveloped):
            return airbyte_messages.event(line)
        counts = _count(state, "recordCount"), _count(state, "rejectedRecordCount")
        if _kind(state) == "GLOBAL":
            return Echo(None, *counts, is_global=True)
        return Echo(_position(state), *counts)


def _sync_modes(spec: SpecEvent) -> list[object]:
    listed = spec.message.get("supported_destination_sync_modes")
    return listed if isinstance(listed, list) else []


def _configured_catalog(request: WriteRequest) -> bytes:
    stream = request.stream
    replaces = stream.mode is PushMode.OVERWRITE
    keys, cursor = [[key] for key in stream.keys], list(stream.declared_cursor)
    described = {
        "name": stream.id.name,
        **({"namespace": stream.id.namespace} if stream.id.namespace else {}),
        "json_schema": stream.json_schema,
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_primary_key": keys,
        **({"default_cursor_field": cursor} if cursor else {}),
    }
    configured = {
        "stream": described,
        "sync_mode": "full_refresh" if replaces else "incremental",
        "destination_sync_mode": _WIRE_MODES[stream.mode],
        **({"destination_object_name": stream.id.name} if stream.has_object else {}),
        "primary_key": keys,
        "cursor_field": cursor,
        "generation_id": stream.generation_id,
        "minimum_generation_id": stream.generation_id if replaces else 0,
        "sync_id": request.sync_id,
    }
    return msgspec.json.encode({"streams": [configured]})


def _catalog_event(line: bytes) -> Event:
    parts = members(line) or {}
    catalog = parts.get("destination_catalog", parts.get("destinationCatalog"))
    if catalog is not None and value(parts.get("type", b"null")) == "DESTINATION_CATALOG":
        return OperationsEvent(catalog)
    event = airbyte_messages.event(line)
    if isinstance(event, CatalogEvent) and event.catalog.streams:
        return OperationsEvent(NO_OPERATIONS, tuple(str(stream.id) for stream in event.catalog.streams))
    return event


def _operation(listed: Any) -> DestinationOperation | None:
    if not isinstance(listed, dict):
        return None
    name, mode, keys = listed.get("object_name"), listed.get("sync_mode"), listed.get("matching_keys")
    if not isinstance(name, str) or not isinstance(mode, str):
        return None
    paths = [key for key in keys if isinstance(key, list)] if isinstance(keys, list) else []
    schema = listed.get("json_schema")
    row_schema = schema if isinstance(schema, dict) and schema else None
    return DestinationOperation(name, mode, tuple(tuple(map(str, key)) for key in paths), row_schema)


def _listed(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    return ", ".join(found[:_MAX_NAMES]) + (f" and {len(found) - _MAX_NAMES} more" if len(found) > _MAX_NAMES else "")


def _descriptor(stream: StreamId) -> Mapping[str, str]:
    return {"name": stream.name} | ({"namespace": stream.namespace} if stream.namespace else {})


def _is_state(state: Mapping[str, Any], *, is_enveloped: bool) -> bool:
    """True for the forms in which states come back. Logs in JSON, and messages of other types, may have members of the
    same names: a bare object of no type is a state only if it is one of ours."""
    kind = _kind(state)
    members_of_kind = [member for name, member in _STATE_MEMBERS.items() if kind in (None, name)]
    if kind is None and not is_enveloped:
        return _position(state) is not None
    return any(isinstance(state.get(member), dict) for member in members_of_kind)


def _kind(state: Mapping[str, Any]) -> object:
    return state.get("type", state.get("state_type"))


def _position(state: Mapping[str, Any]) -> SentPosition | None:
    stream = state.get("stream")
    body = stream.get("stream_state") if isinstance(stream, dict) else None
    if not isinstance(body, dict) or not isinstance(body.get("plan"), str) or not isinstance(body.get("rows"), int):
        return None
    return SentPosition(body["plan"], body["rows"])


def _count(state: Mapping[str, Any], name: str) -> float | None:
    stats = state.get("destinationStats", state.get("destination_stats"))
    snake_name = re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)
    count = stats.get(name, stats.get(snake_name)) if isinstance(stats, dict) else None
    return count if isinstance(count, int | float) and not isinstance(count, bool) else None


def _line(message: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
