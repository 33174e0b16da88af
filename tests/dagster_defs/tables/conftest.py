"""An IO manager on the tests' Spark session."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.dagster_defs.tables.io_manager import (
    SparkTableIOManager,
)
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.dagster_defs.tables.io_manager_runs import Rows


@pytest.fixture
def io(spark: SparkSession, spark_settings: SparkSettings) -> SparkTableIOManager:
    """Through a resource of ours, on the session that the tests have already."""
    resource = SparkSessionResource(warehouse=spark_settings.warehouse, spark_config=dict(spark_settings.config))
    return SparkTableIOManager(spark=resource)


@pytest.fixture
def place() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    points.arm(None)


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """All rows of a table, sorted."""

    def read(table: str) -> list[Any]:
        spark.catalog.refreshTable(table)
        return sorted(tuple(row) for row in spark.table(table).collect())

    return read
