"""Tables of syncs, as readers of Iceberg other than Spark see them."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from dagster_airbyte_proto.settings import CompactAfter
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance.test_rollback import Lake

pytestmark = pytest.mark.spark

TYPED = {
    "score": {"type": "number"},
    "since": {"type": "string", "format": "date"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "home": {"type": "object"},
}
VALUES = {"score": 0.5, "since": "2026-11-22", "tags": ["a", "é"], "home": {"city": "Ω"}}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark, spark_settings)


def by_id(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.to_pylist(), key=lambda row: (str(row.get("_airbyte_partition")), row["id"]))


def by_spark(lake: Lake, spark: SparkSession, stream: str) -> list[dict[str, object]]:
    return by_id(spark.table(f"lake.{lake.name}.{stream}").toArrow())


def static(lake: Lake, spark: SparkSession, stream: str) -> StaticTable:
    """The table as pyiceberg opens it, by the metadata file that is current."""
    logged = f"select file from lake.{lake.name}.{stream}.metadata_log_entries order by timestamp desc limit 1"
    [[file]] = query(spark, logged).rows
    return StaticTable.from_metadata(file)


def test_rows_are_the_same_for_pyiceberg_and_for_duckdb_on_top_of_it(lake: Lake, spark: SparkSession) -> None:
    modes = {"appended": "append", "replaced": "overwrite"}
    lake.sync({name: {"records": 12} for name in modes}, modes)
    evolved = {"records": 20, "properties": TYPED, "values": VALUES}
    lake.sync(dict.fromkeys(modes, evolved), modes)
    for day in ("2026-11-21", "2026-11-22", "2026-11-21"):
        lake.sync({"sliced": {"records": 7}}, {"sliced": "append"}, SyncRequest(slice=Slice(day)))

    for name, rows in {"appended": 20, "replaced": 20, "sliced": 14}.items():
        scan = static(lake, spark, name).scan()
        expected = by_spark(lake, spark, name)
        assert len(expected) == rows
        assert by_id(scan.to_arrow()) == expected
        assert by_id(scan.to_duckdb("rows").sql("select * from rows").to_arrow_table()) == expected
    assert expected[0]["_airbyte_partition"] == "2026-11-21"
    files = [task.file.file_path for task in static(lake, spark, "appended").scan().plan_files()]
    asked = f"select id, home from read_parquet({files}, union_by_name = true) order by id"
    assert duckdb.execute(asked).fetchall() == [(row["id"], row["home"]) for row in by_spark(lake, spark, "appended")]


def test_upserts_are_read_by_pyiceberg_and_deletes_by_key_once_they_are_compacted(
    lake: Lake, spark: SparkSession
) -> None:
    by_key = {"write": "append_dedup", "merge": "equality_deletes"}
    modes = {"users": "append_dedup", "by_key": by_key}
    lake.sync({name: {"records": 12, "keys": 4} for name in modes}, modes)
    assert [row["id"] for row in by_id(static(lake, spark, "users").scan().to_arrow())] == [8, 9, 10, 11]
    with pytest.raises(ValueError, match="equality deletes"):
        static(lake, spark, "by_key").scan().to_arrow()
    # A sync that leaves so many delete files compacts its table, unless that is turned off.
    lake.engine.settings = lake.engine.settings.model_copy(update={"compact_after": CompactAfter()})
    assert lake.sync({"by_key": {"records": 24, "keys": 4}}, {"by_key": by_key}).compacted
    expected = by_spark(lake, spark, "by_key")
    assert [row["id"] for row in expected] == [20, 21, 22, 23]
    assert by_id(static(lake, spark, "by_key").scan().to_arrow()) == expected


def test_copy_on_write_upserts_are_read_by_every_reader_at_once(lake: Lake, spark: SparkSession) -> None:
    by_copies = {"users": {"write": "append_dedup", "merge": "copy_on_write"}}
    for records in (12, 24):
        assert not lake.sync({"users": {"records": records, "keys": 4}}, by_copies).compacted
        expected = by_spark(lake, spark, "users")
        assert [row["id"] for row in expected] == list(range(records - 4, records))
        scan = static(lake, spark, "users").scan()
        assert by_id(scan.to_arrow()) == expected
        files = [task.file.file_path for task in scan.plan_files()]
        asked = f"select id from read_parquet({files}, union_by_name = true) order by id"
        assert duckdb.execute(asked).fetchall() == [(row["id"],) for row in expected]


def test_pyiceberg_reads_a_null_list_of_structs_as_an_empty_one(lake: Lake, spark: SparkSession) -> None:
    """The one difference that `docs/readers.md` names. DuckDB reads NULL from the same file, as Spark does."""
    line = {"type": "object", "properties": {"sku": {"type": "string"}}}
    lines = {"type": "array", "items": line}
    home = {"type": "object", "properties": {"lines": lines, "tags": TYPED["tags"]}}
    grid = {"type": "array", "items": lines}
    properties = {"lines": lines, "home": home, "tags": TYPED["tags"], "line": line, "grid": grid}
    values = {"lines": None, "home": {"lines": None}, "tags": None, "line": None, "grid": None}
    modes = {"carts": {"write": "append", "types": {"objects": "struct"}}}
    lake.sync({"carts": {"records": 1, "properties": properties, "values": values}}, modes)

    [expected] = by_spark(lake, spark, "carts")
    scan = static(lake, spark, "carts").scan()
    [found] = by_id(scan.to_arrow())
    assert {name: expected[name] for name in values} == {**values, "home": {"lines": None, "tags": None}}
    assert found == {**expected, "lines": [], "home": {"lines": [], "tags": None}}
    [file] = [task.file.file_path for task in scan.plan_files()]
    assert duckdb.execute(f"select lines, home.lines from read_parquet('{file}')").fetchall() == [(None, None)]
