"""A table of the test session whose rows a push sends to a fake destination."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.writer import TableWriter
from tests.sync.push.pushed_table import PushedTable, Row

COLUMNS = "id bigint, name string, score double, bad boolean"


class SparkPushedTable(PushedTable):
    """The table `people` of Iceberg or Delta in the test session, and the connection that pushes it to a file."""

    def __init__(
        self, folder: Path, spark: SparkSession, settings: SparkSettings, more: str = "", columns: str = COLUMNS
    ) -> None:
        super().__init__(folder, mode="mirror")
        self._spark = spark
        self.writer: TableWriter = (DeltaTables if settings.format == "delta" else IcebergTables)(spark, settings)
        self.name = f"{settings.catalog}.pushed_{secrets.token_hex(4)}.people"
        self.sql(f"CREATE NAMESPACE {self.name.rpartition('.')[0]}")
        self.sql(f"CREATE TABLE {self.name} ({columns}) {more}")
        self.push.update({"from": self.name, "changes": "snapshots"})
        self.options["name"] = f"crm_{secrets.token_hex(4)}"

    def push_all(self) -> None:
        """From now on each push sends all rows, by files of the table where it can."""
        del self.push["key"]
        self.push.update({"mode": "append", "changes": "all"})

    def engine(self) -> Engine:
        return Engine(self.settings, tables=self.writer, connector_options=ConnectorOptions(stop_grace_seconds=0.2))

    def sql(self, sql: str) -> Sequence[Row]:
        return [row.asDict() for row in self._spark.sql(sql).collect()]

    def rows(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.sql(f"SELECT * FROM {self.name}")}

    def refresh(self) -> None:
        """Has the test session see what other sessions did to the table: its catalog keeps tables for a while."""
        self.sql(f"REFRESH TABLE {self.name}")

    def tagged(self) -> list[str]:
        self.refresh()
        refs = self.sql(f"SELECT name, snapshot_id FROM {self.name}.refs WHERE type = 'TAG'")
        assert all(each["name"].startswith("airbyte-proto-") for each in refs)
        assert all(each["name"].endswith(f"-{self.options['name']}-contacts") for each in refs)
        return [str(each["snapshot_id"]) for each in refs]
