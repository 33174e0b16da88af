"""The format `delta`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.delta import ABILITIES
from dagster_airbyte_proto.tables.delta.connect import ABILITIES as CONNECT_ABILITIES
from dagster_airbyte_proto.tables.formats import FILES_ANSWER, LOAD_ID, LoadQuery, SparkPackage, SparkParts
from dagster_airbyte_proto.tables.remote_sessions import needs_jvm
from dagster_airbyte_proto.tables.sql_names import text_literals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.delta.care import DeltaCare
    from dagster_airbyte_proto.tables.delta.connect.tables import RemoteDeltaTables
    from dagster_airbyte_proto.tables.delta.frames import DeltaFrames
    from dagster_airbyte_proto.tables.delta.rewind import DeltaRewinder
    from dagster_airbyte_proto.tables.delta.tables import DeltaTables
    from dagster_airbyte_proto.tables.newest_snapshot import SnapshotReader
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_DELTA_VERSION = "4.4.0"
_RUNTIME = SparkPackage("io.delta:delta-spark_", "{spark}_2.13:" + _DELTA_VERSION)
# Dependencies of delta-spark that Spark has already: 80 MB less to download.
_EXCLUDED = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8",
    "com.google.code.findbugs:jsr305",
    "javax.annotation:javax.annotation-api",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.parquet:parquet-hadoop",
    "org.roaringbitmap:RoaringBitmap",
    "org.slf4j:slf4j-api",
)


class DeltaFormat:
    """Opens Delta tables."""

    abilities = ABILITIES
    connect_abilities = CONNECT_ABILITIES

    def open_tables(
        self,
        settings: "SparkSettings",
        session: "Callable[[], SparkSession] | None" = None,
        labels: Mapping[str, str] | None = None,
    ) -> "DeltaTables | RemoteDeltaTables":
        if settings.is_remote:
            from dagster_airbyte_proto.tables.connect_client import connect
            from dagster_airbyte_proto.tables.delta.connect.tables import RemoteDeltaTables

            return RemoteDeltaTables(session or partial(connect, settings), settings, labels=dict(labels or {}))
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables
        from dagster_airbyte_proto.tables.spark.session import start_session

        return DeltaTables(session or start_session(settings), settings, labels=dict(labels or {}))

    def care(self, tables: "DeltaTables | RemoteDeltaTables") -> "DeltaCare":
        from dagster_airbyte_proto.tables.delta.care import DeltaCare
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables

        if not isinstance(tables, DeltaTables):
            raise needs_jvm("caring for Delta tables", "their compaction and expiry")
        return DeltaCare(tables)

    def rewinder(self, tables: "DeltaTables | RemoteDeltaTables") -> "DeltaRewinder":
        from dagster_airbyte_proto.tables.delta.rewind import DeltaRewinder
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables

        if not isinstance(tables, DeltaTables):
            raise needs_jvm("taking tables back", "their rewinds")
        return DeltaRewinder(tables)

    def frames(self, tables: "DeltaTables | RemoteDeltaTables") -> "DeltaFrames":
        from dagster_airbyte_proto.tables.delta.frames import DeltaFrames

        return DeltaFrames(tables)

    def spark_parts(self, settings: "SparkSettings") -> SparkParts:
        config = {
            "spark.sql.warehouse.dir": settings.warehouse_location,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # The number of tasks of the job that reads a table's log; the default is 50.
            "spark.databricks.delta.snapshotPartitions": "2",
        }
        return SparkParts(config, (_RUNTIME,), _EXCLUDED)

    def snapshot_reader(self, settings: "SparkSettings") -> "SnapshotReader | None":
        from dagster_airbyte_proto.tables.newest_snapshot import DeltaSnapshots

        return DeltaSnapshots(settings)

    def sql_name(self, settings: "SparkSettings", name: TableName) -> str:
        from dagster_airbyte_proto.tables.delta.warehouse import sql_name, table_location

        return sql_name(settings.catalog, name, table_location(settings.warehouse_location, name))

    def query_of_log(self, table: str, load_id: str) -> LoadQuery:
        return LoadQuery(
            f"DESCRIBE HISTORY {table}",
            f"a version whose userMetadata has {load_id} as {LOAD_ID}: it landed; none: it did not, unless the log no"
            " longer reaches back to it",
        )

    def query_of_files(self, table: str, paths: Sequence[str]) -> LoadQuery:
        names = text_literals([path.rpartition("/")[2] for path in paths])
        sql = f"SELECT count(*) FROM {table} WHERE _metadata.file_name IN ({names})"  # noqa: S608 - quoted
        return LoadQuery(sql, FILES_ANSWER)

    def register(self, tables: "DeltaTables | RemoteDeltaTables", session: "SparkSession") -> None:  # noqa: ARG002 - as Format has it
        tables.register_all()


FORMAT = DeltaFormat()
