"""The source side of Rapidbyte: requests to the launcher that hosts a component, and the lines that it writes.

1. An invocation is no command line: there is no program with arguments. `arguments` name the request; its files are
   the config, and for a read the runs: a stream and its context each, in the order in which they run.
2. Records come in Arrow batches, so no line is ever a record, and `record_wire` matches none.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.model import Catalog, ReadMode, StreamId
from dagster_airbyte_proto.protocols.airbyte.records import RECORD_WIRE
from dagster_airbyte_proto.protocols.catalog_json import catalog_message
from dagster_airbyte_proto.protocols.conversation import Invocation, ReadRequest, Transcript, Verb, encode_config
from dagster_airbyte_proto.protocols.events import Event, SpecEvent
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.catalog import parse_catalog
from dagster_airbyte_proto.protocols.rapidbyte.states import RapidbyteStates, checkpoint_of
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import SourceHints, stream_context
from dagster_airbyte_proto.protocols.raw_json import exact_json, exact_number
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.protocols.wire import RecordWire

CONFIG_FILE, RUNS_FILE, KEPT_FILE = "config.json", "runs.json", "kept.json"


STREAM_SCOPE = "stream/"
"""The beginning of the scope of a stream's values, where it has no states that stay: its name follows."""


class StreamToRun(msgspec.Struct, frozen=True):
    """A stream to run, with its context as the connector gets it, its last checkpoint, and the values that it kept for
    the stream. It may be read in so many `partitions` side by side. In a dry run it sends at most so many records."""

    stream: str
    context: Mapping[str, Any]
    values: Mapping[str, str] = {}
    checkpoint: Mapping[str, Any] = {}
    partitions: int = 1
    dry_run_records: int | None = None


RUNS = msgspec.json.Decoder(tuple[StreamToRun, ...], float_hook=exact_number)
KEPT = msgspec.json.Decoder(Mapping[str, Mapping[str, str]])


class RapidbyteSource:
    """The SourceProtocol of every connector that speaks Rapidbyte.

    A full refresh may be read in partitions: as many as the user's `overrides` say, else as many as the host can run
    side by side. It is the launcher that knows whether the connector can do that.
    """

    name: str = "rapidbyte"
    record_wire: RecordWire = RECORD_WIRE
    states: StateCodec = RapidbyteStates()
    sends_schemas: bool = False
    sends_batches: bool = True
    can_divide_streams: bool = False  # Its processes read partitions side by side already.
    keeps_scopes: bool = True

    def __init__(self, hints: SourceHints = SourceHints(), *, side_by_side: int = 1) -> None:  # noqa: B008  # frozen
        self._hints = hints
        self._partitions = hints.overrides.effective_parallelism or side_by_side

    def spec(self) -> tuple[Invocation, ...]:
        return (Invocation(("spec",), verb=Verb.SPEC),)

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("check",), {CONFIG_FILE: encode_config(config)}, verb=Verb.CHECK)

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("discover",), {CONFIG_FILE: encode_config(config)}, verb=Verb.DISCOVER)

    def read(self, request: ReadRequest) -> Invocation:
        states = {state.stream: state for state in request.states}
        runs = [
            StreamToRun(
                planned.id.name,
                stream_context(planned, states.get(planned.id), request.fields.get(planned.id), self._hints),
                checkpoint_of(states.get(planned.id)).values
                or request.kept.get(f"{STREAM_SCOPE}{planned.id.name}", {}),
                checkpoint_of(states.get(planned.id)).payload,
                self._partitions if planned.read is ReadMode.FULL_REFRESH and request.dry_run_records is None else 1,
                request.dry_run_records,
            )
            for planned in request.streams
        ]
        files = {CONFIG_FILE: encode_config(request.config), RUNS_FILE: exact_json(runs)}
        if request.kept:
            files[KEPT_FILE] = msgspec.json.encode(request.kept)
        return Invocation(("read",), files)

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:  # noqa: ARG002 - a line's type says it
        return map(messages.event, transcript.output.splitlines())

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        return messages.specification(message)

    def adapted_to(self, spec: SpecEvent) -> "RapidbyteSource":  # noqa: ARG002 - there is one dialect
        return self

    def stream_aliases(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:  # noqa: ARG002 - there are none
        return {}

    def event(self, line: bytes) -> Event:
        return messages.event(line)

    def catalog(self, message: bytes) -> Catalog:
        return parse_catalog(message)

    def catalog_message(self, catalog: Catalog) -> bytes:
        return catalog_message(stream.raw for stream in (*catalog.streams, *catalog.duplicates))
