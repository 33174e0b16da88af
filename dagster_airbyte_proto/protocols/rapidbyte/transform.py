"""The transform side of Rapidbyte: Arrow batches in, Arrow batches out, in one run.

Only the end of a run says that all batches are answered. A component that asks for the next batch has most likely
answered the one before: `BatchAnswered`. Whoever relies on that has to see to it that no row comes later.

What a transform keeps goes from one run to the next: its values, and its last checkpoint, whose cursor is in the
context as a source's is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb, encode_config
from dagster_airbyte_proto.protocols.destination import Echo, PushedStream, RejectedRecord, StreamColumn
from dagster_airbyte_proto.protocols.events import Event, PlainLine
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.source import CONFIG_FILE, KEPT_FILE, RUNS_FILE, StreamToRun
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import (
    Overrides,
    checkpoint_cursor,
    written_stream_context,
)
from dagster_airbyte_proto.protocols.raw_json import MemberError, exact_json, exact_value

STREAM = "rows"
"""The name under which its launcher gets the rows of a transform. The component has the name of their stream in its
context."""


class KeptByTransform(NamedTuple):
    """The state of a transform before a run: its last checkpoint, as JSON, the values of the stream, and those that
    belong to no stream, by their scopes."""

    checkpoint: str = ""
    values: Mapping[str, str] = {}
    shared: Mapping[str, Mapping[str, str]] = {}


class BatchAnswered(msgspec.Struct, frozen=True):
    """The component asks for the next batch. `kept` are all values that it keeps, by scope; empty if none is new."""

    kept: Mapping[str, Mapping[str, str]] = {}


_ANSWERED = msgspec.json.Decoder(BatchAnswered)


def refusal(manifest: Mapping[str, Any]) -> str | None:
    """Returns why a connector is no transform, by its manifest; None if it is one, or does not say."""
    roles = manifest.get("roles")
    named = [role for role, each in roles.items() if each not in (None, False)] if isinstance(roles, Mapping) else []
    if named and "transform" not in named:
        return f"its connector is no transform: its manifest has the roles {', '.join(named)}"
    return None


def invocation(
    config: Mapping[str, Any],
    columns: Sequence[StreamColumn],
    on_error: str,
    kept: KeptByTransform,
    stream: StreamId | None = None,
) -> Invocation:
    """The request to transform rows of these columns, which are those of a stream."""
    rows = PushedStream(stream or StreamId.of(STREAM), {}, PushMode.APPEND, columns=tuple(columns))
    context = written_stream_context(rows, on_error, Overrides())
    checkpoint = _object(kept.checkpoint)
    given = {name: each for name, each in context.items() if name != "write_mode"}
    files = {
        CONFIG_FILE: encode_config(config),
        RUNS_FILE: exact_json(
            [StreamToRun(STREAM, {**given, **checkpoint_cursor(checkpoint)}, kept.values, checkpoint)]
        ),
        KEPT_FILE: msgspec.json.encode(kept.shared),
    }
    return Invocation(("transform",), files, verb=Verb.TRANSFORM, takes_input=True)


def reply(line: bytes) -> BatchAnswered | Echo | RejectedRecord | Event:
    """Returns the meaning of one line of its output: a checkpoint is a StateEvent. Never raises."""
    if line.startswith(b'{"type":"answered",'):
        try:
            return _ANSWERED.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return PlainLine(line)
    return messages.event(line) if line.startswith(b'{"type":"checkpoint",') else messages.destination_reply(line)


def batch_head(rows: int, size: int) -> bytes:
    """Returns the line before so many bytes of Arrow."""
    return messages.line(messages.BATCH, stream=STREAM, rows=rows, bytes=size)


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = exact_value(text.encode()) if text else {}
    except MemberError:
        return {}
    return found if isinstance(found, dict) else {}
