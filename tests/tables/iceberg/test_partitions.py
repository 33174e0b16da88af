"""Partitioned Iceberg tables: each row is in the partition where Spark would put it, and an upsert finds it in any."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.model import MergeMode, PlannedStream, TableName, WriteMode
from dagster_airbyte_proto.tables.formats import care_of, rewinder_of
from dagster_airbyte_proto.tables.iceberg.care.compaction import Compaction
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.tables.partitioned_rows import land, parted, row

pytestmark = pytest.mark.spark


class _Lake:
    def __init__(self, spark: SparkSession, settings: SparkSettings) -> None:
        self.spark = spark
        self.tables = IcebergTables(spark, settings)

    def land(self, planned: PlannedStream, load_id: str, rows: Sequence[dict[str, Any]]) -> StagedRows:
        return land(self.tables, planned, load_id, rows)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.spark.sql(sql).collect()), key=repr)


@pytest.fixture
def lake(spark: SparkSession, spark_settings: SparkSettings) -> _Lake:
    return _Lake(spark, spark_settings)


def test_rows_lie_where_spark_would_have_put_them_and_are_found_there(lake: _Lake) -> None:
    fields = ["day(at)", "bucket(4, id)", "country", "truncate(10, n)", "month(on)"]
    planned, table = parted("parted", fields), "lake.shop.parted"
    rows = [row(number) for number in range(12)]
    part = lake.land(planned, "load-1", [*rows, *rows[:4]])
    assert part.duplicates == 4
    found = lake.query(f"select id, n from {table}")
    assert found == sorted(((row["id"], row["n"]) for row in rows), key=repr)
    theirs = (
        "lake.system.days(at), lake.system.bucket(4, id), country, lake.system.truncate(10, n), lake.system.months(on)"
    )
    ours = "_partition.at_day, _partition.id_bucket_4, _partition.country, _partition.n_trunc_10, _partition.on_month"
    assert lake.query(f"select id, {ours} from {table}") == lake.query(f"select id, {theirs} from {table}")
    country = lake.query(f"select count(*) from {table} where country = 'a/b=c' and at < timestamp'2000-01-01'")
    assert country == [(2,)]

    moved = [row(number, version=1) for number in range(0, 12, 2)]
    lake.land(planned, "load-2", moved)
    now = {row["id"]: row for row in [*rows, *moved]}
    expected = sorted(((row["id"], row["n"], row["country"]) for row in now.values()), key=repr)
    assert lake.query(f"select id, n, country from {table}") == expected
    assert lake.query(f"select id, {ours} from {table}") == lake.query(f"select id, {theirs} from {table}")

    Compaction(lake.spark, table).compact()
    assert lake.query(f"select id, n, country from {table}") == expected
    assert lake.query(f"select count(*) from {table}.delete_files") == [(0,)]


def test_every_kind_of_bucket_is_icebergs_own_and_replaced_as_a_whole(lake: _Lake) -> None:
    names = ["id", "at", "on", "country", "big"]
    planned = parted("buckets", [f"bucket(7, {name})" for name in names], WriteMode.OVERWRITE)
    lake.land(planned, "load-1", [row(number) for number in range(40)])
    lake.land(planned, "load-2", [row(number) for number in range(25)])
    ours = ", ".join(f"_partition.{name}_bucket_7" for name in names)
    theirs = ", ".join(f"lake.system.bucket(7, {name})" for name in names)
    found = lake.query(f"select id, {ours} from lake.shop.buckets")
    assert (len(found), found) == (25, lake.query(f"select id, {theirs} from lake.shop.buckets"))

    deduplicated = msgspec.structs.replace(planned, write=WriteMode.OVERWRITE_DEDUP)
    rows = [row(number, version) for number in range(9) for version in (1, 0)]
    assert lake.land(deduplicated, "load-3", rows).duplicates == 9
    found = lake.query("select id, n from lake.shop.buckets")
    assert found == sorted(((row["id"], row["n"]) for row in rows[::2]), key=repr)
    lake.tables.commit("load-4", StagedRows(planned.id, planned.table, WriteMode.OVERWRITE))
    assert lake.query("select count(*) from lake.shop.buckets") == [(0,)]


def test_a_table_with_another_partitioning_is_refused_with_both(lake: _Lake) -> None:
    lake.land(parted("other", ["hour(at)"], WriteMode.APPEND), "load-1", [row(1)])
    for wanted, words in (([], "by nothing"), (["day(at)"], r"by day\(at\)")):
        with pytest.raises(TableError, match=rf"partitioned by hour\(at\), and the stream {words}") as refused:
            lake.land(parted("other", wanted, WriteMode.APPEND), "load-2", [row(2)])
        assert "partition_by: [hour(at)]" in refused.value.remedy


def test_deletes_by_key_need_a_table_that_began_without_partitions(lake: _Lake) -> None:
    lake.spark.sql("create namespace if not exists lake.shop")
    columns = "id bigint, at timestamp, on date, country string, n bigint, big decimal(38,0)"
    lake.spark.sql(f"create table lake.shop.theirs ({columns}) using iceberg partitioned by (bucket(2, id))")
    planned = msgspec.structs.replace(parted("theirs", ["bucket(2, id)"]), merge=MergeMode.EQUALITY_DELETES)
    part = lake.land(planned, "load-1", [row(1)])
    assert [file.content for file in part.files] == [FileContent.ROWS, FileContent.EQUALITY_DELETES]
    with pytest.raises(TableError, match="was created with partitions from the start"):
        lake.land(planned, "load-2", [row(1, version=1)])
    assert planned.table == TableName("shop", "theirs")
    assert json.loads(msgspec.json.encode(part))["files"][0]["partition"] in ([0], [1])


@pytest.mark.everyday("partition_by0")
@pytest.mark.parametrize("partition_by", [["n"], ["on"], ["country"], ["day(at)", "country"]])
def test_a_partitioned_table_is_taken_back_and_undone_loads_stay_out(lake: _Lake, partition_by: list[str]) -> None:
    planned = parted(f"taken_back_{partition_by[0][:3]}", partition_by)
    rewinder, table = rewinder_of(lake.tables), f"lake.{planned.table}"
    lake.land(planned, "load-1", [row(number) for number in range(5)])
    first = rewinder.past(planned.table).current
    undone = lake.land(planned, "load-2", [row(number, version=1) for number in range(3, 8)])
    assert rewinder.rewind(planned.table, first, seen=rewinder.past(planned.table), version=1)
    assert lake.query(f"select id, n from {table}") == lake.query(f"select id, n from {table} version as of {first}")
    assert lake.tables.commit("load-2", undone).was_there
    assert lake.query(f"select count(*) from {table}") == [(5,)]
    assert care_of(lake.tables).facts(planned.table).partitioned_by == ", ".join(partition_by)
