"""Changes by others, and a catalog that goes away, between a writer's look at a table of Iceberg and its commit."""

from collections.abc import Callable
from itertools import count

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.tables.iceberg.jvm import JavaTable
from dagster_airbyte_proto.tables.iceberg.log import History
from dagster_airbyte_proto.tables.spark.session import query
from tests.conformance.table_rows import before_commit


def compacted_before_commit(spark: SparkSession, target: TableTarget, *, as_a_whole: bool = False) -> None:
    """Compacts the table once, directly before the next commit: where it has two small files, or as a whole."""
    option = "'rewrite-all', 'true'" if as_a_whole else "'min-input-files', '2'"
    call = f"call lake.system.rewrite_data_files(table => '{target.name}', options => map({option}))"
    before_commit(lambda: None if query(spark, call).rows else pytest.fail("nothing was compacted"))


def rolled_back_before_commit(spark: SparkSession, target: TableTarget, snapshot_id: str) -> None:
    """Rolls the table back to a snapshot once, directly before the next commit."""
    back = f"call lake.system.rollback_to_snapshot('{target.name}', {snapshot_id})"
    before_commit(lambda: query(spark, back) and None)


def refresh_until_gone(table: JavaTable, times: int) -> Callable[[], History]:
    """The refresh of a table whose catalog goes away after so many of them."""
    refresh, calls = table.refresh, count(1)

    def refreshed() -> History:
        if next(calls) > times:
            raise OSError("the catalog is gone")
        return refresh()

    return refreshed
