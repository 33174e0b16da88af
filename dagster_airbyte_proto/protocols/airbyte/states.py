"""Airbyte's states: opaque, kept byte for byte, handed back as they came.

1. A state is STREAM, GLOBAL or LEGACY. `type` says so (`state_type` in the old text); with neither, it is LEGACY
   if it has `data`, and nothing at all if it has not.
2. Within a connection: STREAM, the last of each stream; GLOBAL and LEGACY, the last. A GLOBAL state that does not
   name a stream did not read it this time: what the state before it said of that stream is put in.
3. A state of another scope takes the place of everything before it. A connector that moved from LEGACY to STREAM
   between two syncs does that; the old state is of no use beside the new one, for no reader looks at both. Within
   one sync it is a violation, which `one_scope` of session.py refuses.
4. A null state is a reset. It is kept, so that the history shows it, and never handed to a connector: both ends of
   the CDK's life (0.88, 6) refuse a message with an empty body, and no state at all says the same.
"""

import json
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import State, StateScope, StreamId
from dagster_airbyte_proto.protocols.raw_json import PartError, array, items, members, value, with_member

_SCOPES = {scope.name: scope for scope in StateScope}


class _SubState(NamedTuple):
    stream: StreamId
    is_reset: bool


def parse_state(message: bytes) -> State:
    """The state in the value of `state`. Raises PartError when its scope or its stream cannot be told."""
    parts = members(message)
    if parts is None:
        raise PartError("the state is no object")
    scope = _scope(parts)
    if scope is StateScope.LEGACY:
        return State(scope=scope, message=message, is_reset=_is_null(parts, "data"))
    if scope is StateScope.GLOBAL:
        return State(scope=scope, message=message, is_reset=_is_global_reset(parts.get("global", b"null")))
    substate = _substate(parts.get("stream", b"null"))
    return State(scope=scope, message=message, stream=substate.stream, is_reset=substate.is_reset)


def source_record_count(message: bytes) -> float | None:
    """How many records the source says it emitted since the state before."""
    parts = members(message) or {}
    stats = members(parts.get("sourceStats", parts.get("source_stats", b"null"))) or {}
    count = value(stats.get("recordCount", stats.get("record_count", b"null")))
    return count if isinstance(count, int | float) and not isinstance(count, bool) else None


def merged(old: tuple[State, ...], new: State) -> tuple[State, ...]:
    """The connection's states once `new` is in; see rules 2 and 3."""
    alike = [state for state in old if state.scope is new.scope]
    if new.scope is StateScope.STREAM:
        return tuple({**{state.stream: state for state in alike}, new.stream: new}.values())
    if new.scope is StateScope.GLOBAL and alike:
        return (_with_kept_streams(alike[-1], new),)
    return (new,)


def state_file(states: tuple[State, ...]) -> bytes | None:
    """What the connector reads its states from; None when there is nothing to tell it."""
    told = [_typed(state) for state in states if _tells(state)]
    return array(told) if told else None


def state_value(state: State) -> Any:
    """The state for people to look at: the stream's own, or the whole of `global`, or the legacy data."""
    parts = members(state.message) or {}
    if state.scope is StateScope.STREAM:
        parts = members(parts.get("stream", b"null")) or {}
    try:
        return value(parts.get(_BODIES[state.scope], b"null"))
    except PartError:
        return state.message.decode("utf-8", "replace")


def sharing(state: State) -> frozenset[StreamId] | None:
    """The streams that a GLOBAL state names. A LEGACY one is the connector's own: what its keys mean nobody knows."""
    if state.scope is not StateScope.GLOBAL:
        return None
    named = _substates((members(state.message) or {}).get("global", b"null"))
    return frozenset(substate.stream for substate, _ in named)


def state_from_value(stream: StreamId | None, shown: Any) -> State:
    """The inverse of `state_value`. Without a stream, what has `stream_states` is GLOBAL and all else LEGACY."""
    if stream is not None:
        descriptor = {"name": stream.name} | ({"namespace": stream.namespace} if stream.namespace else {})
        body = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": shown}}
    elif isinstance(shown, dict) and isinstance(shown.get("stream_states"), list):
        body = {"type": "GLOBAL", "global": shown}
    else:
        body = {"type": "LEGACY", "data": shown}
    return parse_state(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))


_BODIES = {StateScope.STREAM: "stream_state", StateScope.GLOBAL: "global", StateScope.LEGACY: "data"}


def _scope(parts: dict[str, bytes]) -> StateScope:
    named = [value(parts[key]) for key in ("type", "state_type") if not _is_null(parts, key)]
    if not named and "data" in parts:
        return StateScope.LEGACY
    if not named:
        raise PartError("the state has neither a type nor data")
    scope = _SCOPES.get(named[0]) if isinstance(named[0], str) else None
    if scope is None:
        raise PartError("the state is of a type that is not known")
    return scope


def _substate(raw: bytes) -> _SubState:
    parts = members(raw) or {}
    descriptor = members(parts.get("stream_descriptor", b"null")) or {}
    name, namespace = value(descriptor.get("name", b"null")), value(descriptor.get("namespace", b"null"))
    if not isinstance(name, str):
        raise PartError("the state names no stream")
    stream = StreamId.of(name, namespace if isinstance(namespace, str) else None)
    return _SubState(stream, _is_null(parts, "stream_state"))


def _substates(raw: bytes) -> list[tuple[_SubState, bytes]]:
    """Each stream's part of a `global`, beside the bytes it stands in."""
    streams = (members(raw) or {}).get("stream_states", b"null")
    return [(_substate(item), item) for item in items(streams) or []]


def _is_global_reset(raw: bytes) -> bool:
    resets = [substate.is_reset for substate, _ in _substates(raw)]
    return all(resets) and _is_null(members(raw) or {}, "shared_state")


def _with_kept_streams(old: State, new: State) -> State:
    before = (members(old.message) or {}).get("global", b"null")
    now = (members(new.message) or {}).get("global", b"null")
    if members(now) is None:
        return new
    named = _substates(now)
    streams = {substate.stream for substate, _ in named}
    kept = [item for substate, item in _substates(before) if substate.stream not in streams]
    if not kept:
        return new
    whole = with_member(now, "stream_states", array([item for _, item in named] + kept))
    return parse_state(with_member(new.message, "global", whole))


def _tells(state: State) -> bool:
    if state.scope is StateScope.LEGACY:
        return state_value(state) not in (None, {})
    return not state.is_reset


def _typed(state: State) -> bytes:
    """The message with its scope under `type`. Readers of today look at nothing else, and lose a state without it."""
    parts = members(state.message) or {}
    if not _is_null(parts, "type"):
        return state.message
    return with_member(state.message, "type", b'"' + state.scope.name.encode() + b'"')


def _is_null(parts: dict[str, bytes], name: str) -> bool:
    return parts.get(name, b"null").strip() == b"null"
