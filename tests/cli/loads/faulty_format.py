"""A table format for settings of a test: folder tables whose calls fail as planned."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from dagster_airbyte_proto.testing.folder.format import FolderFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.spark.settings import SparkSettings
    from dagster_airbyte_proto.testing.folder.tables import FolderTables


class FaultyFolderFormat(FolderFormat):
    """Opens folder tables. `planned` are the faults of those that are opened next."""

    planned: Mapping[tuple[str, int | str], CallFault] = {}

    def open_tables(
        self,
        settings: "SparkSettings",
        session: "Callable[[], SparkSession] | None" = None,
        labels: Mapping[str, str] | None = None,
    ) -> "FolderTables":
        return with_faults(super().open_tables(settings, session, labels), CallFaults(self.planned))


FAULTY = FaultyFolderFormat()
