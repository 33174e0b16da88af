"""Sorted and clustered tables: the files of each load, and the files that a compaction writes."""

import json
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import Ordering, PlannedStream, Shaping, SortField, WriteMode
from dagster_airbyte_proto.tables.iceberg.care.compaction import Compaction
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from tests.conformance.table_rows import SCHEMA, table_name
from tests.staging.conftest import landed, plan, record

pytestmark = pytest.mark.spark

_PROPERTIES = {"id": {"type": "integer"}, "x": {"type": ["null", "integer"]}, "y": {"type": "string"}}


def _planned(shaping: Shaping) -> PlannedStream:
    planned = plan(_PROPERTIES, name=table_name().name, write=WriteMode.APPEND_DEDUP, key=[("id",)])
    return msgspec.structs.replace(planned, shaping=shaping)


def _lines(ids: range, version: int) -> list[bytes]:
    rows = [(number, number * 37 % 16 or None, str((number + version) % 5)) for number in ids]
    return [record(json.dumps(dict(zip(_PROPERTIES, row, strict=True)))) for row in rows]


def _stored(spark: SparkSession, table: str) -> list[list[tuple[int | None, str, int]]]:
    """Returns the rows of each file in their order."""
    files = query(spark, f"select file_path from {table}.files where content = 0 order by file_path").rows
    read = [pq.ParquetFile(path).read(columns=["x", "y", "id"]).to_pylist() for [path] in files]
    return [[(row["x"], row["y"], row["id"]) for row in rows] for rows in read]


def test_rows_stay_sorted_by_loads_and_compactions(spark: SparkSession, iceberg: IcebergTables) -> None:
    planned = _planned(Shaping(sort_by=("x", "y desc")))
    table = f"lake.shop.{planned.table.name}"
    landed(iceberg, planned, [_lines(range(40), 0), [*_lines(range(20, 50), 1), *_lines(range(9), 2)]])
    assert Compaction(spark, table).compact().removed_delete_files
    [rows] = _stored(spark, table)
    assert len(rows) == 50
    xs = [x for x, _, _ in rows]
    assert xs == sorted(xs, key=lambda x: x or 0) and xs[0] is None
    assert all(one[1] >= other[1] for one, other in pairwise(rows) if one[0] == other[0])
    versions = {number: 2 if number < 9 else 1 if number >= 20 else 0 for number in range(50)}
    assert {number: y for _, y, number in rows} == {n: str((n + v) % 5) for n, v in versions.items()}


def test_rows_with_much_in_common_are_clustered_by_compactions(spark: SparkSession, iceberg: IcebergTables) -> None:
    planned = _planned(Shaping(cluster=("x", "id")))
    table = f"lake.shop.{planned.table.name}"
    landed(iceberg, planned, [_lines(range(64), 0), _lines(range(64), 1)])
    # The column is found by its id, although it was renamed.
    spark.sql(f"alter table {table} rename column x to ex")
    assert Compaction(spark, table).compact().rewritten_files
    order = [number for [number] in query(spark, f"select id from {table} order by _pos").rows]
    assert sorted(order) == list(range(64)) and order != sorted(order)
    # Neighbours in the file are near each other by both columns, which an order by one of them is not.
    assert _way(order) < _way(sorted(order, key=lambda number: (number * 37 % 16, number)))


def _way(numbers: Sequence[int]) -> int:
    """From row to row, by `x` and by `id`."""
    return sum(abs(one * 37 % 16 - other * 37 % 16) + abs(one - other) for one, other in pairwise(numbers))


def test_an_order_changes_with_what_the_stream_says_and_one_of_others_stays(
    spark: SparkSession, iceberg: IcebergTables
) -> None:
    name = table_name()

    def told(ordering: Ordering) -> tuple[str | None, str | None]:
        iceberg.prepare(TableSpec(name, SCHEMA, ordering=ordering))
        properties = dict(query(spark, f"show tblproperties lake.{name}").rows)
        return properties.get("sort-order"), properties.get("airbyte-proto.order")

    sorted_by = Ordering((SortField("NAME", is_descending=True), SortField("id")))
    by_name = "name DESC NULLS LAST, id ASC NULLS FIRST"
    assert told(sorted_by) == told(sorted_by) == (by_name, "sorted")
    assert told(Ordering(clustered=("id", "name"))) == (None, "clustered:1,2")
    assert told(Ordering()) == (None, None)
    spark.sql(f"alter table lake.{name} write ordered by id")
    assert told(Ordering()) == ("id ASC NULLS FIRST", None)
