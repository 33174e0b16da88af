"""A run that an error ends before it begins, or behind its streams, is in the store, with that error: nobody takes the
run before for the last, or this one for dead.

It has its lease. A run that another one keeps out has none, and is not there.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.diagnosis.connection_status import ConnectionStatus, connection_status
from dagster_airbyte_proto.errors import (
    ConfigError,
    ConnectorError,
    StagingError,
    StateConflict,
    StateUnavailable,
    TableError,
)
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus, failed_report
from dagster_airbyte_proto.sync.run_end import noting_failure
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.testing.fake_source import error
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.conftest import OpenShop
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.shop import SECRET, Shop


def users(records: int, **whole: Any) -> dict[str, Any]:
    return {"streams": {"users": {"records": records}}, "state_every": 5, **whole}


def status(store: StateStore, name: str = "shop") -> ConnectionStatus:
    return connection_status(store, name)


def with_secret(place: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the config take its password from a variable, which is there for now."""
    place.config["password"] = "${env:SHOP_PASSWORD}"
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)


def test_a_sync_without_its_secret_has_failed_and_the_next_one_goes_on(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shop()
    with_secret(place, monkeypatch)
    assert place.sync_of(users(5)).status is SyncStatus.COMPLETE
    good = status(place.store)
    monkeypatch.delenv("SHOP_PASSWORD")
    for _ in range(2):
        with pytest.raises(ConfigError, match="SHOP_PASSWORD"):
            place.sync()
    found = status(place.store)
    assert (found.status, found.rows_by_run, found.failing) == ("failed", (5, 0, 0), {})
    assert "SHOP_PASSWORD" in (found.error or "")
    assert (found.complete_at, found.stream_complete_at) == (good.complete_at, good.stream_complete_at)
    with_secret(place, monkeypatch)
    report = place.sync_of(users(8))
    assert (report.status, report.streams["users"].committed) == (SyncStatus.COMPLETE, 3)
    assert (status(place.store).status, status(place.store).error) == ("complete", None)


def test_the_partition_of_a_refused_sync_is_named(shop: OpenShop, monkeypatch: pytest.MonkeyPatch) -> None:
    place = shop()
    with_secret(place, monkeypatch)
    place.offer(users(5))
    monkeypatch.delenv("SHOP_PASSWORD")
    with pytest.raises(ConfigError, match="SHOP_PASSWORD"):
        place.sync(SyncRequest(slice=Slice("2026-11-02")))
    assert (status(place.store).status, status(place.store).newest_partition) == ("failed", "2026-11-02")


def test_a_sync_whose_connector_answers_an_error_has_failed_and_no_secret_is_kept(shop: OpenShop) -> None:
    place = shop()
    answer = json.dumps(error(f"no access with {SECRET}", None, None))
    with pytest.raises(ConnectorError, match="no access"):
        place.sync_of(users(3, answers={"discover": {"lines": [answer], "exit_code": 1}}))
    found = status(place.store)
    assert (found.status, found.complete_at) == ("failed", None)
    assert "no access with ***" in (found.error or "")
    assert SECRET not in (place.store.newest_report("shop") or "")


def test_a_sync_into_a_warehouse_that_is_not_mounted_has_failed(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(users(5))
    disk = place.warehouse.rename(place.home / "disk")
    place.warehouse.mkdir()
    with pytest.raises(TableError, match="not mounted"):
        place.sync_of(users(8))
    assert (status(place.store).status, "not mounted" in (status(place.store).error or "")) == ("failed", True)
    place.warehouse.rmdir()
    disk.rename(place.warehouse)
    assert place.sync().streams["users"].committed == 3


def test_a_run_that_another_one_keeps_out_is_not_in_the_store(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(users(5))
    before = place.store.runs("shop")
    with acquire_lease(place.store, "shop", "the-other", 30), pytest.raises(StateConflict, match="has held it"):
        place.sync()
    assert place.store.runs("shop") == before


def test_a_run_that_lost_its_lease_leaves_the_runs_of_the_other_one_alone(shop: OpenShop) -> None:
    place = shop()
    place.offer(users(5))
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        slept = acquire_lease(engine.store, "shop", "slept", 30).lease
        engine.store.release(slept)
        with acquire_lease(engine.store, "shop", "the-other", 30) as other, RunLog(place.home / "logs", "slept") as log:
            engine.store.begin_run(other.lease, refreshed=[], streams=[])
            with (
                pytest.raises(ConfigError, match="it is refused"),
                noting_failure(engine, slept, log, lambda found: failed_report("shop", "slept", found, "")),
            ):
                raise ConfigError("testing", "it is refused")
            [run] = engine.store.runs("shop")
            assert (run.run_id, run.ended_at) == ("the-other", None)


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder)
    pushed.fill([person(1)])
    assert pushed.contacts().status == "complete"
    return pushed


def pushes(table: PushedTable) -> ConnectionStatus:
    with Engine(table.settings) as engine:
        return status(engine.store, "crm")


def test_a_push_that_is_refused_before_it_begins_has_failed(table: PushedTable) -> None:
    table.push["mode"] = "update"
    with pytest.raises(ConfigError, match=r"only updates|sync mode update"):
        table.run(only_plans=True)
    assert (pushes(table).status, pushes(table).rows_by_run) == ("complete", (1,))  # A plan is no push.
    with pytest.raises(ConfigError, match=r"only updates|sync mode update"):
        table.run()
    found = pushes(table)
    assert (found.status, found.rows_by_run, found.rows) == ("failed", (1, 0), 0)
    assert "update" in (found.error or "")
    table.push["mode"] = "upsert"
    table.fill([person(1), person(2)])
    assert table.contacts().acknowledged == 1
    assert (pushes(table).status, pushes(table).error) == ("complete", None)


@pytest.mark.parametrize("is_back", [True, False])
def test_where_the_store_fails_its_error_is_raised_and_kept_if_it_is_back(table: PushedTable, *, is_back: bool) -> None:
    planned: dict[tuple[str, int | str], CallFault] = {("stored_config", "*"): CallFault.BEFORE}
    table.faults = CallFaults(planned if is_back else {**planned, ("begin_run", "*"): CallFault.BEFORE})
    with pytest.raises(StateUnavailable, match="calling stored_config"):
        table.run()
    assert pushes(table).status == ("failed" if is_back else "complete")
    table.faults = None
    assert table.run().status == "complete"


def test_a_sync_that_an_error_ends_behind_its_streams_has_failed_with_their_rows(shop: OpenShop) -> None:
    place = shop()
    place.protocol = "singer"
    declared = {"values": {"size": 7}, "declared": {"size": {"type": "integer"}}}
    place.sync_of({"streams": {"users": {"records": 3, **declared}}})
    [file] = place.home.glob("catalogs/cached/told-*.json")
    file.unlink()
    file.mkdir()  # The schemas that the tap sends are received again, and cannot be kept.
    with pytest.raises(StagingError, match="told-"):
        place.sync_of({"streams": {"users": {"records": 5, **declared}}})
    found = status(place.store)
    assert (found.status, found.rows_by_run, found.failing) == ("failed", (3, 2), {})
    assert "told-" in (found.error or "")
    assert None not in found.stream_complete_at.values()
    file.rmdir()
    assert place.sync().status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(5))


def test_a_push_that_an_error_ends_behind_its_streams_has_failed_with_their_rows(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, protocol="singer")
    table.config["rotates"] = 1
    table.fill([person(1)])
    table.faults = CallFaults({("save_config", "*"): CallFault.BEFORE})
    with pytest.raises(StateUnavailable, match="calling save_config"):
        table.run()
    found = pushes(table)
    assert (found.status, found.rows_by_run, found.failing) == ("failed", (1,), {})
    assert "calling save_config" in (found.error or "")
    table.faults = None
    assert table.contacts().sent == 0
    assert (pushes(table).status, pushes(table).error) == ("complete", None)
