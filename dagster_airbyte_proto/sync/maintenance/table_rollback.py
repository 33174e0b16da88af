"""Takes one table back to a snapshot, unless that would leave a state ahead of its rows.

What a connection sends stands in its state: were the rows alone taken away, they would never be sent again. So a table
that a connection feeds goes back with its states, which is a rollback of the connection: this names the version.
"""

from bisect import bisect_right
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from dagster_airbyte_proto.checkpoints.store import LoggedLoad, StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.maintenance.care import loads_named
from dagster_airbyte_proto.tables.care import Change, TableCare, TableHistory

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.engine import Engine

_ALL = 1_000_000_000


class Standing(NamedTuple):
    """Where the states of a connection stood while a table was as in a snapshot."""

    connection: str
    version: int


def take_back(engine: "Engine", care: TableCare, name: TableName, snapshot_id: str) -> bool:
    """False when it stood there already. Raises ConfigError for a table that a connection feeds: the states alone stay
    where they are then, and the error says what takes both back."""
    # Spark's modules take most of a second to import, which who is refused need not wait for.
    from dagster_airbyte_proto.tables.iceberg.rewind import rewinder_of

    doing = f"taking table {name} back to snapshot {snapshot_id}"
    rewinder, history = rewinder_of(engine.tables), care.history(name)
    if snapshot_id not in {change.snapshot_id for change in history.changes}:
        raise ConfigError(
            doing,
            "it has no such snapshot, or has let go of it",
            remedy=f"`airbyte-proto table history {name}` names those that it has.",
        )
    if any(change.stream is not None for change in history.changes):
        raise _fed(doing, engine.store, history, snapshot_id)
    return rewinder.rewind(name, snapshot_id, seen=rewinder.past(name), version=0)


def standing_at(store: StateStore, history: TableHistory, snapshot_id: str) -> Standing | None:
    """None where no version of the states tells the snapshot from what came after it, or no connection is known."""
    loads = loads_named(store, history)
    change = _origin(history, loads, snapshot_id)
    if change is None:
        return None
    if change.rewound_at is not None:
        connections = {entry.load.connection for entry in loads.values()}
        return Standing(connections.pop(), change.rewound_at) if len(connections) == 1 else None
    load_id = change.load_id or ""
    landed = loads[load_id]
    connection = landed.load.connection
    versions = sorted({(each.version, each.changed_at) for each in store.history(connection, limit=_ALL)})
    order = [each.load_id or "" for each in history.changes if each.rewound_at is None and each.load_id in loads]
    later = [loads[each] for each in order[order.index(load_id) + 1 :]]
    version = _version(versions, landed.ended_at)
    is_shared = any(_version(versions, each.ended_at) == version for each in later)
    return None if is_shared else Standing(connection, version)


def _origin(history: TableHistory, loads: dict[str, LoggedLoad], snapshot_id: str) -> Change | None:
    """What gave the table its rows of a snapshot: the load or the taking back that any compaction came after."""
    by_id = {change.snapshot_id: change for change in history.changes}
    change = by_id.get(snapshot_id)
    while change is not None and change.rewound_at is None and change.load_id not in loads:
        change = by_id.get(change.parent_id or "")
    return change


def _fed(doing: str, store: StateStore, history: TableHistory, snapshot_id: str) -> ConfigError:
    if (standing := standing_at(store, history, snapshot_id)) is not None:
        return ConfigError(
            doing,
            f"connection {standing.connection} feeds it: its state would be ahead of the rows, and they would not be "
            "sent again",
            remedy=f"Run airbyte-proto state rollback {standing.connection} --to {standing.version} --tables: it takes "
            "the state back with the rows, and the connection's other tables with them.",
        )
    known = sorted({entry.load.connection for entry in loads_named(store, history).values()})
    return ConfigError(
        doing,
        "a connection feeds it, and no version of its states stood for that snapshot alone",
        remedy="`airbyte-proto state history C` names the versions, and `airbyte-proto state rollback C --to VERSION "
        f"--tables` takes state and rows back; C is {' or '.join(known) or 'not known here: is --home right?'}",
    )


def _version(versions: list[tuple[int, datetime]], when: datetime | None) -> int:
    """The version that stood at a time."""
    if when is None:
        return 0
    number = bisect_right(versions, when, key=lambda each: each[1])
    return versions[number - 1][0] if number else 0
