"""The source side of the Airbyte protocol: requests in, command lines out; lines in, events out.

1. Files have the form that the oldest connectors still in use accept: states are always a list of messages, and
   `--state` is left out if there is none, because an empty file is an error for a CDK.
2. Nothing is remembered between calls: the sync keeps what it has seen.
3. `event` and `record_wire` agree on every record (records.py), states follow the rules of states.py, and a stream's
   JSON goes back to its connector as it came (catalog.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster_airbyte_proto.model import Catalog, PlannedStream, State, StreamId
from dagster_airbyte_proto.protocols.airbyte import catalog as airbyte_catalog
from dagster_airbyte_proto.protocols.airbyte import messages as airbyte_messages
from dagster_airbyte_proto.protocols.airbyte import states as airbyte_states
from dagster_airbyte_proto.protocols.airbyte.records import RECORD_WIRE
from dagster_airbyte_proto.protocols.catalog_json import catalog_message
from dagster_airbyte_proto.protocols.conversation import (
    FileArgument,
    Invocation,
    ReadRequest,
    Transcript,
    Verb,
    encode_config,
)
from dagster_airbyte_proto.protocols.events import Event, SpecEvent
from dagster_airbyte_proto.protocols.wire import RecordWire

_CONFIG = FileArgument("config.json")
_CATALOG = FileArgument("catalog.json")
_STATE = FileArgument("state.json")


class AirbyteSource:
    """The SourceProtocol of every connector that speaks Airbyte."""

    name: str = "airbyte"
    record_wire: RecordWire = RECORD_WIRE
    sends_schemas: bool = False

    def spec(self) -> tuple[Invocation, ...]:
        return (Invocation(("spec",)),)

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("check", "--config", _CONFIG), {_CONFIG.name: encode_config(config)})

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("discover", "--config", _CONFIG), {_CONFIG.name: encode_config(config)})

    def read(self, request: ReadRequest) -> Invocation:
        files = {
            _CONFIG.name: encode_config(request.config),
            _CATALOG.name: airbyte_catalog.configured_catalog(request.streams, sync_id=request.sync_id),
        }
        arguments = ("read", "--config", _CONFIG, "--catalog", _CATALOG)
        states = airbyte_states.state_file(request.states)
        if states is None:
            return Invocation(arguments, files)
        return Invocation((*arguments, "--state", _STATE), {**files, _STATE.name: states})

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:  # noqa: ARG002 - the type of a message tells the request
        return map(airbyte_messages.event, transcript.output.splitlines())

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        return SpecEvent(message.get("connectionSpecification", {}), message)

    def adapted_to(self, spec: SpecEvent) -> "AirbyteSource":  # noqa: ARG002 - all connectors speak it alike
        return self

    def stream_aliases(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:  # noqa: ARG002 - there are none
        return {}

    def event(self, line: bytes) -> Event:
        return airbyte_messages.event(line)

    def catalog(self, message: bytes) -> Catalog:
        return airbyte_catalog.parse_catalog(message)

    def catalog_message(self, catalog: Catalog) -> bytes:
        return catalog_message(stream.raw for stream in catalog.streams)

    def merge_states(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        return airbyte_states.merge_states(old, new)

    def state_value(self, state: State) -> Any:
        return airbyte_states.state_value(state)

    def state_parts(self, state: State) -> Mapping[StreamId, Any] | None:  # noqa: ARG002 - what is shared is one position
        return None

    def without_stream(self, state: State, stream: StreamId) -> State | None:  # noqa: ARG002 - what is shared is one position
        return None

    def streams_sharing_position(
        self,
        state: State,
        selected: Sequence[PlannedStream],  # noqa: ARG002 - the state names them
        available: Sequence[PlannedStream],  # noqa: ARG002
    ) -> frozenset[StreamId] | None:
        return airbyte_states.streams_sharing_position(state)

    def state_from_value(self, stream: StreamId | None, value: Any) -> State:
        return airbyte_states.state_from_value(stream, value)
