"""The Singer protocol's source side, a tap: requests in, command lines out; lines in, events out.

1. A tap has no verbs but flags, and old ones have fewer. `spec` learns which (singer_spec.py), and `knowing` it the
   other requests are made as this tap takes them.
2. Its answers are one JSON document over many lines, or how it ended: `--test` says no more.
3. Nothing here remembers anything between calls: what a sync has seen is the sync's to keep.
4. A tap that has to change its config, for a token that is rotated, writes it into the file that it was given.
5. `event` and `shape` tell the same story of every record (singer_records.py), states follow the rules of
   singer_state.py, and a stream's own JSON goes back to its tap as it came, with what was chosen (singer_catalog.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster_airbyte_proto.errors import ConnectorError, ProtocolViolation
from dagster_airbyte_proto.model import Catalog, PlannedStream, ReadMode, State, StreamId
from dagster_airbyte_proto.protocols.catalogs import catalog_message
from dagster_airbyte_proto.protocols.conversation import FileArgument, Heard, Invocation, ReadRequest, Verb, config_file
from dagster_airbyte_proto.protocols.events import CatalogEvent, CheckEvent, Event, PlainLine, SpecEvent, UnknownEvent
from dagster_airbyte_proto.protocols.singer import catalog as singer_catalog
from dagster_airbyte_proto.protocols.singer import messages as singer_messages
from dagster_airbyte_proto.protocols.singer import records as singer_records
from dagster_airbyte_proto.protocols.singer import spec as singer_spec
from dagster_airbyte_proto.protocols.singer import states as singer_state
from dagster_airbyte_proto.protocols.wire import RecordShape

_CONFIG = FileArgument("config.json")
_CATALOG = FileArgument("catalog.json")
_STATE = FileArgument("state.json")
_USUAL = frozenset({"--catalog", "--discover", "--state"})
_LAST_WORDS = 10


class SingerSource:
    """A SourceProtocol for every tap. It takes these `flags`."""

    name: str = "singer"
    shape: RecordShape = singer_records.SHAPE
    describes_streams: bool = True

    def __init__(self, flags: frozenset[str] = _USUAL) -> None:
        self._flags = flags

    def spec(self) -> tuple[Invocation, ...]:
        return Invocation(("--about", "--format=json")), Invocation(("--help",))

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return self._asked(config, "--test") if "--test" in self._flags else self.discover(config)

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        if "--discover" not in self._flags:
            raise ConnectorError(
                "asking the tap for its catalog",
                "it has no --discover",
                remedy="A tap that cannot tell its streams cannot be run: is there a newer version of it?",
            )
        return self._asked(config, "--discover")

    def read(self, request: ReadRequest) -> Invocation:
        is_old = "--catalog" not in self._flags and "--properties" in self._flags
        files = {
            _CONFIG.name: config_file(request.config),
            _CATALOG.name: singer_catalog.selected_catalog(request, marks_schemas=is_old),
        }
        arguments = ("--config", _CONFIG, "--properties" if is_old else "--catalog", _CATALOG)
        whole = {each.id.name for each in request.streams if each.read is ReadMode.FULL_REFRESH}
        going_on = {each.id.name for each in request.streams} - whole
        state = singer_state.state_file(request.states, whole, going_on)
        if state is None:
            return Invocation(arguments, files, _CONFIG.name)
        return Invocation((*arguments, "--state", _STATE), {**files, _STATE.name: state}, _CONFIG.name)

    def answer(self, verb: Verb, heard: Heard) -> Iterator[Event]:
        document = singer_spec.document_in(heard.output)
        if verb is Verb.SPEC:
            found = singer_spec.about(document) if document is not None else None
            found = found or singer_spec.usage(heard.output.decode(errors="replace"))
            if found is not None and heard.ended_cleanly:
                yield found
                return
        elif verb is Verb.DISCOVER or "--test" not in self._flags:
            if document is not None:
                yield _offered(verb, document)
                return
        elif heard.ended_cleanly:
            yield CheckEvent(True, "")
            return
        if verb is Verb.CHECK:
            yield CheckEvent(False, "\n".join(heard.last_words[-_LAST_WORDS:]))
        yield from map(PlainLine, heard.output.splitlines())

    def kept_spec(self, message: Mapping[str, Any]) -> SpecEvent:
        return singer_spec.spec(message)

    def knowing(self, spec: SpecEvent) -> "SingerSource":
        return SingerSource(singer_spec.flags_of(spec) or _USUAL)

    def other_names(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:
        return singer_catalog.other_names(request)

    def event(self, line: bytes) -> Event:
        return singer_messages.event(line)

    def catalog(self, message: bytes) -> Catalog:
        return singer_catalog.parse_catalog(message)

    def catalog_message(self, catalog: Catalog) -> bytes:
        return catalog_message(stream.raw for stream in catalog.streams)

    def merged(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        return singer_state.merged(old, new)

    def state_value(self, state: State) -> Any:
        return singer_state.state_value(state)

    def state_parts(self, state: State) -> Mapping[StreamId, Any] | None:
        return singer_state.state_parts(state)

    def without(self, state: State, stream: StreamId) -> State | None:
        return singer_state.without(state, stream)

    def sharing(
        self, state: State, asked: Sequence[PlannedStream], offered: Sequence[PlannedStream]
    ) -> frozenset[StreamId] | None:
        """Each stream has a bookmark of its own; but those that follow the source's log read one log together, and the
        source forgets what it has handed out."""
        if singer_state.state_parts(state) is None:
            return None
        if not any(map(singer_catalog.follows_the_log, asked)):
            return frozenset()
        return frozenset(each.id for each in offered if singer_catalog.follows_the_log(each))

    def state_from_value(self, stream: StreamId | None, value: Any) -> State:
        return singer_state.state_from_value(stream, value)

    @staticmethod
    def _asked(config: Mapping[str, Any], flag: str) -> Invocation:
        return Invocation(("--config", _CONFIG, flag), {_CONFIG.name: config_file(config)}, _CONFIG.name)


def _offered(verb: Verb, document: bytes) -> Event:
    """A tap that can be asked for no test is tested by what it discovers."""
    try:
        catalog = singer_catalog.parse_catalog(document)
    except ProtocolViolation as error:
        return UnknownEvent("catalog", error.found)
    return CatalogEvent(catalog) if verb is Verb.DISCOVER else CheckEvent(True, "")
