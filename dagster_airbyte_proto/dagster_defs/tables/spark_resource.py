"""The Spark session as a resource of Dagster's, with all that tables need already set."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.dagster_defs.home import home_folder

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import SparkSettings


class SparkSessionResource(dg.ConfigurableResource[Any]):
    """A session with one catalog. It is started when it is first asked for, once a process, and is never
    stopped before the process ends: steps that run in one process share it.

    Without a `warehouse` it is the one that the command line uses: a folder in its home.
    """

    catalog: str = Field(default="lake", description="What the catalog is called in SQL.")
    format: str = Field(
        default="iceberg",
        description="What its tables are: iceberg; or, for streams alone, delta or parquet.",
    )
    warehouse: str = Field(default="", description="Where the tables are kept: a folder or a URL.")
    jars: list[str] = Field(default=[], description="Jar files, for machines that do not reach Maven Central.")
    config: dict[str, str] = Field(default={}, description="Spark's settings; they win over every default.")
    jvm_log: str = Field(default="", description="A file for what the JVM prints; else it goes to the step's stderr.")
    short_lived: bool = Field(
        default=False,
        description="For steps that only commit what was staged: Spark starts in half the CPU, and computes slower.",
    )

    @property
    def spark_session(self) -> Any:
        """Raises ConfigError when there is no fit Java, or Spark does not start."""
        from dagster_airbyte_proto.tables.spark.session import start_session

        return start_session(self.settings)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - as Dagster calls it
        """Ends a start that a cancelled run still waits for."""
        # What was never imported here is starting nothing.
        if spark := sys.modules.get("dagster_airbyte_proto.tables.spark.session"):
            spark.abandon_start()

    @property
    def settings(self) -> "SparkSettings":
        """With every default filled."""
        # Definitions are loaded in processes that never start Spark, and its modules take most of a second to import.
        from dagster_airbyte_proto.tables.spark.session import SparkSettings

        return SparkSettings(
            warehouse=self.warehouse or str(home_folder() / "warehouse"),
            catalog=self.catalog,
            format=self.format,
            config={**({"spark.jars": ",".join(self.jars)} if self.jars else {}), **self.config},
            jvm_log=Path(self.jvm_log) if self.jvm_log else None,
            short_lived=self.short_lived,
        )
