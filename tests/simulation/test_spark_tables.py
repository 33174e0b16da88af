"""The same schedules over Iceberg and Delta tables, which others also compact and expire."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.simulation.schedule import schedule_of
from tests.simulation.simulation import run_schedule
from tests.simulation.tables import SimulatedDelta, SimulatedIceberg, SimulatedTables
from tests.simulation.world import Place

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3600)]

_SEEDS = {"iceberg": range(1_000_000, 1_000_100), "delta": range(1_000_000, 1_000_020)}
"""A schedule takes four seconds on Iceberg, and twenty on Delta."""


@pytest.fixture(params=["iceberg", "delta"])
def tables(request: pytest.FixtureRequest, spark: SparkSession, spark_settings: SparkSettings) -> SimulatedTables:
    if request.param == "iceberg":
        return SimulatedIceberg(spark, spark_settings)
    warehouse = spark_settings.warehouse.replace("ware house", "simulated delta")
    settings = spark_settings._replace(catalog="spark_catalog", format="delta", warehouse=warehouse)
    return SimulatedDelta(spark, settings)


def test_each_row_is_there_once_or_the_run_says_so(tables: SimulatedTables, quick_folder: Path) -> None:
    place = Place(quick_folder, tables=tables)
    broken = {
        seed: violation
        for seed in _SEEDS[tables.format]
        if (violation := run_schedule(schedule_of(seed), place).violation)
    }
    assert broken == {}
