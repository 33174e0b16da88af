"""The format `parquet`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.formats import SparkParts, no_rewinder
from dagster_airbyte_proto.tables.parquet import ABILITIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.care import TableRewinder
    from dagster_airbyte_proto.tables.newest_snapshot import SnapshotReader
    from dagster_airbyte_proto.tables.parquet.care import ParquetCare
    from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings


class ParquetFormat:
    """Opens plain Parquet tables. No session is needed, but to query them."""

    abilities = ABILITIES

    def open_tables(
        self,
        settings: "SparkSettings",
        session: "Callable[[], SparkSession] | None" = None,  # noqa: ARG002 - as Format has it
        labels: Mapping[str, str] | None = None,  # noqa: ARG002 - as Format has it
    ) -> "ParquetTables":
        from dagster_airbyte_proto.tables.parquet.tables import ParquetTables

        return ParquetTables(Path(settings.warehouse_location), catalog=settings.catalog)

    def care(self, tables: "ParquetTables") -> "ParquetCare":
        from dagster_airbyte_proto.tables.parquet.care import ParquetCare

        return ParquetCare(tables.folders, self.abilities.format)

    def rewinder(self, tables: "ParquetTables") -> "TableRewinder":  # noqa: ARG002 - as Format has it
        raise no_rewinder()

    def spark_parts(self, settings: "SparkSettings") -> SparkParts:
        return SparkParts({"spark.sql.warehouse.dir": settings.warehouse_location})

    def snapshot_reader(self, settings: "SparkSettings") -> "SnapshotReader | None":
        from dagster_airbyte_proto.tables.parquet.logged_tables import LoggedTables

        return LoggedTables(Path(settings.warehouse_location))

    def sql_name(self, settings: "SparkSettings", name: TableName) -> str:
        return self.open_tables(settings).sql_name(name)

    def register(self, tables: "ParquetTables", session: "SparkSession") -> None:
        from dagster_airbyte_proto.tables.parquet.session_catalog import register

        register(session, tables)


FORMAT = ParquetFormat()
