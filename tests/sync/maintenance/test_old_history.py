"""A sync prunes the history that is older than the settings say, and nothing that a later sync needs."""

import sqlite3
from pathlib import Path

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.shop import Shop

_TIMES = {
    "airbyte_proto_state_history": "changed_at",
    "airbyte_proto_loads": "ended_at",
    "airbyte_proto_runs": "ended_at",
}


def _age(home: Path) -> None:
    """Makes everything in the store 400 days older."""
    with sqlite3.connect(home / "state.db") as database:
        for table, column in _TIMES.items():
            older = f"strftime('%Y-%m-%d %H:%M:%f000', {column}, '-400 days')"
            database.execute(f"UPDATE {table} SET {column} = {older}")
    database.close()


def _counts(place: Shop) -> tuple[int, int]:
    store = SqlStore(f"sqlite:///{place.home / 'state.db'}")
    try:
        return len(store.history("shop")), len(store.loads("shop"))
    finally:
        store.close()


def test_old_history_is_pruned_and_syncs_go_on(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    for records in (5, 10, 15):
        assert place.sync_of({"streams": {"users": {"records": records}}}).status is SyncStatus.COMPLETE
    assert _counts(place) == (3, 3)
    _age(place.home)
    assert place.sync().status is SyncStatus.COMPLETE  # It brings a state and no row, and prunes.
    assert _counts(place) == (2, 2)
    assert place.sync_of({"streams": {"users": {"records": 20}}}).status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(20))
    assert _counts(place) == (3, 3)


def test_with_0_days_all_history_is_kept(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30, settings={"keep_history_days": 0})
    for records in (5, 10):
        place.sync_of({"streams": {"users": {"records": records}}})
        _age(place.home)
    place.sync()
    assert _counts(place) == (3, 3)


def test_pushes_prune_too_and_go_on(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    for rows in (1, 2, 3):
        table.fill([person(number) for number in range(rows)])
        table.contacts()
    _age(table.home)
    table.fill([person(number) for number in range(4)])
    assert table.contacts().acknowledged == 1
    with table.engine() as engine:
        assert len(engine.store.loads("crm")) == 2
    assert table.contacts().planned.unchanged == 4
