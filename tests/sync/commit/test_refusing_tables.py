"""A table that cannot be searched, or that refuses its part of a load, fails its own stream and those that share its
state."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.faults import CallFault
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.sync.commit.test_unknown_outcomes import Planned, drop_table, resolve, sync
from tests.sync.conftest import OpenShop
from tests.sync.shop import EVERYTHING, Shop
from tests.sync.test_sync import expect, two

COMPLETE, FAILED, PARTIAL = SyncStatus.COMPLETE, SyncStatus.FAILED, SyncStatus.PARTIAL
UNREADABLE: Planned = {("freshness shop.users", "*"): CallFault.BEFORE}
REFUSING: Planned = {("commit shop.orders", "*"): CallFault.BEFORE}


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_a_keyed_table_that_cannot_be_read_fails_its_stream_alone(max_bytes: int, shop: OpenShop) -> None:
    place = shop(write="append_dedup", max_bytes=max_bytes)
    place.sync_of(two(10, 5))
    place.offer(two(20, 15))
    report = sync(place, UNREADABLE)
    assert (report.status, report.streams["users"].status) == (PARTIAL, FAILED)
    assert (place.column("users"), place.column("orders")) == (list(range(10)), list(range(15)))
    assert place.positions() == {"users": 10, "orders": 15}
    assert place.sync().status is COMPLETE
    expect(place, 20, 15)


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_no_row_lands_beside_a_table_that_cannot_be_read_where_they_share_a_state(
    max_bytes: int, shop: OpenShop
) -> None:
    place = shop(write="append_dedup", max_bytes=max_bytes)
    place.sync_of(two(10, 5, state="global"))
    place.offer(two(20, 15, state="global"))
    report = sync(place, UNREADABLE)
    assert {each.status for each in report.streams.values()} == {FAILED}
    assert place.positions() == {"users": 10, "orders": 5}
    assert (place.column("users"), place.column("orders")) == (list(range(10)), list(range(5)))
    assert place.sync().status is COMPLETE
    expect(place, 20, 15)


def beside_a_stream_that_is_read_whole(place: Shop) -> None:
    place.modes = {
        "users": {"read": "incremental", "write": "append"},
        "orders": {"read": "full_refresh", "write": "append"},
    }
    place.offer(two(10, 5, state="global"))


def test_a_stream_that_is_read_whole_fails_alone_beside_a_shared_state(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    beside_a_stream_that_is_read_whole(place)
    report = sync(place, REFUSING)
    assert {name: each.status for name, each in report.streams.items()} == {"users": COMPLETE, "orders": FAILED}
    assert (place.positions()["users"], place.store.announced_loads("shop")) == (10, [])
    assert place.sync().status is COMPLETE
    expect(place, 10, 5)


def test_the_lost_rows_of_a_stream_that_is_read_whole_stop_no_shared_state(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    beside_a_stream_that_is_read_whole(place)
    sync(place, {("commit shop.orders", 1): CallFault.AFTER}, {("promote", 1): CallFault.BEFORE})
    [load] = place.store.announced_loads("shop")
    assert {part.table for part in load.parts} == {TableName("shop", "users"), TableName("shop", "orders")}
    drop_table(place, "orders")
    resolve(place, as_landed=False)
    assert place.positions()["users"] == 10
    assert place.sync().status is COMPLETE
    expect(place, 10, 5)


@pytest.mark.parametrize("fails_at", ["stat", "read"])
def test_a_table_whose_log_has_a_disk_error_fails_its_stream_alone(fails_at: str, shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 5))
    place.offer(two(20, 15))
    entry = place.tables.folder(TableName("shop", "users"), "log", "00000001.json")
    content = entry.read_bytes()
    entry.unlink()
    # Of a process's memory the kernel has nothing at address 0: EIO. A link to itself cannot be looked at: ELOOP.
    entry.symlink_to("/proc/self/mem" if fails_at == "read" else entry)
    report = place.sync()
    assert {name: (each.status, each.committed) for name, each in report.streams.items()} == {
        "users": (FAILED, 0),
        "orders": (COMPLETE, 10),
    }
    assert ("Input/output error" if fails_at == "read" else "symbolic links") in str(report.streams["users"].error)
    assert place.positions() == {"users": 10, "orders": 15}
    entry.unlink()
    entry.write_bytes(content)
    assert place.sync().status is COMPLETE
    expect(place, 20, 15)


class _BrokenTables(FolderTables):
    """Fails, in a way that nobody foresaw, to prepare one table."""

    def prepare(self, spec: TableSpec) -> TableTarget:
        if spec.name.name == "users":
            raise ZeroDivisionError("a value of a record")
        return super().prepare(spec)


def test_a_table_on_which_our_own_code_fails_fails_its_stream_alone(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer(two(10, 5))
    settings = Settings.load(place.home, place.home / "settings.yaml")
    with Engine(settings, tables=_BrokenTables(place.home / "warehouse")) as engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING)
    assert {name: each.status for name, each in report.streams.items()} == {"users": FAILED, "orders": COMPLETE}
    error = str(report.streams["users"].error)
    assert "This is a bug" in error and "a value of a record" not in error
    assert place.sync().status is COMPLETE
    expect(place, 10, 5)


def _in_rejected(kind: str, **of_stream: Any) -> list[str]:
    """Messages of the stream `users`, and of one of this name in a namespace that is called as ours."""
    found = []
    for namespace in ({}, {"namespace": "_rejected"}):
        if kind == "RECORD":
            body: dict[str, Any] = {"record": {"stream": "users", "emitted_at": 1, **of_stream, **namespace}}
        else:
            descriptor = {"stream_descriptor": {"name": "users", **namespace}, "stream_state": {"next": 3}}
            body = {"state": {"type": "STREAM", "stream": descriptor}}
        found.append(json.dumps({"type": kind, **body}))
    return found


def test_a_namespace_that_is_called_as_that_of_rejected_rows_is_one_as_any_other(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.more = {"destination": {"namespace": "${source_namespace}"}}
    users: dict[str, Any] = {"name": "users", "json_schema": {"properties": {"id": {"type": "integer"}}}}
    users |= {"supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": True}
    catalog = {"type": "CATALOG", "catalog": {"streams": [users, {**users, "namespace": "_rejected"}]}}
    lines = [*_in_rejected("RECORD", data={"id": 1}), *_in_rejected("STATE")]
    place.offer({"streams": {}, "answers": {"discover": {"lines": [json.dumps(catalog)]}, "read": {"lines": lines}}})
    report = sync(place, {("commit shop.users", 1): CallFault.BEFORE})
    assert {name: (each.status, each.committed) for name, each in report.streams.items()} == {
        "users": (FAILED, 0),
        "_rejected.users": (COMPLETE, 1),
    }


@pytest.mark.parametrize("scope", ["stream", "global"])
def test_a_table_in_whose_folder_nothing_can_be_staged_fails_its_stream_alone(scope: str, shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 5, state=scope))
    data = place.tables.folder(TableName("shop", "users"), "data")
    moved = data.rename(data.with_name("moved"))
    data.symlink_to("/proc")  # Nobody makes a folder there.
    report = place.sync_of(two(20, 15, state=scope))
    users, orders = report.streams["users"], report.streams["orders"]
    assert (users.status, orders.status) == (FAILED, COMPLETE if scope == "stream" else FAILED)
    assert "make the staging folder" in str(users.error)
    assert place.positions() == {"users": 10, "orders": 15 if scope == "stream" else 5}
    data.unlink()
    moved.rename(data)
    assert place.sync().status is COMPLETE
    expect(place, 20, 15)


def test_what_a_dead_run_has_left_where_nobody_can_look_stops_no_sync(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 5))
    left = place.tables.folder(TableName("shop", "users"), "data") / "run-dead-1"
    lease = place.store.acquire("shop", run_id="dead", holder="a process that died", seconds=60)
    place.store.note_folders(lease, [str(left)])
    place.store.release(lease)
    left.write_text("no folder")
    assert place.sync_of(two(20, 15)).status is COMPLETE
    expect(place, 20, 15)
    left.unlink()
    left.mkdir()
    (left / "rows.parquet").write_bytes(b"")
    assert place.sync().status is COMPLETE
    assert not left.exists()
