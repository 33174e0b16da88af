"""Frames in Delta tables: the tests of the IO manager on Iceberg, and what is Delta's alone."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyarrow.fs import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.dagster_defs.tables.io_manager import TABLE_NAME, WRITE, SparkTableIOManager
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.delta.format import FORMAT
from dagster_airbyte_proto.tables.delta.history import Commit, read_commits
from dagster_airbyte_proto.tables.spark.frames import write_table
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.writer import FrameLoad
from tests.dagster_defs.tables import test_io_manager as frames
from tests.dagster_defs.tables import test_io_manager_partitions as partitions
from tests.dagster_defs.tables.io_manager_runs import FRAMES, Rows, output, returning, run

pytestmark = pytest.mark.spark


@pytest.fixture
def io(spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path) -> SparkTableIOManager:
    config = dict(spark_settings.config)
    return SparkTableIOManager(spark=SparkSessionResource(format="delta", warehouse=str(tmp_path), spark_config=config))


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """Of the table that has the name in Delta's catalog."""

    def read(table: str) -> list[Any]:
        return sorted(tuple(row) for row in spark.table(table.replace("lake.", "spark_catalog.")).collect())

    return read


def _commits(folder: Path) -> list[Commit]:
    return list(read_commits(LocalFileSystem(), str(folder / "_delta_log")))


def _asset(key: list[str], frame: DataFrame, **options: Any) -> dg.AssetsDefinition:
    return returning(key, lambda: frame, **options)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_makes_a_table_and_its_event_tells_of_it(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows, tmp_path: Path, kind: str
) -> None:
    result = run(io, returning([place, "people"], lambda: FRAMES[kind](spark)))
    assert rows(f"lake.{place}.people") == [(1, "a"), (2, "b")]
    metadata = output(result, [place, "people"])
    newest = _commits(tmp_path / place / "people")[-1]
    assert metadata[TABLE_NAME] == f"spark_catalog.{place}.people"
    assert metadata["dagster/uri"] == (tmp_path / place / "people").as_uri()
    assert (metadata["dagster/row_count"], metadata["airbyte_proto/snapshot_id"]) == (2, str(newest.version))
    assert newest.user_metadata == {
        "airbyte-proto.run-id": result.run_id,
        "airbyte-proto.asset": f"{place}/people",
        "airbyte-proto.load-id": f"{result.run_id}/{place}/people",
    }


def test_an_append_is_made_once_also_where_its_commit_is_not_found_again(
    spark: SparkSession, place: str, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = FORMAT.frames(FORMAT.open_tables(SparkSettings(str(tmp_path), catalog="spark_catalog"), lambda: spark))
    load = FrameLoad(TableName(place, "t"), "run/t", replaces=False)
    frame = spark.createDataFrame([(1,)], "id bigint")
    first = write_table(tables, frame, load)
    monkeypatch.setattr("dagster_airbyte_proto.tables.delta.frames.commit_of_load", lambda *_: None)
    again = write_table(tables, frame, load)
    assert (first.rows, first.table_rows, again.snapshot_id) == (1, 1, "")
    assert rows(f"lake.{place}.t") == [(1,)]


def test_a_replacement_that_is_tried_again_has_the_rows_of_the_second_try(
    spark: SparkSession, place: str, rows: Rows, tmp_path: Path
) -> None:
    tables = FORMAT.frames(FORMAT.open_tables(SparkSettings(str(tmp_path), catalog="spark_catalog"), lambda: spark))
    load = FrameLoad(TableName(place, "t"), "run/t", replaces=True)
    for number in (1, 2):
        written = write_table(tables, spark.createDataFrame([(number,)], "id bigint"), load)
    assert (written.rows, written.table_rows, rows(f"lake.{place}.t")) == (1, 1, [(2,)])


def test_every_type_that_spark_has_comes_back_or_is_refused_by_name(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    written = spark.sql(
        "select 1Y as tiny, 2S as small, 3 as i, 4L as l, 1.5F as f, 2.5D as d, 3.50BD as dec, true as b, 'x' as s,"
        " X'00ff' as bin, date'2026-01-02' as day, timestamp'2026-01-02 03:04:05Z' as at,"
        " timestamp_ntz'2026-01-02 03:04:05' as local, array(1, 2) as a, map('k', 1L) as m, named_struct('x', 1) as o"
    )
    run(io, returning([place, "t"], lambda: written))
    assert spark.table(f"spark_catalog.{place}.t").collect() == written.collect()
    for value, kind in (("array(parse_json('1'))", "array<variant>"), ("interval 1 day", "interval day")):
        odd = spark.sql(f"select {value} as odd")
        with pytest.raises(ConfigError, match=f"column odd has the type {kind}"):
            run(io, _asset([place, "odd"], odd))


def test_a_name_that_the_catalog_does_not_take_is_that_of_the_folder(
    spark: SparkSession, io: SparkTableIOManager, place: str, tmp_path: Path
) -> None:
    namespace = f"online-shop-{place}"
    for number in (1, 2):
        frame = spark.createDataFrame([(number,)], "id bigint")
        result = run(io, _asset([namespace, "t"], frame, metadata={WRITE: "append"}))
    table = f"delta.`{tmp_path}/{namespace}/t`"
    [event] = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    assert (metadata[TABLE_NAME].value, metadata["dagster/row_count"].value) == (table, 2)
    assert sorted(row["id"] for row in spark.table(table).collect()) == [1, 2]


def test_a_table_of_another_catalog_is_refused(spark: SparkSession, io: SparkTableIOManager, place: str) -> None:
    asset = returning([place, "t"], lambda: spark.range(1), metadata={TABLE_NAME: f"lake.{place}.t"})
    with pytest.raises(ConfigError, match="Delta tables are in spark_catalog alone"):
        run(io, asset)


def test_a_table_that_others_partitioned_is_written_as_it_is(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    partitions.test_a_partition_column_of_the_users_own_may_be_a_date(spark, io, place, rows)
    frame = spark.sql("select 9L as id, date'2026-01-03' as day")
    run(io, returning([place, "t"], lambda: frame, metadata={WRITE: "append"}))
    assert [row[0] for row in rows(f"lake.{place}.t")] == [0, 9]
    [described] = spark.sql(f"describe detail spark_catalog.{place}.t").collect()
    assert described["partitionColumns"] == ["day"]


test_an_input_comes_as_its_annotation_says = frames.test_an_input_comes_as_its_annotation_says
test_overwriting_takes_all_rows_out_and_appending_none = frames.test_overwriting_takes_all_rows_out_and_appending_none
test_an_append_that_is_tried_again_is_made_once = frames.test_an_append_that_is_tried_again_in_its_run_is_made_once
test_a_frame_with_other_columns_widens_the_table = frames.test_a_frame_with_other_columns_widens_the_table
test_a_column_of_nulls_alone_waits_for_its_type = frames.test_a_column_of_nulls_alone_waits_for_its_type
test_a_frame_that_no_table_can_take_is_refused = frames.test_a_frame_that_no_table_can_take_is_a_config_error
test_a_frame_whose_column_has_another_type_is_refused = frames.test_a_frame_whose_column_has_another_type_is_refused
test_a_table_is_read_as_it_stood_at_a_materialization = frames.test_a_table_is_read_as_it_stood_at_a_materialization
test_a_run_replaces_its_partition_alone = partitions.test_a_run_replaces_its_partition_alone_also_by_nothing
test_a_range_in_one_run_replaces_its_partitions = partitions.test_a_range_in_one_run_replaces_its_partitions
test_an_asset_may_depend_on_its_partition_before = partitions.test_an_asset_may_depend_on_its_partition_before
test_a_row_of_another_partition_is_refused = partitions.test_a_row_of_a_partition_that_is_not_the_runs_is_refused
test_a_partition_column_may_be_a_date = partitions.test_a_partition_column_of_the_users_own_may_be_a_date
