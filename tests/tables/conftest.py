import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import SCHEMA, Bench, Reader, table_name
from tests.support.catalogs import rest_catalog
from tests.support.connect_server import Connect, ConnectServer, running_server, sessions
from tests.support.needs import require_maven, require_spark_connect


@pytest.fixture(scope="session")
def iceberg(spark: SparkSession, spark_settings: SparkSettings) -> IcebergTables:
    return IcebergTables(spark, spark_settings, labels={"connection": "shop", "run-id": "r1"})


@pytest.fixture(scope="session")
def elsewhere(spark: SparkSession, spark_settings: SparkSettings) -> IcebergTables:
    """A writer on the same warehouse through another catalog, which shares no table handle with the first."""
    settings = spark_settings._replace(catalog="pond")
    return IcebergTables(start_session(settings), settings)


@pytest.fixture
def iceberg_rows(spark: SparkSession) -> Reader:
    return lambda target: [row.asDict(recursive=True) for row in spark.table(target.qualified).collect()]


@pytest.fixture
def target(iceberg: IcebergTables) -> TableTarget:
    """Of a new table, with a key."""
    return iceberg.prepare(TableSpec(table_name(), SCHEMA, keys=("id",)))


@pytest.fixture
def iceberg_bench(iceberg: IcebergTables, elsewhere: IcebergTables, iceberg_rows: Reader) -> Bench:
    return Bench(iceberg, elsewhere, iceberg_rows)


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits until a claim holds, for two minutes at most."""

    def wait(claim: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not claim():
            assert time.monotonic() < deadline, "it never came true"
            select.select([], [], [], 0.02)

    return wait


@pytest.fixture(scope="session")
def delta_settings(spark_settings: SparkSettings) -> SparkSettings:
    warehouse = spark_settings.warehouse.replace("ware house", "del ta")
    return spark_settings._replace(catalog="spark_catalog", format="delta", warehouse=warehouse)


@pytest.fixture(scope="session")
def delta(spark: SparkSession, delta_settings: SparkSettings) -> DeltaTables:
    return DeltaTables(spark, delta_settings, labels={"connection": "shop", "run-id": "r1"})


@pytest.fixture(scope="session")
def rest_catalog_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of Iceberg's own REST server."""
    require_maven()
    with rest_catalog.running_catalog(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture(scope="session")
def _spark_connect() -> None:
    require_spark_connect()


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    require_spark_connect()
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else tmp_path_factory.mktemp("connect")
    with TemporaryDirectory(dir=parent, prefix="airbyte-connect-") as folder, running_server(Path(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def connect(connect_server: ConnectServer) -> Iterator[Connect]:
    """Connects anew, beside a session with a JVM that the process may have."""
    with sessions(connect_server) as opened:
        yield opened


@pytest.fixture
def _functions_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `SparkSession.builder.remote` sets it for a whole process."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
