"""SQL of the current states and of their history. The caller has begun the transaction and checked the fence."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, null, select, tuple_, union, update

from dagster_airbyte_proto.checkpoints.sql.leases import last_number, next_number
from dagster_airbyte_proto.checkpoints.sql.schema import (
    generations,
    kept_values,
    landed_tables,
    leases,
    loads,
    state_history,
    states,
)
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, StateChange, StoredState
from dagster_airbyte_proto.errors import ConfigError, ProtocolViolation, StateConflict
from dagster_airbyte_proto.model import State, StateScope, StreamId

_CHEAP_TO_FOLD = 1000
_FOLDED_PER_OLD = 8
"""More folded rows than these are written anew only for so many times fewer ones that have grown old."""


class StateKey(NamedTuple):
    """The key of a state: a stream, or None for the whole connection, in one partition."""

    stream: StreamId | None
    partition: str = ""


class ChangeNote(NamedTuple):
    """The columns of the history that say who made a change, when and why."""

    who: str
    why: str
    run_id: str
    changed_at: datetime


class FoldedHistory(NamedTuple):
    """The version into which all before it are folded, 0 for none: no rollback goes further back.

    Loads, and changes of streams, from before `before` belong to that version or to an older one, however many versions
    wait to be folded. Of the later ones a rollback may need each.
    """

    version: int
    before: datetime


def key_columns(key: StateKey) -> dict[str, str]:
    """The key as columns of a table. A stream without a name would pass for the whole connection."""
    if key.stream is None:
        return {"namespace": "", "stream": "", "partition_key": key.partition}
    if not key.stream.name:
        raise ProtocolViolation("storing the state of a stream", "the stream has no name")
    return {**stream_columns(key.stream), "partition_key": key.partition}


def stream_columns(stream: StreamId) -> dict[str, str]:
    """The stream as columns of a table."""
    return {"namespace": stream.namespace or "", "stream": stream.name}


def known_partitions(tx: Connection, connection: str) -> list[str]:
    """The partitions of which anything is stored, in the order of their keys."""
    # A run numbers the generations of its streams as it begins, and these stay where history and loads are pruned.
    tables = generations, states, state_history, landed_tables, loads, kept_values, leases
    found = union(*(select(each.c.partition_key).where(each.c.connection == connection) for each in tables))
    return sorted(key for key in tx.scalars(found) if key)


def current_states(
    tx: Connection, connection: str, partition: str | None, stream: StreamId | None = None
) -> list[StoredState]:
    """The current states in one partition, or in all for None; of one stream, if that is given."""
    query = select(states).where(states.c.connection == connection)
    if partition is not None:
        query = query.where(states.c.partition_key == partition)
    if stream is not None:
        query = query.where(*(states.c[name] == value for name, value in stream_columns(stream).items()))
    rows = tx.execute(query.order_by(states.c.partition_key, states.c.namespace, states.c.stream))
    return [
        StoredState(state, row.version, row.changed_at, row.run_id, row.partition_key)
        for row in rows
        if (state := _state(row)) is not None
    ]


def past_states(
    tx: Connection, connection: str, version: int, partition: str | None = None
) -> dict[StateKey, State | None]:
    """The states at `version`, of one partition or of all; None where the last change before it was a reset."""
    key = [state_history.c[name] for name in ("namespace", "stream", "partition_key")]
    last = (
        select(*key, func.max(state_history.c.version).label("version"))
        .where(state_history.c.connection == connection, state_history.c.version <= version)
        .group_by(*key)
        .subquery()
    )
    same = [last.c[column.name] == column for column in (*key, state_history.c.version)]
    here = [state_history.c.connection == connection]
    if partition is not None:
        here.append(state_history.c.partition_key == partition)
    rows = tx.execute(select(state_history).join(last, and_(*same)).where(*here))
    return {_key(row): _state(row) for row in rows}


def state_changes(
    tx: Connection, connection: str, limit: int, partition: str | None, *, with_states: bool
) -> list[StateChange]:
    """The history of the connection's states, newest first: in one partition, or in all for None."""
    left_out = () if with_states else ("scope", "message")
    columns: list[ColumnElement[Any]] = [
        null().label(each.name) if each.name in left_out else each for each in state_history.c
    ]
    here = [state_history.c.connection == connection]
    if partition is not None:
        here.append(state_history.c.partition_key == partition)
    newest = (
        select(*columns)
        .where(*here)
        .order_by(state_history.c.version.desc(), state_history.c.namespace, state_history.c.stream)
        .limit(min(limit, NO_LIMIT))
    )
    return [as_change(row) for row in tx.execute(newest)]


def check_version(tx: Connection, connection: str, version: int, doing: str) -> None:
    """Raises ConfigError if there is no such version, or the history does not go back to it any more."""
    newest = last_number(tx, connection, "version")
    if version and not newest:
        raise no_versions(doing, connection)
    if not 0 <= version <= newest:
        raise ConfigError(
            doing,
            f"there is no version {version}",
            remedy=f"The newest is {newest}. airbyte-proto state history {connection} lists them.",
        )
    oldest = tx.scalar(select(func.min(state_history.c.version)).where(state_history.c.connection == connection))
    if oldest is not None and version < oldest != 1:  # From version 1 on the history is whole: before it was nothing.
        raise ConfigError(
            doing,
            f"version {version} is no longer kept; the oldest is {oldest}",
            remedy=f"airbyte-proto state history {connection} lists the versions. `keep_history_days` of the settings"
            " says how long they are kept.",
        )


def no_versions(doing: str, connection: str) -> ConfigError:
    """The error for a connection that has no version to go back to."""
    return ConfigError(
        doing,
        "there are no versions to go back to, for no run has moved a state, as where streams are read whole",
        remedy=f"airbyte-proto table history {connection} lists the snapshots of its tables, and airbyte-proto table"
        " rollback takes a table back to one.",
    )


def fold_history(tx: Connection, connection: str, before: datetime) -> FoldedHistory:
    """Folds all versions from before that time into the newest of them.

    Of each stream the last change stays, under that version, so that a rollback can still go to it and to later ones.
    Where many have been folded, the next ones wait until they are worth it: each row of those before is written anew.
    """
    history = state_history
    here = history.c.connection == connection
    oldest = tx.scalar(select(func.min(history.c.version)).where(here))
    if oldest is None:
        return FoldedHistory(0, before)
    later = here, history.c.version > oldest  # What was folded has the oldest version, and is not looked at again.
    first_kept = tx.scalar(select(func.min(history.c.version)).where(*later, history.c.changed_at >= before))
    newest = tx.scalar(select(func.max(history.c.version)).where(here))
    version: int = first_kept - 1 if first_kept is not None else newest
    waiting = *later, history.c.version <= version
    old = tx.scalar(select(func.count()).where(*waiting)) or 0
    folded = tx.scalar(select(func.count()).where(here, history.c.version == oldest)) or 0
    if old < max(1, min(folded // _FOLDED_PER_OLD, folded - _CHEAP_TO_FOLD)):
        first_waiting = tx.scalar(select(func.min(history.c.changed_at)).where(*waiting))
        return FoldedHistory(oldest if oldest > 1 else 0, first_waiting or before)
    # Ranked in one pass. To look for a later change of each row takes hours where a hundred thousand partitions have a
    # state each, and nobody else writes to an SQLite file meanwhile.
    stream = [history.c[name] for name in ("namespace", "stream", "partition_key")]
    place = func.row_number().over(partition_by=stream, order_by=history.c.version.desc()).label("place")
    ranked = select(history.c.version, *stream, place).where(here, history.c.version <= version).subquery()
    changed_later = select(*(ranked.c[column.name] for column in (history.c.version, *stream))).where(
        ranked.c.place > 1
    )
    tx.execute(delete(history).where(here, tuple_(history.c.version, *stream).in_(changed_later)))
    tx.execute(update(history).where(here, history.c.version < version).values(version=version))
    return FoldedHistory(version, before)


def states_of_last_kind(moved: Sequence[State]) -> list[State]:
    """The states of the same kind as the last one: those of streams, or the one of the whole connection."""
    return [state for state in moved if (state.stream is None) is (moved[-1].stream is None)]


def move_states(
    tx: Connection, connection: str, changes: Mapping[StateKey, State | None], note: ChangeNote
) -> list[StateChange]:
    """Sets or resets (None) each state, and resets the states that these displace, under one new version.

    A state by which the connector asks for a reset resets: it has no content to hand back.

    Raises StateConflict when a row no longer has the version that was read. The fence excludes other runs already; this
    check keeps a mistake in the fence from losing a state unnoticed.
    """
    changes = {key: None if state is None or state.is_reset else state for key, state in changes.items()}
    if not changes:
        return []
    versions = _stored_versions(tx, connection, {key.partition for key in changes})
    changes = {**dict.fromkeys(_displaced(versions, changes)), **changes}
    version = next_number(tx, connection, "version")
    entries = [_entry(connection, key, state, version, note) for key, state in changes.items()]
    for key, entry in zip(changes, entries, strict=True):
        _move(tx, entry, versions.get(key))
    tx.execute(insert(state_history), entries)
    return [
        StateChange(version, key.stream, state, note.changed_at, note.who, note.why, note.run_id, key.partition)
        for key, state in changes.items()
    ]


def _stored_versions(tx: Connection, connection: str, partitions: Collection[str]) -> dict[StateKey, int]:
    """The versions of the stored states, of a single partition or of all.

    Each load of a partition moves states, and thousands of others may have some, each of megabytes: none is read here.
    """
    here = [states.c.connection == connection]
    if len(partitions) == 1:
        here += [states.c.partition_key == partition for partition in partitions]
    columns = [states.c[name] for name in ("namespace", "stream", "partition_key", "version")]
    rows = tx.execute(select(*columns).where(*here))
    return {StateKey(stream_of(row), row.partition_key): row.version for row in rows}


def _displaced(stored: Iterable[StateKey], changes: Mapping[StateKey, State | None]) -> list[StateKey]:
    """The stored states that the changes displace: a state of the whole connection and states of streams exclude each
    other."""
    set_keys = {key for key, state in changes.items() if state is not None}
    kinds = {(key.partition, key.stream is None) for key in set_keys}
    return [key for key in stored if (key.partition, key.stream is not None) in kinds]


def _move(tx: Connection, entry: Mapping[str, Any], seen: int | None) -> None:
    is_reset = entry["scope"] is None
    row = {column.name: entry[column.name] for column in states.c}
    if seen is None:
        if not is_reset:
            tx.execute(insert(states).values(row))
        return
    here = and_(*(column == row[column.name] for column in states.primary_key), states.c.version == seen)
    changed = tx.execute(delete(states).where(here) if is_reset else update(states).where(here).values(row))
    if changed.rowcount != 1:
        raise StateConflict(
            f"moving the state of connection {entry['connection']}",
            f"it is no longer at version {seen}",
            remedy="Another run wrote in between. Run again.",
            stream=entry["stream"] or None,
        )


def _entry(connection: str, key: StateKey, state: State | None, version: int, note: ChangeNote) -> dict[str, Any]:
    return {
        "connection": connection,
        "version": version,
        **key_columns(key),
        "scope": None if state is None else str(state.scope),
        "message": None if state is None else state.message,
        **note._asdict(),
    }


def _key(row: Row[Any]) -> StateKey:
    return StateKey(stream_of(row), row.partition_key)


def stream_of(row: Row[*tuple[Any, ...]]) -> StreamId | None:
    return StreamId.of(row.stream, row.namespace) if row.stream else None


def _state(row: Row[Any]) -> State | None:
    if row.scope is None:
        return None
    return State(StateScope(row.scope), bytes(row.message), stream_of(row))


def as_change(row: Row[Any]) -> StateChange:
    key = _key(row)
    note = row.changed_at, row.who, row.why, row.run_id
    return StateChange(row.version, key.stream, _state(row), *note, key.partition)
