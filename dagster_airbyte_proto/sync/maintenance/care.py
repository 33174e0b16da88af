"""Compacts tables, expires their old snapshots and removes orphan files, as far as states and loads allow it.

Recovery finds out from the log of a table whether a load has landed, and a rollback goes back to a snapshot. So
snapshots expire from the oldest on, and the first of these and all later ones stay:

- the snapshot that readers saw at the beginning of the keep time;
- the last load that each connection had landed by then: a rollback to the version of that time goes back to it;
- a load that is announced: it may be committed again, and the log must say whether it has landed;
- a load that ended within the keep time;
- the snapshot from which a push looks for changes. `state reset` frees that of a push that runs no more.

The log is read before the store: a load that lands in between is younger than all snapshots that may expire. No lease
is taken, so syncs go on meanwhile.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.store import LoadStatus, StateStore
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.staging.files.staging_folder import staging_id
from dagster_airbyte_proto.tables.care import CompactionResult, ProtectedFiles, TableCare, TableHistory
from dagster_airbyte_proto.tables.writer import TableWriter

KEEP_SECONDS = 7 * 86400.0
ORPHAN_SECONDS = 3 * 86400.0
MIN_ORPHAN_SECONDS = 3600.0
"""The least age of orphans to remove. Files that a running writer, such as a compaction, has not committed yet look
like orphans too."""


class Cleanup(NamedTuple):
    """The number of snapshots that were expired, and the paths of the orphan files that were removed."""

    snapshots: int
    orphans: tuple[str, ...]


class CareResult(NamedTuple):
    """The result of the care of one table. Steps that `error` prevented are None."""

    table: TableName
    compacted: CompactionResult | None = None
    cleanup: Cleanup | None = None
    error: ProtoError | None = None


class CareOptions(NamedTuple):
    """The steps of the care of a table. Without `keep_seconds` no snapshot expires."""

    compact: bool = True
    keep_seconds: float | None = KEEP_SECONDS
    orphan_seconds: float = ORPHAN_SECONDS


def tables_there(tables: TableWriter, names: Sequence[TableName], notify: Callable[[str], None]) -> list[TableName]:
    """The tables without those that are gone, of which it notifies: people drop the table that a stream has left for
    another. If all are gone, all are returned: their care says so."""
    found = []
    for name in names:
        if _is_gone(tables, name):
            notify(f"there is no table {name} any more: it was dropped or renamed")
        else:
            found.append(name)
    return found or [*names]


def _is_gone(tables: TableWriter, name: TableName) -> bool:
    try:
        return tables.witness(name, "") is None
    except ProtoError:  # Perhaps it is there and cannot be read. Its care says why.
        return False


def care_for_table(store: DeliveryStore, care: TableCare, name: TableName, options: CareOptions) -> CareResult:
    """Compacts a table and removes what is old. Its error is in the result: that of a table that refuses,
    or of a commit whose outcome is unknown."""
    compacted = cleanup = None
    try:
        if options.compact:
            compacted = care.compact(name)
        if options.keep_seconds is not None:
            cleanup = clean(store, care, name, keep_seconds=options.keep_seconds, orphan_seconds=options.orphan_seconds)
    except ProtoError as error:
        return CareResult(name, compacted, cleanup, error)
    return CareResult(name, compacted, cleanup)


def clean(
    store: DeliveryStore, care: TableCare, name: TableName, *, keep_seconds: float, orphan_seconds: float
) -> Cleanup:
    """Expires the snapshots that nobody needs any more, and removes the files that no snapshot has."""
    if orphan_seconds < MIN_ORPHAN_SECONDS:
        raise ConfigError(
            f"removing orphan files of table {name}",
            f"files of the last {orphan_seconds:.0f} seconds may belong to running writers",
            remedy="Keep files of at least the last hour.",
        )
    now = datetime.fromtimestamp(time.time(), UTC)
    history = care.history(name)
    old = expirable_snapshots(history, store, now - timedelta(seconds=keep_seconds))
    old -= frozenset(_since_pushed(store, history, name))
    expired = care.expire(name, old)
    # Running writers are looked up before files are listed: a writer that starts later writes younger files.
    protected = _protected_files(store, name)
    return Cleanup(
        expired, care.remove_orphans(name, before=now - timedelta(seconds=orphan_seconds), protected=protected)
    )


def expirable_snapshots(history: TableHistory, store: StateStore, cutoff: datetime) -> frozenset[str]:
    """The snapshots that may expire, by the rules at the top of this module."""
    position = {change.snapshot_id: number for number, change in enumerate(history.changes)}
    shown_by_then = [snapshot_id for at, snapshot_id in history.shown if at <= cutoff and snapshot_id in position]
    if not shown_by_then:
        return frozenset()
    first = min(position[each] for each in (shown_by_then[-1], history.current) if each in position)
    first = min([first, *_needed_positions(history, store, cutoff)])
    return frozenset(change.snapshot_id for change in history.changes[:first])


def _needed_positions(history: TableHistory, store: StateStore, cutoff: datetime) -> Iterator[int]:
    """The positions in the history of snapshots that recovery, or a rollback within the keep time, may need."""
    last_landed: dict[str, int] = {}
    last_rewound = -1
    connections: set[str] = set()
    for number, change in enumerate(history.changes):
        # One at a time: a table may have ten thousand loads, and each of them parts of a thousand other tables.
        entry = store.load(change.load_id) if change.load_id is not None else None
        if entry is not None:
            connections.add(entry.load.connection)
        if change.rewound_at is not None:
            if change.at is not None and change.at <= cutoff:
                last_rewound = number
        elif entry is not None and entry.status is not LoadStatus.DROPPED:
            if entry.ended_at is None or entry.ended_at > cutoff:
                yield number
            elif not entry.load.parts or any(part.is_shown for part in entry.load.parts):
                last_landed[entry.load.connection] = number
    for connection in connections:
        if _is_in_use(store, connection, cutoff):
            number = last_landed.get(connection, last_rewound)
            if number >= 0:
                yield number


def _since_pushed(store: DeliveryStore, history: TableHistory, name: TableName) -> Iterator[str]:
    """The snapshots of a table from the oldest on that a push needs."""
    pushed = {
        snapshot.snapshot_id
        for connection in store.connections()
        for delivery in store.deliveries(connection).values()
        for snapshot in delivery.needed_snapshots
        if f".{snapshot.table}".replace("`", "").endswith(f".{name}")
    }
    is_needed = False
    for change in history.changes:
        is_needed = is_needed or change.snapshot_id in pushed
        if is_needed:
            yield change.snapshot_id


def _is_in_use(store: StateStore, connection: str, cutoff: datetime) -> bool:
    """True when states or loads of the connection changed after the cutoff.

    Otherwise a rollback to any version since then leaves its tables as they are, and needs no older snapshot.
    """
    changes, loads = store.history(connection, limit=1), store.loads(connection, limit=1)
    times = [
        changes[0].changed_at if changes else None,
        (loads[0].ended_at or loads[0].announced_at) if loads else None,
    ]
    return any(at is not None and at > cutoff for at in times)


def _protected_files(store: DeliveryStore, name: TableName) -> ProtectedFiles:
    """The files of announced loads, of running runs and of plans of pushes, of every connection: a run's tables are
    known only once it has announced a load."""
    paths: set[str] = set()
    run_ids: set[str] = set()
    for connection in store.connections():
        for lease in store.current_leases(connection):
            run_ids |= {staging_id(lease.run_id, lease.fence), lease.run_id}  # That of an older release has no fence.
        for load in store.announced_loads(connection):
            paths.update(file.path for part in load.parts if part.table == name for file in part.files)
        for delivery in store.deliveries(connection).values():
            paths.update(file.path for file in (*delivery.plan.files, *delivery.plan.removal_files))
    return ProtectedFiles(frozenset(paths), frozenset(run_ids))
