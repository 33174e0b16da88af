"""Singer's states: one opaque value for all streams, kept byte for byte in the message it came in.

1. Most taps write {"bookmarks": {stream: bookmark}}, and perhaps other members. A value of any other form is opaque: it
   replaces the one before it as a whole.
2. A tap need not name the streams that it did not read this time: their bookmarks are kept. An empty value (`{}`, which
   meltano's SDK sends first) erases nothing.
3. `progress_markers` mean that the SDK cannot resume from here: it sends such a stream unordered, and drops the markers
   when it starts. So the state is provisional: rows before it must not be committed without the rows after it,
   because the tap would send them again.
4. A stream that is read by full refresh must start from the beginning, so the tap gets no bookmark of it.
5. `currently_syncing` is kept as the tap wrote it, but sent back only if it is useful: taps skip the streams before the
   one it names, because an earlier run has read them. That holds for streams that resume from a bookmark. It does not
   hold beside a full refresh: the rows that it sent in an interrupted run were never committed.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dagster_airbyte_proto.model import PlannedStream, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.raw_json import MemberError, exact_json, exact_value, members, value, with_member
from dagster_airbyte_proto.protocols.singer.catalog import follows_the_log
from dagster_airbyte_proto.protocols.state_codec import StreamPosition, as_position

_BOOKMARKS = "bookmarks"
_CURRENT = "currently_syncing"
_MARKERS = "progress_markers"


def parse_state(message: bytes) -> State:
    """Parses a STATE message. Raises MemberError if it has no value."""
    if "value" not in (members(message) or {}):
        raise MemberError("the message has no value")
    return State(scope=StateScope.GLOBAL, message=message)


def is_provisional(decoded: Any) -> bool:
    """True if the value has progress markers, of a stream or of one of its partitions."""
    bookmarks = decoded.get(_BOOKMARKS) if isinstance(decoded, dict) else None
    for bookmark in bookmarks.values() if isinstance(bookmarks, dict) else ():
        if not isinstance(bookmark, dict):
            continue
        partitions = bookmark.get("partitions")
        parts = [bookmark, *(partitions if isinstance(partitions, list) else ())]
        if any(isinstance(part, dict) and part.get(_MARKERS) for part in parts):
            return True
    return False


def state_file(states: tuple[State, ...], full_refresh: Collection[str], incremental: Collection[str]) -> bytes | None:
    """The content of the state file; None if no state is to be sent. See rules 4 and 5."""
    if not states or not _has_content(states[-1]):
        return None
    state = states[-1]
    content, bookmarks = _value_of(state), _bookmarks_of(state)
    if bookmarks is not None and not bookmarks.keys().isdisjoint(full_refresh):
        kept = {name: bookmark for name, bookmark in bookmarks.items() if name not in full_refresh}
        content = with_member(content, _BOOKMARKS, _object(kept))
    parts = members(content) or {}
    if _CURRENT in parts and (full_refresh or _readable(parts[_CURRENT]) not in incremental):
        # Null, not removed: pipelinewise-tap-postgres 2.1 fails on a state that had it and no longer has it.
        content = with_member(content, _CURRENT, b"null")
    return content


class SingerStates:
    """The StateCodec of Singer."""

    def merge(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        """The connection's state after `new`; see rules 1 and 2."""
        same_scope = [state for state in old if state.scope is new.scope]
        if not same_scope:
            return (new,)
        if not _has_content(new):
            return (same_scope[-1],)
        before, now = _bookmarks_of(same_scope[-1]), _bookmarks_of(new)
        if before is None or now is None or before.keys() <= now.keys():
            return (new,)
        return (_with_value(new, with_member(_value_of(new), _BOOKMARKS, _object({**before, **now}))),)

    def value(self, state: State, *, exact: bool = False) -> Any:
        """The state for people to read: the tap's value."""
        return _readable(_value_of(state), exact=exact)

    def from_value(self, stream: StreamId | None, value: Any) -> State:
        """The inverse of `value`. For a stream: a state with the bookmark of this stream and no other. Raises
        MemberError for what has a state in it: a whole message, and what Meltano prints."""
        parts = value if isinstance(value, dict) else {}
        if parts.get("type") == "STATE" and "value" in parts:
            raise MemberError("it is a message: write what it has as its value")
        if "singer_state" in parts:
            raise MemberError("it is a state of Meltano: write what it has as its singer_state")
        whole_value = value if stream is None else {_BOOKMARKS: {stream.name: value}}
        return parse_state(exact_json({"type": "STATE", "value": whole_value}))

    def parts(self, state: State, *, exact: bool = False) -> dict[StreamId, Any] | None:
        """The bookmarks by stream; none if the state is empty; None if its form is not known."""
        if not _has_content(state):
            return {}
        bookmarks = _bookmarks_of(state)
        if bookmarks is None:
            return None
        return {StreamId.of(name): _readable(part, exact=exact) for name, part in bookmarks.items()}

    def values_by_stream(self, state: State, *, exact: bool = False) -> Mapping[StreamId, Any]:
        return self.parts(state, exact=exact) or {}

    def position(self, state: State, stream: StreamId) -> StreamPosition:
        bookmarks = _bookmarks_of(state)
        if bookmarks is None:
            return as_position(None, self.value(state))
        return as_position(None, _readable(bookmarks.get(stream.name, b"null")))

    def without_stream(self, state: State, stream: StreamId) -> State | None:
        """The state without the stream's bookmark; None if it has no such bookmark."""
        bookmarks = _bookmarks_of(state) or {}
        if stream.name not in bookmarks:
            return None
        kept = {name: part for name, part in bookmarks.items() if name != stream.name}
        return _with_value(state, with_member(_value_of(state), _BOOKMARKS, _object(kept)))

    def with_stream(self, state: State, stream: StreamId, value: Any) -> State | None:
        """The state with this bookmark of the stream; None if its form is not known."""
        if self.parts(state) is None:
            return None
        given = _bookmarks_of(self.from_value(stream, value)) or {}
        bookmarks = {**(_bookmarks_of(state) or {}), **given}
        return _with_value(state, with_member(_value_of(state), _BOOKMARKS, _object(bookmarks)))

    def streams_sharing_position(
        self, state: State, selected: Sequence[PlannedStream], available: Sequence[PlannedStream]
    ) -> frozenset[StreamId] | None:
        """Each stream has its own bookmark. But streams that follow the source's log share that log, and the source
        drops what it has sent: if one of them is read, all of them must be read."""
        if self.parts(state) is None:
            return None
        if not any(map(follows_the_log, selected)):
            return frozenset()
        return frozenset(each.id for each in available if follows_the_log(each))


def _value_of(state: State) -> bytes:
    return (members(state.message) or {}).get("value", b"null")


def _bookmarks_of(state: State) -> Mapping[str, bytes] | None:
    return members((members(_value_of(state)) or {}).get(_BOOKMARKS, b"null"))


def _has_content(state: State) -> bool:
    return _readable(_value_of(state)) not in (None, {})


def _with_value(state: State, raw_value: bytes) -> State:
    return parse_state(with_member(state.message, "value", raw_value))


def _object(parts: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode() + b":" + part for name, part in parts.items()) + b"}"


def _readable(raw: bytes, *, exact: bool = False) -> Any:
    try:
        return exact_value(raw) if exact else value(raw)
    except MemberError:
        return raw.decode("utf-8", "replace")
