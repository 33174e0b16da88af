"""Sensors, ticked by hand with a real instance: what starts a sync, what is told of a source that has changed."""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.drift import build_schema_drift_checks
from dagster_airbyte_proto.dagster_defs.automation.sensors import (
    Probe,
    ProbeFunction,
    asset_materialized,
    build_schema_drift_sensor,
    build_state_staleness_sensor,
    build_sync_sensor,
    files_changed,
)
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslator, StreamTranslatorData
from dagster_airbyte_proto.errors import ConfigError
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.partition_runs import assets, offer, prepared
from tests.dagster_defs.support.shop_runs import Runs

USERS = {"streams": {"users": {"records": 3}, "orders": {"records": 2}}}


@dg.asset(key=["shop", "users"], partitions_def=dg.StaticPartitionsDefinition(["monday"]))
def users() -> None: ...


def tick(
    sensor: dg.SensorDefinition,
    instance: dg.DagsterInstance,
    cursor: str | None = None,
    using: Mapping[str, Any] | None = None,
) -> SensorExecutionData:
    """One evaluation, as the daemon has it."""
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, resources=using, definitions=dg.Definitions([users], sensors=[sensor])
    ) as context:
        return sensor.evaluate_tick(context)


def sensor_of(probe: ProbeFunction) -> dg.SensorDefinition:
    return build_sync_sensor("look", target=[users], probe=probe, minimum_interval_seconds=10)


def test_a_new_cursor_starts_one_run_with_what_the_probe_says(dagster_instance: dg.DagsterInstance) -> None:
    found: list[Probe | None] = [None]
    seen: list[str | None] = []

    def probe(context: dg.SensorEvaluationContext, cursor: str | None) -> Probe | None:
        assert context.instance is dagster_instance
        seen.append(cursor)
        return found[0]

    sensor = sensor_of(probe)
    assert sensor.minimum_interval_seconds == 10
    assert tick(sensor, dagster_instance).run_requests == []
    found[0] = Probe("7", "it moved", run_key="seven", partition_key="monday")
    first = tick(sensor, dagster_instance, None)
    [request] = first.run_requests or []
    assert (request.run_key, request.partition_key, first.cursor) == ("seven", "monday", "7")
    assert request.tags["airbyte_proto/reason"] == "it moved"
    assert tick(sensor, dagster_instance, first.cursor).run_requests == []
    assert seen == [None, None, "7"]


def test_a_file_that_appears_or_changes_starts_a_sync(dagster_instance: dg.DagsterInstance, tmp_path: Path) -> None:
    sensor = sensor_of(files_changed(tmp_path / "**" / "*.csv"))
    cursor = tick(sensor, dagster_instance).cursor
    assert cursor is None

    def starts() -> bool:
        nonlocal cursor
        found = tick(sensor, dagster_instance, cursor)
        cursor = found.cursor
        return bool(found.run_requests)

    deep = tmp_path / "eu"
    deep.mkdir()
    (deep / "users.csv").write_text("1")
    (tmp_path / "users.txt").write_text("1")
    assert starts() and not starts()
    (deep / "users.csv").write_text("12")
    assert starts() and not starts()
    (tmp_path / "orders.csv").write_text("1")
    assert starts() and not starts()
    Path(os.fsdecode(bytes(tmp_path) + b"/\xdcbersicht.csv")).write_text("1")
    assert starts() and not starts()
    (tmp_path / "orders.csv").unlink()
    assert not starts()


def test_a_file_counts_once_it_is_left_alone(dagster_instance: dg.DagsterInstance, tmp_path: Path) -> None:
    sensor = sensor_of(files_changed(tmp_path / "*.csv", quiet_seconds=60))
    file = tmp_path / "users.csv"
    file.write_text("1")
    assert tick(sensor, dagster_instance).run_requests == []
    long_ago = file.stat().st_mtime - 61
    os.utime(file, (long_ago, long_ago))
    assert tick(sensor, dagster_instance).run_requests


def test_the_materialization_of_another_asset_starts_a_sync(dagster_instance: dg.DagsterInstance) -> None:
    sensor = sensor_of(asset_materialized("lake/rates"))
    assert tick(sensor, dagster_instance).run_requests == []
    dagster_instance.report_runless_asset_event(dg.AssetMaterialization(["lake", "rates"]))
    first = tick(sensor, dagster_instance)
    assert first.run_requests
    assert tick(sensor, dagster_instance, first.cursor).run_requests == []
    dagster_instance.report_runless_asset_event(dg.AssetMaterialization(["lake", "rates"]))
    assert tick(sensor, dagster_instance, first.cursor).run_requests


class Source:
    """The shop, its catalog saved, and what it offers from then on."""

    def __init__(self, shop: Runs) -> None:
        self.place = shop.place
        self.instance = shop.instance
        self.using = resources(self.place.home, Options())
        self.saved = self.place.home / "catalogs" / "shop.json"
        self.offer(USERS)
        self.save()

    def offer(self, scenario: dict[str, Any]) -> None:
        self.place.offer(scenario)

    def save(self) -> None:
        assert main(["--home", str(self.place.home), "discover", str(self.place.connection_file), "--save"]) == 0

    @property
    def assets(self) -> dg.AssetsDefinition:
        return self.made()

    def made(self, **options: Any) -> dg.AssetsDefinition:
        return build_connector_assets(Connection.from_file(self.place.connection_file), home=self.place.home, **options)

    def tick(self, sensor: dg.SensorDefinition, cursor: str | None = None) -> SensorExecutionData:
        return tick(sensor, self.instance, cursor, {"connector": self.using["connector"]})


@pytest.fixture
def source(runs: OpenRuns) -> Source:
    return Source(runs())


def evaluations(found: SensorExecutionData) -> dict[str, dg.AssetCheckEvaluation]:
    events = [each for each in found.asset_events if isinstance(each, dg.AssetCheckEvaluation)]
    return {each.asset_key.path[-1]: each for each in events}


CHANGED = {
    "streams": {
        "users": {"records": 3, "values": {"shoe": 1}, "properties": {"shoe": {"type": "integer"}}},
        "carts": {"records": 1},
    }
}


def test_drift_is_reported_on_each_asset_that_it_concerns(source: Source) -> None:
    sensor = build_schema_drift_sensor(source.assets)
    first = source.tick(sensor)
    assert {name: each.passed for name, each in evaluations(first).items()} == {"users": True, "orders": True}
    assert evaluations(source.tick(sensor, first.cursor)) == {}
    source.offer(CHANGED)
    second = source.tick(sensor, first.cursor)
    output = {name: each.description for name, each in evaluations(second).items() if not each.passed}
    assert output == {"users": "users: column shoe is new (integer)", "orders": "orders: the stream is gone"}
    assert all(each.severity is dg.AssetCheckSeverity.WARN for each in evaluations(second).values())
    assert evaluations(source.tick(sensor, second.cursor)) == {}
    source.offer(USERS)
    third = source.tick(sensor, second.cursor)
    assert all(each.passed for each in evaluations(third).values())


def test_drift_can_be_looked_for_in_a_run(source: Source) -> None:
    checks = build_schema_drift_checks(source.assets)
    source.offer(CHANGED)
    defs = dg.Definitions(assets=[source.assets], asset_checks=[checks], resources=source.using)
    job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(checks))
    run = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).resolve_job_def("look")
    result = run.execute_in_process(instance=source.instance)
    found = {each.asset_key.path[-1]: each.passed for each in result.get_asset_check_evaluations()}
    assert found == {"users": False, "orders": False}


TENANTS = dg.DynamicPartitionsDefinition(name="tenants")
DRIFTED = {"streams": {"users": {"records": 1}, "carts": {"records": 1}}}


def test_of_partitions_a_connector_is_asked_in_the_newest(runs: OpenRuns) -> None:
    shop = runs()
    prepared(shop.place)
    using = {"connector": resources(shop.place.home, Options())["connector"]}
    sensor = build_schema_drift_sensor(assets(shop.place.folder, TENANTS))
    with pytest.raises(ConfigError, match="has templates of a partition, and there is no partition yet"):
        tick(sensor, shop.instance, using=using)
    shop.instance.add_dynamic_partitions("tenants", ["globex", "acme"])
    offer(shop.place, "acme", DRIFTED)  # asked in any other, the connector finds no scenario
    found = evaluations(tick(sensor, shop.instance, using=using))
    assert {name: each.passed for name, each in found.items()} == {"users": True, "orders": False}


def test_drift_of_a_time_window_is_looked_for_as_a_sync_of_it_would_be(runs: OpenRuns) -> None:
    shop = runs()
    prepared(shop.place, "{{ partition.start }}")
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
    offer(shop.place, "2026-01-04T00:00:00Z", DRIFTED)
    made = assets(shop.place.folder, days)
    checks = build_schema_drift_checks(made)
    using = resources(shop.place.home, Options())
    job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(checks))
    defs = dg.Definitions(assets=[made], asset_checks=[checks], jobs=[job], resources=using)
    result = defs.resolve_job_def("look").execute_in_process(instance=shop.instance)
    found = {each.asset_key.path[-1]: each.passed for each in result.get_asset_check_evaluations()}
    assert found == {"users": True, "orders": False}


def test_without_a_saved_catalog_there_is_nothing_to_compare_with(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.modes = {"users": {}}
    shop.place.offer(USERS)
    assets = build_connector_assets(Connection.from_file(shop.place.connection_file), home=shop.place.home)
    with pytest.raises(ConfigError, match="no catalog is saved"):
        tick(
            build_schema_drift_sensor(assets),
            shop.instance,
            using={"connector": resources(shop.place.home, Options())["connector"]},
        )


class Web(HTTPServer):
    """A web server that knows one code location, as Dagster's does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Web)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, asked["variables"]))
        kind = "WorkspaceLocationEntry" if asked["variables"]["name"] == "shop_code" else "RepositoryLocationNotFound"
        body = json.dumps({"data": {"reloadRepositoryLocation": {"__typename": kind}}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def located(source: Source, sensor: dg.SensorDefinition, name: str, cursor: str | None) -> SensorExecutionData:
    """One evaluation in the code location of that name."""
    context = dg.SensorEvaluationContext(
        instance_ref=None,
        instance=source.instance,
        last_tick_completion_time=None,
        last_run_key=None,
        cursor=cursor,
        log_key=None,
        repository_name=None,
        resources={"connector": source.using["connector"]},
        code_location_origin=GrpcServerCodeLocationOrigin(host="localhost", port=4000, location_name=name),
    )
    with context:
        return sensor.evaluate_tick(context)


def test_a_change_is_saved_and_the_code_location_loaded_again(source: Source, web: Web) -> None:
    sensor = build_schema_drift_sensor(source.assets, save_catalog=True, reload_url=web.url)
    first = located(source, sensor, "shop_code", None)
    assert web.asked == []
    source.offer(CHANGED)
    located(source, sensor, "shop_code", first.cursor)
    assert web.asked == [("/graphql", {"name": "shop_code"})]
    assert {key.path[-1] for key in source.assets.keys} == {"users", "carts"}
    with pytest.raises(ConfigError, match="RepositoryLocationNotFound"):
        located(source, sensor, "other_code", first.cursor)


def test_a_catalog_that_would_stop_the_code_location_is_not_saved(source: Source, web: Web) -> None:
    def evaluated(cursor: str | None) -> SensorExecutionData:
        sensor = build_schema_drift_sensor(source.assets, save_catalog=True, reload_url=web.url)
        return located(source, sensor, "shop_code", cursor)

    source.place.modes = {"users": {}, "orders": {}}
    source.offer(USERS)
    first = evaluated(None)
    source.offer(CHANGED)  # without orders, which the connection names
    second = evaluated(first.cursor)
    assert {name: each.passed for name, each in evaluations(second).items()} == {"users": False, "orders": False}
    assert "there is no stream 'orders'" in (second.cursor or "")
    assert web.asked == []
    assert {key.path[-1] for key in source.assets.keys} == {"users", "orders"}
    source.place.modes = {"users": {}}
    source.offer(CHANGED)
    evaluated(second.cursor)
    assert web.asked == [("/graphql", {"name": "shop_code"})]
    assert "shoe" in source.saved.read_text()


class OneKey(StreamTranslator):
    """Fails for carts, and gives all other streams one key."""

    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        if data.stream.id.name == "carts":
            raise KeyError("carts")
        return super().get_asset_spec(data).replace_attributes(key=["one"])


@pytest.mark.parametrize(
    ("offered", "found"),
    [
        ({"users": {"records": 1}, "carts": {"records": 1}}, "(stream carts): its translator raised KeyError: 'carts'"),
        ({"users": {"records": 1}, "more": {"records": 1}}, "its asset key one is that of stream users"),
    ],
)
def test_a_catalog_that_the_translator_makes_no_assets_of_is_not_saved(
    source: Source, offered: dict[str, Any], found: str
) -> None:
    source.offer({"streams": {"users": {"records": 1}}})
    source.save()
    before = source.saved.read_bytes()
    sensor = build_schema_drift_sensor(source.made(translator=OneKey()), save_catalog=True)
    source.offer({"streams": offered})
    assert found in json.loads(source.tick(sensor).cursor or "{}")["not saved"]
    assert source.saved.read_bytes() == before


def test_a_catalog_that_these_assets_are_not_made_from_is_not_saved(source: Source) -> None:
    other = source.saved.rename(source.place.home / "other.json")
    source.offer(CHANGED)
    ticked = source.tick(build_schema_drift_sensor(source.made(catalog=other), save_catalog=True))
    assert f"made from {other}" in json.loads(ticked.cursor or "{}")["not saved"]
    assert not source.saved.exists() and not evaluations(ticked)["orders"].passed


def test_a_saved_catalog_leaves_streams_their_keys(source: Source) -> None:
    source.offer({"streams": {"order items": {"records": 1}}})
    source.save()
    [key] = source.assets.keys
    source.offer({"streams": {"order_items": {"records": 1}, "order items": {"records": 1}}})
    source.tick(build_schema_drift_sensor(source.assets, save_catalog=True))
    [spec] = [each for each in source.assets.specs if each.key == key]
    assert "Stream `order items`" in (spec.description or "") and len(source.assets.keys) == 2
    source.save()
    assert key in {each.key for each in source.assets.specs if "`order items`" in (each.description or "")}


def test_a_state_that_stands_still_is_reported_once(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(USERS)
    output: list[dict[str, timedelta]] = []
    connection = Connection.from_file(shop.place.connection_file)
    using = {"connector": resources(shop.place.home, Options())["connector"]}

    def sensor(max_age: timedelta) -> dg.SensorDefinition:
        return build_state_staleness_sensor(
            connection, max_age=max_age, on_stale=lambda _, ages: output.append(dict(ages))
        )

    tick(sensor(timedelta(hours=1)), shop.instance, using=using)
    assert output == []
    first = tick(sensor(timedelta(0)), shop.instance, using=using)
    assert [set(ages) for ages in output] == [{"users", "orders"}]
    assert all(age > timedelta(0) for age in output[0].values())
    second = tick(sensor(timedelta(0)), shop.instance, first.cursor, using)
    assert len(output) == 1
    shop.place.sync_of({"streams": {"users": {"records": 9}}})
    tick(sensor(timedelta(0)), shop.instance, second.cursor, using)
    assert [set(ages) for ages in output[1:]] == [{"users"}]
