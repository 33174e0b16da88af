"""Rolls back one table to a snapshot, unless a state would then be ahead of its rows.

The state of a connection says which rows it has sent. If only the rows were removed, they would never be sent again. So
a table that a connection writes must go back together with the states, by a rollback of the connection. The error of
this module names the version for that.

Streams that are read whole have no states: their tables go back alone, under the lease of the connection.
"""

from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from dagster_airbyte_proto.checkpoints.logs import loads_newest_first, states_version
from dagster_airbyte_proto.checkpoints.store import LoadStatus, LoggedLoad, StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.protocols.lookup import PUSH
from dagster_airbyte_proto.sync.lease import NO_WAIT, LeaseWait, acquire_lease
from dagster_airbyte_proto.sync.maintenance.landed_loads import VersionTimes, known_loads
from dagster_airbyte_proto.sync.maintenance.past_profiles import PastProfiles
from dagster_airbyte_proto.tables.care import SnapshotChange, TableCare, TableHistory, TablePast
from dagster_airbyte_proto.tables.formats import rewinder_of

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.engine import Engine


class StateVersion(NamedTuple):
    """The version of a connection's states at the time of a snapshot."""

    connection: str
    version: int


def roll_back_table(
    engine: "Engine", care: TableCare, name: TableName, snapshot_id: str, waiting: LeaseWait = NO_WAIT
) -> bool:
    """Rolls back a table. Returns False when it was at the snapshot already. `waiting` is for a run of its connection.

    Raises ConfigError for a table on which a state depends. The error names the command that rolls back both.
    """
    doing = f"rolling back table {name} to snapshot {snapshot_id}"
    rewinder, history = rewinder_of(engine.tables), care.history(name)
    if snapshot_id not in {change.snapshot_id for change in history.changes}:
        raise ConfigError(
            doing,
            "it has no such snapshot, or the snapshot has expired",
            remedy=f"`airbyte-proto table history {name}` lists its snapshots.",
        )
    if all(change.stream is None for change in history.changes):
        return rewinder.rewind(name, snapshot_id, seen=rewinder.past(name), version=0)
    connection = _only_writer(engine.store, history)
    if connection is None or _has_states(engine.store, connection, name):
        raise _written_by_connection(doing, engine.store, history, snapshot_id)
    run_id = f"table-rollback-{uuid4().hex[:8]}"
    with acquire_lease(engine.store, connection, run_id, engine.settings.lease_seconds, waiting) as keeper:
        if engine.store.announced_loads(connection):
            raise ConfigError(
                doing,
                f"a load of connection {connection} is announced and not finished, and finishing it would change the"
                " table again",
                remedy=f"Run airbyte-proto recover {connection} first.",
            )
        if _has_states(engine.store, connection, name):  # A sync has ended meanwhile.
            raise _written_by_connection(doing, engine.store, history, snapshot_id)
        past = rewinder.past(name)
        profiles = PastProfiles(
            engine.store, keeper.lease, {name: _load_at(engine.store, care.history(name), past, snapshot_id)}
        )
        version = states_version(engine.store, connection)
        profiles.begin()
        has_moved = rewinder.rewind(name, snapshot_id, seen=past, version=version)
        profiles.end({name})
        return has_moved


def _only_writer(store: StateStore, history: TableHistory) -> str | None:
    """The connection whose loads a table has, if no other one's are there and the store knows the newest."""
    loads = known_loads(store, history)
    written = [change.load_id for change in history.changes if change.stream is not None]
    connections = {entry.load.connection for entry in loads.values()}
    return connections.pop() if len(connections) == 1 and written[-1] in loads else None


def _has_states(store: StateStore, connection: str, name: TableName) -> bool:
    """True if a state covers rows of the table, or the table remembers what a push has delivered."""
    if store.protocol(connection) == PUSH:
        return True
    newest: dict[StreamId, StagedRows] = {}
    for logged in loads_newest_first(store, connection):
        for part in logged.load.parts if logged.status is LoadStatus.DONE else ():
            if part.table == name:
                newest.setdefault(part.stream, part)
    of_streams = {stored.state.stream for stored in store.states(connection, partition=None)}
    return any(stream in of_streams or (None in of_streams and not part.read_whole) for stream, part in newest.items())


def _load_at(store: StateStore, history: TableHistory, past: TablePast, snapshot_id: str) -> LoggedLoad | None:
    """The load whose rows a snapshot has. None if that is not known."""
    loads, targets = known_loads(store, history), {each.snapshot_id: each.target for each in past.rewinds}
    change = _origin(history, loads, snapshot_id)
    while change is not None and change.rewound_at is not None:
        change = _origin(history, loads, targets.pop(change.snapshot_id, None) or "")
    return None if change is None else loads.get(change.load_id or "")


def state_version_at(store: StateStore, history: TableHistory, snapshot_id: str) -> StateVersion | None:
    """The version of the states that belongs to the snapshot alone.

    None where a later load has the same version, or the store does not know the connection.
    """
    loads = known_loads(store, history)
    change = _origin(history, loads, snapshot_id)
    if change is None:
        return None
    if change.rewound_at is not None:
        connections = {entry.load.connection for entry in loads.values()}
        return StateVersion(connections.pop(), change.rewound_at) if len(connections) == 1 else None
    load_id = change.load_id or ""
    landed = loads[load_id]
    connection = landed.load.connection
    versions = VersionTimes(store, connection)
    order = [each.load_id or "" for each in history.changes if each.rewound_at is None and each.load_id in loads]
    place = order.index(load_id)
    version = versions.of(landed)
    # Of runs side by side, too, that landed in another order than their states moved.
    has_others = any(versions.of(loads[each]) > version for each in order[:place])
    is_shared = has_others or any(versions.of(loads[each]) <= version for each in order[place + 1 :])
    return None if is_shared else StateVersion(connection, version)


def _origin(history: TableHistory, loads: dict[str, LoggedLoad], snapshot_id: str) -> SnapshotChange | None:
    """The change that gave the table the rows of a snapshot: a load or a rollback. Compactions after it change no
    row."""
    by_id = {change.snapshot_id: change for change in history.changes}
    change = by_id.get(snapshot_id)
    while change is not None and change.rewound_at is None and change.load_id not in loads:
        change = by_id.get(change.parent_id or "")
    return change


def _written_by_connection(doing: str, store: StateStore, history: TableHistory, snapshot_id: str) -> ConfigError:
    if (found := state_version_at(store, history, snapshot_id)) is not None:
        return ConfigError(
            doing,
            f"connection {found.connection} writes it: its state would be ahead of the rows, and they would not be "
            "sent again",
            remedy=f"Run airbyte-proto state rollback {found.connection} --to {found.version} --tables: it rolls back "
            "the state with the rows, and the connection's other tables with them.",
        )
    known = sorted({entry.load.connection for entry in known_loads(store, history).values()})
    return ConfigError(
        doing,
        "a connection writes it, and no version of its states belongs to that snapshot alone",
        remedy="`airbyte-proto state history C` lists the versions, and `airbyte-proto state rollback C --to VERSION "
        f"--tables` rolls back state and rows; C is {' or '.join(known) or 'not known here: is --home right?'}",
    )
