"""The metadata of each stream, and the progress of a sync."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.asset_streams import TablesOfAssets, plan_asset_streams
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import saved_catalog
from dagster_airbyte_proto.dagster_defs.step.stream_metadata import partition_metadata
from dagster_airbyte_proto.dagster_defs.tables.table_metadata import SyncedTable, insights
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from dagster_airbyte_proto.tables.spark.session import QueryResult
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.saved import connection, save
from tests.dagster_defs.support.shop_runs import key_of
from tests.sync.shop import SECRET
from tests.sync.test_sync import two

HASTY = Options(connector={"progress_seconds": 0.01})


def test_numbers_are_numbers_and_agree_with_table_and_store(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(10, 5))
    shop.run()
    shop.place.offer(two(23, 12))
    run = shop.run()
    result = {name.removeprefix("airbyte_proto/"): value for name, value in run.metadata("users").items()}
    numbers = {name: result[name] for name in ("emitted", "committed", "rejected", "changed", "deleted", "generation")}
    assert numbers == {"emitted": 13, "committed": 13, "rejected": 0, "changed": 0, "deleted": 0, "generation": 0}
    assert all(type(value) is int for value in numbers.values())
    assert result["bytes"] > 13 * 50
    assert isinstance(result["seconds"], float)
    assert (result["state_before"], result["state_after"]) == ({"next": 10}, {"next": 23})
    assert isinstance(result["snapshot_id"], str)
    assert sorted(result["load_ids"].split()) == sorted(
        each for each in shop.place.landed("users") if run.run_id in each
    )
    assert result["loads"] == len(result["load_ids"].split())
    assert (result["dagster/table_name"], result["dagster/row_count"]) == ("shop.users", 23)
    assert result["dagster/uri"] == (shop.place.home / "warehouse" / "shop" / "users").as_uri()
    assert result["connector"]


def test_a_rollback_to_the_version_of_a_materialization_undoes_its_sync(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(10, 5))
    first = shop.run()
    shop.place.load["max_bytes"] = 1  # a load at each state: a sync makes many versions
    shop.place.offer(two(230, 120, state_every=10))
    second = shop.run()
    versions = [run.metadata("users")["airbyte_proto/version_before"] for run in (first, second)]
    positions = shop.place.store.history("shop", limit=1000)
    assert versions == [0, max(change.version for change in positions if change.run_id == first.run_id)]
    assert max(change.version for change in positions) > versions[1] + 1
    with acquire_lease(shop.place.store, "shop", "a person", 30) as keeper:
        shop.place.store.rollback(keeper.lease, versions[1], who="a person")
    assert shop.place.positions() == {"users": 10, "orders": 5}


def test_a_long_state_is_cut(runs: OpenRuns) -> None:
    shop = runs()
    stream = {"stream_descriptor": {"name": "users"}, "stream_state": {"next": 0, "seen": "x" * 10_000}}
    long = {"type": "STATE", "state": {"type": "STREAM", "stream": stream}}
    shop.place.offer({"streams": {"users": {"records": 0}}, "state": "none", "lines": [json.dumps(long)]})
    run = shop.run(Options(streams=("users",)))
    assert 1000 < len(run.metadata("users")["airbyte_proto/state_after"]) < 5000


def test_a_state_that_web_browsers_would_round_is_text(runs: OpenRuns) -> None:
    shop = runs()

    def after(position: int) -> Any:
        stream = {"stream_descriptor": {"name": "users"}, "stream_state": {"next": 0, "seen": position}}
        message = {"type": "STATE", "state": {"type": "STREAM", "stream": stream}}
        shop.place.offer({"streams": {"users": {"records": 0}}, "state": "none", "lines": [json.dumps(message)]})
        return shop.run(Options(streams=("users",))).metadata("users")["airbyte_proto/state_after"]

    assert after(2**53 - 1)["seen"] == 2**53 - 1
    assert f'"seen": {2**53 + 1}' in after(2**53 + 1)


def test_the_largest_number_of_a_column_may_be_none(tmp_path: Path) -> None:
    scores = {"name": "users", "json_schema": {"properties": {"score": {"type": "number"}}}}
    offered = saved_catalog(connection(), catalog=save(tmp_path, scores))
    [stream] = plan_asset_streams(connection(), offered, TablesOfAssets())
    answer = QueryResult((), [[2, 2, 1.5, "NaN"]])

    found = insights(SyncedTable("shop.users", stream.planned, 1, lambda _: answer))

    assert found["airbyte_proto/column/score/smallest"] == 1.5
    assert found["airbyte_proto/column/score/largest"] == "NaN"


def test_the_connectors_lines_are_in_the_compute_logs_at_their_levels_and_warnings_in_the_run(runs: OpenRuns) -> None:
    shop = runs()
    levels = ("DEBUG", "INFO", "WARN", "ERROR")
    lines = [
        json.dumps({"type": "LOG", "log": {"level": each, "message": f"{each.lower()} {SECRET}"}}) for each in levels
    ]
    shop.place.offer(two(1, 1, lines=lines, stderr=["by the way"]))
    run = shop.run()
    heard = run.compute_log
    assert run.succeeded
    for level in levels:
        assert f"{level} {level.lower()} ***" in heard
    assert "STDERR by the way" in heard
    said = [message for message in run.messages if "***" in message]
    assert [message.split()[0] for message in said] == ["warn", "error"]
    assert SECRET not in run.everything + heard


def test_a_connector_that_never_stops_complaining_does_not_flood_the_run(runs: OpenRuns) -> None:
    shop = runs()
    line = json.dumps({"type": "LOG", "log": {"level": "WARN", "message": "and another thing"}})
    shop.place.offer(two(1, 1, lines=[line] * 500))
    run = shop.run()
    assert run.messages.count("and another thing") == 100
    assert any("compute logs have more lines like these" in message for message in run.messages)


def test_progress_is_reported_while_it_runs_as_engine_events(runs: OpenRuns) -> None:
    shop = runs(max_bytes=1 << 30)
    shop.place.load["max_seconds"] = 3600
    shop.place.offer(two(60_000, 60_000, state_every=10_000))
    run = shop.run(HASTY)
    assert run.succeeded, run.failures
    result = [event for event in run.engine_events if "rows read" in (event.message or "")]
    assert result
    numbers = {"airbyte_proto/rows", "airbyte_proto/bytes", "airbyte_proto/rows_per_second"}
    assert numbers <= set(result[0].engine_event_data.metadata)
    assert run.kinds("users").count("ASSET_MATERIALIZATION") == 1


def test_each_sync_puts_the_assets_downstream_out_of_date(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer({"streams": {"users": {"records": 3}}})
    catalog = shop.place.folder / "catalog.json"
    catalog.write_text(json.dumps({"type": "CATALOG", "catalog": {"streams": [catalog_stream("users", {})]}}))
    users = build_connector_assets(Connection.from_file(shop.place.connection_file), catalog=catalog)

    @dg.asset(deps=[key_of("users")])
    def names() -> None: ...

    made = resources(shop.place.home, Options())
    graph = dg.Definitions([users, names], resources=made).resolve_asset_graph()

    def status_after(*selection: dg.AssetKey) -> StaleStatus:
        assert dg.materialize([users, names], selection=selection, resources=made, instance=shop.instance).success
        resolver = CachingStaleStatusResolver(shop.instance, graph, LoadingContextForTest(shop.instance))
        return resolver.get_status(names.key)

    assert status_after(key_of("users"), names.key) is StaleStatus.FRESH
    shop.place.offer({"streams": {"users": {"records": 5}}})
    assert status_after(key_of("users")) is StaleStatus.STALE


def test_bytes_that_dagster_would_plot_as_no_integer_are_a_fraction() -> None:
    def shown(size: int) -> Any:
        report = StreamReport(status=SyncStatus.COMPLETE, table="lake.shop.users", bytes=size)
        return partition_metadata(report, None)["airbyte_proto/bytes"]

    assert [repr(shown(size)) for size in (2**31 - 1, 2**31)] == ["2147483647", "2147483648.0"]
