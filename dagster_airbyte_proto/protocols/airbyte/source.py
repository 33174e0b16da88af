"""The Airbyte protocol's source side: requests in, command lines out; lines in, events out.

1. Files are written as the oldest reader still met in the field takes them: states always as a list of messages, and
   `--state` left out when there is none, for an empty file is an error to a CDK.
2. Nothing here remembers anything between calls: what a sync has seen is the sync's to keep.
3. `event` and `shape` tell the same story of every record (airbyte_records.py), states follow the rules of
   airbyte_state.py, and a stream's own JSON goes back to its connector as it came (airbyte_catalog.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster_airbyte_proto.model import Catalog, PlannedStream, State, StreamId
from dagster_airbyte_proto.protocols.airbyte import catalog as airbyte_catalog
from dagster_airbyte_proto.protocols.airbyte import messages as airbyte_messages
from dagster_airbyte_proto.protocols.airbyte import records as airbyte_records
from dagster_airbyte_proto.protocols.airbyte import states as airbyte_state
from dagster_airbyte_proto.protocols.catalogs import catalog_message
from dagster_airbyte_proto.protocols.conversation import FileArgument, Heard, Invocation, ReadRequest, Verb, config_file
from dagster_airbyte_proto.protocols.events import Event, SpecEvent
from dagster_airbyte_proto.protocols.wire import RecordShape

_CONFIG = FileArgument("config.json")
_CATALOG = FileArgument("catalog.json")
_STATE = FileArgument("state.json")


class AirbyteSource:
    """A SourceProtocol for every connector that speaks Airbyte."""

    name: str = "airbyte"
    shape: RecordShape = airbyte_records.SHAPE
    describes_streams: bool = False

    def spec(self) -> tuple[Invocation, ...]:
        return (Invocation(("spec",)),)

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("check", "--config", _CONFIG), {_CONFIG.name: config_file(config)})

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("discover", "--config", _CONFIG), {_CONFIG.name: config_file(config)})

    def read(self, request: ReadRequest) -> Invocation:
        files = {
            _CONFIG.name: config_file(request.config),
            _CATALOG.name: airbyte_catalog.configured_catalog(request.streams, sync_id=request.sync_id),
        }
        arguments = ("read", "--config", _CONFIG, "--catalog", _CATALOG)
        states = airbyte_state.state_file(request.states)
        if states is None:
            return Invocation(arguments, files)
        return Invocation((*arguments, "--state", _STATE), {**files, _STATE.name: states})

    def answer(self, verb: Verb, heard: Heard) -> Iterator[Event]:  # noqa: ARG002 - its messages tell what they answer
        return map(airbyte_messages.event, heard.output.splitlines())

    def kept_spec(self, message: Mapping[str, Any]) -> SpecEvent:
        return SpecEvent(message.get("connectionSpecification", {}), message)

    def knowing(self, spec: SpecEvent) -> "AirbyteSource":  # noqa: ARG002 - all of them speak it alike
        return self

    def other_names(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:  # noqa: ARG002 - there are none
        return {}

    def event(self, line: bytes) -> Event:
        return airbyte_messages.event(line)

    def catalog(self, message: bytes) -> Catalog:
        return airbyte_catalog.parse_catalog(message)

    def catalog_message(self, catalog: Catalog) -> bytes:
        return catalog_message(stream.raw for stream in catalog.streams)

    def merged(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        return airbyte_state.merged(old, new)

    def state_value(self, state: State) -> Any:
        return airbyte_state.state_value(state)

    def state_parts(self, state: State) -> Mapping[StreamId, Any] | None:  # noqa: ARG002 - what is shared is one position
        return None

    def without(self, state: State, stream: StreamId) -> State | None:  # noqa: ARG002 - what is shared is one position
        return None

    def sharing(
        self,
        state: State,
        asked: Sequence[PlannedStream],  # noqa: ARG002 - the state tells
        offered: Sequence[PlannedStream],  # noqa: ARG002
    ) -> frozenset[StreamId] | None:
        return airbyte_state.sharing(state)

    def state_from_value(self, stream: StreamId | None, value: Any) -> State:
        return airbyte_state.state_from_value(stream, value)
