"""The recipe of docs/readers.md: Spark follows a table that syncs fill, and has each row once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.formats import care_of
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance.test_rollback import Lake
from tests.test_docs import snippets

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


class Follower:
    def __init__(self, lake: Lake, spark: SparkSession, folder: Path) -> None:
        [recipe] = [each.values[0] for each in snippets("python") if "readStream" in each.values[0].text]
        made: dict[str, Any] = {}
        exec(compile(recipe.text, recipe.page, "exec"), made)
        self._follow, self._spark = made["follow"], spark
        self._table = f"{lake.tables.catalog}.{lake.name}.users"
        self._target, self._checkpoint = f"{self._table}_followed", str(folder / "checkpoint")

    def ids(self) -> list[int]:
        self._follow(self._spark, self._table, self._target, self._checkpoint)
        return [row.id for row in self._spark.table(self._target).select("id").orderBy("id").collect()]


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark, spark_settings)


def test_each_row_comes_once_whatever_is_compacted(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    follower = Follower(lake, spark, tmp_path)
    lake.users(15)
    assert follower.ids() == list(range(15))
    lake.users(30)
    care_of(lake.tables).compact(TableName(lake.name, "users"))
    lake.users(35)
    assert follower.ids() == list(range(35))
    assert follower.ids() == list(range(35))


def test_a_table_whose_rows_are_replaced_is_refused(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    follower = Follower(lake, spark, tmp_path)
    lake.users(15, "append_dedup")
    lake.users(30, "append_dedup")
    assert follower.ids() == list(range(30))  # The keys were all new.
    lake.sync({"users": {"records": 34, "keys": 4}}, {"users": "append_dedup"})
    with pytest.raises(StreamingQueryException, match="snapshot"):
        follower.ids()
