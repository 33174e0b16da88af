"""A stream's state, or all of a connection's, forgotten by hand."""

from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.lookup import protocol_of_state


def reset_state(store: StateStore, lease: Lease, stream: StreamId | None, *, who: str) -> StateChange:
    """Where streams share a state that has a part for each, the stream's part goes and the others stay. Raises
    ConfigError where all of it is one position."""
    for stored in store.states(lease.connection) if stream is not None else ():
        if stored.state.stream is None and stream is not None:
            rest = protocol_of_state(stored.state).without(stored.state, stream)
            if rest is not None:
                return store.change_state(lease, None, rest, who=who)
    return store.change_state(lease, stream, None, who=who)
