"""Enrichments of Spark DataFrames."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import enrich
from tests.sync.enrichment.test_row_enrichment import connection_of

pytestmark = pytest.mark.spark


def test_a_frame_is_enriched_by_a_process_for_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1, 41, numPartitions=3).selectExpr("id", "concat('n', id) AS name")
    made = enrich(frame, connection_of({}), options={"prefix": "a "}, schema="id bigint, city string", home=tmp_path)
    rows = sorted((row.id, row.city) for row in made.collect())
    expected = [number for number in range(1, 41) for _ in range((1, 2, 0)[(number - 1) % 3])]
    assert rows == [(number, f"a city {number}") for number in expected]
    assert made.schema.simpleString() == "struct<id:bigint,city:string>"


def test_without_a_schema_the_columns_stay(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1, 2).selectExpr("id", "'Rome' AS city")
    assert [row.asDict() for row in enrich(frame, connection_of({}), home=tmp_path).collect()] == [
        {"id": 1, "city": "city 1"}
    ]
