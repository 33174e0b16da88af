"""The source side of the Airbyte protocol: requests in, command lines out; lines in, events out.

1. Files have the form that the oldest connectors still in use accept. Without a state `--state` is left out: to a
   CDK an empty file is an error.
2. Nothing is remembered between calls: the sync keeps what it has seen.
3. `event` and `record_wire` agree on every record (records.py), states follow the rules of states.py, and a stream's
   JSON goes back to its connector as it came (catalog.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagster_airbyte_proto.model import Catalog, StreamId
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
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.protocols.wire import RecordWire

_CONFIG = FileArgument("config.json")
_CATALOG = FileArgument("catalog.json")
_STATE = FileArgument("state.json")


class AirbyteSource:
    """The SourceProtocol of every connector that speaks Airbyte."""

    name: str = "airbyte"
    record_wire: RecordWire = RECORD_WIRE
    states: StateCodec = airbyte_states.AirbyteStates()
    sends_schemas: bool = False
    sends_batches: bool = False
    can_divide_streams: bool = True
    keeps_scopes: bool = False

    def __init__(self, *, is_first_version: bool = False) -> None:
        self._is_first_version = is_first_version

    def spec(self) -> tuple[Invocation, ...]:
        return (Invocation(("spec",), verb=Verb.SPEC),)

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("check", "--config", _CONFIG), {_CONFIG.name: encode_config(config)}, verb=Verb.CHECK)

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("discover", "--config", _CONFIG), {_CONFIG.name: encode_config(config)}, verb=Verb.DISCOVER)

    def read(self, request: ReadRequest) -> Invocation:
        files = {
            _CONFIG.name: encode_config(request.config),
            _CATALOG.name: airbyte_catalog.configured_catalog(request.streams, sync_id=request.sync_id),
        }
        arguments = ("read", "--config", _CONFIG, "--catalog", _CATALOG)
        states = airbyte_states.state_file(request.states, is_first_version=self._is_first_version)
        if states is None:
            return Invocation(arguments, files)
        return Invocation((*arguments, "--state", _STATE), {**files, _STATE.name: states})

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:  # noqa: ARG002 - the type of a message tells the request
        return map(airbyte_messages.event, transcript.output.splitlines())

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        return SpecEvent(message.get("connectionSpecification", {}), message)

    def adapted_to(self, spec: SpecEvent) -> "AirbyteSource":
        major, _, _ = str(spec.message.get("protocol_version") or "2").partition(".")
        return AirbyteSource(is_first_version=major in ("0", "1"))

    def stream_aliases(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:  # noqa: ARG002 - there are none
        return {}

    def event(self, line: bytes) -> Event:
        return airbyte_messages.event(line)

    def catalog(self, message: bytes) -> Catalog:
        return airbyte_catalog.parse_catalog(message)

    def catalog_message(self, catalog: Catalog) -> bytes:
        return catalog_message(stream.raw for stream in (*catalog.streams, *catalog.duplicates))
