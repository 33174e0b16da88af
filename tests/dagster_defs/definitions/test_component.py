"""A connection as a component, taken by itself."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.storage.defs_state.base import set_defs_state_storage
from dagster._core.storage.defs_state.blob_storage_state_storage import UPathDefsStateStorage
from dagster.components.resolved.errors import ResolutionException
from dagster.components.utils.project_paths import get_local_state_path
from jsonschema import Draft202012Validator
from upath import UPath

from dagster_airbyte_proto import ConfigError, ConnectorComponent, ConnectorError, StreamTranslatorData
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.testing.fake_source import command
from tests.dagster_defs.support.folder_shop import Options, QueryableFolderIOManager, resources
from tests.dagster_defs.support.saved import NO_CONNECTOR, ORDERS, USERS, save

_SCENARIO = {"streams": {"users": {"records": 3}, "orders": {"records": 3, "namespace": "sales"}}}


def _component(attributes: Mapping[str, Any]) -> ConnectorComponent:
    return ConnectorComponent.from_attributes_dict(attributes=dict(attributes))


def _in_place(**attributes: Any) -> ConnectorComponent:
    return _component({"connection": {"name": "shop", "connector": NO_CONNECTOR}, **attributes})


def _step(component: ConnectorComponent, state: Path | None) -> dg.AssetsDefinition:
    definitions = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, state)
    [assets] = definitions.assets or ()
    assert isinstance(assets, dg.AssetsDefinition)
    return assets


def test_everything_of_a_step_can_be_written(tmp_path: Path) -> None:
    component = _in_place(
        partitions={"type": "daily", "start_date": "2026-01-01"},
        backfill_policy={"type": "multi_run", "max_partitions_per_run": 3},
        checks={"primary_key": True, "freshness": "P1D", "severity": "warn", "schema": True},
        retry_policy={"max_retries": 2, "delay": 30, "backoff": "exponential", "jitter": "full"},
        pool="narrow",
        op_tags={"team": "data"},
        spark_catalog="prod",
        connector_key="runner",
        io_manager_key="tables",
        translation={"group_name": "raw", "key": "{{ stream.namespace or 'public' }}/{{ table.name }}"},
    )

    assets = _step(component, save(tmp_path, USERS, ORDERS))

    assert {key.to_user_string() for key in assets.keys} == {"public/users", "sales/orders"}
    assert set(assets.group_names_by_key.values()) == {"raw"}
    assert assets.partitions_def == dg.DailyPartitionsDefinition("2026-01-01")
    assert assets.backfill_policy == dg.BackfillPolicy.multi_run(3)
    assert assets.op.retry_policy == dg.RetryPolicy(
        max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL
    )
    assert (assets.op.pool, assets.op.tags["team"]) == ("narrow", "data")
    assert assets.required_resource_keys >= {"runner", "tables"}
    assert component.checks == StreamChecks(primary_key=True, freshness=timedelta(days=1), severity="warn", schema=True)
    assert ("users", "primary_key") in {(key.asset_key.path[-1], key.name) for key in assets.check_keys}
    [table] = [spec.metadata["dagster/table_name"] for spec in assets.specs if spec.key.path[-1] == "users"]
    assert table == "prod.shop.users"


@pytest.mark.parametrize(
    ("written", "partitions"),
    [
        ({"type": "static", "partition_keys": ["eu", "us"]}, dg.StaticPartitionsDefinition(["eu", "us"])),
        ({"type": "dynamic", "name": "tenants"}, dg.DynamicPartitionsDefinition(name="tenants")),
        (
            {
                "type": "multi",
                "dimensions": {
                    "date": {"type": "daily", "start_date": "2026-01-01"},
                    "tenant": {"type": "dynamic", "name": "tenants"},
                },
            },
            dg.MultiPartitionsDefinition(
                {
                    "date": dg.DailyPartitionsDefinition("2026-01-01"),
                    "tenant": dg.DynamicPartitionsDefinition(name="tenants"),
                }
            ),
        ),
    ],
)
def test_partitions_of_every_kind_can_be_written(
    written: Mapping[str, Any], partitions: dg.PartitionsDefinition[Any]
) -> None:
    assert _in_place(partitions=written).partitions == partitions


def test_a_component_without_state_has_no_assets_yet_and_says_what_to_run(caplog: pytest.LogCaptureFixture) -> None:
    context = dg.ComponentTree.for_test().load_context

    assert not _in_place().build_defs_from_state(context, None).assets
    [output] = [each for each in caplog.messages if "refresh-defs-state" in each]
    assert output.startswith("Run `dg utils refresh-defs-state`. Until then, connection shop, which names no stream,")


def test_a_broken_state_is_reported_with_the_way_out(tmp_path: Path) -> None:
    """`discover --save` saves its catalog elsewhere."""
    state = save(tmp_path, USERS)
    state.write_text("{")
    with pytest.raises(ConfigError) as raised:
        _step(_in_place(), state)
    assert str(raised.value) == (
        f"making the assets of connection shop: the catalog {state} cannot be used: it is not JSON\n"
        "Run `dg utils refresh-defs-state`."
    )


def test_an_error_that_is_not_the_states_stays_as_it_is(tmp_path: Path) -> None:
    named = {"connection": {"name": "shop", "connector": NO_CONNECTOR, "streams": ["usres"]}}
    with pytest.raises(ConfigError, match="usres") as raised:
        _step(_component(named), save(tmp_path, USERS))
    assert "refresh-defs-state" not in str(raised.value)


@dg.asset(ins={"users": dg.AssetIn(["shop", "users"])})
def names(users: object) -> None: ...


def test_what_takes_a_stream_as_input_loads_before_the_first_refresh_if_the_stream_is_named(tmp_path: Path) -> None:
    component = _with_fake_source(tmp_path, ["/nowhere/connector"], streams=["users"])
    made = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, None)
    others = dg.Definitions(assets=[names], resources=resources(tmp_path / "home", Options()))

    dg.Definitions.validate_loadable(dg.Definitions.merge(made, others))


def test_a_stream_can_be_synced_before_the_first_refresh(tmp_path: Path, dagster_instance: dg.DagsterInstance) -> None:
    component = _with_fake_source(tmp_path, command(), streams=["users"])
    using = resources(tmp_path / "home", Options())

    result = dg.materialize([_step(component, None)], instance=dagster_instance, resources=using)

    assert [event.asset_key for event in result.get_asset_materialization_events()] == [dg.AssetKey(["shop", "users"])]


def test_more_of_each_table_is_reported_if_it_is_written(tmp_path: Path, dagster_instance: dg.DagsterInstance) -> None:
    written = {"include_metadata": ["column_metadata", "insights"], "sample_rows": 2}
    component = _with_fake_source(tmp_path, command(), ["users"], written)
    tables = QueryableFolderIOManager(warehouse=str(tmp_path / "home" / "warehouse"), log=str(tmp_path / "queries.txt"))
    using = {**resources(tmp_path / "home", Options()), "io_manager": tables}

    result = dg.materialize([_step(component, None)], instance=dagster_instance, resources=using)

    [event] = result.get_asset_materialization_events()
    output = event.materialization.metadata
    assert {"dagster/column_schema", "airbyte_proto/column/id/nulls", "airbyte_proto/sample"} <= output.keys()


def test_a_sensor_finds_new_partitions_if_it_is_written(tmp_path: Path) -> None:
    tenants = {"type": "dynamic", "name": "tenants"}
    (tmp_path / "acme.csv").touch()
    written = {"files": str(tmp_path / "*.csv"), "remove_gone": True, "minimum_interval_seconds": 30, "running": True}
    component = _in_place(partitions=tenants, partition_discovery=written)

    made = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, save(tmp_path, USERS))

    [sensor] = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert (sensor.name, sensor.minimum_interval_seconds) == ("shop_partition_discovery", 30)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    with dg.DagsterInstance.ephemeral() as instance:
        output = sensor(dg.build_sensor_context(instance=instance))
        assert isinstance(output, dg.SensorResult)
        assert output.dynamic_partitions_requests == [component.partitions.build_add_request(["acme.csv"])]  # type: ignore[union-attr]  # they are dynamic


@pytest.mark.parametrize("words", [{}, {"files": "*.csv", "streams_of": "tenants.yaml"}])
def test_new_partitions_are_looked_for_in_one_place(words: Mapping[str, Any]) -> None:
    with pytest.raises(ResolutionException, match=r"partition_discovery has [02] of files, namespaces_of"):
        _in_place(partitions={"type": "dynamic", "name": "tenants"}, partition_discovery=words)


def test_namespaces_of_another_connection_are_looked_for_with_the_connector_resource(tmp_path: Path) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text(yaml.safe_dump({"connector": NO_CONNECTOR}))
    tenants = {"type": "dynamic", "name": "tenants"}
    component = _in_place(partitions=tenants, partition_discovery={"namespaces_of": str(file)}, connector_key="runner")

    made = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, save(tmp_path, USERS))

    [sensor] = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert sensor.required_resource_keys == {"runner"}


def test_templates_of_a_partition_are_left_for_the_run() -> None:
    config = {"start": "{{ partition.start }}", "token": "${env:TOKEN}"}

    component = _component({"connection": {"name": "shop", "connector": NO_CONNECTOR, "config": config}})

    assert component.connected.written_config() == config


def test_state_is_kept_beside_the_project_and_not_asked_for_at_each_start() -> None:
    config = _in_place().defs_state_config

    assert (config.key, config.management_type.value) == ("ConnectorComponent[shop]", "LOCAL_FILESYSTEM")
    assert not config.refresh_if_dev


def test_a_fault_in_a_connection_is_reported_without_its_values() -> None:
    connector = {"protocol": "airbite", "launch": NO_CONNECTOR["launch"]}

    # Dagster's own error, with ours as its text.
    with pytest.raises(ResolutionException) as raised:
        _component({"connection": {"name": "shop", "connector": connector, "config": {"password": "hunter-22"}}})

    assert 'connector.protocol: must be one of airbyte, singer, rapidbyte, syncmaven; did you mean "airbyte"?' in str(
        raised.value
    )
    assert "hunter-22" not in str(raised.value)


def test_a_component_has_one_connection(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump({"connector": NO_CONNECTOR}))

    assert _component({"connection_file": str(file)}).connected.name == "shop"
    with pytest.raises(ConfigError, match="it has no connection"):
        _component({"pool": "narrow"})
    with pytest.raises(ConfigError, match="it has two connections"):
        _in_place(connection_file=str(file))


def test_a_subclass_may_change_an_asset(tmp_path: Path) -> None:
    class Ours(ConnectorComponent):
        def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
            return super().get_asset_spec(data).replace_attributes(owners=["team:ours"])

    component = Ours.from_attributes_dict(
        attributes={"connection": {"name": "shop", "connector": NO_CONNECTOR}, "translation": {"group_name": "raw"}}
    )

    [spec] = _step(component, save(tmp_path, USERS)).specs
    assert (spec.owners, spec.group_name) == (["team:ours"], "raw")


@pytest.mark.parametrize(
    ("connection", "problems"),
    [
        ({"connector": NO_CONNECTOR, "streams": ["users"], "load": {"max_bytes": "1 MiB"}}, 0),
        ({"connector": NO_CONNECTOR, "steams": ["users"]}, 1),
        ({"name": "shop"}, 1),
    ],
)
def test_editors_know_what_a_connection_may_hold(connection: Mapping[str, Any], problems: int) -> None:
    model = ConnectorComponent.get_model_cls()
    assert model is not None

    found = list(Draft202012Validator(model.model_json_schema()).iter_errors({"connection": connection}))

    assert len(found) == problems


def _with_fake_source(
    folder: Path,
    program: list[str],
    streams: Sequence[str] | None = None,
    written: Mapping[str, Any] = MappingProxyType({}),
    **config: Any,
) -> ConnectorComponent:
    connector = {"protocol": "airbyte", "launch": {"kind": "local", "command": program}}
    connection = {"name": "shop", "connector": connector, "config": {"scenario": _SCENARIO, **config}}
    if streams is not None:
        connection["streams"] = list(streams)
    return _component({"connection": connection, "home": str(folder / "home"), **written})


def test_a_refresh_that_fails_leaves_the_state_that_was_there(tmp_path: Path) -> None:
    state = tmp_path / "not" / "there" / "yet" / "state"
    component = _with_fake_source(tmp_path, command())
    component.write_state_to_path(state)
    before = state.read_bytes()

    dead = _with_fake_source(tmp_path, [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(ConnectorError, match="exited with code 3"):
        dead.write_state_to_path(state)
    misnamed = _with_fake_source(tmp_path, command(), streams=["users", "ordres", "userz"])
    with pytest.raises(ConfigError, match=r"2 faults\n.*no stream 'ordres'(.|\n)*no stream 'userz'"):
        misnamed.write_state_to_path(state)

    assert state.read_bytes() == before
    assert [spec.key.path[-1] for spec in _step(component, state).specs] == ["users", "orders"]
    assert list(state.parent.iterdir()) == [state]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("{{ data.nothing }}", r"\(stream users\): its translator raised"),
        ("raw/one", r"\(stream sales.orders\): its asset key raw/one is that of stream users"),
    ],
)
def test_a_refresh_saves_no_catalog_of_which_its_translation_makes_no_assets(
    tmp_path: Path, key: str, found: str
) -> None:
    state = tmp_path / "state"
    component = _with_fake_source(tmp_path, command(), written={"translation": {"key": key}})
    with pytest.raises(ConfigError, match=found):
        component.write_state_to_path(state)
    assert not state.exists()


@pytest.mark.parametrize("kept", ["LOCAL_FILESYSTEM", "VERSIONED_STATE_STORAGE"])
def test_a_refresh_leaves_streams_their_keys(
    tmp_path: Path, dagster_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    (tmp_path / "keeping").mkdir()
    (tmp_path / "keeping" / "__init__.py").touch()
    (tmp_path / "dg.toml").write_text('[project]\ndefs_module = "keeping"\n')
    monkeypatch.syspath_prepend(tmp_path)

    def refreshed(*names: str) -> list[dg.AssetSpec]:
        scenario = {"streams": {name: {"records": 1} for name in names}}
        written = {"defs_state": {"management_type": kept}}
        component = _with_fake_source(tmp_path, command(), written=written, scenario=scenario)
        version = asyncio.run(component.refresh_state(tmp_path))
        key, state = component.defs_state_config.key, tmp_path / "downloaded"
        if kept == "LOCAL_FILESYSTEM":
            state = get_local_state_path(key, tmp_path)
        else:
            storage.set_latest_version(key, version)
            storage.download_state_to_path(key, version, state)
        return list(_step(component, state).specs)

    storage: UPathDefsStateStorage = UPathDefsStateStorage(UPath(tmp_path / "versions"))
    storage.register_instance(dagster_instance)
    with set_defs_state_storage(storage):
        [before] = refreshed("order items")
        first, second = refreshed("order_items", "order items")
    assert (first.key, first.description) == (before.key, before.description)
    assert (first.key.path, second.key.path[1][:12]) == (["shop", "order_items"], "order_items_")


def test_a_refresh_replaces_a_state_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = tmp_path / "state"
    state.write_text('{"streams": 5}')
    component = _with_fake_source(tmp_path, command())
    component.write_state_to_path(state)
    assert len(list(_step(component, state).specs)) == 2
    assert "the state before could not be read" in caplog.text


def test_a_refresh_does_not_guess_a_partition(tmp_path: Path) -> None:
    component = _with_fake_source(tmp_path, command(), password="{{ partition.key }}")

    with pytest.raises(ConfigError, match=r"config\.password: .* needs a run of a partition"):
        component.write_state_to_path(tmp_path / "state")
