"""Dagster's own storage and our state in one PostgreSQL database."""

from pathlib import Path

import dagster as dg
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from tests.dagster_defs.support.folder_shop import Options
from tests.dagster_defs.support.shop_runs import Runs
from tests.support.postgres import PostgresServer
from tests.sync.shop import processes_of
from tests.sync.test_sync import two


@pytest.mark.everyday("True")
@pytest.mark.postgres
@pytest.mark.parametrize("dagster_first", [True, False])
def test_both_keep_what_they_are_reported_in_one_database(
    dagster_first: bool, quick_folder: Path, postgres_server: PostgresServer
) -> None:
    url = postgres_server.new_store()
    if not dagster_first:
        SqlStore(url).connections()
    folder = quick_folder / "dagster"
    folder.mkdir()
    # Dagster's storage speaks psycopg2 only, which SQLAlchemy 2.1 no longer takes by default.
    storage = {"postgres": {"postgres_url": url.replace("postgresql:", "postgresql+psycopg2:")}}
    overrides = {"telemetry": {"enabled": False}, "storage": storage}
    with dg.DagsterInstance.local_temp(str(folder), overrides=overrides) as instance:
        shop = Runs(quick_folder, instance)
        for records in (7, 12):
            shop.place.offer(two(records, records))
            run = shop.run(Options(state_url=url))
            assert run.succeeded, run.failures
            assert shop.place.column("users") == list(range(records))
        assert shop.events_of("users") == 2
    assert {stored.state.stream.name for stored in SqlStore(url).states("shop") if stored.state.stream} == {
        "users",
        "orders",
    }
    assert processes_of(quick_folder) == []
