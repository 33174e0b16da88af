"""A push from Dagster on real Iceberg tables: its checks, its partitions, and the table that remembers."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto import (
    ConnectorResource,
    SparkSessionResource,
    SparkTableIOManager,
    StreamChecks,
    build_connection_jobs,
    build_push_assets,
    build_push_tables,
)
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.push.pushed_table import PushedTable

pytestmark = pytest.mark.spark

_DELIVERED = dg.AssetKey(["_pushes", "crm__contacts"])
_DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-04")


@dg.asset(ins={"delivered": dg.AssetIn(_DELIVERED)}, io_manager_def=dg.mem_io_manager)
def known(delivered: DataFrame) -> list[tuple[int, str]]:
    return sorted((row["id"], row["_status"]) for row in delivered.collect())


_Resources = Callable[[PushedTable], dict[str, object]]


@pytest.fixture
def resources(spark: SparkSession, spark_settings: SparkSettings, monkeypatch: pytest.MonkeyPatch) -> _Resources:
    """The resources of definitions that push the table, on the Spark session of the tests."""
    monkeypatch.setattr(SparkSessionResource, "spark_session", property(lambda _: spark))
    io_manager = SparkTableIOManager(spark=SparkSessionResource(warehouse=spark_settings.warehouse))
    return lambda place: {"connector": ConnectorResource(home=str(place.home)), "io_manager": io_manager}


def _create(spark: SparkSession, table: str, columns: str, *, delivered: str) -> None:
    """Makes an empty table, of which nothing is delivered."""
    for name in (table, delivered):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.pushed")
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")


def test_a_push_on_iceberg(
    spark: SparkSession, tmp_path: Path, dagster_instance: dg.DagsterInstance, resources: _Resources
) -> None:
    columns = "id INT, score DOUBLE, day DATE"
    _create(spark, "lake.pushed.people", columns, delivered="lake._pushes.crm__contacts")
    spark.sql("INSERT INTO lake.pushed.people VALUES (1, 0.5D, date'2026-11-01'), (2, double('NaN'), date'2026-11-01')")
    spark.sql("INSERT INTO lake.pushed.people VALUES (3, 0.5, date'2026-11-02')")
    place = PushedTable(tmp_path, mode="mirror")
    path = place.connection_file()
    written = yaml.safe_load(path.read_text())
    written["push"]["contacts"] |= {"from": "lake.pushed.people", "partition": "day"}
    path.write_text(yaml.safe_dump(written))
    checks = StreamChecks(max_removed=0, freshness=timedelta(hours=1), severity="warn")
    pushes = build_push_assets(Connection.from_file(path), partitions_def=_DAYS, checks=checks, records_tables=True)
    job = dg.Definitions(
        assets=[pushes, *build_push_tables(pushes), known],
        jobs=[dg.define_asset_job("push", [pushes]), dg.define_asset_job("read", [known])],
        resources=resources(place),
    )

    def push(day: str) -> dg.ExecuteInProcessResult:
        return job.resolve_job_def("push").execute_in_process(instance=dagster_instance, partition_key=day)

    first = push("2026-11-01")
    assert {each.check_name: each.passed for each in first.get_asset_check_evaluations()} == {
        "counts": True,
        "rejects": False,
        "removals": True,
        "freshness": True,
    }
    push("2026-11-02")
    spark.sql("DELETE FROM lake.pushed.people WHERE day = date'2026-11-01'")
    events = push("2026-11-01").asset_materializations_for_node("crm")
    [again] = [event for event in events if event.asset_key != _DELIVERED]
    # The row that was rejected too: nobody knows whether the destination has an earlier one of its key.
    assert again.metadata["airbyte_proto/planned_removed"].value == 2
    [record] = dagster_instance.fetch_materializations(_DELIVERED, limit=1).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["dagster/table_name"].value == "lake._pushes.crm__contacts"
    read = job.resolve_job_def("read").execute_in_process(instance=dagster_instance)
    assert (3, "delivered") in read.output_for_node("known")
    assert place.held().keys() == {3}


def test_a_push_is_undone_by_the_form_of_a_rollback_as_it_stands(
    spark: SparkSession, tmp_path: Path, dagster_instance: dg.DagsterInstance, resources: _Resources
) -> None:
    columns = "id INT, name STRING"
    _create(spark, "lake.pushed.visitors", columns, delivered="lake._pushes.guests__contacts")
    place = PushedTable(tmp_path)
    place.options["name"] = "guests"
    place.push["from"] = "lake.pushed.visitors"
    connection = Connection.from_file(place.connection_file())
    pushes = build_push_assets(connection)
    defs = dg.Definitions(
        assets=[pushes],
        jobs=[dg.define_asset_job("push", [pushes]), *build_connection_jobs(connection, assets=pushes)],
        resources=resources(place),
    )

    def push() -> dict[str, object]:
        result = defs.resolve_job_def("push").execute_in_process(instance=dagster_instance)
        [event] = result.asset_materializations_for_node("guests")
        return {name.removeprefix("airbyte_proto/"): each.value for name, each in event.metadata.items()}

    for number in (1, 2):
        spark.sql(f"INSERT INTO lake.pushed.visitors VALUES ({number}, 'visitor {number}')")
        newest = spark.sql("SELECT snapshot_id FROM lake.pushed.visitors.refs WHERE name = 'main'").collect()
        pushed = push()
        assert (pushed["sent"], pushed["snapshot"]) == (1, str(newest[0][0]))
    assert push()["sent"] == 0

    rollback = defs.resolve_job_def("rollback_guests")
    assert rollback.execute_in_process(run_config=rollback.run_config, instance=dagster_instance).success
    assert push()["sent"] == 1
    assert [row["id"] for row in place.received()] == [1, 2, 2]
