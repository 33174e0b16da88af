"""Takes the state of a connection and the rows of its tables back together.

State first, then the tables. Dying in between leaves rows that their state does not cover: where rows are told apart by
a key the next sync heals that, and to ask for the same rollback again does in any case. The other way round the state
would be ahead of the rows, and what is missing would never be sent again. A table that another run has changed since it
was looked at, before the states moved, is left alone: who lost the connection meanwhile undoes nothing of that run.

A table goes back to what it was at the last moment at which the version stood: just before the next version was made.
What came in since then without moving a state, as a full refresh does, is undone with the rest.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from dagster_airbyte_proto.checkpoints.store import Lease, LoadStatus, LoggedLoad, StateChange, StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.tables.care import Rewinder, TablePast

_ALL = 1_000_000_000


class Rewound(NamedTuple):
    """A table as it is after a rollback. `snapshot_id` is None where it has no rows; without `has_moved` it stood there
    already."""

    table: TableName
    snapshot_id: str | None
    has_moved: bool


class Rollback(NamedTuple):
    changes: tuple[StateChange, ...]
    tables: tuple[Rewound, ...]


class _Landed(NamedTuple):
    """A load's rows in one table, and the version that stood when they were in."""

    version: int
    snapshot_id: str


def roll_back(engine: "Engine", lease: Lease, version: int, *, who: str) -> Rollback:
    """Durable on return. May be asked for again after a failure.

    Raises ConfigError before anything has moved: for a version that there is not, while a load is announced, for a
    table that has lost what it was, for tables that keep no snapshots. Of a TableError the states may have moved, and
    some of the tables.
    """
    # Spark's modules take most of a second to import, which who only looks at states need not wait for.
    from dagster_airbyte_proto.tables.iceberg.rewind import rewinder_of

    store, tables = engine.store, rewinder_of(engine.tables)
    targets = list(_targets(store, lease.connection, version, tables))
    changes = store.rollback(lease, version, who=who)
    newest = store.history(lease.connection, limit=1)
    stands = newest[0].version if newest else 0
    rewound = [
        Rewound(name, snapshot_id, tables.rewind(name, snapshot_id, seen=seen, version=stands))
        for name, seen, snapshot_id in targets
    ]
    return Rollback(tuple(changes), tuple(rewound))


def _targets(
    store: StateStore, connection: str, version: int, tables: "Rewinder"
) -> Iterator[tuple[TableName, "TablePast", str | None]]:
    """The tables that something has come into since the version, each as it is, and the snapshot it goes back to."""
    for name, landed in _landed(store, connection).items():
        past = tables.past(name)
        if max([landed[-1].version, *(each.version for each in past.rewindings)]) <= version:
            continue
        snapshot_id = _standing(landed, past, version)
        if snapshot_id is not None and snapshot_id not in past.snapshots:
            raise ConfigError(
                f"rolling back connection {connection} to version {version}",
                f"table {name} no longer has snapshot {snapshot_id}, which it was then: it has expired",
                remedy="Roll back the state alone, or refresh the stream.",
            )
        yield name, past, snapshot_id


def _standing(landed: Sequence[_Landed], past: "TablePast", version: int) -> str | None:
    """What the table was at the version: by its last load until then, or by a rewinding after that."""
    load = next((each for each in reversed(landed) if each.version <= version), None)
    rewinding = next((each for each in reversed(past.rewindings) if each.version <= version), None)
    if load is None or rewinding is None:
        last = load or rewinding
        return last.snapshot_id if last else None
    place = {snapshot_id: number for number, snapshot_id in enumerate(past.snapshots)}
    both = ((each.version, place.get(each.snapshot_id, -1), each.snapshot_id) for each in (load, rewinding))
    return max(both)[2]


def _landed(store: StateStore, connection: str) -> Mapping[TableName, list[_Landed]]:
    """What each table of the connection has taken in, oldest first."""
    changes = sorted({(change.version, change.changed_at) for change in store.history(connection, limit=_ALL)})
    found: dict[TableName, list[_Landed]] = {}
    for entry in _done(store.loads(connection, limit=_ALL)):
        snapshots = {committed.stream: committed.snapshot_id for committed in entry.committed}
        for part in entry.load.parts:
            # What lies aside, readers have never seen.
            if part.is_shown and (snapshot_id := snapshots.get(part.stream)):
                landed = _Landed(_version_at(changes, entry.ended_at), snapshot_id)
                found.setdefault(part.table, []).append(landed)
    return found


def _done(loads: Sequence[LoggedLoad]) -> Iterator[LoggedLoad]:
    return (entry for entry in reversed(loads) if entry.status is LoadStatus.DONE)


def _version_at(changes: Sequence[tuple[int, datetime]], when: datetime | None) -> int:
    """The version that stood at a time; a load that moves states ends at the very time of its version."""
    if when is None:
        return 0
    number = bisect_right(changes, when, key=lambda change: change[1])
    return changes[number - 1][0] if number else 0
