"""The destination side of Syncmaven: rows on stdin, and one result for all rows of a process.

1. A process is for one thing: `describe`, `describe-streams`, or the rows of one stream. Its only acknowledgement is
   the `stream-result` after `end-stream`, with the number of rows that it received. So a process proves all of its rows
   or none, and `checkpoint_rows` says how many that are. The published specification has no such message; the packages'
   own definition of it requires the counts.
2. There are no removals, and nothing says whether a row is new. A destination finds its rows by their values.
3. `fullRefresh` is for a destination that remembers what it has seen: with it, that counts for nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.model import Catalog, PushMode
from dagster_airbyte_proto.protocols.conversation import Invocation, Transcript, Verb
from dagster_airbyte_proto.protocols.destination import (
    DestinationOperation,
    Echo,
    HasCatalog,
    JsonDialect,
    PushedStream,
    SentPosition,
    StreamResult,
    WriteRequest,
)
from dagster_airbyte_proto.protocols.events import (
    CheckEvent,
    ErrorEvent,
    Event,
    LogEvent,
    LogLevel,
    OperationsEvent,
    SpecEvent,
)
from dagster_airbyte_proto.protocols.syncmaven import messages

_NOT_TAKEN = {
    PushMode.UPDATE: "Syncmaven has no mode that only updates",
    PushMode.MIRROR: "Syncmaven has no removals: a row that is gone stays at the destination",
    PushMode.OVERWRITE: "Syncmaven cannot replace rows as a whole; mode upsert with `push --full` sends all of them",
}


class SyncmavenDestination:
    """The DestinationProtocol of every connector that speaks Syncmaven."""

    name: str = "syncmaven"
    dialect: JsonDialect = JsonDialect.PLAIN
    deletion_column: str = ""
    has_catalog: HasCatalog = HasCatalog.ALWAYS
    keeps_values: bool = True
    omits_nulls: bool = True
    proves_by_result: bool = True
    takes_batches: bool = False
    has_versions: bool = False
    keeps_scopes: bool = False

    def spec(self) -> tuple[Invocation, ...]:
        return (_question(Verb.SPEC, messages.describe()),)

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return _question(Verb.CHECK, messages.describe_streams(_plain(config)))

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        return _question(Verb.DISCOVER, messages.describe_streams(_plain(config)))

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:
        for line in transcript.output.splitlines():
            event = messages.reply(line)
            if verb is Verb.CHECK and isinstance(event, OperationsEvent):
                yield CheckEvent(True)
            elif verb is Verb.CHECK and isinstance(event, ErrorEvent):
                yield CheckEvent(False, event.summary)
            elif not isinstance(event, StreamResult | messages.EnrichmentReply):
                yield event

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        return messages.specification(message)

    def adapted_to(self, spec: SpecEvent) -> "SyncmavenDestination":  # noqa: ARG002 - both dialects are always read
        return self

    def catalog(self, message: bytes) -> Catalog:  # noqa: ARG002 - nothing is read from it
        return Catalog(())

    def catalog_message(self, catalog: Catalog) -> bytes:  # noqa: ARG002 - nothing is read from it
        return b'{"streams":[]}'

    def refusal(self, spec: SpecEvent, mode: PushMode) -> str | None:
        roles = spec.message.get("roles")
        if isinstance(roles, list) and roles and "destination" not in roles:
            return f"its connector is no destination: its roles are {', '.join(map(str, roles))}"
        return _NOT_TAKEN.get(mode)

    def operations(self, message: bytes) -> tuple[DestinationOperation, ...]:
        return tuple(
            DestinationOperation(
                str(stream["name"]),
                "",
                row_schema=messages.schema(stream.get("rowType"), is_open=True),
                options_schema=messages.schema(stream.get("streamOptions"), is_open=False),
            )
            for stream in msgspec.json.decode(message)["streams"]
        )

    def mismatch(self, operations: Sequence[DestinationOperation], stream: PushedStream) -> str | None:
        names = [each.object_name for each in operations]
        if str(stream.id) in names:
            return None
        return f"the destination has no stream {stream.id}; it has {', '.join(names)}"

    def usage(self, verb: Verb, spec: SpecEvent) -> Invocation | None:  # noqa: ARG002 - there are none
        return None

    def write(self, request: WriteRequest) -> Invocation:  # noqa: ARG002 - it is asked on its stdin
        return Invocation((), verb=Verb.WRITE, takes_input=True)

    def opening_lines(self, request: WriteRequest) -> bytes:
        payload = {
            "stream": str(request.stream.id),
            "connectionCredentials": _plain(request.config),
            "streamOptions": _plain(request.stream.options),
            "syncId": request.asset,
            "fullRefresh": request.stream.starts_over,
        }
        return messages.line("start-stream", payload)

    def record_frame(self, stream: PushedStream, emitted_at_milliseconds: int) -> tuple[str, str]:  # noqa: ARG002
        return '{"type":"row","payload":{"row":', "}}"

    def batch_line(self, stream: PushedStream, path: str) -> bytes:  # noqa: ARG002 - no connection may ask for it
        raise InternalError("naming a file of records", "the protocol has no such message", stream=str(stream.id))

    def batch_head(self, stream: PushedStream, rows: int, size: int) -> bytes:  # noqa: ARG002 - its records are lines
        raise InternalError("heading a batch of Arrow", "the protocol has no batches", stream=str(stream.id))

    def state_line(self, stream: PushedStream, position: SentPosition) -> bytes:  # noqa: ARG002 - it sends none back
        return b""

    def closing_lines(self, stream: PushedStream, emitted_at_milliseconds: int, *, is_end: bool) -> bytes:  # noqa: ARG002
        return messages.line("end-stream", reason="success")

    def reply(self, line: bytes) -> Echo | StreamResult | Event:
        found = messages.reply(line)
        if isinstance(found, messages.EnrichmentReply):
            return LogEvent(LogLevel.WARN, "the destination sent an enriched row, which nobody had asked for")
        return found


def _question(verb: Verb, text: bytes) -> Invocation:
    return Invocation((), verb=verb, takes_input=True, input=text)


def _plain(config: Mapping[str, Any]) -> Any:
    """YAML's dates become text."""
    return msgspec.to_builtins(config)
