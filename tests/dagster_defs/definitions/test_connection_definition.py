"""Assets of one kind in the place of another: what is built of pushes, and what of syncs."""

from collections.abc import Callable
from functools import partial
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
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.saved import NO_CONNECTOR, connection

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


@pytest.mark.parametrize(
    ("of", "jobs"),
    [
        (connection(streams={"users": {}}), {"refresh_shop"}),
        (connection(streams={"users": {}}, to={"connector": NO_CONNECTOR}), {"refresh_shop", "retry_rejected_shop"}),
        (_PUSH, {"retry_rejected_shop"}),
    ],
)
def test_jobs_that_take_as_long_as_a_sync_are_in_the_pool_of_the_assets(
    of: Connection, jobs: set[str], tmp_path: Path
) -> None:
    def jobs_in(pool: str, assets: dg.AssetsDefinition | None) -> set[str]:
        made = build_connection_jobs(of, assets=assets)
        return {job.name for job in made if any(node.definition.pools == {pool} for node in job.nodes)}

    build: Callable[..., dg.AssetsDefinition] = partial(build_connector_assets, home=tmp_path)
    if of.push is not None:
        build = build_push_assets
    assert jobs_in("connector_shop", None) == jobs_in("connector_shop", build(of)) == jobs
    assert jobs_in("narrow", build(of, pool="narrow")) == jobs
