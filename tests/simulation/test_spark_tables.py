"""The same schedules over Iceberg and Delta tables, which others also compact and expire."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing.faults import CallFault
from tests.simulation.schedule import Action, Fault, Schedule, Step, schedule_of
from tests.simulation.simulation import run_schedule
from tests.simulation.tables import SimulatedDelta, SimulatedIceberg, SimulatedTables
from tests.simulation.world import Place

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3600)]

_SEEDS = {"iceberg": range(1_000_000, 1_000_100), "delta": range(1_000_000, 1_000_020)}
"""A schedule takes four seconds on Iceberg, and twenty on Delta."""
_UPSERTING = [seed for seed in range(2_000_000, 2_000_100) if "append_dedup" in schedule_of(seed).writes][:25]
_CALLS = (("prepare", 1), ("commit", 1), ("commit", 2), ("find_load", 1))


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


@pytest.mark.parametrize("merge", ["equality_deletes", "copy_on_write"])
def test_the_same_holds_for_the_ways_to_merge_that_are_a_choice(
    merge: str, spark: SparkSession, spark_settings: SparkSettings, quick_folder: Path
) -> None:
    place = Place(quick_folder, tables=SimulatedIceberg(spark, spark_settings, merge))
    broken = {seed: violation for seed in _UPSERTING if (violation := run_schedule(schedule_of(seed), place).violation)}
    assert broken == {}


@pytest.mark.parametrize("merge", ["positions", "equality_deletes", "copy_on_write"])
def test_each_fault_of_each_call_of_a_table_is_survived_in_each_way_to_merge(
    merge: str, spark: SparkSession, spark_settings: SparkSettings, quick_folder: Path
) -> None:
    place = Place(quick_folder, tables=SimulatedIceberg(spark, spark_settings, merge))
    broken = {}
    for kind in CallFault:
        for call, number in _CALLS:
            violation, fired, _ = run_schedule(_faulty_after_a_death(Fault(call, number, kind)), place)
            assert (call, kind) in fired, (call, number, kind)
            if violation:
                broken[call, number, kind] = violation
    assert broken == {}


def _faulty_after_a_death(fault: Fault) -> Schedule:
    """The sync with the fault finds a load that has landed and is still announced, and so looks for it in the table.
    The loads after it have rows of keys that the table has."""
    an_hour = Step(Action.CLOCK, minutes=60)  # Leases of the dead run out.
    steps = (
        Step(Action.SYNC, records=(4,)),
        Step(Action.SYNC, records=(4,), faults=(Fault("table.committed", 1, CallFault.DEATH_BEFORE),)),
        an_hour,
        Step(Action.SYNC, records=(4,), faults=(fault,)),
        an_hour,
        Step(Action.MAINTAIN),
        Step(Action.SYNC, records=(2,)),
    )
    return Schedule(("append_dedup",), "stream", steps)
