"""The transform side of Rapidbyte: Arrow batches in, Arrow batches out, in one run."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb, encode_config
from dagster_airbyte_proto.protocols.destination import PushedStream, StreamColumn
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.source import CONFIG_FILE, RUNS_FILE, StreamToRun
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import Overrides, written_stream_context

STREAM = "rows"
"""The name under which a transform gets its rows: it need not know of which stream they are."""


def refusal(manifest: Mapping[str, Any]) -> str | None:
    """Returns why a connector is no transform, by its manifest; None if it is one, or does not say."""
    roles = manifest.get("roles")
    named = [role for role, each in roles.items() if each not in (None, False)] if isinstance(roles, Mapping) else []
    if named and "transform" not in named:
        return f"its connector is no transform: its manifest has the roles {', '.join(named)}"
    return None


def invocation(config: Mapping[str, Any], columns: Sequence[StreamColumn], on_error: str) -> Invocation:
    """The request to transform rows of these columns."""
    stream = PushedStream(StreamId.of(STREAM), {}, PushMode.APPEND, columns=tuple(columns))
    context = written_stream_context(stream, on_error, Overrides())
    runs = [StreamToRun(STREAM, {name: each for name, each in context.items() if name != "write_mode"})]
    files = {CONFIG_FILE: encode_config(config), RUNS_FILE: msgspec.json.encode(runs)}
    return Invocation(("transform",), files, verb=Verb.TRANSFORM, takes_input=True)


def batch_head(rows: int, size: int) -> bytes:
    """Returns the line before so many bytes of Arrow."""
    return messages.line(messages.BATCH, stream=STREAM, rows=rows, bytes=size)
