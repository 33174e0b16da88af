"""Rapidbyte's states: the source's newest checkpoint of each stream, kept byte for byte.

A connector sends a checkpoint bare, or in an envelope with its own name (`{"protocol_version", "connector_id",
"stream_name", "payload"}`). We keep the payload: the cursor in it is what the next run begins from.

The values that a connector keeps for a stream (`state-put` in the stream's scope) stand beside it, in an envelope of
ours: `{"checkpoint", "values"}`. So they move with the rows that the checkpoint covers, and are reset and rolled back
with it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.model import PlannedStream, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.raw_json import MemberError, exact_json, exact_value, members, value
from dagster_airbyte_proto.protocols.state_codec import StreamPosition, as_position

NO_VALUES: Mapping[str, str] = MappingProxyType({})


class Checkpoint(NamedTuple):
    """The parts of a state: what the source said, with all digits, and the values that it keeps for the stream."""

    payload: Any
    values: Mapping[str, str] = {}


def checkpoint_state(payload: bytes, stream: StreamId, values: Mapping[str, str] = NO_VALUES) -> State:
    """The state in what a source said at a checkpoint. Raises MemberError if that is no object.

    It belongs to the stream that runs: a connector runs one at a time, and its own word for it may be another.
    """
    parts = members(payload)
    if parts is None:
        raise MemberError("the checkpoint is no object")
    bare = parts["payload"] if members(parts.get("payload", b"null")) is not None else payload
    message = b'{"checkpoint":' + bare + b',"values":' + msgspec.json.encode(values) + b"}" if values else bare
    return State(scope=StateScope.STREAM, message=message, stream=stream)


def checkpoint_of(state: State | None) -> Checkpoint:
    """The parts of a state. Where there is none, or none that can be read, all of them are empty."""
    if state is None or state.is_reset:
        return Checkpoint({})
    try:
        found = exact_value(state.message)
    except MemberError:
        return Checkpoint({})
    if not isinstance(found, dict):
        return Checkpoint({})
    values = found.get("values")
    if found.keys() == {"checkpoint", "values"} and isinstance(values, dict):
        payload = found["checkpoint"] if isinstance(found["checkpoint"], dict) else None
        return Checkpoint(payload or {}, {str(key): str(text) for key, text in values.items()})
    return Checkpoint(found)


class RapidbyteStates:
    """The StateCodec of Rapidbyte: one state a stream."""

    def merge(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        kept = {state.stream: state for state in old if state.scope is StateScope.STREAM}
        return tuple({**kept, new.stream: new}.values())

    def value(self, state: State, *, exact: bool = False) -> Any:
        try:
            return exact_value(state.message) if exact else value(state.message)
        except MemberError:
            return state.message.decode("utf-8", "replace")

    def from_value(self, stream: StreamId | None, value: Any) -> State:
        """The inverse of `value`. Raises MemberError without a stream, and for what is no checkpoint: the source would
        be read from its start."""
        if stream is None:
            raise MemberError("each stream has a state of its own, and none is named")
        if value is not None and not isinstance(value, dict):
            raise MemberError("the state is no object")
        return State(scope=StateScope.STREAM, message=exact_json(value), stream=stream, is_reset=value is None)

    def parts(
        self,
        state: State,  # noqa: ARG002 - each state is of one stream
        *,
        exact: bool = False,  # noqa: ARG002
    ) -> Mapping[StreamId, Any] | None:
        return None

    def values_by_stream(
        self,
        state: State,  # noqa: ARG002
        *,
        exact: bool = False,  # noqa: ARG002
    ) -> Mapping[StreamId, Any]:
        return {}

    def position(self, state: State, stream: StreamId) -> StreamPosition:  # noqa: ARG002 - each state is of one stream
        return as_position(None, self.value(state))

    def without_stream(self, state: State, stream: StreamId) -> State | None:  # noqa: ARG002
        return None

    def with_stream(self, state: State, stream: StreamId, value: Any) -> State | None:  # noqa: ARG002
        return None

    def streams_sharing_position(
        self,
        state: State,  # noqa: ARG002
        selected: Sequence[PlannedStream],  # noqa: ARG002
        available: Sequence[PlannedStream],  # noqa: ARG002
    ) -> frozenset[StreamId] | None:
        return None
