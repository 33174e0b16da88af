"""The forms of keys in tables that go back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance.test_rollback import Lake
from tests.sync.shop import EVERYTHING, REFRESH

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark, spark_settings)


TEXT, UNION = "string", ["string", "integer"]


def sync(lake: Lake, kind: Any, days: Sequence[str], wanted: SyncRequest = EVERYTHING) -> StreamReport:
    properties = {"key": {"type": kind}, "updated_at": {"type": "string"}}
    rows = [{"key": "k1", "updated_at": day} for day in days]
    stream = {"rows": rows, "properties": properties, "primary_key": [["key"]], "cursor": ["updated_at"]}
    return lake.attempt({"users": stream}, {"users": "append_dedup"}, wanted).streams["users"]


def keys(lake: Lake, spark: SparkSession) -> list[str]:
    return [row[0] for row in query(spark, f"select key from lake.{lake.name}.users").rows]


def test_the_form_of_a_key_goes_back_with_the_table(lake: Lake, spark: SparkSession) -> None:
    assert sync(lake, TEXT, ["2024-01-01"]).status is SyncStatus.COMPLETE
    first = lake.version
    assert sync(lake, UNION, ["2024-01-01", "2024-02-01"], REFRESH).status is SyncStatus.COMPLETE
    second, days = lake.version, ["2024-01-01", "2024-02-01", "2024-03-01"]
    there = {first: (TEXT, UNION, "k1"), second: (UNION, TEXT, '"k1"')}
    for version in (first, second, first):
        form, other, key = there[version]
        lake.roll_back(version)
        assert "column key is" in str(sync(lake, other, days).error)
        assert keys(lake, spark) == [key]
        assert sync(lake, form, days).status is SyncStatus.COMPLETE
        assert keys(lake, spark) == [key]


@pytest.mark.nightly
def test_a_table_that_becomes_empty_takes_a_key_of_either_form_and_remembers_the_former_ones(
    lake: Lake, spark: SparkSession
) -> None:
    days = ["2024-01-01", "2024-02-01"]
    sync(lake, TEXT, days[:1])
    first = lake.version
    lake.roll_back(0)
    assert keys(lake, spark) == []
    assert sync(lake, UNION, days).status is SyncStatus.COMPLETE
    assert keys(lake, spark) == ['"k1"']
    lake.roll_back(first)
    assert "column key is" in str(sync(lake, UNION, days).error)
    assert sync(lake, TEXT, days).status is SyncStatus.COMPLETE
    assert keys(lake, spark) == ["k1"]
    lake.roll_back(0)
    assert sync(lake, TEXT, days).status is SyncStatus.COMPLETE
    assert "column key is" in str(sync(lake, UNION, [*days, "2024-03-01"]).error)
