"""The care of a connection's tables, by one who knows the states: what may be let go of, and what must stay.

A table's log is what tells whether a load is in, and its snapshots are what a rollback goes back to. So snapshots go in
the order in which they came, and none goes that came in with, or after, the oldest of these:

- what readers were shown at the beginning of the keep time;
- the load that a connection had landed last by then: a rollback to the version that stood then goes back to it;
- a load that is announced: it may be committed again, and must be found;
- a load that ended within the keep time.

The log is read before the states are: a load that lands after that is younger than all that may go. No lease is taken:
syncs go on meanwhile.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.store import LoadStatus, LoggedLoad, StateStore
from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import (
    Compacted,
    FolderCare,
    TableCare,
    TableHistory,
    Untouchable,
)
from dagster_airbyte_proto.tables.folder.tables import FolderTables
from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
from dagster_airbyte_proto.tables.writer import TableWriter

KEEP_SECONDS = 7 * 86400.0
ORPHAN_SECONDS = 3 * 86400.0
LEAST_ORPHAN_SECONDS = 3600.0
"""What another writer has not committed yet is an orphan to everybody else: a compaction's files, for one."""

_ALL = 1_000_000_000


class LetGo(NamedTuple):
    """What a table was rid of: so many snapshots, and the files of these paths, which no snapshot had."""

    snapshots: int
    orphans: tuple[str, ...]


class Cared(NamedTuple):
    """What was done to one table. `error` stopped what is None."""

    table: TableName
    compacted: Compacted | None = None
    let_go: LetGo | None = None
    error: TableError | None = None


class CareTerms(NamedTuple):
    """What is done to each table. Without a keep time no snapshot goes."""

    compact: bool = True
    keep_seconds: float | None = KEEP_SECONDS
    orphan_seconds: float = ORPHAN_SECONDS


def care_of(tables: TableWriter) -> TableCare:
    """Raises ConfigError for tables that nothing is known of."""
    if isinstance(tables, FolderTables):
        return FolderCare(tables)
    if isinstance(tables, ParquetTables):
        return FolderCare(tables.folders, tables.abilities.format)
    # Spark's modules take most of a second to import, which folders need not wait for.
    from dagster_airbyte_proto.tables.delta.care import DeltaCare
    from dagster_airbyte_proto.tables.delta.tables import DeltaTables
    from dagster_airbyte_proto.tables.iceberg.care import IcebergCare
    from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables

    if isinstance(tables, IcebergTables):
        return IcebergCare(tables)
    if isinstance(tables, DeltaTables):
        return DeltaCare(tables)
    raise ConfigError("caring for tables", f"tables of the format {tables.abilities.format} are not looked into")


def tables_of(store: StateStore, connection: str) -> list[TableName]:
    """The tables that loads of the connection went into, by name."""
    return sorted({part.table for entry in store.loads(connection, limit=_ALL) for part in entry.load.parts})


def cared(store: StateStore, care: TableCare, name: TableName, terms: CareTerms) -> Cared:
    """Compacts a table and lets go of what is old. A table that refuses is told of in the answer."""
    compacted = let_go = None
    try:
        if terms.compact:
            compacted = care.compact(name)
        if terms.keep_seconds is not None:
            let_go = clean(store, care, name, keep_seconds=terms.keep_seconds, orphan_seconds=terms.orphan_seconds)
    except TableError as error:
        return Cared(name, compacted, let_go, error)
    return Cared(name, compacted, let_go)


def clean(store: StateStore, care: TableCare, name: TableName, *, keep_seconds: float, orphan_seconds: float) -> LetGo:
    """Expires the snapshots that nobody needs any more, and removes the files that no snapshot has."""
    if orphan_seconds < LEAST_ORPHAN_SECONDS:
        raise ConfigError(
            f"removing orphan files of table {name}",
            f"files of the last {orphan_seconds:.0f} seconds may be of writers that are at work",
            remedy="Leave those of an hour at least.",
        )
    now = datetime.fromtimestamp(time.time(), UTC)
    history = care.history(name)
    old = expirable(history, loads_named(store, history), store, now - timedelta(seconds=keep_seconds))
    expired = care.expire(name, old)
    # Who is at work is asked before the files are listed: whatever begins after that writes younger ones.
    but = _untouchable(store, name)
    return LetGo(expired, care.remove_orphans(name, before=now - timedelta(seconds=orphan_seconds), but=but))


def expirable(
    history: TableHistory, loads: Mapping[str, LoggedLoad], store: StateStore, cutoff: datetime
) -> frozenset[str]:
    """The snapshots that may go: see the top of this module."""
    place = {change.snapshot_id: number for number, change in enumerate(history.changes)}
    stood = [snapshot_id for at, snapshot_id in history.shown if at <= cutoff and snapshot_id in place]
    if not stood:
        return frozenset()
    first = min(place[each] for each in (stood[-1], history.current) if each in place)
    first = min([first, *_needed(history, loads, store, cutoff)])
    return frozenset(change.snapshot_id for change in history.changes[:first])


def _needed(
    history: TableHistory,
    loads: Mapping[str, LoggedLoad],
    store: StateStore,
    cutoff: datetime,
) -> Iterator[int]:
    """Where in the history stands what recovery, or a rollback within the keep time, may ask for."""
    last_landed: dict[str, int] = {}
    last_rewound = -1
    for number, change in enumerate(history.changes):
        entry = loads.get(change.load_id or "")
        if change.rewound_at is not None:
            if change.at is not None and change.at <= cutoff:
                last_rewound = number
        elif entry is not None and entry.status is not LoadStatus.DROPPED:
            if entry.ended_at is None or entry.ended_at > cutoff:
                yield number
            elif not entry.load.parts or any(part.is_shown for part in entry.load.parts):
                last_landed[entry.load.connection] = number
    for connection in {entry.load.connection for entry in loads.values()}:
        if _is_in_use(store, connection, cutoff):
            number = last_landed.get(connection, last_rewound)
            if number >= 0:
                yield number


def _is_in_use(store: StateStore, connection: str, cutoff: datetime) -> bool:
    """Whether anything happened to the connection since: else a rollback to any version that stood since leaves its
    tables as they are."""
    changes, loads = store.history(connection, limit=1), store.loads(connection, limit=1)
    times = [
        changes[0].changed_at if changes else None,
        (loads[0].ended_at or loads[0].announced_at) if loads else None,
    ]
    return any(at is not None and at > cutoff for at in times)


def _untouchable(store: StateStore, name: TableName) -> Untouchable:
    """Of every connection: which of them writes to the table is known only once it has announced a load."""
    paths: set[str] = set()
    run_ids: set[str] = set()
    for connection in store.connections():
        if (lease := store.holder(connection)) is not None:
            run_ids.add(lease.run_id)
        for load in store.announced(connection):
            paths.update(file.path for part in load.parts if part.table == name for file in part.files)
    return Untouchable(frozenset(paths), frozenset(run_ids))


def loads_named(store: StateStore, history: TableHistory) -> dict[str, LoggedLoad]:
    """Those that the table's log names and the store knows; others are of somebody else's making."""
    named = {change.load_id for change in history.changes if change.load_id is not None}
    return {load_id: entry for load_id in named if (entry := store.load(load_id)) is not None}
