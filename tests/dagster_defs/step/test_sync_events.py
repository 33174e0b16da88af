"""A connection as one step: rows in, event written, state moved; in this order, whatever breaks in between."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial

import dagster as dg
import pytest

from dagster_airbyte_proto import points
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import ArmedIOManager, Options
from tests.sync.shop import until
from tests.sync.test_sync import expect, two

RETRY = dg.RetryPolicy(max_retries=1)


@pytest.fixture
def at_points() -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """Has something looked at whenever a point is reached."""
    looks: dict[str, Callable[[], None]] = {}
    points.arm(lambda point: looks.get(point, lambda: None)())
    yield looks.__setitem__
    points.arm(None)


def test_rows_are_in_before_the_event_and_the_state_moves_after_it(
    runs: OpenRuns, at_points: Callable[[str, Callable[[], None]], None]
) -> None:
    shop = runs(max_bytes=1 << 30)
    place = shop.place
    seen = {}

    def look(at: str) -> None:
        events = {name: shop.events_of(name) for name in ("users", "orders")}
        seen[at] = (len(place.column("users")), events["users"] + events["orders"], place.positions())

    for point in ("load.committed", "run.delivered", "load.promoted"):
        at_points(point, partial(look, point))
    place.offer(two(23, 12))
    run = shop.run()
    assert run.succeeded, run.failures
    assert seen == {
        "load.committed": (23, 0, {}),
        "run.delivered": (23, 2, {}),
        "load.promoted": (23, 2, {"users": 23, "orders": 12}),
    }
    assert run.metadata("users")["was_there"] == "True"
    assert run.materialized == ["users", "orders"]
    expect(place, 23, 12)


def test_a_connector_on_an_executor_materializes_the_same(runs: OpenRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = runs()
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(shop.place.folder / "executor"))
    shop.place.offer(two(23, 12))
    run = shop.run(Options(connector={"run_on": "executors"}))
    assert run.succeeded, run.failures
    assert run.materialized == ["users", "orders"]
    assert run.metadata("users")["airbyte_proto/committed"] == 23
    expect(shop.place, 23, 12)
    refused = shop.run(Options(connector={"run_on": "moon"}))
    assert "Set it to driver or executors." in str(refused.failures)


@pytest.mark.everyday("run.delivered")
@pytest.mark.parametrize("death", ["run.delivered", "load.promoted"])
def test_an_executor_that_dies_after_its_streams_are_recorded_doubles_no_event(
    death: str, runs: OpenRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = runs()
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(shop.place.folder / "executor"))
    shop.place.offer(two(23, 12))
    tables = ArmedIOManager(
        warehouse=str(shop.place.home / "warehouse"), death=death, log=str(shop.place.folder / "points")
    )
    run = shop.run(Options(connector={"run_on": "executors"}), io_manager=tables)
    assert run.succeeded, run.failures
    assert run.materialized == ["users", "orders"]
    assert shop.place.positions() == {"users": 23, "orders": 12}
    expect(shop.place, 23, 12)


@pytest.mark.everyday("executors")
@pytest.mark.parametrize("run_on", ["driver", "executors"])
def test_one_step_materializes_streams_that_two_processes_read(
    run_on: str, runs: OpenRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = runs(write="append_dedup")
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(shop.place.folder / "executor"))
    shop.place.more["parallel"] = 2
    for turn, processes in ((1, 1), (2, 2)):
        shop.place.offer(two(9 * turn, 7 * turn))
        run = shop.run(Options(connector={"run_on": run_on}))
        assert run.succeeded, run.failures
        assert run.materialized == ["users", "orders"]
        assert json.loads(shop.place.store.newest_report("shop") or "")["processes"] == processes
        expect(shop.place, 9 * turn, 7 * turn)


def test_only_selected_streams_are_asked_for(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(23, 12))
    run = shop.run(only=["orders"])
    assert run.succeeded
    assert run.materialized == ["orders"]
    expect(shop.place, 0, 12)


def test_a_stream_that_the_catalog_has_twice_fails_the_step_and_the_others_materialize(runs: OpenRuns) -> None:
    shop = runs()
    streams = {"users": {"records": 23}, "orders": {"records": 12}}
    users, orders = (catalog_stream(name, each) for name, each in streams.items())
    catalog = {"type": "CATALOG", "catalog": {"streams": [users, {**users, "namespace": ""}, orders]}}
    shop.place.offer({"streams": streams, "answers": {"discover": {"lines": [json.dumps(catalog)]}}})
    run = shop.run()
    assert not run.succeeded
    assert run.materialized == ["orders"]
    assert "the catalog has 2 streams" in run.descriptions[0]
    expect(shop.place, 0, 12)


def test_one_bad_stream_fails_the_step_and_the_good_ones_materialize(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer({"streams": {"users": {"records": 23}, "orders": {"records": 9, "incomplete_at": 7}}})
    run = shop.run()
    assert not run.succeeded
    assert run.materialized == ["users"]
    assert "ASSET_MATERIALIZATION" not in run.kinds("orders")
    assert run.observation("orders").metadata["airbyte_proto/status"].value == "failed"
    assert any("orders broke" in words for words in run.descriptions)
    assert shop.place.positions()["users"] == 23


def test_streams_without_new_rows_and_those_of_earlier_loads_materialize_too(runs: OpenRuns) -> None:
    shop = runs()  # one byte makes a load
    streams = ("users", "orders", "items")
    scenario = {"users": {"records": 10}, "orders": {"records": 0}, "items": {"records": 20}}
    shop.place.offer({"streams": scenario, "state_every": 5})
    run = shop.run(Options(streams=streams))
    assert run.succeeded
    assert sorted(run.materialized) == sorted(streams)
    result = {name: run.metadata(name)["airbyte_proto/committed"] for name in streams}
    assert result == {"users": 10, "orders": 0, "items": 20}
    again = shop.run(Options(streams=streams))
    assert sorted(again.materialized) == sorted(streams)
    assert again.metadata("users")["airbyte_proto/committed"] == 0


def test_a_retry_skips_what_is_complete_even_where_it_is_read_whole(runs: OpenRuns) -> None:
    shop = runs(read="full_refresh", write="overwrite")
    once = str(shop.place.folder / "once")
    failure = {"kind": "error", "after": 25, "once": once, "failure_type": "transient_error", "message": "busy"}
    shop.place.offer({"streams": {"users": {"records": 23}, "orders": {"records": 12}}, "failure": failure})
    run = shop.run(Options(retry_policy=RETRY))
    assert run.succeeded, run.failures
    assert run.attempts == 2
    assert sorted(run.materialized) == ["orders", "users"]
    assert shop.place.landed("users") == shop.place.landed("users")[:1]
    expect(shop.place, 23, 12)


def test_another_run_reads_what_was_complete_again(runs: OpenRuns) -> None:
    shop = runs(read="full_refresh", write="overwrite")
    shop.place.offer(two(23, 12))
    shop.run()
    assert shop.run().materialized == ["users", "orders"]
    assert len(shop.place.landed("users")) == 2


@pytest.mark.everyday("options0")
@pytest.mark.parametrize("options", [Options(breaks_at="orders"), Options(takes=1)])
def test_a_step_that_breaks_midway_leaves_the_load_announced_and_the_next_run_ends_it(
    options: Options, runs: OpenRuns
) -> None:
    shop = runs(max_bytes=1 << 30)
    shop.place.offer(two(23, 12))
    run = shop.run(options)
    assert not run.succeeded
    assert "users" in run.materialized
    assert shop.place.positions() == {}
    assert len(shop.place.store.announced_loads("shop")) == 1
    healed = shop.run()
    assert healed.succeeded, healed.failures
    assert shop.place.positions() == {"users": 23, "orders": 12}
    assert shop.place.store.announced_loads("shop") == []
    expect(shop.place, 23, 12)


def test_a_connection_that_another_run_holds_is_waited_for(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5))

    def waits() -> bool:
        logs = [shop.instance.all_logs(run.run_id) for run in shop.instance.get_runs()]
        return any("waits up to 20 s" in str(entry) for log in logs for entry in log)

    def hold(is_held: threading.Event) -> None:
        with acquire_lease(shop.place.store, "shop", "other", 30.0):
            is_held.set()
            until(waits, "a run that waits")

    is_held = threading.Event()
    holder = threading.Thread(target=hold, args=(is_held,))
    holder.start()
    assert is_held.wait(120)
    run = shop.run()
    holder.join()
    assert run.succeeded, run.failures
    expect(shop.place, 5, 5)


def test_streams_that_share_a_state_are_refused_apart_or_synced_as_a_whole(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(23, 12, state="global"))
    assert shop.run().succeeded
    shop.place.offer(two(30, 20, state="global"))
    refused = shop.run(Options(retry_policy=RETRY), only=["users"])
    assert refused.attempts == 1
    assert any("orders, users share one state" in words for words in refused.descriptions)
    whole = shop.run(Options(connector={"shared_state": "whole"}), only=["users"])
    assert whole.succeeded, whole.failures
    assert sorted(whole.materialized) == ["orders", "users"]
    expect(shop.place, 30, 20)


def test_the_checks_of_a_stream_ride_on_its_event(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer({"streams": {"users": {"records": 5}, "orders": {"records": 0}}, "miscount": 1})
    run = shop.run(Options(checks=StreamChecks()))
    assert run.materialized == ["users", "orders"]
    assert run.checks == {
        "users": {"counts": False, "rejects": True},
        "orders": {"counts": False, "rejects": True},
    }
    shop.place.offer({"streams": {"users": {"records": 9}, "orders": {"records": 0}}})
    assert all(shop.run(Options(checks=StreamChecks()), only=["users"]).checks["users"].values())
