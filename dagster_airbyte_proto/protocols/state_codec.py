"""States, for every protocol: opaque to us, except for the questions of this interface.

A state stays as its connector sent it, byte for byte. The store keeps the name of the protocol with a connection, so
that states can be shown, set and reset where the connector is not at hand.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import PlannedStream, State, StateScope, StreamId


class StreamPosition(NamedTuple):
    """The position of one stream in a state, of which two are equal if their source goes on from the same place: what
    it shares with other streams, and its own part. Each is JSON, or None where there is none."""

    shared: str | None
    own: str | None


class StateCodec(Protocol):
    """Reads, joins and makes the states of one protocol. Pure: see conversation.py."""

    def merge(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        """The connection's states after `new`: one per stream, or one for all streams.

        A state of another scope replaces all earlier states, because a connector may change its scope between two
        syncs. Within one sync that is a violation: `check_scope` raises it.
        """
        ...

    def value(self, state: State, *, exact: bool = False) -> Any:
        """The state for people to read: the connector's own value without the protocol's envelope. If it is to be
        `exact`, its numbers have all digits, as `exact_value` reads them."""
        ...

    def from_value(self, stream: StreamId | None, value: Any) -> State:
        """The inverse of `value`: a state of one stream, or of the whole connection if `stream` is None. A number may
        be a Decimal, as `exact_value` reads it: it keeps its digits. Raises MemberError for what is seen to be no state
        of the protocol: from that a source would begin anew."""
        ...

    def parts(self, state: State, *, exact: bool = False) -> Mapping[StreamId, Any] | None:
        """The parts of a connection-wide state by stream, read as by `value`; None if it is a single position."""
        ...

    def values_by_stream(self, state: State, *, exact: bool = False) -> Mapping[StreamId, Any]:
        """The values that a connection-wide state holds for single streams, read as by `value`; empty if it names none.
        Other than one of `parts`, such a value may be no position without the rest of the state."""
        ...

    def position(self, state: State, stream: StreamId) -> StreamPosition:
        """The position of the stream in a state of its own, or of the whole connection."""
        ...

    def without_stream(self, state: State, stream: StreamId) -> State | None:
        """A connection-wide state without the part of this stream; None if it has no such part."""
        ...

    def with_stream(self, state: State, stream: StreamId, value: Any) -> State | None:
        """A connection-wide state with this value as the part of this stream; None if it has no parts."""
        ...

    def streams_sharing_position(
        self, state: State, selected: Sequence[PlannedStream], available: Sequence[PlannedStream]
    ) -> frozenset[StreamId] | None:
        """The streams that would miss records if a connection-wide state advanced while only the `selected` streams are
        read, the selected ones included; None if the state does not say."""
        ...


def as_position(shared: Any, own: Any) -> StreamPosition:
    """Returns the position of these values of a state. An empty one is none."""
    return StreamPosition(*(None if each in (None, {}) else json.dumps(each, sort_keys=True) for each in (shared, own)))


def check_scope(earlier: StateScope | None, new: State) -> StateScope:
    """Returns the scope of the sync's states, `new` included. Raises ProtocolViolation if it differs from `earlier`."""
    if earlier is not None and new.scope is not earlier:
        raise ProtocolViolation(
            "reading the connector's states",
            f"a {new.scope.name} state after {earlier.name} states in one sync",
            remedy="What is committed so far stays. The connector mixes kinds of state: report this to its author.",
            stream=str(new.stream) if new.stream else None,
        )
    return new.scope
