"""Frames in partitioned tables: a run replaces its own partitions, and reads those that it wants."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.tables.io_manager import (
    PARTITION_COLUMN,
    SparkTableIOManager,
)
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from tests.dagster_defs.support.saved import connection
from tests.dagster_defs.tables.io_manager_runs import Rows, output, returning, run

pytestmark = pytest.mark.spark

DAYS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02", "2026-01-03"])


def _day(spark: SparkSession, place: str, counts: dict[str, int]) -> dg.AssetsDefinition:
    @dg.asset(key=[place, "t"], partitions_def=DAYS)
    def days(context: dg.AssetExecutionContext) -> DataFrame:
        ids = [(i,) for i in range(counts[context.partition_key])]
        return spark.createDataFrame(ids, "id bigint")

    return days


def test_a_run_replaces_its_partition_alone_also_by_nothing(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    first, second = "2026-01-01", "2026-01-02"
    for day in (first, second):
        run(io, _day(spark, place, {day: 2}), partition=day)
    result = run(io, _day(spark, place, {first: 1}), partition=first)
    assert rows(f"lake.{place}.t") == [(0, first), (0, second), (1, second)]
    metadata = output(result, [place, "t"])
    assert (metadata["dagster/row_count"], metadata["dagster/partition_row_count"]) == (3, 1)
    run(io, _day(spark, place, {second: 0}), partition=second)
    assert rows(f"lake.{place}.t") == [(0, first)]


def _range(place: str, frame: DataFrame) -> dg.AssetsDefinition:
    options: dict[str, Any] = {"partitions_def": DAYS, "backfill_policy": dg.BackfillPolicy.single_run()}
    return returning([place, "t"], lambda: frame, **options)


_RANGE = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-02"}


def test_a_range_in_one_run_replaces_its_partitions(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    for day in DAYS.get_partition_keys():
        run(io, _day(spark, place, {day: 1}), partition=day)
    frame = spark.createDataFrame([(7, "2026-01-02")], f"id bigint, {SLICE_COLUMN} string")
    result = run(io, _range(place, frame), tags=_RANGE)
    assert rows(f"lake.{place}.t") == [(0, "2026-01-03"), (7, "2026-01-02")]
    events = result.asset_materializations_for_node(f"{place}__t")
    assert sorted(event.partition or "" for event in events) == ["2026-01-01", "2026-01-02"]
    assert not any("dagster/partition_row_count" in event.metadata for event in events)


def test_an_asset_may_depend_on_its_partition_before(io: SparkTableIOManager, place: str, rows: Rows) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(
        key=[place, "t"],
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04"),
        ins={"before": dg.AssetIn([place, "t"], partition_mapping=before)},
    )
    def chain(before: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(before) + 1] * (len(before) + 1)})

    for day in ("2026-01-01", "2026-01-02"):
        run(io, chain, partition=day)
    assert rows(f"lake.{place}.t") == [(1, "2026-01-01"), (2, "2026-01-02"), (2, "2026-01-02")]


def test_a_range_without_the_column_is_refused(spark: SparkSession, io: SparkTableIOManager, place: str) -> None:
    with pytest.raises(ConfigError, match=f"2 partitions and has no column {SLICE_COLUMN}"):
        run(io, _range(place, spark.range(1)), tags=_RANGE)


def test_a_row_of_a_partition_that_is_not_the_runs_is_refused(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    run(io, _day(spark, place, {"2026-01-03": 1}), partition="2026-01-03")
    frame = spark.createDataFrame([(7, "2026-01-03")], f"id bigint, {SLICE_COLUMN} string")
    with pytest.raises(Exception, match="another partition"):
        run(io, _range(place, frame), tags=_RANGE)
    assert rows(f"lake.{place}.t") == [(0, "2026-01-03")]


def test_a_partition_column_of_the_users_own_may_be_a_date(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    counts = iter((2, 1))

    def frame() -> DataFrame:
        return spark.range(next(counts)).withColumn("day", f.lit("2026-01-02").cast("date"))

    asset = returning([place, "t"], frame, partitions_def=DAYS, metadata={PARTITION_COLUMN: "day"})
    for _ in range(2):
        run(io, asset, partition="2026-01-02")
    assert [row[0] for row in rows(f"lake.{place}.t")] == [0]


def test_a_streams_partitions_are_in_its_own_column_whatever_that_of_frames_is(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    rows = spark.createDataFrame([(1, "2026-01-03")], "id bigint, day string")
    run(io, returning([place, "t"], lambda: rows, partitions_def=DAYS), partition="2026-01-02")
    metadata = ConnectionDefinition(connection(), {}, None).metadata
    found: list[int] = []

    @dg.asset(key=[place, "reader"], partitions_def=DAYS, ins={"t": dg.AssetIn([place, "t"])})
    def reader(t: DataFrame) -> None:
        found.append(t.count())

    stream = dg.AssetSpec([place, "t"], metadata=metadata, partitions_def=DAYS)
    run(SparkTableIOManager(spark=io.spark, partition_column="day"), stream, reader, partition="2026-01-02")
    assert found == [1]


def test_without_partitions_the_whole_table_is_read_also_of_those_that_were_removed(
    spark: SparkSession, io: SparkTableIOManager, place: str, dagster_instance: dg.DagsterInstance
) -> None:
    tenants = dg.DynamicPartitionsDefinition(name="tenants")
    of_last = dg.AssetIn([place, "t"], partition_mapping=dg.LastPartitionMapping())
    found: list[int] = []
    rows = returning([place, "t"], lambda: spark.range(1), partitions_def=tenants)

    @dg.asset(key=[place, "reader"], ins={"rows": dg.AssetIn([place, "t"])})
    def reader(rows: DataFrame) -> None:
        found.append(rows.count())

    @dg.asset(key=[place, "last"], ins={"rows": of_last})
    def last(rows: DataFrame) -> None:
        found.append(rows.count())

    options: dict[str, Any] = {"resources": {"io_manager": io}, "instance": dagster_instance}
    dagster_instance.add_dynamic_partitions("tenants", ["acme", "globex"])
    for tenant in ("acme", "globex"):
        dg.materialize([rows], partition_key=tenant, **options)
    dagster_instance.delete_dynamic_partition("tenants", "acme")
    for each in (reader, last):
        dg.materialize([rows, each], selection=[each], **options)
    assert found == [2, 1]


def test_only_the_wanted_partitions_and_columns_are_read(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    days = _day(spark, place, dict.fromkeys(DAYS.get_partition_keys(), 1))
    for day in DAYS.get_partition_keys():
        run(io, days, partition=day)
    plans: list[str] = []

    @dg.asset(
        key=[place, "reader"],
        partitions_def=DAYS,
        ins={
            "days": dg.AssetIn(
                [place, "t"],
                partition_mapping=dg.StaticPartitionMapping({"2026-01-01": "2026-01-03", "2026-01-02": "2026-01-03"}),
                metadata={"columns": ["id"]},
            )
        },
    )
    def reader(days: DataFrame) -> None:
        assert (days.count(), days.columns) == (2, ["id"])
        plans.append(str(days._jdf.queryExecution().executedPlan().toString()))

    run(io, days, reader, selection=[reader], partition="2026-01-03")
    assert "_airbyte_partition IN ('2026-01-01', '2026-01-02')" in plans[0]
