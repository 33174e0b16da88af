"""The settings of tables and of their Spark session. Importing them imports no Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.loads.storage import without_file_scheme
from dagster_airbyte_proto.project_folder import expanded
from dagster_airbyte_proto.tables.remote_sessions import REMOTE


class SparkSettings(NamedTuple):
    """The warehouse, the catalog and the Spark session of tables. `config` wins over every default here.

    `warehouse` is a path or a URI. The JVM's output goes to `jvm_log`; without it, to stderr (see jvm/output.py).
    Of a session that code of the user opens, `on_connect` says that it is one of Spark Connect.
    `cache` has the archive of Spark's classes for the next JVM, the wrapped JRE of the wheel if the machine has no
    Java, and the lock of those that download jars. `short_lived` is for a process that runs one command: its JVM
    starts with half the CPU, and computes slower once it is warm.
    """

    warehouse: str
    catalog: str = "lake"
    format: str = "iceberg"
    config: Mapping[str, str] = {}
    jvm_log: Path | None = None
    short_lived: bool = False
    cache: Path = Path("~/.cache/dagster_airbyte_proto")
    on_connect: bool = False

    @property
    def is_remote(self) -> bool:
        """True if the session is one of Spark Connect."""
        return self.on_connect or bool(self.config.get(REMOTE))

    @property
    def warehouse_location(self) -> str:
        """The warehouse in the form that table locations have: a local one as an absolute path, without a scheme."""
        location = without_file_scheme(self.warehouse)
        return location if "://" in location else str(expanded(location).absolute())

    @property
    def catalog_warehouse(self) -> str:
        """The warehouse of the Iceberg catalog: the one in `config`, if it names one."""
        return self.config.get(f"spark.sql.catalog.{self.catalog}.warehouse", self.warehouse_location)
