"""A connection with a `push` as a component, by itself and in a real `dg` project."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from dagster_airbyte_proto import ConfigError, ConnectorComponent, PushTranslatorData
from tests.dagster_defs.definitions.test_dg_project import Project
from tests.dagster_defs.support.saved import NO_CONNECTOR

_CONTACTS = {"from": "lake.shop.people", "key": ["id"], "mode": "mirror"}
_BUYERS = {"sql": "SELECT 1 AS id", "key": ["id"]}


def _component(push: dict[str, Any], **attributes: Any) -> ConnectorComponent:
    connection = {"name": "crm", "connector": NO_CONNECTOR, "push": push}
    return ConnectorComponent.from_attributes_dict(attributes={"connection": connection, **attributes})


def _step(component: ConnectorComponent) -> dg.AssetsDefinition:
    made = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, None)
    [assets, *tables] = made.assets or ()
    assert all(isinstance(each, dg.AssetSpec) for each in tables)
    assert isinstance(assets, dg.AssetsDefinition)
    return assets


def test_the_streams_of_a_push_are_assets_without_a_refresh(tmp_path: Path) -> None:
    component = _component(
        {"contacts": _CONTACTS, "top buyers": _BUYERS},
        translation={"group_name": "out", "key": "pushed/{{ stream.name | replace(' ', '_') }}"},
        deps={"top buyers": ["shop/users", "purchases"]},
        retry_policy={"max_retries": 2},
        pool="narrow",
        op_tags={"team": "data"},
        connector_key="runner",
        io_manager_key="tables",
    )

    assets = _step(component)

    contacts, buyers = dg.AssetKey(["pushed", "contacts"]), dg.AssetKey(["pushed", "top_buyers"])
    assert assets.keys == {contacts, buyers}
    assert assets.asset_deps[contacts] == {dg.AssetKey(["shop", "people"])}
    assert assets.asset_deps[buyers] == {dg.AssetKey(["shop", "users"]), dg.AssetKey("purchases")}
    assert set(assets.group_names_by_key.values()) == {"out"}
    assert assets.op.retry_policy == dg.RetryPolicy(max_retries=2)
    assert (assets.op.pool, assets.op.tags["team"]) == ("narrow", "data")
    assert assets.required_resource_keys >= {"runner", "tables"}
    component.write_state_to_path(tmp_path / "state")
    assert (tmp_path / "state").read_text().strip() == "{}"


def test_a_subclass_may_change_the_asset_of_a_pushed_stream() -> None:
    class Ours(ConnectorComponent):
        def get_push_spec(self, data: PushTranslatorData) -> dg.AssetSpec:
            return super().get_push_spec(data).replace_attributes(owners=[f"team:{data.options.mode}"])

    connection = {"name": "crm", "connector": NO_CONNECTOR, "push": {"contacts": _CONTACTS}}
    [spec] = _step(Ours.from_attributes_dict(attributes={"connection": connection})).specs
    assert spec.owners == ["team:mirror"]


def test_a_table_sensor_watches_the_tables_of_the_streams() -> None:
    component = _component(
        {"contacts": _CONTACTS, "buyers": _BUYERS},
        table_sensor={"tables": {"buyers": ["lake.shop.users"]}, "minimum_interval_seconds": 30, "running": True},
    )
    made = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, None)
    [sensor] = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert (sensor.name, sensor.minimum_interval_seconds) == ("crm_tables", 30)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.required_resource_keys == {"io_manager"}
    with pytest.raises(ConfigError, match="its assets have partitions"):
        _component(
            {"contacts": _CONTACTS}, table_sensor={}, partitions={"type": "daily", "start_date": "2026-01-01"}
        ).build_defs_from_state(dg.ComponentTree.for_test().load_context, None)


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="table_sensor: not for streams that are synced"):
        ConnectorComponent.from_attributes_dict(
            attributes={"connection": {"name": "shop", "connector": NO_CONNECTOR}, "table_sensor": {}}
        )
    with pytest.raises(ConfigError, match="sample_rows: not for streams that are pushed"):
        _component({"contacts": _CONTACTS}, sample_rows=3)
    with pytest.raises(ConfigError, match="deps: not for streams that are synced"):
        ConnectorComponent.from_attributes_dict(
            attributes={"connection": {"name": "shop", "connector": NO_CONNECTOR}, "deps": {"users": ["a"]}}
        )
    with pytest.raises(ConfigError, match=r"`deps` names buyers\n.*Its streams are contacts"):
        _step(_component({"contacts": _CONTACTS}, deps={"buyers": ["a"]}))


def test_a_project_lists_its_pushes(tmp_path: Path) -> None:
    project = Project(tmp_path)
    folder = project.defs / "crm"
    folder.mkdir()
    written = {"connector": NO_CONNECTOR, "config": {"key": "${env:CRM}"}, "push": {"contacts": _CONTACTS}}
    (folder / "connection.yaml").write_text(yaml.safe_dump({"name": "crm", **written}))
    attributes = {"connection_file": "connection.yaml", "translation": {"owners": ["team:sales"]}}
    component = {"type": "dagster_airbyte_proto.ConnectorComponent", "attributes": attributes}
    (folder / "defs.yaml").write_text(yaml.safe_dump(component))
    (project.defs / "list").mkdir()
    (project.defs / "list" / "defs.yaml").write_text(_in_both_roles())

    assets = project.assets()

    assert "list/people" in assets
    contacts = assets["crm/contacts"]
    assert contacts["owners"] == [{"team": "sales"}]
    assert (contacts["group_name"], contacts["kinds"]) == ("crm", ["airbyte"])
    assert "rows of table `lake.shop.people`, in mode mirror with the key id" in contacts["description"]


def _in_both_roles() -> str:
    """A component whose push and transform have one connector: YAML names it once, by an anchor."""
    connector = {"protocol": "syncmaven", "launch": {"kind": "local", "command": ["/nowhere/list"]}}
    named = {"connector": connector, "config": {"key": "${env:CRM}"}}
    push = {"people": {"from": "lake.shop.people", "key": ["id"]}}
    connection = {"name": "list", **named, "push": push, "transforms": [{**named, "columns": {"member": "bigint"}}]}
    written = yaml.safe_dump(
        {"type": "dagster_airbyte_proto.ConnectorComponent", "attributes": {"connection": connection}}
    )
    assert "connector: *id001" in written or "connector: *id002" in written
    return written


def test_a_pushed_component_may_have_partitions() -> None:
    component = _component(
        {"contacts": _CONTACTS},
        partitions={"type": "daily", "start_date": "2026-01-01"},
        backfill_policy={"type": "multi_run", "max_partitions_per_run": 3},
        checks={"max_removed": 5, "freshness": "P1D"},
    )
    assets = _step(component)
    assert assets.partitions_def == dg.DailyPartitionsDefinition("2026-01-01")
    assert assets.backfill_policy == dg.BackfillPolicy.multi_run(3)
    assert {key.name for key in assets.check_keys} == {"counts", "rejects", "removals", "freshness"}
