"""The source side of the Singer protocol (a tap): requests in, command lines out; lines in, events out.

1. A tap takes flags, not verbs, and old taps take fewer. The answer to `spec` tells which (spec.py); `adapted_to` that
   spec, the other requests use only the flags that this tap takes. One without `--discover` is run once, without a
   state, and its catalog is made of the SCHEMA messages (schema_catalog.py).
2. The answer is one JSON document over many lines, or only the exit code: `--test` prints nothing else.
3. Nothing is remembered between calls: the sync keeps what it has seen.
4. A tap that must change its config (a rotated token) rewrites the config file it was given.
5. `event` and `record_wire` agree on every record (records.py), states follow the rules of states.py, and a stream's
   JSON goes back to its tap as it came, with the selection in it (catalog.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.model import Catalog, ReadMode, StreamId
from dagster_airbyte_proto.protocols.catalog_json import catalog_message
from dagster_airbyte_proto.protocols.conversation import (
    FileArgument,
    Invocation,
    ReadRequest,
    Transcript,
    Verb,
    encode_config,
)
from dagster_airbyte_proto.protocols.events import CatalogEvent, CheckEvent, Event, PlainLine, SpecEvent, UnknownEvent
from dagster_airbyte_proto.protocols.singer import catalog as singer_catalog
from dagster_airbyte_proto.protocols.singer import messages as singer_messages
from dagster_airbyte_proto.protocols.singer import spec as singer_spec
from dagster_airbyte_proto.protocols.singer import states as singer_states
from dagster_airbyte_proto.protocols.singer.records import RECORD_WIRE
from dagster_airbyte_proto.protocols.singer.schema_catalog import catalog_of_run
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.stack_traces import last_words

_CONFIG = FileArgument("config.json")
_CATALOG = FileArgument("catalog.json")
_STATE = FileArgument("state.json")
_USUAL_FLAGS = frozenset({"--catalog", "--discover", "--state"})


class SingerSource:
    """The SourceProtocol of a tap that takes these `flags`."""

    name: str = "singer"
    record_wire: RecordWire = RECORD_WIRE
    states: StateCodec = singer_states.SingerStates()
    sends_schemas: bool = True
    sends_batches: bool = False
    can_divide_streams: bool = False  # Its state is one object for all streams.
    keeps_scopes: bool = False

    def __init__(self, flags: frozenset[str] = _USUAL_FLAGS) -> None:
        self._flags = flags

    def spec(self) -> tuple[Invocation, ...]:
        return tuple(Invocation(words, verb=Verb.SPEC) for words in (("--about", "--format=json"), ("--help",)))

    def check(self, config: Mapping[str, Any]) -> Invocation:
        if "--test" in self._flags:
            return self._query(Verb.CHECK, config, "--test")
        return self.discover(config)._replace(verb=Verb.CHECK)

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        if "--discover" in self._flags:
            return self._query(Verb.DISCOVER, config, "--discover")
        return self._query(Verb.DISCOVER, config)._replace(keeps_lines_with=b"SCHEMA")

    def read(self, request: ReadRequest) -> Invocation:
        is_old = "--catalog" not in self._flags and "--properties" in self._flags
        files = {_CONFIG.name: encode_config(request.config)}
        arguments: tuple[str | FileArgument, ...] = ("--config", _CONFIG)
        if not self._flags.isdisjoint(("--catalog", "--properties")):
            files[_CATALOG.name] = singer_catalog.selected_catalog(request, marks_schemas=is_old)
            arguments = (*arguments, "--properties" if is_old else "--catalog", _CATALOG)
        full_refresh = {each.id.name for each in request.streams if each.read is ReadMode.FULL_REFRESH}
        incremental = {each.id.name for each in request.streams} - full_refresh
        state = singer_states.state_file(request.states, full_refresh, incremental)
        if state is None:
            return Invocation(arguments, files, _CONFIG.name)
        return Invocation((*arguments, "--state", _STATE), {**files, _STATE.name: state}, _CONFIG.name)

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:
        is_run = "--discover" not in self._flags and (
            verb is Verb.DISCOVER or (verb is Verb.CHECK and "--test" not in self._flags)
        )
        document = catalog_of_run(transcript.output) if is_run else singer_spec.find_object(transcript.output)
        if is_run and not transcript.ended_cleanly:
            document = None  # The streams of which it has not come to speak would be missing.
        if verb is Verb.SPEC:
            found = singer_spec.spec_from_about(document) if document is not None else None
            found = found or singer_spec.spec_from_help(transcript.output.decode(errors="replace"))
            if found is not None and transcript.ended_cleanly:
                yield found
                return
        elif verb is Verb.DISCOVER or "--test" not in self._flags:
            if document is not None:
                yield _event_of_catalog(verb, document)
                return
        elif transcript.ended_cleanly:
            yield CheckEvent(True)
            return
        if verb is Verb.CHECK:
            yield CheckEvent(False, UnmaskedText(last_words(transcript.stderr_tail)))
        yield from map(PlainLine, transcript.output.splitlines())

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        return singer_spec.spec(message)

    def adapted_to(self, spec: SpecEvent) -> "SingerSource":
        return SingerSource(singer_spec.flags_in_spec(spec) or _USUAL_FLAGS)

    def stream_aliases(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:
        return singer_catalog.stream_aliases(request)

    def event(self, line: bytes) -> Event:
        return singer_messages.event(line)

    def catalog(self, message: bytes) -> Catalog:
        return singer_catalog.parse_catalog(message)

    def catalog_message(self, catalog: Catalog) -> bytes:
        return catalog_message(stream.raw for stream in (*catalog.streams, *catalog.duplicates))

    @staticmethod
    def _query(verb: Verb, config: Mapping[str, Any], *flags: str) -> Invocation:
        return Invocation(("--config", _CONFIG, *flags), {_CONFIG.name: encode_config(config)}, _CONFIG.name, verb)


def _event_of_catalog(verb: Verb, document: bytes) -> Event:
    """The event of a catalog. A tap without `--test` is checked by its discovery: a valid catalog passes."""
    try:
        catalog = singer_catalog.parse_catalog(document)
    except ProtocolViolation as error:
        return UnknownEvent("catalog", error.found)
    return CatalogEvent(catalog) if verb is Verb.DISCOVER else CheckEvent(True)
