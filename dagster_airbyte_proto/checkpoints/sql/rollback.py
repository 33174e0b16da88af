"""SQL of a rollback: the states of a connection, and what the store keeps with them, as they were at a version.

The caller has begun the transaction and checked the fence.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from dagster_airbyte_proto.checkpoints.slot import part_text
from dagster_airbyte_proto.checkpoints.sql import deliveries, generations, kept_values, loads
from dagster_airbyte_proto.checkpoints.sql.states import (
    ChangeNote,
    StateKey,
    check_version,
    current_states,
    move_states,
    past_states,
)
from dagster_airbyte_proto.checkpoints.store import LandedTable, Lease, StateChange
from dagster_airbyte_proto.model import StreamId


def roll_back(
    tx: Connection,
    lease: Lease,
    version: int,
    landed: Mapping[StreamId, LandedTable | None] | None,
    note: ChangeNote,
) -> Sequence[StateChange]:
    """Sets the states to those of the version: of the lease's partition, or of all. The states of the `landed` streams
    get a version also if they stay: a table that goes back needs one that no load has. With them the tables of other
    streams are as they were at the version, and what is known of these stays. Without them nobody knows that."""
    doing = f"rolling back the state of {part_text(f'connection {lease.connection}', lease.partition)}"
    connection, partition = lease.connection, lease.partition or None
    loads.check_none_announced(tx, lease, doing)
    check_version(tx, connection, version, doing)
    past = past_states(tx, connection, version, partition)
    now = {StateKey(one.state.stream, one.partition): one.state for one in current_states(tx, connection, partition)}
    differing = {key: past.get(key) for key in {**past, **now} if past.get(key) != now.get(key)}
    moving = landed or {}
    staying = {key: state for key, state in past.items() if state is not None and _goes_with(key, moving)}
    changes = staying | differing
    touched = {key.stream for key in kept_values.touched_since(tx, lease, version)}
    if partition is None:  # A partition has no branch, and pushes have one position for all partitions.
        generations.end_resumable(tx, connection)
    forgotten = differing if landed is None else [key for key in differing if key.partition]
    loads.forget_tables(tx, connection, [*forgotten, *map(StateKey, moving)])
    for stream, table in moving.items():
        has_state = past.get(StateKey(stream)) is not None or past.get(StateKey(None)) is not None
        # A person has reset the state since a load that it covered: nothing depends on that load any more.
        if table is not None and (has_state or not table.is_covered):
            loads.remember_table(tx, connection, StateKey(stream), table)
    if partition is None:
        deliveries.forget(tx, connection, [key.stream for key in changes])
        deliveries.forget_idempotent(tx, connection, touched)
    moved = move_states(tx, connection, changes, note)
    return [*moved, *kept_values.roll_back(tx, lease, version, moved, note)]


def _goes_with(key: StateKey, landed: Mapping[StreamId, LandedTable | None]) -> bool:
    """True for the state of one of these streams, and for one that streams share."""
    return key.stream in landed if key.stream is not None else bool(landed)
