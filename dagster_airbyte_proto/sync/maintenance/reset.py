"""Resets the state of a stream, or all states of a connection, by hand."""

from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.maintenance.stored_protocol import state_codec


def reset_state(store: StateStore, lease: Lease, stream: StreamId | None, *, who: str) -> StateChange:
    """Resets the state of the stream, or every state for None.

    Where streams share a state with a part for each, only the part of this stream is removed. Raises ConfigError where
    the shared state has no parts.
    """
    for stored in store.states(lease.connection) if stream is not None else ():
        if stored.state.stream is None and stream is not None:
            rest = state_codec(store, lease.connection).without_stream(stored.state, stream)
            if rest is not None:
                return store.change_state(lease, stream, None, who=who, shared=rest)
    return store.change_state(lease, stream, None, who=who)
