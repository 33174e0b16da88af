"""The destination side of Rapidbyte: Arrow batches in, and the checkpoints that prove them.

1. A process is for one stream, and for one `run` of the component. Its input is as its output is: JSON lines, and Arrow
   between them. After each batch comes a position of ours. The launcher keeps it: the component sees batches alone.
2. A checkpoint says how many records of the run are in (`records_processed`). So it proves the positions up to there.
3. A run that ends well proves the rest if its counts add up: what its last checkpoint covers, and what it says failed,
   are all the rows that it got. A component without checkpoints proves nothing, unless the user takes the end of its
   run for that (`acknowledge: exit`).
4. There are no removals, and no mode that only updates. Whether a row is new is for the component to find out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb, encode_config
from dagster_airbyte_proto.protocols.destination import (
    DestinationOperation,
    Echo,
    HasCatalog,
    JsonDialect,
    PushedStream,
    RejectedRecord,
    SentPosition,
    StreamResult,
    WriteRequest,
)
from dagster_airbyte_proto.protocols.events import Event, SpecEvent
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.source import (
    CONFIG_FILE,
    KEPT_FILE,
    RUNS_FILE,
    RapidbyteSource,
    StreamToRun,
)
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import (
    WRITE_MODES,
    Overrides,
    SourceHints,
    written_stream_context,
)

_NOT_TAKEN = {
    PushMode.UPDATE: "Rapidbyte has no mode that only updates",
    PushMode.MIRROR: "Rapidbyte has no removals: a row that is gone stays at the destination",
}


class RapidbyteDestination(RapidbyteSource):
    """The DestinationProtocol of every connector that speaks Rapidbyte. Its short requests are those of a source."""

    dialect: JsonDialect = JsonDialect.PLAIN
    deletion_column: str = ""
    has_catalog: HasCatalog = HasCatalog.NEVER
    keeps_values: bool = False
    omits_nulls: bool = False
    proves_by_result: bool = False
    takes_batches: bool = True
    has_versions: bool = False

    def __init__(self, overrides: Overrides = Overrides()) -> None:  # noqa: B008  # frozen
        super().__init__(SourceHints(overrides))
        self._overrides = overrides

    def adapted_to(self, spec: SpecEvent) -> "RapidbyteDestination":  # noqa: ARG002 - there is one dialect
        return self

    def refusal(self, spec: SpecEvent, mode: PushMode) -> str | None:
        if mode in _NOT_TAKEN:
            return _NOT_TAKEN[mode]
        manifest = spec.message.get("manifest")
        found = manifest.get("roles") if isinstance(manifest, Mapping) else None
        roles = found if isinstance(found, Mapping) else {}
        named = [role for role, each in roles.items() if each not in (None, False)]
        if named and "destination" not in named:
            return f"its connector is no destination: its manifest has the roles {', '.join(named)}"
        taken = _write_modes(roles.get("destination"))
        if taken and WRITE_MODES[mode] not in taken:
            return f"mode {mode} needs its write mode {WRITE_MODES[mode]}, and its manifest has {', '.join(taken)}"
        return None

    def operations(self, message: bytes) -> tuple[DestinationOperation, ...]:  # noqa: ARG002 - it has no catalog
        return ()

    def mismatch(self, operations: Sequence[DestinationOperation], stream: PushedStream) -> str | None:  # noqa: ARG002
        return None

    def usage(self, verb: Verb, spec: SpecEvent) -> Invocation | None:  # noqa: ARG002 - it would say nothing
        return None

    def write(self, request: WriteRequest) -> Invocation:
        context = written_stream_context(request.stream, request.on_error, self._overrides)
        runs = [StreamToRun(str(request.stream.id), context, request.kept.get("stream", {}))]
        files = {CONFIG_FILE: encode_config(request.config), RUNS_FILE: msgspec.json.encode(runs)}
        files[KEPT_FILE] = msgspec.json.encode({name: each for name, each in request.kept.items() if name != "stream"})
        return Invocation(("write",), files, verb=Verb.WRITE, takes_input=True)

    def opening_lines(self, request: WriteRequest) -> bytes:  # noqa: ARG002 - its context says it all
        return b""

    def record_frame(self, stream: PushedStream, emitted_at_milliseconds: int) -> tuple[str, str]:  # noqa: ARG002
        raise InternalError("writing a record", "the protocol has no record lines", stream=str(stream.id))

    def batch_line(self, stream: PushedStream, path: str) -> bytes:  # noqa: ARG002 - no connection may ask for it
        raise InternalError("naming a file of records", "the protocol has no such message", stream=str(stream.id))

    def batch_head(self, stream: PushedStream, rows: int, size: int) -> bytes:
        return messages.line(messages.BATCH, stream=str(stream.id), rows=rows, bytes=size)

    def state_line(self, stream: PushedStream, position: SentPosition) -> bytes:  # noqa: ARG002 - there is one stream
        return messages.line(messages.POSITION, plan=position.plan_id, rows=position.rows)

    def closing_lines(self, stream: PushedStream, emitted_at_milliseconds: int, *, is_end: bool) -> bytes:  # noqa: ARG002
        return b""

    def reply(self, line: bytes) -> Echo | StreamResult | RejectedRecord | Event:
        return messages.destination_reply(line)


def _write_modes(role: Any) -> list[str]:
    """The write modes that a manifest names for its role, mostly a list of words; none if it does not say."""
    if not isinstance(role, Mapping):
        return []
    listed = role.get("supported_write_modes", role.get("write_modes"))
    modes = [each.get("mode") if isinstance(each, Mapping) else each for each in listed] if _is_list(listed) else []
    return [each.lower() for each in modes if isinstance(each, str)]


def _is_list(found: Any) -> bool:
    return isinstance(found, list | tuple)
