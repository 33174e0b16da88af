"""Holds a table against what the state store remembers of it, before a row of a sync lands there.

The table is the witness, the store is the memory. Where one of them was set back, or is another one, a sync would skip
rows or land them twice, and nobody would notice. So it is refused, for that stream alone. A sync that replaces the
table needs no memory. The loads after that are held against each other by their tables: each part names the one that it
follows.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import LandedTable, Lease, LoadStatus, LoggedLoad, StateStore, StoredState
from dagster_airbyte_proto.connection.stream_names import shell_word
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import RELAY_ID_PREFIX, Load, StagedRows
from dagster_airbyte_proto.loads.program_identity import is_same_target, program_in
from dagster_airbyte_proto.loads.table import Witness
from dagster_airbyte_proto.model import REPLACING, StreamId, WriteMode

_LEAVES_DELETED = (
    "it has rows of earlier syncs, and the stream has no state: its changes begin anew, with all rows that are there,"
    " and name none that was deleted before, so that it would stay"
)
_KEPT_LOADS = 16


class LoadsReadOnce:
    """The loads and states of a store, for the tables of one sync. Threads may share it.

    A load of a thousand streams has as many parts. It is the newest one of all their tables, and is read once for them.
    """

    def __init__(self, store: StateStore) -> None:
        self._store, self._read = store, lru_cache(_KEPT_LOADS)(store.load)

    def load(self, load_id: str) -> LoggedLoad | None:
        return self._read(load_id)

    def states(self, connection: str) -> Sequence[StoredState]:
        return self._store.states(connection)


class Remembered(NamedTuple):
    """The memory of a stream: the last load that `landed`, None if nothing depends on it.

    With `begins_changes` the stream is read by its changes, and begins with all rows that are there: there is no memory
    of it, as before its first sync, or since a person reset its state or rolled it back. `remedy` is for a table that
    contradicts it: None is the sync that reads everything again. `unproved` is the load that was to replace all rows of
    a destination and was not acknowledged, if there is one and rows are to be added now.
    """

    landed: LandedTable | None
    begins_changes: bool = False
    remedy: str | None = None
    unproved: str = ""


class LastLoads(NamedTuple):
    """The last load of a stream, by its table and by what the store remembers."""

    in_table: str | None
    in_state: LandedTable


def check_witness(
    store: LoadsReadOnce, lease: Lease, stream: StreamId, witness: Witness | None, remembered: Remembered
) -> None:
    """Raises TableError where table and store contradict each other. `witness` is None where there is no table."""
    found = _contradiction(store, stream, witness, remembered)
    if not found and witness is not None and remembered.landed is not None:
        found = _missed_by_rollback(store, lease, stream, LastLoads(witness.newest_load, remembered.landed))
    if found:
        remedy = remembered.remedy or f"Read everything again into it: {_refresh(store, lease, stream)}"
        raise TableError(
            f"looking at the table before rows land in it, for connection {lease.connection}",
            found,
            remedy=remedy if witness is not None else f"Mount its disk if it is not mounted. {remedy}",
            stream=str(stream),
        )


def _refresh(store: LoadsReadOnce, lease: Lease, stream: StreamId) -> str:
    """The command that reads the stream again, together with those that share its state."""
    command = f"airbyte-proto sync {lease.connection} --refresh"
    is_shared = any(stored.state.stream is None for stored in store.states(lease.connection))
    if is_shared:
        return f"{command}   (all its streams, which share one state)"
    return f"{command} --streams {shell_word(stream)}"


def _elsewhere(before: str, now: str) -> str:
    there = f"at {program_in(before)}" if before.startswith(RELAY_ID_PREFIX) else "in a table"
    return (
        f"what it has delivered is {there}, and its destination is {program_in(now)} now, where the rows before the"
        " state would be missing. If it is the same one by another name, set the state to what it is"
        " (`airbyte-proto state show`, and `state set`)"
    )


def _may_be_replaced(load_id: str) -> str:
    return (
        f"load {load_id} was to replace its rows, and was not acknowledged: nobody knows whether it shows the rows of"
        " the load, which would be there twice, or those of before. If it shows those of before, set the state to what"
        " it is (`airbyte-proto state show`, and `state set`)"
    )


def _contradiction(store: LoadsReadOnce, stream: StreamId, witness: Witness | None, remembered: Remembered) -> str:
    landed = remembered.landed
    if remembered.unproved:
        return _may_be_replaced(remembered.unproved)
    if witness is None:
        # A load that an older release announced has left no table id in the store.
        is_missed = landed is not None and landed.table_id
        return (
            "there is no such table; there was when the state was made: the rows before it are gone"
            if is_missed
            else ""
        )
    newest = store.load(witness.newest_load) if witness.newest_load else None
    if witness.newest_load and newest is None:
        return (
            f"its newest load of this connection is {witness.newest_load}, which the state store does not know. The"
            " store is older than the table, or another home syncs the same connection into it: rows would be there"
            " twice. Use the newer state store, or a table of its own"
        )
    if landed is None and remembered.begins_changes and newest is not None:
        parts = (part for part in newest.load.parts if part.stream == stream)
        # Appended rows stay for ever anyhow.
        return _LEAVES_DELETED if any(part.write is not WriteMode.APPEND for part in parts) else ""
    if landed is None:
        return ""
    if landed.table_id and witness.table_id and not is_same_target(landed.table_id, witness.table_id):
        if witness.table_id.startswith(RELAY_ID_PREFIX):
            return _elsewhere(landed.table_id, witness.table_id)
        return (
            "it is not the table that the state was made with, which was dropped, renamed or made again: the rows"
            " before the state would be missing"
        )
    if landed.load_id and not landed.is_covered:
        return (
            f"its last load ({landed.load_id}, {landed.write}) moved no state, so the connector sends its rows again:"
            " they would be there twice, or those deleted since then would stay"
        )
    last = store.load(landed.load_id)
    if newest is not None and last is not None and newest.order < last.order:
        return (
            f"it was set back to load {witness.newest_load}, and the state is that of load {landed.load_id}: the rows"
            " between them would be missing"
        )
    # A load that an older release announced has left no connection in the table, and the store no table id.
    if newest is None and witness.is_whole and landed.table_id:
        return f"it was set back to before load {landed.load_id}, whose state is stored: its rows would be missing"
    return ""


def _missed_by_rollback(store: LoadsReadOnce, lease: Lease, stream: StreamId, last: LastLoads) -> str:
    """A rollback moves the states, then the tables. Where it died in between, the table has a later load than the state
    knows of."""
    in_table = store.load(last.in_table) if last.in_table else None
    in_state = store.load(last.in_state.load_id) if last.in_state.load_id else None
    if in_table is None or in_table.partition != lease.partition or in_table.fence == lease.fence:
        return ""  # Loads of this run and of other partitions are no part of what the store remembered for it.
    has_landed = in_table.status is LoadStatus.DONE and any(each.stream == stream for each in in_table.committed)
    is_remembered = has_landed and any(part.stream == stream and part.is_remembered for part in in_table.load.parts)
    is_later = not last.in_state.load_id or (in_state is not None and in_state.order < in_table.order)
    if not (is_remembered and is_later):
        return ""
    return (
        f"the states were rolled back to before its load {in_table.load.load_id}, and the table was not: the rows of"
        " the load would be there twice. If the rollback died or failed, run it again, to the same version and with"
        " `--tables`"
    )


def with_followed_loads(store: StateStore, load: Load) -> Load:
    """Returns the load whose parts name the load that each follows: the last one of its stream, if a state covers both.

    Their tables refuse them where others have set the table back meanwhile. Without that, the table would end with the
    newest load that the store knows, and nobody would notice that rows before it are missing.
    """
    covered = {state.stream for state in load.states}
    if not any(_needs_rows_before(covered, part) for part in load.parts):
        return load
    landed = store.landed_tables(load.connection)
    parts = (
        msgspec.structs.replace(part, follows=_followed(landed.get(part.stream), part))
        if _needs_rows_before(covered, part)
        else part
        for part in load.parts
    )
    return msgspec.structs.replace(load, parts=tuple(parts))


def _needs_rows_before(covered: Collection[StreamId | None], part: StagedRows) -> bool:
    """True if a state covers more rows of the stream than those of the part. A shared one is that of no stream."""
    has_state = part.stream in covered or (None in covered and not part.read_whole)
    return has_state and part.write not in REPLACING and not part.is_relayed


def _followed(landed: LandedTable | None, part: StagedRows) -> str:
    if landed is None or not landed.is_covered or not part.table_id or landed.table_id != part.table_id:
        return ""
    return landed.load_id
