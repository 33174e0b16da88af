"""Pushes of a table's own files that are killed, while others rewrite the table and expire its snapshots."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from dagster_airbyte_proto.points import PUSH_POINTS
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.crashes.spark_fork_server import SparkPushForkServer
from tests.sync.push.plan.spark_table import SparkPushedTable

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

_KILLED = -9
_ROWS = 20
# No row of such a push is folded into a table that remembers it.
_POINTS = [
    *((point, 1) for point in PUSH_POINTS if point != "push.folded"),
    *((point, number) for point in ("push.announced", "push.sent", "push.noted") for number in (2, 3)),
]


@pytest.fixture
def server(spark: SparkSession) -> Iterator[SparkPushForkServer]:
    opened = SparkPushForkServer(spark)
    yield opened
    opened.close()


@pytest.fixture
def table(quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings) -> SparkPushedTable:
    made = SparkPushedTable(quick_folder, spark, spark_settings, "USING iceberg")
    made.push_all()
    catalog = {"format": "iceberg", "name": spark_settings.catalog, "warehouse": spark_settings.warehouse}
    made.settings_file.write_text(yaml.safe_dump({"catalog": catalog, "lease_seconds": 1}))
    made.config["echo"] = "each"
    made.options["checkpoint_rows"] = 8
    return made


def _replace_rows(table: SparkPushedTable, first: int) -> None:
    rows = f"SELECT id, concat('person ', id), 0.5, false FROM range({first}, {first + _ROWS})"
    table.sql(f"INSERT OVERWRITE {table.name} {rows}")


def _care_as_others_do(table: SparkPushedTable) -> None:
    catalog, _, name = table.name.partition(".")
    table.refresh()
    table.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    later = "TIMESTAMP '2100-01-01 00:00:00'"
    table.sql(f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => {later}, retain_last => 1)")


def test_no_row_is_skipped_and_none_that_was_acknowledged_is_sent_again(
    server: SparkPushForkServer, table: SparkPushedTable
) -> None:
    for turn, (point, number) in enumerate(_POINTS):
        where, first = f"killed at {point}:{number}", _ROWS * turn
        _replace_rows(table, first)
        before = len(table.received())
        assert server.push(table, (point, number)) == _KILLED, where
        proved, at_death = {each for each, _ in table.acknowledged_ids()}, len(table.received())
        _care_as_others_do(table)
        assert server.push(table) == 0, where
        sent = [row["id"] for row in table.received()]
        assert set(sent[before:]) == {*range(first, first + _ROWS)}, where
        assert proved.isdisjoint(sent[at_death:]), where
        assert table.tagged() == [], where
