"""Airbyte's states: opaque, kept byte for byte, handed back as they came.

1. A state is STREAM, GLOBAL or LEGACY. Its `type` says which (`state_type` in the old specification). Without either it
   is LEGACY if it has `data`, or nothing at all: `{}` is a LEGACY state of null. Anything else is invalid.
2. A connection keeps the last STREAM state of each stream, or the last GLOBAL or LEGACY state. A GLOBAL state that does
   not name a stream did not read it this time: the part of the state before it is carried over.
3. A state of another scope replaces everything before it. This happens when a connector moves from LEGACY to STREAM
   between two syncs: no reader looks at both. Within one sync it is a violation (`check_scope` in state_codec.py).
4. A null state is a reset. It is kept, so that the history shows it, but never sent to a connector: the oldest and the
   newest CDK in use (0.88, 6) refuse a message with an empty body, and sending no state means the same. For the same
   reason a stream that is reset by hand is left out of a GLOBAL state. A LEGACY state can be reset only as a whole.
5. States go back as a list of messages. But connectors of the protocol's first version know neither types nor lists:
   their state file is the bare `data` of their LEGACY state. Such a connector sends states without a type, or its spec
   has a `protocol_version` below 2. CDK 0.1.50 takes a list for a state of its own, reads everything again and writes
   parts of the list into its next state, without a word.
6. A stream that is read by full refresh must start from the beginning, so a GLOBAL state goes back without its part.
   Sources that read a log note there how far they came through the tables that they read whole. Given back, they
   would send what is new since then, or nothing, and the table would be replaced by that.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import PlannedStream, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.raw_json import (
    MemberError,
    array,
    exact_json,
    exact_value,
    items,
    members,
    value,
    with_member,
)
from dagster_airbyte_proto.protocols.state_codec import StreamPosition, as_position

_STATISTICS = {"sourceStats", "source_stats", "destinationStats", "destination_stats"}
_SCOPES = {scope.name: scope for scope in StateScope}


class _SubState(NamedTuple):
    stream: StreamId
    is_reset: bool


def parse_state(message: bytes) -> State:
    """Parses the value of `state`. Raises MemberError if its scope or its stream is missing or unknown."""
    parts = members(message)
    if parts is None:
        raise MemberError("the state is no object")
    scope = _scope(parts)
    if scope is StateScope.LEGACY:
        return State(scope=scope, message=message, is_reset=_is_null(parts, "data"))
    if scope is StateScope.GLOBAL:
        return State(scope=scope, message=message, is_reset=_is_global_reset(parts.get("global", b"null")))
    substate = _substate(parts.get("stream", b"null"))
    return State(scope=scope, message=message, stream=substate.stream, is_reset=substate.is_reset)


def source_record_count(message: bytes) -> float | None:
    """The number of records the source says it sent since the previous state; None if it does not say."""
    parts = members(message) or {}
    stats = members(parts.get("sourceStats", parts.get("source_stats", b"null"))) or {}
    count = value(stats.get("recordCount", stats.get("record_count", b"null")))
    return count if isinstance(count, int | float) and not isinstance(count, bool) else None


def state_file(
    states: tuple[State, ...], *, full_refresh: Collection[StreamId] = (), is_first_version: bool = False
) -> bytes | None:
    """The content of the state file; None if no state is to be sent. See rules 5 and 6.

    `is_first_version` is for a connector whose spec says that it speaks the protocol's first version.
    """
    resumed = [_without_streams(state, full_refresh) for state in states]
    to_send = [state for state in resumed if _has_content(state)]
    for state in to_send:
        if state.scope is StateScope.LEGACY and (is_first_version or not _has_type(state)):
            return (members(state.message) or {})["data"]
    return array([_with_type(state) for state in to_send]) if to_send else None


class AirbyteStates:
    """The StateCodec of Airbyte."""

    def merge(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        """The connection's states after `new`; see rules 2 and 3."""
        same_scope = [state for state in old if state.scope is new.scope]
        if new.scope is StateScope.STREAM:
            return tuple({**{state.stream: state for state in same_scope}, new.stream: new}.values())
        if new.scope is StateScope.GLOBAL and same_scope:
            return (_with_streams_of(same_scope[-1], new),)
        return (new,)

    def value(self, state: State, *, exact: bool = False) -> Any:
        """The stream's own value, the whole of `global`, or the legacy data."""
        return _value_for_people(state, exact=exact)

    def from_value(self, stream: StreamId | None, value: Any) -> State:
        """The inverse of `value`. Without a stream, a value with `stream_states` is GLOBAL, any other is LEGACY. Raises
        MemberError also for a whole message."""
        _check_is_no_message(value)
        if stream is not None:
            descriptor = {"name": stream.name} | ({"namespace": stream.namespace} if stream.namespace else {})
            body = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": value}}
        elif isinstance(value, dict) and isinstance(value.get("stream_states"), list):
            body = {"type": "GLOBAL", "global": value}
        else:
            body = {"data": value}
        return parse_state(exact_json(body))

    def parts(
        self,
        state: State,  # noqa: ARG002 - what is shared is one position
        *,
        exact: bool = False,  # noqa: ARG002
    ) -> Mapping[StreamId, Any] | None:
        return None

    def values_by_stream(self, state: State, *, exact: bool = False) -> Mapping[StreamId, Any]:
        """The value of each stream in a GLOBAL state, beside the position that all streams share."""
        substates = _substates(_global(state)) if state.scope is StateScope.GLOBAL else []
        return {
            substate.stream: _readable((members(item) or {}).get("stream_state", b"null"), exact=exact)
            for substate, item in substates
        }

    def position(self, state: State, stream: StreamId) -> StreamPosition:
        if state.scope is not StateScope.GLOBAL:
            return as_position(None, _value_for_people(state))
        own = [members(item) or {} for substate, item in _substates(_global(state)) if substate.stream == stream]
        shared = (members(_global(state)) or {}).get("shared_state", b"null")
        return as_position(_readable(shared), _readable(own[-1].get("stream_state", b"null") if own else b"null"))

    def without_stream(self, state: State, stream: StreamId) -> State | None:
        """A GLOBAL state without its part for the stream; the position that all streams share stays."""
        if state.scope is not StateScope.GLOBAL:
            return None
        rest = _without_streams(state, {stream})
        return None if rest is state else rest

    def with_stream(self, state: State, stream: StreamId, value: Any) -> State | None:
        """A GLOBAL state with this part for the stream; the position that all streams share stays."""
        if state.scope is not StateScope.GLOBAL:
            return None
        others = [item for substate, item in _substates(_global(state)) if substate.stream != stream]
        part = (members(self.from_value(stream, value).message) or {})["stream"]
        return _with_substates(state, [*others, part])

    def streams_sharing_position(
        self,
        state: State,
        selected: Sequence[PlannedStream],  # noqa: ARG002 - the state names them
        available: Sequence[PlannedStream],  # noqa: ARG002
    ) -> frozenset[StreamId] | None:
        """The streams that a GLOBAL state names; None for a LEGACY state, whose keys only the connector understands."""
        if state.scope is not StateScope.GLOBAL:
            return None
        named = _substates(_global(state))
        return frozenset(substate.stream for substate, _ in named)


_ENVELOPES = {"STREAM": ("stream", "stream_state"), "GLOBAL": ("global", "global"), "LEGACY": ("data", "data")}
_OF_STREAM = {"stream_state": "stream_descriptor", "streamState": "streamDescriptor"}


def _check_is_no_message(value: Any) -> None:
    """Raises MemberError for a message that has a state in it, for a list of them, as Airbyte shows the state of a
    connection, and for a document of its API. A connector would take it for a state without a cursor, and read all
    again."""
    if isinstance(value, dict) and ("streamStates" in value or {"stateType", "connectionId"} <= value.keys()):
        raise MemberError(
            "it is in the words of Airbyte's API: set the streamState of each stream; or that of all streams together,"
            ' as {"shared_state": …, "stream_states": [{"stream_descriptor": …, "stream_state": …}]}'
        )
    inner = [_state_member(each) for each in (value if isinstance(value, list) else [value])]
    if inner and all(inner):
        found = "they are messages: set what each" if len(inner) > 1 else "it is a message: write what it"
        raise MemberError(f"{found} has as its {inner[0]}")


def _state_member(value: Any) -> str:
    """The member of a message, or of its part for a stream, that is the state; empty for what is no such message."""
    if not isinstance(value, dict):
        return ""
    kind = value.get("type")
    body, member = _ENVELOPES.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
    if body and body in value:
        return member
    return next((state for state, named in _OF_STREAM.items() if state in value and named in value), "")


def _readable(raw: bytes, *, exact: bool = False) -> Any:
    try:
        return (exact_value if exact else value)(raw)
    except MemberError:
        return raw.decode("utf-8", "replace")


_BODY_MEMBERS = {StateScope.STREAM: "stream_state", StateScope.GLOBAL: "global", StateScope.LEGACY: "data"}


def _value_for_people(state: State, *, exact: bool = False) -> Any:
    parts = members(state.message) or {}
    if state.scope is StateScope.STREAM:
        parts = members(parts.get("stream", b"null")) or {}
    try:
        return (exact_value if exact else value)(parts.get(_BODY_MEMBERS[state.scope], b"null"))
    except MemberError:
        return state.message.decode("utf-8", "replace")


def _scope(parts: dict[str, bytes]) -> StateScope:
    named = [value(parts[key]) for key in ("type", "state_type") if not _is_null(parts, key)]
    if not named and ("data" in parts or not parts.keys() - _STATISTICS - {"type", "state_type"}):
        return StateScope.LEGACY
    if not named:
        raise MemberError("the state has neither a type nor data")
    scope = _SCOPES.get(named[0]) if isinstance(named[0], str) else None
    if scope is None:
        raise MemberError("the state is of a type that is not known")
    return scope


def _substate(raw: bytes) -> _SubState:
    parts = members(raw) or {}
    descriptor = members(parts.get("stream_descriptor", b"null")) or {}
    name, namespace = value(descriptor.get("name", b"null")), value(descriptor.get("namespace", b"null"))
    if not isinstance(name, str):
        raise MemberError("the state names no stream")
    stream = StreamId.of(name, namespace if isinstance(namespace, str) else None)
    return _SubState(stream, _is_null(parts, "stream_state"))


def _substates(raw: bytes) -> list[tuple[_SubState, bytes]]:
    """The state of each stream in a `global`, with its bytes."""
    streams = (members(raw) or {}).get("stream_states", b"null")
    return [(_substate(item), item) for item in items(streams) or []]


def _global(state: State) -> bytes:
    return (members(state.message) or {}).get("global", b"null")


def _with_substates(state: State, substates: list[bytes]) -> State:
    whole = with_member(_global(state), "stream_states", array(substates))
    return parse_state(with_member(state.message, "global", whole))


def _without_streams(state: State, streams: Collection[StreamId]) -> State:
    """A GLOBAL state without its parts for these streams; any other state, and one without such parts, as it is."""
    named = _substates(_global(state)) if state.scope is StateScope.GLOBAL else []
    others = [item for substate, item in named if substate.stream not in streams]
    return state if len(others) == len(named) else _with_substates(state, others)


def _is_global_reset(raw: bytes) -> bool:
    resets = [substate.is_reset for substate, _ in _substates(raw)]
    return all(resets) and _is_null(members(raw) or {}, "shared_state")


def _with_streams_of(old: State, new: State) -> State:
    now = _global(new)
    if members(now) is None:
        return new
    named = _substates(now)
    streams = {substate.stream for substate, _ in named}
    carried_over = [item for substate, item in _substates(_global(old)) if substate.stream not in streams]
    if not carried_over:
        return new
    return _with_substates(new, [item for _, item in named] + carried_over)


def _has_content(state: State) -> bool:
    if state.scope is StateScope.LEGACY:
        return _value_for_people(state) not in (None, {})
    return not state.is_reset


def _with_type(state: State) -> bytes:
    """The message with its scope as `type`. Current CDKs look at nothing else, and lose a state without it."""
    if not _is_null(members(state.message) or {}, "type"):
        return state.message
    return with_member(state.message, "type", b'"' + state.scope.name.encode() + b'"')


def _has_type(state: State) -> bool:
    parts = members(state.message) or {}
    return not (_is_null(parts, "type") and _is_null(parts, "state_type"))


def _is_null(parts: dict[str, bytes], name: str) -> bool:
    return parts.get(name, b"null").strip() == b"null"
