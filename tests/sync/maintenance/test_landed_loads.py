"""A rollback goes through all the loads of a connection, with little of each in memory."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import LandedTable, LoggedLoad
from dagster_airbyte_proto.loads.load import CommittedRows
from dagster_airbyte_proto.model import TableName, WriteMode
from dagster_airbyte_proto.sync.maintenance.landed_loads import VersionTimes, known_loads, landed_loads
from dagster_airbyte_proto.tables.care import SnapshotChange, TableHistory
from tests.conformance.state_store.fixtures import ORDERS, USERS, HandClock, committed_users, load_of, stream_state

_LOADS = 25


class _WatchedStore(SqlStore):
    """Notes the most loads that it returned at once."""

    most = 0

    def loads(self, connection: str, *, limit: int = 100, before: int | None = None) -> Sequence[LoggedLoad]:
        found = super().loads(connection, limit=limit, before=before)
        self.most = max(self.most, len(found))
        return found


def test_no_more_than_a_page_of_loads_is_in_memory_with_rows_and_states(tmp_path: Path) -> None:
    clock = HandClock()
    store = _WatchedStore(f"sqlite:///{tmp_path}/state.db", clock=clock)
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    for number in range(_LOADS):
        clock.advance(1)
        load = load_of(f"l{number}", stream_state(USERS, str(number)), paths=("p",) if number else ())
        orders = msgspec.structs.replace(load.parts[0], stream=ORDERS, table=TableName("shop", "orders"))
        load = msgspec.structs.replace(load, parts=(orders, *load.parts))
        store.announce(lease, load)
        committed = [committed_users(str(number)), CommittedRows(ORDERS, "o", was_there=False)]
        store.promote(lease, load, load.states, committed)
    found = landed_loads(store, "shop", VersionTimes(store, "shop"))
    assert [str(name) for name in found] == ["shop.orders", "shop.users"]
    users, orders_of_all = found[TableName("shop", "users")], found[TableName("shop", "orders")]
    assert [each.version for each in users] == [*range(1, _LOADS + 1)]
    assert [each.snapshot_id for each in users] == [str(number) for number in range(_LOADS)]
    assert [each.changes_table for each in users] == [False] + [True] * (_LOADS - 1)
    assert users[3].memory == LandedTable("", "l3", WriteMode.APPEND_DEDUP, is_covered=True)
    assert [each.memory.is_covered for each in orders_of_all] == [False] * _LOADS
    assert store.most < _LOADS
    assert not any(each.entry.load.parts or each.entry.load.states for each in users)
    made = tuple(SnapshotChange(each, None, "append", 1, 0, 0, load_id=each) for each in ("l1", "l2", "of others"))
    known = known_loads(store, TableHistory(made, (), None))
    assert sorted(known) == ["l1", "l2"]
    assert not any(each.load.parts or each.load.states or each.committed for each in known.values())
