"""Assets of one kind in the place of another: what is built of pushes, and what of syncs."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from dagster_airbyte_proto import (
    ConfigError,
    build_connection_jobs,
    build_connector_assets,
    build_push_assets,
    build_push_tables,
    build_schema_drift_checks,
    build_schema_drift_sensor,
    build_table_sensor,
)
from tests.dagster_defs.support.saved import connection

_PUSH = connection(push={"users": {"from": "lake.raw.users", "key": ["id"]}})


@pytest.mark.parametrize("build", [build_table_sensor, build_push_tables])
def test_what_needs_a_push_refuses_a_sync(build: Callable[[dg.AssetsDefinition], object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its streams are synced\nPass the assets of build_push_assets"):
        build(build_connector_assets(connection(streams={"users": {}}), home=tmp_path))


@pytest.mark.parametrize("build", [build_schema_drift_sensor, build_schema_drift_checks])
def test_what_needs_a_sync_refuses_a_push(build: Callable[[dg.AssetsDefinition], object]) -> None:
    with pytest.raises(ConfigError, match="its streams are pushed\nPass the assets of build_connector_assets"):
        build(build_push_assets(_PUSH))
    with pytest.raises(ConfigError, match="it has a `push`\nUse build_push_assets"):
        build_connector_assets(_PUSH)


def test_jobs_of_a_connection_refuse_the_assets_of_another(tmp_path: Path) -> None:
    assets = build_connector_assets(connection(streams={"users": {}}), home=tmp_path)
    other = connection().model_copy(update={"name": "crm"})
    with pytest.raises(ConfigError, match="the assets of 'shop' are those of connection shop"):
        build_connection_jobs(other, assets=assets)
