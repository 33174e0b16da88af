"""Pushes of all rows whose plan is the table's own files."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.sync.maintenance.care import clean
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.tables.formats import care_of
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.push.plan.spark_table import COLUMNS, SparkPushedTable
from tests.sync.push.pushed_table import Row

pytestmark = pytest.mark.spark

_KINDS = """
    id bigint, i int, x double, f float, n decimal(38, 9), d date, at timestamp, local timestamp_ntz, raw binary,
    ok boolean, name string, list array<int>, home struct<city: string, zip: array<struct<n: int, at: timestamp>>>,
    tags map<string, decimal(5, 2)>
"""
_VALUES = """
    SELECT id, cast(id AS int), id / 7, cast(id / 3 AS float),
      cast('12345678901234567890123456789.123456789' AS decimal(38, 9)), date'1582-10-01' + cast(id AS int),
      timestamp'1500-01-01 00:00:00.000001' + make_dt_interval(cast(id AS int)), timestamp_ntz'2026-11-27 01:02:03.5',
      cast('\u00e9' AS binary), id % 2 = 0, concat('per\u00f6son ', id), array(1, NULL, cast(id AS int)),
      named_struct('city', NULL, 'zip', array(named_struct('n', 1, 'at', timestamp'2026-01-01 00:00:00'))),
      map('k', cast(1.5 AS decimal(5, 2)))
    FROM range(20)
    UNION ALL SELECT 20, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""


def _table(folder: Path, spark: SparkSession, settings: SparkSettings, columns: str = COLUMNS) -> SparkPushedTable:
    table = SparkPushedTable(folder, spark, settings, "USING iceberg", columns)
    table.push_all()
    return table


def _fill(table: SparkPushedTable, first: int, last: int) -> None:
    rows = f"SELECT id, concat('person ', id), 0.5, false FROM range({first}, {last})"
    table.sql(f"INSERT INTO {table.name} {rows}")


def _delivery(table: SparkPushedTable) -> Delivery:
    with table.engine() as engine:
        return engine.store.deliveries(table.connection_name)[StreamId.of("contacts")]


def _by_id(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["id"]))


def test_the_values_are_those_of_a_plan_of_spark(
    quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    table = _table(quick_folder, spark, spark_settings, _KINDS)
    table.sql(f"INSERT INTO {table.name} {_VALUES}")
    assert table.contacts().acknowledged == 21
    assert _delivery(table).plan.columns
    assert table.tagged() == []
    own = _by_id(table.received())
    table.out.unlink()
    del table.push["from"]
    table.push["sql"] = f"SELECT * FROM {table.name}"
    assert table.contacts().acknowledged == 21
    assert not _delivery(table).plan.columns
    assert own == _by_id(table.received())


def test_fields_are_columns_by_other_names(
    quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    table = _table(quick_folder, spark, spark_settings)
    _fill(table, 0, 3)
    table.sql(f"ALTER TABLE {table.name} RENAME COLUMN name TO full_name")
    table.push["map"] = {"called": "full_name", "id": "id"}
    table.run(only_plans=True)
    assert table.tagged() == []
    assert table.contacts().acknowledged == 3
    assert _delivery(table).plan.columns
    assert _by_id(table.received()) == [{"called": f"person {each}", "id": each} for each in range(3)]


def test_a_nested_field_that_was_made_anew_has_none_of_its_old_values(
    quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    table = _table(quick_folder, spark, spark_settings, "id int, home struct<city: string, zip: string>")
    table.sql(f"INSERT INTO {table.name} SELECT 1, named_struct('city', 'Oslo', 'zip', '0150')")
    table.sql(f"ALTER TABLE {table.name} DROP COLUMN home.zip")
    table.sql(f"ALTER TABLE {table.name} ADD COLUMN home.zip string")
    table.sql(f"INSERT INTO {table.name} SELECT 2, named_struct('city', 'Oslo', 'zip', '0151')")
    assert table.contacts().acknowledged == 2
    assert {row["id"]: row["home"]["zip"] for row in table.received()} == {1: None, 2: "0151"}


@pytest.mark.nightly
@pytest.mark.parametrize("obstacle", ["deleted", "added", "widened", "constant", "sql", "partition", "key"])
def test_spark_plans_whatever_else_there_is(
    quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings, obstacle: str
) -> None:
    table = _table(quick_folder, spark, spark_settings, "id int, name string, score double, bad boolean")
    _fill(table, 0, 10)
    expected = set(range(10))
    asked: dict[str, Any] = {}
    match obstacle:
        case "deleted":
            by_position = "SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
            table.sql(f"ALTER TABLE {table.name} {by_position}")
            table.sql(f"DELETE FROM {table.name} WHERE id = 4")
            expected -= {4}
        case "added":
            table.sql(f"ALTER TABLE {table.name} ADD COLUMN more string")
        case "widened":
            table.sql(f"ALTER TABLE {table.name} ALTER COLUMN id TYPE bigint")
        case "constant":
            table.push["map"] = {"id": "id", "shop": {"value": "north"}}
        case "sql":
            table.push["map"] = {"id": {"sql": "id + 0"}}
        case "key":
            table.push["key"] = ["id"]
        case "partition":
            table.push["partition"] = "name"
            asked, expected = {"partition": Slice("person 7")}, {7}
    assert table.contacts(**asked).acknowledged == len(expected)
    assert not _delivery(table).plan.columns
    assert {row["id"] for row in table.received()} == expected
    assert table.tagged() == []


def test_a_plan_outlives_a_compaction_and_an_expiry(
    quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    table = _table(quick_folder, spark, spark_settings)
    for first in (0, 10, 20):
        _fill(table, first, first + 10)
    table.options["rate"] = {"rows_per_second": 10}
    stopped = table.run_until_sent(15)
    assert stopped.status == "cancelled"
    assert 0 < stopped.acknowledged < 30
    assert len(table.tagged()) == 1
    _fill(table, 100, 110)
    catalog, _, name = table.name.partition(".")
    people = TableName(*name.split("."))
    with table.engine() as engine:
        clean(engine.store, care_of(engine.tables), people, keep_seconds=-60, orphan_seconds=86400)
    assert len(table.tagged()) == 1
    table.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    later = "TIMESTAMP '2100-01-01 00:00:00'"
    table.sql(f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => {later}, retain_last => 1)")
    del table.options["rate"]
    # What was on its way at that moment may have arrived.
    rest = table.contacts(retries_unknown=True)
    assert (rest.status, rest.resumed) == ("complete", stopped.acknowledged), rest.error
    received = [row["id"] for row in table.received()]
    assert set(received) == set(range(30))
    assert len(received) <= 30 + stopped.unknown
    assert table.tagged() == []
