"""Resets the state of a stream, or all states of a connection or of one of its partitions, by hand."""

from collections.abc import Collection, Iterator, Sequence

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.sync.maintenance.stored_protocol import state_codec


def streams_to_reset(store: DeliveryStore, connection: str, partition: str = "") -> Sequence[StreamId | None]:
    """Returns the streams that a reset may name, in a partition or without one; among them None for a state that all
    share and that has no parts.

    A stream whose first push has only begun has a plan and may have kept values, and no state. One that is read whole
    has none either, and may have a generation that a later run is to continue.
    """
    kept = [each.asset for each in store.kept_sizes(connection)]
    return [
        *(
            stream
            for each in store.states(connection, partition=partition)
            for stream in _streams_of(store, connection, each.state)
        ),
        *(() if partition else store.deliveries(connection)),
        *(() if partition else (each.stream for each in store.open_generations(connection))),
        *(asset.stream for asset in kept if asset.stream is not None and asset.partition == partition),
    ]


def reset_state(store: StateStore, lease: Lease, stream: StreamId | None, *, who: str) -> StateChange:
    """Resets the state of the stream, or every state for None: in the lease's partition, or without one.

    Where streams share a state with a part for each, only the part of this stream is removed. Raises ConfigError where
    the shared state has no parts.
    """
    for stored in store.states(lease.connection, partition=lease.partition) if stream is not None else ():
        if stored.state.stream is None and stream is not None:
            rest = state_codec(store, lease.connection).without_stream(stored.state, stream)
            if rest is not None:
                return store.change_state(lease, stream, None, who=who, shared=rest)
    return store.change_state(lease, stream, None, who=who)


def _streams_of(store: StateStore, connection: str, state: State) -> Iterator[StreamId | None]:
    """Yields the stream of a state, or those that have a part in it; None for a shared state without parts."""
    if state.stream is not None:
        yield state.stream
        return
    codec = state_codec(store, connection)
    named: Collection[StreamId] | None = codec.parts(state)
    if named is None:
        # Of Airbyte's GLOBAL state the streams have a part each, which is no position without the rest of it.
        named = codec.streams_sharing_position(state, (), ())
    yield from [None] if named is None else sorted(named, key=str)
