"""Takes the state of a connection and the rows of its tables back together.

- States move first, then the tables. A crash in between leaves rows that their state does not cover. The next sync
  replaces such rows where the table has a key, and repeating the rollback removes them in any case. In the other order
  the state would be ahead of the rows, and the missing rows would never be sent again.
- A table that another run has changed since it was read, before the states moved, is left alone: a run that lost its
  lease meanwhile must not undo rows of the run that took over.
- A table goes back to what it was just before the next version was made. Loads since then that moved no state, such as
  a full refresh, are undone too.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, dropwhile
from typing import TYPE_CHECKING, NamedTuple

from dagster_airbyte_proto.checkpoints.kept_values import is_of_values
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, Lease, LoadStatus, LoggedLoad, StateChange, StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import State, StreamId, TableName
from dagster_airbyte_proto.tables.formats import rewinder_of

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.tables.care import TablePast, TableRewinder


class RolledBackTable(NamedTuple):
    """A table after a rollback. `snapshot_id` is None where it has no rows. `has_moved` is false where it had these
    rows already."""

    table: TableName
    snapshot_id: str | None
    has_moved: bool


class Rollback(NamedTuple):
    """The result of a rollback: the changes of the states, and the tables."""

    changes: tuple[StateChange, ...]
    tables: tuple[RolledBackTable, ...]


class _LandedLoad(NamedTuple):
    """The snapshot of one load in one table, and the version of the states once it had landed."""

    version: int
    snapshot_id: str


class VersionTimes:
    """The times at which the versions of a connection's states were made.

    A load that moves states ends at the very time of its version: of several that were made then, the first. Among the
    other times, a version counts as made no earlier than those before it: the clock may have been set back between two.
    """

    def __init__(self, store: StateStore, connection: str) -> None:
        changes = sorted({(change.version, change.changed_at) for change in store.history(connection, limit=NO_LIMIT)})
        self._made_at = {made_at: version for version, made_at in reversed(changes)}
        self._versions = [version for version, _ in changes]
        self._times = list(accumulate((made_at for _, made_at in changes), max))

    def at(self, when: datetime | None) -> int:
        """The version of the states at a time; 0 before the first."""
        if when is None:
            return 0
        if when in self._made_at:
            return self._made_at[when]
        number = bisect_right(self._times, when)
        return self._versions[number - 1] if number else 0


def roll_back(engine: "Engine", lease: Lease, version: int, *, who: str) -> Rollback:
    """Rolls back the states of the connection to a version, and its tables with them. Durable on return, and
    repeatable.

    Raises ConfigError before anything has moved: for an unknown version, while a load is announced, for a table whose
    snapshot has expired, for tables without snapshots. When a TableError is raised, the states and some of the tables
    may have moved.
    """
    store, tables = engine.store, rewinder_of(engine.tables)
    targets = list(_tables_to_move(store, lease.connection, version, tables))
    changes = store.rollback(lease, version, who=who)
    newest = store.history(lease.connection, limit=1)
    newest_version = newest[0].version if newest else 0
    moved = [
        RolledBackTable(name, snapshot_id, tables.rewind(name, snapshot_id, seen=seen, version=newest_version))
        for name, seen, snapshot_id in targets
    ]
    return Rollback(tuple(changes), tuple(moved))


def version_before_newest_run(store: StateStore, connection: str) -> int:
    """The version that undoes the newest run that changed a state; 0 for the first one.

    A rollback is no such run: one that has undone the run already is repeated, for it may have died before the tables
    had moved. Raises ConfigError where the states were rolled back to another version since.
    """
    changes = store.history(connection, limit=NO_LIMIT)
    of_run = list(dropwhile(_is_rollback, changes))
    version = next((change.version for change in of_run if change.run_id != of_run[0].run_id), 0)
    if len(of_run) < len(changes) and _states_at(changes, version) != _states_at(changes, changes[0].version):
        raise ConfigError(
            f"rolling back the newest run of connection {connection}",
            "its states were rolled back since, to another version than the one before that run",
            remedy=f"Name the version: `airbyte-proto state history {connection}` lists them.",
        )
    return version


def _is_rollback(change: StateChange) -> bool:
    return change.why.startswith("rollback")


def _states_at(changes: Sequence[StateChange], version: int) -> Mapping[tuple[StreamId | None, str], State]:
    """The states at a version, of changes that come newest first."""
    past: dict[tuple[StreamId | None, str], State | None] = {}
    for change in reversed(changes):
        if change.version <= version and not is_of_values(change):
            past[change.stream, change.partition] = change.state
    return {key: state for key, state in past.items() if state is not None}


def _tables_to_move(
    store: StateStore, connection: str, version: int, tables: "TableRewinder"
) -> Iterator[tuple[TableName, "TablePast", str | None]]:
    """The tables that have changed since the version: each with its past, and the snapshot that it goes back to."""
    for name, landed in _landed(store, connection).items():
        past = tables.past(name)
        if max([landed[-1].version, *(each.version for each in past.rewinds)]) <= version:
            continue
        snapshot_id = _snapshot_at(landed, past, version)
        if snapshot_id is not None and snapshot_id not in past.snapshots:
            raise ConfigError(
                f"rolling back connection {connection} to version {version}",
                f"table {name} no longer has snapshot {snapshot_id}, which it had then: it has expired",
                remedy="Roll back the state alone, or refresh the stream.",
            )
        yield name, past, snapshot_id


def _snapshot_at(landed: Sequence[_LandedLoad], past: "TablePast", version: int) -> str | None:
    """The snapshot of the table at the version: that of its last load by then, or of a later rollback."""
    load = next((each for each in reversed(landed) if each.version <= version), None)
    rewinding = next((each for each in reversed(past.rewinds) if each.version <= version), None)
    if load is None or rewinding is None:
        last = load or rewinding
        return last.snapshot_id if last else None
    place = {snapshot_id: number for number, snapshot_id in enumerate(past.snapshots)}
    both = ((each.version, place.get(each.snapshot_id, -1), each.snapshot_id) for each in (load, rewinding))
    return max(both)[2]


def _landed(store: StateStore, connection: str) -> Mapping[TableName, list[_LandedLoad]]:
    """The loads that landed in each table of the connection, oldest first."""
    versions = VersionTimes(store, connection)
    found: dict[TableName, list[_LandedLoad]] = {}
    for entry in _done(store.loads(connection, limit=NO_LIMIT)):
        snapshots = {committed.stream: committed.snapshot_id for committed in entry.committed}
        for part in entry.load.parts:
            # Readers never saw a load that stayed on a branch.
            if part.is_shown and (snapshot_id := snapshots.get(part.stream)):
                landed = _LandedLoad(versions.at(entry.ended_at), snapshot_id)
                found.setdefault(part.table, []).append(landed)
    return found


def _done(loads: Sequence[LoggedLoad]) -> Iterator[LoggedLoad]:
    return (entry for entry in reversed(loads) if entry.status is LoadStatus.DONE)
