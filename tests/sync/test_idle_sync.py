"""A sync that brings no rows leaves the tables closed: no JVM is started for it."""

from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from tests.sync.conftest import OpenShop
from tests.sync.shop import EVERYTHING, REFRESH, SECRET, Shop

USERS: dict[str, Any] = {"streams": {"users": {"records": 25}}}
MORE_USERS: dict[str, Any] = {"streams": {"users": {"records": 30}}}
WIDER_USERS: dict[str, Any] = {
    "streams": {"users": {"records": 25, "properties": {"age": {"type": "integer"}}, "values": {"age": 7}}}
}


def _idle_shop(shop: OpenShop, **written: Any) -> Shop:
    """A shop whose last sync brought nothing."""
    opened = shop(**written)
    opened.sync_of(USERS)
    opened.sync()
    return opened


def _sync(place: Shop, scenario: dict[str, Any], request: SyncRequest = EVERYTHING) -> tuple[SyncReport, bool]:
    """The report of a sync, and whether it opened the tables."""
    place.offer(scenario)
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file), request)
        return report, engine.has_started_opening


@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_a_sync_without_rows_opens_no_table_and_reports_it_all_the_same(shop: OpenShop, write: str) -> None:
    place = shop(write=write)
    first = place.sync_of(USERS).streams["users"]
    place.sync()

    report, opened = _sync(place, USERS)

    users = report.streams["users"]
    assert not opened
    assert (report.status, users.status, users.emitted) == ("complete", "complete", 0)
    assert (users.table, users.state) == (first.table, first.state)


def test_rows_that_come_after_all_open_their_table_and_land(shop: OpenShop) -> None:
    place = _idle_shop(shop)

    report, opened = _sync(place, MORE_USERS)

    assert opened
    assert report.streams["users"].committed == 5
    assert place.column("users") == list(range(30))


def test_after_a_sync_with_rows_the_tables_are_opened_at_once(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(USERS)

    _, opened = _sync(place, USERS)

    assert opened


def test_after_a_sync_that_was_refused_the_tables_are_opened_at_once_too(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(USERS)
    place.config["password"] = "${env:NO_SUCH_VARIABLE}"
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        place.sync_of(USERS)
    place.config["password"] = SECRET

    _, opened = _sync(place, USERS)

    assert opened


def test_a_column_that_is_new_is_added_without_rows_too(shop: OpenShop) -> None:
    place = _idle_shop(shop)

    report, opened = _sync(place, WIDER_USERS)

    assert opened
    assert [change.column for change in report.streams["users"].schema_changes] == ["age"]


def test_a_stream_that_replaces_its_table_opens_it(shop: OpenShop) -> None:
    place = _idle_shop(shop)

    report, opened = _sync(place, USERS, REFRESH)

    assert opened
    assert report.streams["users"].committed == 25


def test_in_another_warehouse_a_missing_table_is_noticed_without_rows_too(shop: OpenShop, tmp_path: Path) -> None:
    place = _idle_shop(shop)
    place.settings_written["catalog"] = {"format": FOLDER_FORMAT, "warehouse": str(tmp_path / "another")}

    report, opened = _sync(place, USERS)

    assert opened
    assert "there is no such table" in (report.streams["users"].error or "")
    assert not (tmp_path / "another" / "shop" / "users").exists()
