"""Singer's states: one value for all streams, the tap's own, kept byte for byte as the message it came in.

1. Most taps write {"bookmarks": {stream: what the tap needs to go on with it}}, and beside it what else they need. A
   value of any other form is opaque: it is the tap's as a whole, and takes the place of the one before it.
2. A tap need not name the streams that it did not read this time: their bookmarks are kept. A value that says nothing
   (`{}`, which meltano's SDK sends first of all) erases nothing.
3. `progress_markers` are the SDK's way to say that it could not go on from here: it sends such a stream in no order,
   and wipes them when it starts. So the state is provisional: rows before it must not land without those behind it, or
   they would come again beside what has landed.
4. A stream that is read whole is to start from nothing, so the tap gets no bookmark of it. `currently_syncing` is kept
   as the tap wrote it, and handed back only where it is of use: taps pass the streams by that come before the one that
   it names, for an earlier run has read them. That is so of streams that go on from a bookmark. What one that is read
   whole had sent in a run that broke off has not landed.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from dagster_airbyte_proto.model import State, StateScope, StreamId
from dagster_airbyte_proto.protocols.raw_json import PartError, members, value, with_member

_BOOKMARKS = "bookmarks"
_CURRENT = "currently_syncing"
_MARKERS = "progress_markers"


def parse_state(message: bytes) -> State:
    """The state in a STATE message. Raises PartError when it has no value."""
    if "value" not in (members(message) or {}):
        raise PartError("the message has no value")
    return State(scope=StateScope.GLOBAL, message=message)


def is_provisional(told: Any) -> bool:
    """Whether the value has progress markers, of a stream or of a partition of one."""
    bookmarks = told.get(_BOOKMARKS) if isinstance(told, dict) else None
    for bookmark in bookmarks.values() if isinstance(bookmarks, dict) else ():
        if not isinstance(bookmark, dict):
            continue
        partitions = bookmark.get("partitions")
        parts = [bookmark, *(partitions if isinstance(partitions, list) else ())]
        if any(isinstance(part, dict) and part.get(_MARKERS) for part in parts):
            return True
    return False


def merged(old: tuple[State, ...], new: State) -> tuple[State, ...]:
    """The connection's state once `new` is in; see rules 1 and 2."""
    alike = [state for state in old if state.scope is new.scope]
    if not alike:
        return (new,)
    if not _tells(new):
        return (alike[-1],)
    before, now = _bookmarks(alike[-1]), _bookmarks(new)
    if before is None or now is None or before.keys() <= now.keys():
        return (new,)
    return (_with_value(new, with_member(_value(new), _BOOKMARKS, _object({**before, **now}))),)


def state_file(states: tuple[State, ...], whole: Collection[str], going_on: Collection[str]) -> bytes | None:
    """What the tap reads its state from, for streams that are read `whole` and others that are `going_on`; see rule 4.
    None when there is nothing to tell it."""
    if not states or not _tells(states[-1]):
        return None
    state = states[-1]
    handed, bookmarks = _value(state), _bookmarks(state)
    if bookmarks is not None and not bookmarks.keys().isdisjoint(whole):
        kept = {name: bookmark for name, bookmark in bookmarks.items() if name not in whole}
        handed = with_member(handed, _BOOKMARKS, _object(kept))
    parts = members(handed) or {}
    if _CURRENT in parts and (whole or _shown(parts[_CURRENT]) not in going_on):
        # Null, not gone: pipelinewise-tap-postgres 2.1 stumbles over a state that had it and has it no more.
        handed = with_member(handed, _CURRENT, b"null")
    return handed


def state_value(state: State) -> Any:
    """The state for people to look at: the tap's value."""
    return _shown(_value(state))


def state_parts(state: State) -> dict[StreamId, Any] | None:
    """The bookmarks; None where the state's form is not known. One that says nothing has none."""
    if not _tells(state):
        return {}
    bookmarks = _bookmarks(state)
    return None if bookmarks is None else {StreamId.of(name): _shown(part) for name, part in bookmarks.items()}


def without(state: State, stream: StreamId) -> State | None:
    """The state without the stream's bookmark; None where it has none."""
    bookmarks = _bookmarks(state) or {}
    if stream.name not in bookmarks:
        return None
    kept = {name: part for name, part in bookmarks.items() if name != stream.name}
    return _with_value(state, with_member(_value(state), _BOOKMARKS, _object(kept)))


def state_from_value(stream: StreamId | None, shown: Any) -> State:
    """The inverse of `state_value`: of a stream, a state that has its bookmark and no other."""
    told = shown if stream is None else {_BOOKMARKS: {stream.name: shown}}
    body = json.dumps({"type": "STATE", "value": told}, ensure_ascii=False)
    return parse_state(body.encode("utf-8", "replace"))


def is_one(state: State) -> bool:
    """Whether the state was kept of a tap: a message of the type STATE has it inside."""
    parts = members(state.message) or {}
    return str(_shown(parts.get("type", b"null"))).upper() == "STATE" and "value" in parts


def _value(state: State) -> bytes:
    return (members(state.message) or {}).get("value", b"null")


def _bookmarks(state: State) -> Mapping[str, bytes] | None:
    return members((members(_value(state)) or {}).get(_BOOKMARKS, b"null"))


def _tells(state: State) -> bool:
    return _shown(_value(state)) not in (None, {})


def _with_value(state: State, told: bytes) -> State:
    return parse_state(with_member(state.message, "value", told))


def _object(parts: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode() + b":" + part for name, part in parts.items()) + b"}"


def _shown(raw: bytes) -> Any:
    try:
        return value(raw)
    except PartError:
        return raw.decode("utf-8", "replace")
