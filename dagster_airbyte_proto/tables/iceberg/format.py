"""The format `iceberg`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dagster_airbyte_proto.loads.object_stores.store import scheme_of
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.formats import FILES_ANSWER, LOAD_ID, LoadQuery, SparkPackage, SparkParts
from dagster_airbyte_proto.tables.iceberg import ABILITIES
from dagster_airbyte_proto.tables.iceberg.catalog_timeouts import catalog_timeouts
from dagster_airbyte_proto.tables.iceberg.connect import ABILITIES as CONNECT_ABILITIES
from dagster_airbyte_proto.tables.iceberg.connect.delegation import check_credentials
from dagster_airbyte_proto.tables.remote_sessions import needs_jvm
from dagster_airbyte_proto.tables.sql_names import qualified, text_literal, text_literals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.care import TableCare
    from dagster_airbyte_proto.tables.iceberg.care.rewind import IcebergRewinder
    from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables
    from dagster_airbyte_proto.tables.iceberg.frames import IcebergFrames
    from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
    from dagster_airbyte_proto.tables.newest_snapshot import SnapshotReader
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_VERSION = "1.12.0"
# The last version that was published for an older Spark.
_OLDER_VERSIONS = {"4.0": "1.11.0"}
_RUNTIME = SparkPackage(
    "org.apache.iceberg:iceberg-spark-runtime-",
    "{spark}_2.13:" + _VERSION,
    {spark: "{spark}_2.13:" + version for spark, version in _OLDER_VERSIONS.items()},
)
_S3_FILES = "org.apache.iceberg.aws.s3.S3FileIO"
_GCS_FILES = "org.apache.iceberg.gcp.gcs.GCSFileIO"
_ADLS_FILES = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
# Other schemes of these stores are left to Hadoop's file systems.
_FILE_IOS = {"s3": _S3_FILES, "gs": _GCS_FILES, "abfs": _ADLS_FILES, "abfss": _ADLS_FILES}
# The clients of the stores. Iceberg's runtime has the classes that call them; those named here are the newest tried.
_CLIENTS = {
    _S3_FILES: SparkPackage("org.apache.iceberg:iceberg-aws-bundle:", _VERSION, _OLDER_VERSIONS),
    _GCS_FILES: SparkPackage("org.apache.iceberg:iceberg-gcp-bundle:", "1.11.0"),
    _ADLS_FILES: SparkPackage("org.apache.iceberg:iceberg-azure-bundle:", "1.10.0"),
}


def iceberg_version(pyspark: str) -> str:
    """Returns the version of Iceberg that goes with a version of pyspark."""
    return _OLDER_VERSIONS.get(".".join(pyspark.split(".")[:2]), _VERSION)


class IcebergFormat:
    """Opens Iceberg tables."""

    abilities = ABILITIES
    connect_abilities = CONNECT_ABILITIES

    def open_tables(
        self,
        settings: "SparkSettings",
        session: "Callable[[], SparkSession] | None" = None,
        labels: Mapping[str, str] | None = None,
    ) -> "IcebergTables | RemoteIcebergTables":
        if settings.is_remote:
            from dagster_airbyte_proto.tables.connect_client import connect
            from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables

            return RemoteIcebergTables(session or partial(connect, settings), settings, labels=dict(labels or {}))
        from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
        from dagster_airbyte_proto.tables.spark.session import start_session

        return IcebergTables(session or start_session(settings), settings, labels=dict(labels or {}))

    def check_staging(self, settings: "SparkSettings") -> None:
        if settings.is_remote:
            check_credentials(settings.catalog, settings.config)

    def care(self, tables: "IcebergTables | RemoteIcebergTables") -> "TableCare":
        from dagster_airbyte_proto.tables.iceberg.care.iceberg_care import IcebergCare
        from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables

        if isinstance(tables, IcebergTables):
            return IcebergCare(tables)
        from dagster_airbyte_proto.tables.iceberg.connect.care import RemoteIcebergCare

        return RemoteIcebergCare(tables)

    def rewinder(self, tables: "IcebergTables | RemoteIcebergTables") -> "IcebergRewinder":
        if tables.abilities.is_remote:
            raise needs_jvm("taking tables back", "their rewinds")
        from dagster_airbyte_proto.tables.iceberg.care.rewind import IcebergRewinder

        return IcebergRewinder(tables.open_session(), tables.catalog)

    def frames(self, tables: "IcebergTables | RemoteIcebergTables") -> "IcebergFrames":
        from dagster_airbyte_proto.tables.iceberg.frames import IcebergFrames

        return IcebergFrames(tables)

    def spark_parts(self, settings: "SparkSettings") -> SparkParts:
        catalog = f"spark.sql.catalog.{settings.catalog}"
        config = {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
        }
        if not any(key in settings.config for key in (f"{catalog}.type", f"{catalog}.catalog-impl")):
            config[f"{catalog}.type"] = "hadoop"
        if settings.config.get(f"{catalog}.type") != "rest":
            # For a REST catalog the warehouse is a name on the server, not a location.
            config[f"{catalog}.warehouse"] = settings.warehouse_location
            if file_io := _FILE_IOS.get(scheme_of(settings.catalog_warehouse)):
                config[f"{catalog}.io-impl"] = file_io
        prefix = f"{catalog}."
        whole = {**config, **settings.config}
        named = {key.removeprefix(prefix): value for key, value in whole.items() if key.startswith(prefix)}
        config |= {f"{prefix}{name}": value for name, value in catalog_timeouts(named).items()}
        client = _CLIENTS.get(named.get("io-impl", ""))
        return SparkParts(config, (_RUNTIME, client) if client else (_RUNTIME,))

    def snapshot_reader(self, settings: "SparkSettings") -> "SnapshotReader | None":
        from dagster_airbyte_proto.tables.newest_snapshot import IcebergSnapshots

        # Where the catalog is one of a Connect server, only that server knows it.
        can_read = not settings.is_remote and IcebergSnapshots.can_read(settings)
        return IcebergSnapshots(settings) if can_read else None

    def sql_name(self, settings: "SparkSettings", name: TableName) -> str:
        return qualified(settings.catalog, name)

    def query_of_log(self, table: str, load_id: str) -> LoadQuery:
        found = text_literal(load_id)
        sql = f"SELECT committed_at, snapshot_id FROM {table}.snapshots WHERE summary['{LOAD_ID}'] = {found}"  # noqa: S608
        return LoadQuery(sql, "a row: it landed; none: it did not, unless its snapshot has expired")

    def query_of_files(self, table: str, paths: Sequence[str]) -> LoadQuery:
        sql = f"SELECT count(*) FROM {table} WHERE _file IN ({text_literals(paths)})"  # noqa: S608 - quoted
        return LoadQuery(sql, FILES_ANSWER)

    def register(self, tables: "IcebergTables | RemoteIcebergTables", session: "SparkSession") -> None:
        """Does nothing: the catalog knows its tables."""


FORMAT = IcebergFormat()
