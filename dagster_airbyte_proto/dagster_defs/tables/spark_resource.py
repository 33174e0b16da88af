"""The Dagster resource for a Spark session, configured for our tables."""

import threading
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from dagster_airbyte_proto.project_folder import home_folder
from dagster_airbyte_proto.tables.spark.settings import SparkSettings


class SparkSessionResource(LazyPySparkResource):
    """Dagster's Spark session, with the catalog that holds our tables. It starts at its first use, once per process,
    and runs until the process ends: steps in one process share it.

    The default `warehouse` is the one of the command line: a folder in its home.
    """

    catalog: str = Field(default="lake", description="The name of the catalog in SQL.")
    format: str = Field(
        default="iceberg",
        description="The table format: iceberg; or delta; or parquet, which takes no frames.",
    )
    warehouse: str = Field(default="", description="The folder or URL that holds the tables.")
    remote: str = Field(
        default="",
        description="The URL of a Spark Connect server, sc://host:15002, in the place of a session of this process.",
    )
    jars: list[str] = Field(default=[], description="Jar files, for machines that cannot reach Maven Central.")
    # Text only, which Dagster's own is not: of such values it fills in `EnvVar`.
    spark_config: dict[str, str] = Field(default={}, description="Spark settings; they override every default.")
    jvm_log: str = Field(
        default="",
        description="A file for the JVM's output. By default it goes to the step's stderr, except that of a start.",
    )
    short_lived: bool = Field(
        default=False,
        description="For steps that only commit staged files: Spark starts with half the CPU, but computes slower.",
    )
    _starting: set[int] = PrivateAttr(default_factory=set)

    @property
    def spark_session(self) -> Any:
        """The session, started if needed. Raises ConfigError if there is no suitable Java or Spark does not start."""
        from dagster_airbyte_proto.tables.spark.session import start_session

        thread = threading.get_ident()
        self._starting.add(thread)
        try:
            return start_session(self.settings)
        finally:
            self._starting.discard(thread)

    @property
    def spark_context(self) -> Any:
        return self.spark_session.sparkContext

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - as Dagster calls it
        """Cancels a Spark start of this resource that a cancelled run still waits for. That of another one goes on, as
        where two ticks of sensors run in one process. So does a session: it is everybody's."""
        if self._starting:
            from dagster_airbyte_proto.tables.spark.jvm.starts import kill_starting_jvm

            kill_starting_jvm(frozenset(self._starting))

    @property
    def settings(self) -> SparkSettings:
        """The settings, with every default filled in."""
        return SparkSettings(
            warehouse=self.warehouse or str(home_folder() / "warehouse"),
            catalog=self.catalog,
            format=self.format,
            config={
                **({"spark.remote": self.remote} if self.remote else {}),
                **({"spark.jars": ",".join(self.jars)} if self.jars else {}),
                **self.spark_config,
            },
            jvm_log=Path(self.jvm_log) if self.jvm_log else None,
            short_lived=self.short_lived,
        )
