"""The source side of the Airbyte protocol: requests in, command lines out; lines in, events out.

1. Files have the form that the oldest connectors still in use accept. Without a state `--state` is left out: to a
   CDK an empty file is an error.
2. Nothing is remembered between calls: the sync keeps what it has seen.
3. `event` and `record_wire` agree on every record (records.py), states follow the rules of states.py, and a stream's
   JSON goes back to its connector as it came (catalog.py).
"""

from collections.abc import Iterator, Mapping

from dagster_airbyte_proto.model import ReadMode, StreamId
from dagster_airbyte_proto.protocols.airbyte import catalog as airbyte_catalog
from dagster_airbyte_proto.protocols.airbyte import messages as airbyte_messages
from dagster_airbyte_proto.protocols.airbyte import states as airbyte_states
from dagster_airbyte_proto.protocols.airbyte.records import RECORD_WIRE
from dagster_airbyte_proto.protocols.airbyte.requests import CATALOG, CONFIG, AirbyteRequests
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

_STATE = FileArgument("state.json")


class AirbyteSource(AirbyteRequests):
    """The SourceProtocol of every connector that speaks Airbyte."""

    record_wire: RecordWire = RECORD_WIRE
    states: StateCodec = airbyte_states.AirbyteStates()
    sends_schemas: bool = False
    sends_batches: bool = False
    can_divide_streams: bool = True

    def __init__(self, *, is_first_version: bool = False) -> None:
        self._is_first_version = is_first_version

    def read(self, request: ReadRequest) -> Invocation:
        files = {
            CONFIG.name: encode_config(request.config),
            CATALOG.name: airbyte_catalog.configured_catalog(request.streams, sync_id=request.sync_id),
        }
        arguments = ("read", "--config", CONFIG, "--catalog", CATALOG)
        full_refresh = {each.id for each in request.streams if each.read is ReadMode.FULL_REFRESH}
        states = airbyte_states.state_file(
            request.states, full_refresh=full_refresh, is_first_version=self._is_first_version
        )
        if states is None:
            return Invocation(arguments, files)
        return Invocation((*arguments, "--state", _STATE), {**files, _STATE.name: states})

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:  # noqa: ARG002 - the type of a message tells the request
        return map(airbyte_messages.event, transcript.output.splitlines())

    def adapted_to(self, spec: SpecEvent) -> "AirbyteSource":
        major, _, _ = str(spec.message.get("protocol_version") or "2").partition(".")
        return AirbyteSource(is_first_version=major in ("0", "1"))

    def stream_aliases(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:  # noqa: ARG002 - there are none
        return {}

    def event(self, line: bytes) -> Event:
        return airbyte_messages.event(line)
