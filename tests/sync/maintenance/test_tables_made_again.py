"""Rollbacks to versions at which a table was another one, of the same name."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance.test_rollback import Lake
from tests.sync.shop import REFRESH

pytestmark = pytest.mark.spark


def test_a_delta_table_that_was_made_again_has_no_version_of_the_one_before(
    tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    """The numbers of its versions begin anew: it has one of that number, with other rows."""
    warehouse = tmp_path / "delta"
    settings = spark_settings._replace(catalog="spark_catalog", format="delta", warehouse=str(warehouse))
    lake = Lake(tmp_path, spark, settings)
    lake.users(10)
    version = lake.version
    lake.users(15)
    query(spark, f"drop table spark_catalog.{lake.name}.users")
    shutil.rmtree(warehouse / lake.name / "users", ignore_errors=True)
    lake.sync({"users": {"records": 20}}, {"users": "append"}, REFRESH)
    lake.users(40)
    with pytest.raises(ConfigError, match="is gone: it was dropped, renamed or made again") as refused:
        lake.roll_back(version)
    assert "a table without a key has them twice" in refused.value.remedy
    assert (lake.ids("users"), lake.position()) == (list(range(40)), 40)
