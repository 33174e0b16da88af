"""The container settings of a deployment, in runs of any job and outside of runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from dagster_airbyte_proto import Connection, ConnectorComponent
from dagster_airbyte_proto.dagster_defs.automation.discovery import streams_offered
from dagster_airbyte_proto.dagster_defs.automation.drift import build_schema_drift_checks
from dagster_airbyte_proto.dagster_defs.automation.operations import build_connection_jobs
from dagster_airbyte_proto.dagster_defs.automation.sensors import build_schema_drift_sensor
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.deployment import deployment_outside_run
from dagster_airbyte_proto.launchers.docker.deployment import ImageRegistry
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.dagster_defs.support import proxied_source
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.support.containers.images import Image, python_image

_PROXY = "HTTPS_PROXY=http://proxy:3128"
_LAUNCHER = {"module": "dagster_docker", "class": "DockerRunLauncher"}


@pytest.fixture
def source() -> Iterator[Image]:
    with python_image({"/source.py": Path(proxied_source.__file__)}, ["-S", "/source.py"]) as image:
        yield image


@pytest.fixture
def instance_folder(tmp_path: Path) -> Path:
    """That of a deployment whose runs are containers that reach the world by a proxy."""
    written = {"run_launcher": {**_LAUNCHER, "config": {"env_vars": [_PROXY], "networks": ["none"]}}}
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(yaml.safe_dump({**written, "telemetry": {"enabled": False}}))
    return folder


def connection_to(source: Image, folder: Path) -> Connection:
    connector = {"protocol": "airbyte", "launch": {"kind": "docker", "image": source.name, "network": "none"}}
    (folder / "shop.yaml").write_text(yaml.safe_dump({"connector": connector}))
    return Connection.from_file(folder / "shop.yaml")


@pytest.mark.docker
def test_what_a_component_asks_is_asked_as_its_deployment_says(
    tmp_path: Path, instance_folder: Path, source: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = ConnectorComponent(connection=connection_to(source, tmp_path), home=tmp_path / "home")
    for home, offered in (("", "direct"), (str(instance_folder), "proxied")):
        monkeypatch.setenv("DAGSTER_HOME", home)
        component.write_state_to_path(tmp_path / "state.json")
        assert f'"{offered}"' in (tmp_path / "state.json").read_text()


@pytest.mark.docker
def test_what_sensors_checks_and_jobs_ask_is_too(tmp_path: Path, instance_folder: Path, source: Image) -> None:
    connection = connection_to(source, tmp_path)
    (tmp_path / "catalog.json").write_text(json.dumps(proxied_source.catalog("proxied")))
    assets = build_connector_assets(connection, catalog=tmp_path / "catalog.json")
    checks = build_schema_drift_checks(assets)
    defs = dg.Definitions(
        assets=[assets],
        asset_checks=[checks],
        jobs=[dg.define_asset_job("look", dg.AssetSelection.checks(checks)), *build_connection_jobs(connection)],
        resources=resources(tmp_path / "home", Options()),
    )
    with (
        dg.DagsterInstance.from_config(str(instance_folder)) as instance,
        dg.build_sensor_context(instance, resources=dict(defs.resources or {})) as context,
    ):
        assert list(streams_offered(connection)(context)) == ["proxied"]
        ticked = build_schema_drift_sensor(assets).evaluate_tick(context)
        looked, refreshed = (
            defs.resolve_job_def(name).execute_in_process(instance=instance) for name in ("look", "refresh_shop")
        )
    assert ticked.cursor == json.dumps({"shop/proxied": [], "": []}), "the source offers what was saved"
    assert [each.passed for each in looked.get_asset_check_evaluations()] == [True]
    assert refreshed.success
    assert FolderTables(tmp_path / "home" / "warehouse").rows(TableName("shop", "proxied")).num_rows == 1


def test_of_a_code_location_its_server_is_reported_in_the_environment(
    instance_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = {"url": "images.test", "username": "us", "password": {"env": "IMAGES_PASSWORD"}}
    of_location: dict[str, Any] = {"env_vars": ["NO_PROXY=db"], "docker": {"registry": registry, "networks": ["db"]}}
    monkeypatch.setenv("DAGSTER_HOME", str(instance_folder))
    monkeypatch.setenv("DAGSTER_CONTAINER_CONTEXT", json.dumps(of_location))
    monkeypatch.setenv("IMAGES_PASSWORD", "hunter22")
    found = deployment_outside_run()
    assert found.registry == ImageRegistry("images.test", "us", "hunter22")
    assert found.connector_environment() == {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "db"}
