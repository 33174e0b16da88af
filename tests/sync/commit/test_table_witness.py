"""A table and a store that contradict each other are refused before rows are skipped or land twice."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from dagster_airbyte_proto import points
from dagster_airbyte_proto.checkpoints.store import LandedTable, LoadStatus
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.sync.commit.test_unknown_outcomes import resolve, sync
from tests.sync.conftest import OpenShop
from tests.sync.shop import EVERYTHING, REFRESH, Shop
from tests.sync.test_sync import two


def refused(report: SyncReport, stream: str, found: str) -> None:
    error = report.streams[stream].error
    assert error is not None and found in error
    assert f"airbyte-proto sync shop --refresh --streams {stream}" in error
    assert report.streams[stream].status is SyncStatus.FAILED


def state_file(place: Shop) -> Path:
    [found] = place.home.glob("state.db")
    return found


def rows(place: Shop) -> tuple[int, int]:
    """The number of users and of orders, each of which is there once."""
    for stream in ("users", "orders"):
        assert place.column(stream) == list(range(len(place.column(stream))))
    return len(place.column("users")), len(place.column("orders"))


def log_of(place: Shop, stream: str) -> Path:
    return place.tables.folder(TableName("shop", stream), "log")


def test_an_older_state_store_is_refused_and_a_refresh_heals(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    backup = state_file(place).read_bytes()
    place.sync_of(two(20, 20))
    for journal in place.home.glob("state.db-*"):
        journal.unlink()
    state_file(place).write_bytes(backup)
    report = place.sync()
    refused(report, "users", "which the state store does not know")
    assert rows(place) == (20, 20)
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert rows(place) == (20, 20)
    assert place.sync_of(two(25, 20)).status is SyncStatus.COMPLETE
    assert rows(place) == (25, 20)


def copy_of_store(place: Shop) -> bytes:
    with closing(sqlite3.connect(state_file(place))) as store, closing(sqlite3.connect(":memory:")) as copy:
        store.backup(copy)
        return copy.serialize()


def put_back(place: Shop, copy: bytes) -> None:
    """Puts a copy of the store in its place, without the leases of its time."""
    for journal in place.home.glob("state.db-*"):
        journal.unlink()
    state_file(place).write_bytes(copy)
    for lease in place.store.current_leases("shop"):
        place.store.release(lease)


def forget_places(place: Shop) -> None:
    """Leaves of the store what it had before the tables were prepared."""
    with closing(sqlite3.connect(state_file(place))) as store, store:
        store.execute("update airbyte_proto_shapes set body = json_remove(body, '$.location')")


@pytest.mark.parametrize(("is_first", "has_newer"), [(False, True), (False, False), (True, False)])
def test_a_store_that_was_copied_during_a_run_takes_no_rows_of_that_run_out_of_the_table(
    is_first: bool, has_newer: bool, shop: OpenShop
) -> None:
    """By such a copy the run never ended, and no load has its files."""
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(0, 0) if is_first else two(10, 10))
    copies: list[bytes] = []

    def copy_store(point: str) -> None:
        if point == "load.staged":
            copies.append(copy_of_store(place))

    points.arm(copy_store)
    try:
        assert place.sync_of(two(20, 20)).status is SyncStatus.COMPLETE
    finally:
        points.arm(None)
    newer = copy_of_store(place)
    put_back(place, copies[0])
    if is_first:
        forget_places(place)
    for _ in range(2):
        refused(place.sync(), "users", "which the state store does not know")
        assert rows(place) == (20, 20)
    if has_newer:
        put_back(place, newer)
    else:
        assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert place.sync_of(two(25, 25)).status is SyncStatus.COMPLETE
    assert rows(place) == (25, 25)
    assert place.loose_files() == []


def test_a_second_home_on_the_same_table_is_refused(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    for file in place.home.glob("state.db*"):
        file.unlink()
    refused(place.sync(), "users", "another home syncs the same connection into it")
    assert rows(place) == (10, 10)


def test_a_stream_of_two_words_is_one_word_of_the_command_that_reads_it_again(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of({"streams": {"order items": {"records": 5}}})
    shutil.rmtree(log_of(place, "order items").parent)
    error = place.sync_of({"streams": {"order items": {"records": 9}}}).streams["order items"].error or ""
    assert "airbyte-proto sync shop --refresh --streams 'order items'" in error


def test_a_stream_whose_table_was_dropped_is_refused_and_the_other_goes_on(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    shutil.rmtree(log_of(place, "users").parent)
    report = place.sync_of(two(20, 20))
    refused(report, "users", "there is no such table")
    assert not log_of(place, "users").parent.exists()  # Readers fail, and do not find a table without rows.
    assert report.streams["orders"].status is SyncStatus.COMPLETE
    assert place.positions() == {"users": 10, "orders": 20}
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert rows(place) == (20, 20)


def test_a_table_that_was_made_again_is_refused(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    shutil.rmtree(log_of(place, "users").parent)
    log_of(place, "orders").parent.rename(log_of(place, "users").parent)
    refused(place.sync_of(two(20, 20)), "users", "it is not the table that the state was made with")


def test_a_table_that_was_set_back_is_refused(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    place.sync_of(two(20, 20))
    newest = max(log_of(place, "users").glob("*.json"))
    newest.unlink()
    refused(place.sync_of(two(30, 30)), "users", "it was set back to load")


def test_a_table_that_was_set_back_to_its_beginning_is_refused(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(0, 0))
    place.sync_of(two(10, 10))
    newest = max(log_of(place, "users").glob("*.json"))
    newest.unlink()
    refused(place.sync_of(two(20, 20)), "users", "it was set back to before load")


def roll_back_states(place: Shop, version: int, landed: dict[StreamId, LandedTable]) -> None:
    """Moves the states as a rollback with its tables does, which dies then."""
    lease = place.store.acquire("shop", run_id="by hand", holder="ann", seconds=60)
    place.store.rollback(lease, version, who="ann", landed=landed)
    place.store.release(lease)


def test_a_table_that_a_rollback_of_the_states_has_not_reached_is_refused(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    version, landed = place.store.history("shop", limit=1)[0].version, dict(place.store.landed_tables("shop"))
    place.sync_of(two(20, 20))
    roll_back_states(place, version, landed)
    refused(place.sync(), "users", "the states were rolled back to before its load")
    assert rows(place) == (20, 20)
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert place.sync_of(two(25, 25)).status is SyncStatus.COMPLETE
    assert rows(place) == (25, 25)


def left_before_a_table_is_set_back(place: Shop, state: str) -> None:
    """A dead run has announced a load of both streams, which has landed in neither table. Then users is set back."""
    for count in (10, 20):
        place.sync_of({**two(count, count), "state": state})
    place.offer({**two(30, 30), "state": state})
    sync(place, store={("announce", 1): CallFault.AFTER})
    assert len(place.store.announced_loads("shop")) == 1
    max(log_of(place, "users").glob("*.json")).unlink()


def test_a_load_that_a_dead_run_left_does_not_hide_that_its_table_was_set_back(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    left_before_a_table_is_set_back(place, "stream")
    report = place.sync()
    assert report.recovered_loads == 1
    refused(report, "users", "it was set back to load")
    assert report.streams["orders"].status is SyncStatus.COMPLETE
    assert place.positions() == {"users": 20, "orders": 30}
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert rows(place) == (30, 30)


def test_a_load_whose_table_was_set_back_is_resolved_as_landed_under_a_shared_state(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    left_before_a_table_is_set_back(place, "global")
    with pytest.raises(TableError, match="it no longer has load") as error:
        place.sync()
    for word in ("1 of their 2 tables refused", "--as landed", "--refresh"):
        assert word in str(error.value)
    assert resolve(place, as_landed=True) is LoadStatus.DONE
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert rows(place) == (30, 30)


class _SetBackTables(FolderTables):
    """Somebody sets the table of users back, once, when its second load has landed."""

    was_set_back = False

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        committed = super().commit(load_id, part)
        if part.table.name == "users" and len(self.snapshot(part.table).loads) == 2 and not self.was_set_back:
            self.was_set_back = True
            max(self.folder(part.table, "log").glob("*.json")).unlink()
        return committed


def test_a_table_that_is_set_back_while_a_sync_runs_takes_no_more_loads_of_it(shop: OpenShop) -> None:
    place = shop(max_bytes=1)
    place.offer(two(20, 20))
    tables = _SetBackTables(place.home / "warehouse")
    with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING)
    users = report.streams["users"]
    assert users.status is SyncStatus.FAILED
    assert users.emitted == users.committed + users.rejected + users.unknown
    assert users.error is not None and "it no longer has load" in users.error
    assert report.streams["orders"].status is SyncStatus.COMPLETE
    kept = place.column("users")
    assert kept == list(range(len(kept))) and len(kept) < 20
    refused(place.sync(), "users", "it was set back to load")
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert rows(place) == (20, 20)


def test_the_order_of_loads_does_not_depend_on_the_clock(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    database = create_engine(f"sqlite:///{state_file(place)}")
    with database.begin() as tx:
        tx.execute(text("update airbyte_proto_loads set announced_at = '2100-01-01 00:00:00.000000'"))
    database.dispose()
    place.sync_of(two(20, 20))
    max(log_of(place, "users").glob("*.json")).unlink()
    refused(place.sync_of(two(30, 30)), "users", "it was set back to load")


def test_a_state_from_before_a_full_refresh_is_refused(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 10))
    appends = place.modes
    place.modes = {"*": {"read": "full_refresh", "write": "overwrite"}}
    assert place.sync_of(two(15, 15)).status is SyncStatus.COMPLETE
    place.modes = appends
    refused(place.sync_of(two(15, 15)), "users", "moved no state, so the connector sends its rows again")
    assert rows(place) == (15, 15)


def test_appending_again_what_a_full_refresh_has_brought_is_refused(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.modes = {"*": {"read": "full_refresh", "write": "overwrite"}}
    assert place.sync_of(two(15, 15)).status is SyncStatus.COMPLETE
    place.modes = {"*": {"read": "incremental", "write": "append"}}
    refused(place.sync_of(two(15, 15)), "users", "they would be there twice")
    assert rows(place) == (15, 15)


def test_streams_that_share_a_state_are_read_again_together(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of({**two(10, 10), "state": "global"})
    shutil.rmtree(log_of(place, "users").parent)
    error = place.sync_of({**two(20, 20), "state": "global"}).streams["users"].error or ""
    assert error.endswith("airbyte-proto sync shop --refresh   (all its streams, which share one state)")
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert rows(place) == (20, 20)


@pytest.mark.parametrize("changed", ["reset", "set"])
def test_who_changes_a_state_by_hand_is_trusted(changed: str, shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30, write="append_dedup")
    place.sync_of(two(10, 10))
    shutil.rmtree(log_of(place, "users").parent)
    [users] = [
        stored for stored in place.store.states("shop") if stored.state.stream and stored.state.stream.name == "users"
    ]
    lease = place.store.acquire("shop", run_id="by hand", holder="ann", seconds=60)
    state = None if changed == "reset" else users.state
    place.store.change_state(lease, users.state.stream, state, who="ann")
    place.store.release(lease)
    report = place.sync_of(two(20, 20))
    assert report.status is SyncStatus.COMPLETE
    assert len(place.column("users")) == (20 if changed == "reset" else 10)


def test_a_shared_state_does_not_cover_a_stream_that_was_read_whole(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    whole = {"read": "full_refresh", "write": "overwrite"}
    place.modes = {"users": whole, "orders": {"read": "incremental", "write": "append"}}
    assert place.sync_of({**two(15, 15), "state": "global"}).status is SyncStatus.COMPLETE
    place.modes = {"*": {"read": "incremental", "write": "append"}}
    error = place.sync_of({**two(15, 15), "state": "global"}).streams["users"].error or ""
    assert "they would be there twice" in error
    assert rows(place) == (15, 15)


def test_a_load_is_read_once_for_all_the_tables_in_which_it_landed(shop: OpenShop) -> None:
    place, tables = shop(max_bytes=1 << 30), 20

    def offer(records: int) -> None:
        place.offer({"streams": {f"s{number}": {"records": records} for number in range(tables)}})

    offer(5)
    assert place.sync().loads == 1
    offer(10)
    faults = CallFaults({})
    engine = Engine(Settings.load(place.home, place.home / "settings.yaml"), store=with_faults(place.store, faults))
    with engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING)
    assert (report.status, len(report.streams)) == (SyncStatus.COMPLETE, tables)
    assert all(stream.committed == 5 for stream in report.streams.values())
    # Four tables are prepared at a time: each of the first ones may have read it.
    assert faults.calls["load"] <= 4
