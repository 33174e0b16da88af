"""The destination side of Singer: a target reads SCHEMA, RECORD and STATE, and prints the states that it has landed.

1. What a target prints is the bare value of a state, often only the last one, at its end. An object without bookmarks
   is no word on a state of ours: some print `{}` before they had a state, or log in JSON.
2. `key_properties` make a target replace rows of the same key. A stream without them is appended to.
3. A removed row is its key with `_sdc_deleted_at`. A replacement is a new version, activated at its end: not every
   target heeds that. Where versions remove rows, each record has one: the SDK keeps rows without.
4. BATCH names files of bare records. No target says whether it takes them, and one on a RecordSink of Meltano's SDK
   drops them and prints the state: so the user asks for it.
5. Targets have no discover and no check. The check is a run without input, which opens what the target writes to.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import ConfigError, InternalError
from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.model import Catalog, PushMode
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation, Transcript, Verb, encode_config
from dagster_airbyte_proto.protocols.destination import (
    DestinationOperation,
    Echo,
    HasCatalog,
    JsonDialect,
    PushedStream,
    SentPosition,
    WriteRequest,
)
from dagster_airbyte_proto.protocols.events import CheckEvent, Event, PlainLine, SpecEvent
from dagster_airbyte_proto.protocols.singer import messages as singer_messages
from dagster_airbyte_proto.protocols.singer import spec as singer_spec
from dagster_airbyte_proto.stack_traces import last_words

_CONFIG = FileArgument("config.json")
_BOOKMARKS = "bookmarks"


class SingerTarget:
    """The DestinationProtocol of every target."""

    name: str = "singer"
    dialect: JsonDialect = JsonDialect.PLAIN
    deletion_column: str = "_sdc_deleted_at"
    has_catalog: HasCatalog = HasCatalog.NEVER
    keeps_values: bool = False
    omits_nulls: bool = False
    proves_by_result: bool = False
    takes_batches: bool = False
    has_versions: bool = True
    keeps_scopes: bool = False

    def spec(self) -> tuple[Invocation, ...]:
        return tuple(Invocation(words, verb=Verb.SPEC) for words in (("--about", "--format=json"), ("--help",)))

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("--config", _CONFIG), {_CONFIG.name: encode_config(config)}, _CONFIG.name, Verb.CHECK)

    def discover(self, config: Mapping[str, Any]) -> Invocation:  # noqa: ARG002 - there is no such request
        raise ConfigError("asking the connector for its catalog", "a Singer target has none: it takes any stream")

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:
        if verb is Verb.CHECK:
            failed = "" if transcript.ended_cleanly else last_words(transcript.stderr_tail) or "it failed"
            yield CheckEvent(transcript.ended_cleanly, UnmaskedText(failed))
            return
        document = singer_spec.find_object(transcript.output)
        found = singer_spec.spec_from_about(document) if document is not None else None
        if found is None and b"--config" in transcript.output:
            found = singer_spec.target_spec_from_help(transcript.output.decode(errors="replace"))
        if found is not None and transcript.ended_cleanly:
            yield found
        else:
            yield from map(PlainLine, transcript.output.splitlines())

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        return singer_spec.spec(message)

    def adapted_to(self, spec: SpecEvent) -> "SingerTarget":  # noqa: ARG002 - all speak alike
        return self

    def catalog(self, message: bytes) -> Catalog:  # noqa: ARG002 - there is none
        return Catalog(())

    def catalog_message(self, catalog: Catalog) -> bytes:  # noqa: ARG002 - there is none
        return b'{"streams":[]}'

    def refusal(self, spec: SpecEvent, mode: PushMode) -> str | None:
        if singer_spec.is_of_tap(spec):
            return "its connector is a tap, which reads: name a target"
        return "Singer has no mode that only updates" if mode is PushMode.UPDATE else None

    def operations(self, message: bytes) -> tuple[DestinationOperation, ...]:  # noqa: ARG002 - there is no catalog
        return ()

    def mismatch(self, operations: Sequence[DestinationOperation], stream: PushedStream) -> str | None:  # noqa: ARG002
        return None

    def usage(self, verb: Verb, spec: SpecEvent) -> Invocation | None:  # noqa: ARG002 - it would say nothing
        return None

    def write(self, request: WriteRequest) -> Invocation:
        files = {_CONFIG.name: encode_config(request.config)}
        return Invocation(("--config", _CONFIG), files, _CONFIG.name, Verb.WRITE, takes_input=True)

    def opening_lines(self, request: WriteRequest) -> bytes:
        stream = request.stream
        return _line(
            {
                "type": "SCHEMA",
                "stream": stream.id.name,
                "schema": stream.json_schema,
                "key_properties": [] if stream.mode is PushMode.APPEND else list(stream.keys),
                "bookmark_properties": list(stream.declared_cursor),
            }
        )

    def record_frame(self, stream: PushedStream, emitted_at_milliseconds: int) -> tuple[str, str]:
        number = _version(stream)
        version = "" if number is None else f',"version":{number}'
        extracted = f'"time_extracted":"{_rfc3339(emitted_at_milliseconds)}"{version}'
        return f'{{"type":"RECORD","stream":{json.dumps(stream.id.name)},{extracted},"record":', "}"

    def batch_line(self, stream: PushedStream, path: str) -> bytes:
        # The SDK takes what follows `file://` as it is, without percent-encoding.
        encoding = {"format": "jsonl", "compression": "gzip"}
        return _line({"type": "BATCH", "stream": stream.id.name, "encoding": encoding, "manifest": [f"file://{path}"]})

    def batch_head(self, stream: PushedStream, rows: int, size: int) -> bytes:  # noqa: ARG002 - its records are lines
        raise InternalError("heading a batch of Arrow", "the protocol has no batches", stream=str(stream.id))

    def state_line(self, stream: PushedStream, position: SentPosition) -> bytes:
        bookmark = {"plan": position.plan_id, "rows": position.rows}
        return _line({"type": "STATE", "value": {_BOOKMARKS: {stream.id.name: bookmark}}})

    def closing_lines(self, stream: PushedStream, emitted_at_milliseconds: int, *, is_end: bool) -> bytes:  # noqa: ARG002
        if not is_end or not (stream.activates or stream.mode is PushMode.OVERWRITE):
            return b""
        return _line({"type": "ACTIVATE_VERSION", "stream": stream.id.name, "version": _version(stream)})

    def reply(self, line: bytes) -> Echo | Event:
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return PlainLine(line)
        if not isinstance(value, dict):
            return PlainLine(line)
        if value.get("type") == "RECORD" and "record" in value:
            return singer_messages.event(line)  # It reads, or passes on what it gets.
        state = value.get("value", value)
        bookmarks = state.get(_BOOKMARKS) if isinstance(state, dict) else None
        if isinstance(bookmarks, dict) and bookmarks:
            return Echo(_position(bookmarks))
        return Echo(None) if state and value.get("type") == "STATE" and "value" in value else PlainLine(line)


def _version(stream: PushedStream) -> int | None:
    """The version of the stream's rows; None if they have none."""
    return stream.generation_id if stream.mode is PushMode.OVERWRITE else stream.version or None


def _position(bookmarks: Mapping[str, Any]) -> SentPosition | None:
    for bookmark in bookmarks.values():
        if (
            isinstance(bookmark, dict)
            and isinstance(bookmark.get("plan"), str)
            and isinstance(bookmark.get("rows"), int)
        ):
            return SentPosition(bookmark["plan"], bookmark["rows"])
    return None


def _rfc3339(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(message: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
