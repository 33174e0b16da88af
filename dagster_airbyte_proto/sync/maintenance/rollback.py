"""Takes the state of a connection and the rows of its tables back together.

- States move first, then the tables. A crash in between leaves rows that their state does not cover, and repeating the
  rollback removes them. In the other order the state would be ahead of the rows, and the missing rows would never be
  sent again.
- A table that another run has changed since it was read, before the states moved, is left alone: a run that lost its
  lease meanwhile must not undo rows of the run that took over.
- A table goes back to what it was just before the next version was made. Loads since then that moved no state, such as
  a full refresh, are undone too.
- With the states, the store's memory of what the tables hold (`commit/table_witness.py`) becomes that of the version.
  Without it a stream that is appended by now would be read again on top of the rows of a full refresh, and one that has
  another table by now would go on in that one, which lacks the rows before its state.
- After a crash in between, a sync finds that its table has a later load than the store remembers, and is refused.
- Runs of partitions work side by side: one may land first and move its state last. Then no snapshot has the rows of the
  version between them, and the rollback is refused.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, NamedTuple

from dagster_airbyte_proto.checkpoints.kept_values import is_of_values
from dagster_airbyte_proto.checkpoints.logs import states_version
from dagster_airbyte_proto.checkpoints.sql.states import no_versions
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, LandedTable, Lease, StateChange, StateStore
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, ProtoError, TableError
from dagster_airbyte_proto.model import State, StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.maintenance.landed_loads import PastLoad, VersionTimes, landed_loads
from dagster_airbyte_proto.sync.maintenance.past_profiles import Emptied, PastProfiles, RowsOf
from dagster_airbyte_proto.tables.care import PastRewind, TablePast
from dagster_airbyte_proto.tables.formats import STATES_ALONE, rewinder_of

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.tables.care import TableRewinder

REPEAT = "Run the rollback again: until then syncs refuse each table that still has rows from after the states."
"""The remedy where the states have moved, and not all tables."""

_NO_LOAD = LandedTable("", "", WriteMode.APPEND, is_covered=False)
_MAX_PARTITIONS = 10
"""The most that an error names."""


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


class _TableAt(NamedTuple):
    """A table, the loads that landed in it, and the last load or rollback that it had had at a version. `past` is None
    for a table that is gone, also where another one has its name now."""

    name: TableName
    landed: Sequence[PastLoad]
    past: TablePast | None
    last: PastLoad | PastRewind | None

    @property
    def snapshot_id(self) -> str | None:
        """The snapshot that it had: before the first load that of others, None if it had no rows."""
        if self.last is not None:
            return self.last.snapshot_id
        return None if self.past is None else self.past.snapshot_before(self.landed[0].entry.load.connection)

    @property
    def rewinds(self) -> Sequence[PastRewind]:
        return () if self.past is None else self.past.rewinds

    @property
    def newest_load_version(self) -> int:
        return max(each.version for each in self.landed)

    def has_changed_since(self, version: int) -> bool:
        return max([self.newest_load_version, *(each.version for each in self.rewinds)]) > version

    def mixed(self, version: int) -> Sequence[PastLoad]:
        """The loads after a version that landed before one that it has, and the loads behind them that it has: no
        snapshot has the latter alone."""
        undone = [each.version > version for each in self.landed]
        if undone == sorted(undone):
            return ()
        first, last = undone.index(True), len(undone) - undone[::-1].index(False)
        return self.landed[first:last]

    @property
    def is_back(self) -> bool:
        """True if the last change of the table was a rollback to that place."""
        last = self.rewinds[-1] if self.rewinds else None
        return last is not None and last.target == self.snapshot_id and last.version > self.newest_load_version

    @property
    def load(self) -> PastLoad | None:
        """The load that was the table's newest then. None if it had none, or if that is not known."""
        return None if isinstance(self._origin, Emptied) else self._origin

    @property
    def rows(self) -> RowsOf:
        """The rows that the table had then, as its profile needs them."""
        return self._origin.entry if isinstance(self._origin, PastLoad) else self._origin

    @property
    def _origin(self) -> PastLoad | Emptied | None:
        """The load whose rows the table had. None where that is not known."""
        loads = {each.snapshot_id: each for each in self.landed if each.changes_table and each.snapshot_id is not None}
        rewinds = {each.snapshot_id: each for each in self.rewinds}
        found, snapshot_id = self.last, self.snapshot_id
        while found is not None:
            snapshot_id = found.target if isinstance(found, PastRewind) else found.snapshot_id
            if snapshot_id in loads:
                return loads[snapshot_id]
            if snapshot_id is None and isinstance(found, PastLoad):
                return None  # Only a person said that it landed.
            found = None if snapshot_id is None else rewinds.get(snapshot_id)
        return Emptied.EMPTIED if snapshot_id is None else None


def roll_back(engine: "Engine", lease: Lease, version: int, *, who: str) -> Rollback:
    """Rolls back the states of the connection to a version, and its tables with them. Durable on return, and
    repeatable.

    Raises ConfigError before anything has moved: for an unknown version, while a load is announced, for a table that is
    gone or whose snapshot has expired, for tables without snapshots, where runs of partitions landed in another order
    than their states moved. When a TableError is raised, the states have moved, and so have all tables that do not
    refuse.
    """
    store, versions = engine.store, VersionTimes(engine.store, lease.connection)
    landed = landed_loads(store, lease.connection, versions)
    if not landed:  # Such as those of a relay. No table need be opened, nor have snapshots.
        return Rollback(tuple(store.rollback(lease, version, who=who)), ())
    doing = f"rolling back connection {lease.connection} to version {version}"
    rewinder = rewinder_of(engine.tables)
    tables = [_table_at(engine, rewinder, name, loads, version) for name, loads in landed.items()]
    _check_order(tables, versions, version, doing)
    changed = [each for each in tables if each.has_changed_since(version)]
    for each in changed:
        _check_snapshot(each, doing)
    moving = [(each, each.past) for each in changed if each.past is not None]
    streams = {load.stream for each in changed if not each.is_back for load in each.landed}
    changes = store.rollback(lease, version, who=who, landed=_memory(tables, streams, versions, version))
    version_now = changes[0].version if changes else states_version(store, lease.connection)
    profiles = PastProfiles(store, lease, {each.name: each.rows for each, _ in moving})
    profiles.begin()
    done: list[RolledBackTable] = []
    try:
        for rolled_back in _rewound(rewinder, moving, version_now):
            done.append(rolled_back)
    except ProtoError as error:
        error.remedy = " ".join(filter(None, (error.remedy, f"The states have moved. {REPEAT}")))
        raise
    finally:
        profiles.end({each.table for each in done})
    return Rollback(tuple(changes), tuple(done))


def version_before_newest_run(store: StateStore, connection: str, partition: str | None = None) -> int:
    """The version that undoes the newest run that changed a state, in one partition or at all; 0 for the first one.

    A rollback is no such run: one that has undone the run already is repeated, for it may have died before the tables
    had moved. Raises ConfigError where no run has moved a state, where runs of other partitions moved states in
    between, and where the states were rolled back to another version since.
    """
    doing = f"rolling back the newest run of connection {connection}"
    changes = store.history(connection, limit=NO_LIMIT, partition=partition, with_states=False)
    if not changes:
        raise no_versions(doing, connection)
    of_run = list(dropwhile(_is_rollback, changes))
    before = list(dropwhile(lambda change: change.run_id == of_run[0].run_id, of_run))
    version = before[0].version if before else 0
    if firsts := [change.version for change in before if change.run_id == of_run[0].run_id]:
        _check_runs_alone([each for each in before if each.version > firsts[-1]], of_run, doing)
    if len(of_run) == len(changes):
        return version
    changes = store.history(connection, limit=NO_LIMIT, partition=partition)
    if _states_at(changes, version) != _states_at(changes, changes[0].version):
        raise ConfigError(
            doing,
            "its states were rolled back since, to another version than the one before that run",
            remedy=f"Name the version: `airbyte-proto state history {connection}` lists them.",
        )
    return version


def _check_runs_alone(between: Sequence[StateChange], changes: Sequence[StateChange], doing: str) -> None:
    """Raises ConfigError where runs of other partitions moved states `between` the changes of the newest one: then no
    version undoes it alone."""
    run_id = changes[0].run_id
    others = [each for each in between if each.run_id != run_id and each.partition and not _is_rollback(each)]
    if not others:
        return
    first = min(each.version for each in changes if each.run_id == run_id)
    before = max((each.version for each in changes if each.version < first), default=0)
    partitions = ", ".join(sorted({each.partition for each in others})[:_MAX_PARTITIONS])
    raise ConfigError(
        doing,
        f"run {run_id} worked side by side with runs of other partitions ({partitions}): no version undoes it alone",
        remedy=f"Sync its partition again, which replaces it; or name version {before}, which undoes all of them.",
    )


def _is_rollback(change: StateChange) -> bool:
    return change.why.startswith("rollback")


def _states_at(changes: Sequence[StateChange], version: int) -> Mapping[tuple[StreamId | None, str], State]:
    """The states at a version, of changes that come newest first."""
    past: dict[tuple[StreamId | None, str], State | None] = {}
    for change in reversed(changes):
        if change.version <= version and not is_of_values(change):
            past[change.stream, change.partition] = change.state
    return {key: state for key, state in past.items() if state is not None}


def _table_at(
    engine: "Engine", rewinder: "TableRewinder", name: TableName, loads: Sequence[PastLoad], version: int
) -> _TableAt:
    witness = engine.tables.witness(name, loads[-1].entry.load.connection)
    past = None if witness is None else rewinder.past(name)
    landed = loads if past is None else _as_landed(loads, past)
    last = _last_at(landed, past, version)
    if witness is not None and isinstance(last, PastLoad) and last.memory.table_id not in ("", witness.table_id):
        past = None  # It was made again since. In Delta its snapshots have the numbers of those that are gone.
    return _TableAt(name, landed, past, last)


def _as_landed(loads: Sequence[PastLoad], past: TablePast) -> Sequence[PastLoad]:
    """The loads in the order of their snapshots: runs of partitions, side by side, announce them in another one. A load
    that only a person said has landed stays behind the one before it."""
    if not any(each.entry.partition for each in loads):
        return loads
    place = {snapshot_id: number for number, snapshot_id in enumerate(past.snapshots)}
    places: list[int] = []
    for each in loads:
        is_said = each.snapshot_id is None and bool(places)
        places.append(places[-1] if is_said else place.get(each.snapshot_id or "", -1))
    return [each for _, _, each in sorted(zip(places, range(len(loads)), loads, strict=True))]


def _check_order(tables: Sequence[_TableAt], versions: VersionTimes, version: int, doing: str) -> None:
    """Raises ConfigError where runs of partitions landed in a table in another order than their states moved. It names
    the nearest versions at which table and states match."""
    there = [each for each in tables if each.past is not None]
    found = next((each for each in there if each.mixed(version)), None)
    if found is None:
        return

    def is_exact(number: int) -> bool:
        return not any(table.mixed(number) for table in there)

    numbers = (0, *versions.numbers)
    older = (each for each in reversed(numbers) if each < version and is_exact(each))
    newer = (each for each in numbers if each > version and is_exact(each))
    near = [*islice(older, 1), *islice(newer, 1)]
    partitions = ", ".join(sorted({each.entry.partition for each in found.mixed(version)})[:_MAX_PARTITIONS])
    raise ConfigError(
        doing,
        f"runs of partitions ({partitions}) landed in table {found.name} side by side, and no snapshot of it has the"
        " rows of that version alone",
        remedy=f"Name version {' or '.join(map(str, near))}; then sync the partitions again that it undoes.",
    )


def _last_at(landed: Sequence[PastLoad], past: TablePast | None, version: int) -> PastLoad | PastRewind | None:
    """The last load of a table at a version, or the last rollback if that is newer."""
    load = next((each for each in reversed(landed) if each.version <= version), None)
    rewinds = () if past is None else past.rewinds
    rewinding = next((each for each in reversed(rewinds) if each.version <= version), None)
    if past is None or load is None or rewinding is None:
        return load or rewinding
    place = {snapshot_id: number for number, snapshot_id in enumerate(past.snapshots)}
    load_is_newer = (load.version, place.get(load.snapshot_id or "", -1)) > (
        rewinding.version,
        place.get(rewinding.snapshot_id, -1),
    )
    return load if load_is_newer else rewinding


def _check_snapshot(table: _TableAt, doing: str) -> None:
    """Raises ConfigError if a table cannot go back to what it had."""
    if table.last is None or (table.past is not None and table.snapshot_id in table.past.snapshots):
        return
    if table.past is None:
        found = f"table {table.name} that had rows then is gone: it was dropped, renamed or made again"
    elif table.snapshot_id is None:
        found = f"somebody said what landed in table {table.name}, so that nobody knows the snapshot which it had then"
    else:
        found = f"table {table.name} no longer has snapshot {table.snapshot_id}, which it had then: it has expired"
    raise ConfigError(doing, found, remedy=STATES_ALONE)


def _memory(
    tables: Sequence[_TableAt], streams: Collection[StreamId], versions: VersionTimes, version: int
) -> Mapping[StreamId, LandedTable | None]:
    """The last load of each of these streams at the version. None if it is not known, or if a person changed the state
    after it."""
    newest: dict[StreamId, PastLoad] = {}
    begun = {load.stream for each in tables if each.last is not None for load in each.landed}
    for load in (each.load for each in tables):
        if load is not None and load.stream in streams and not load.entry.partition:
            other = newest.get(load.stream)
            if other is None or other.entry.order < load.entry.order:
                newest[load.stream] = load
    found: dict[StreamId, LandedTable | None] = {each: None if each in begun else _NO_LOAD for each in streams}
    for stream, load in newest.items():
        if not versions.were_changed_by_hand(stream, load.version, version):
            found[stream] = load.memory
    return found


def _rewound(
    rewinder: "TableRewinder", moving: Sequence[tuple[_TableAt, TablePast]], version: int
) -> Iterator[RolledBackTable]:
    """Takes the tables back. A table that refuses keeps no other one from it: their states have moved."""
    errors: list[TableError | CommitUnknown] = []
    for table, seen in moving:
        try:
            has_moved = rewinder.rewind(table.name, table.snapshot_id, seen=seen, version=version)
        except (TableError, CommitUnknown) as error:
            errors.append(error)
        else:
            yield RolledBackTable(table.name, table.snapshot_id, has_moved)
    if errors:
        raise errors[0]
