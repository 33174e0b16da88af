"""The format of folder tables."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.formats import SparkParts, no_rewinder
from dagster_airbyte_proto.testing.folder import ABILITIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.care import TableRewinder
    from dagster_airbyte_proto.tables.newest_snapshot import SnapshotReader
    from dagster_airbyte_proto.tables.parquet.care import ParquetCare
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings
    from dagster_airbyte_proto.testing.folder.tables import FolderTables


class FolderFormat:
    """Opens folder tables. Spark does not read them."""

    abilities = ABILITIES

    def open_tables(
        self,
        settings: "SparkSettings",
        session: "Callable[[], SparkSession] | None" = None,  # noqa: ARG002 - as Format has it
        labels: Mapping[str, str] | None = None,  # noqa: ARG002 - as Format has it
    ) -> "FolderTables":
        from dagster_airbyte_proto.testing.folder.tables import FolderTables

        return FolderTables(Path(settings.warehouse_location))

    def care(self, tables: "FolderTables") -> "ParquetCare":
        from dagster_airbyte_proto.tables.parquet.care import ParquetCare

        return ParquetCare(tables, self.abilities.format)

    def rewinder(self, tables: "FolderTables") -> "TableRewinder":  # noqa: ARG002 - as Format has it
        raise no_rewinder()

    def spark_parts(self, settings: "SparkSettings") -> SparkParts:  # noqa: ARG002 - as Format has it
        raise ConfigError(
            "querying the warehouse",
            "tables of the format folder are not read by Spark",
            remedy="Set catalog: {format: iceberg}, delta or parquet in the settings.",
        )

    def snapshot_reader(self, settings: "SparkSettings") -> "SnapshotReader | None":
        from dagster_airbyte_proto.tables.parquet.logged_tables import LoggedTables

        return LoggedTables(Path(settings.warehouse_location))

    def register(self, tables: "FolderTables", session: "SparkSession") -> None:
        """Does nothing: Spark has no part in it."""


FOLDER = FolderFormat()
