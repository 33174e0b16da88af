from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import Bench, Row
from tests.tables.iceberg.connect.connect_server import ConnectServer, is_possible, running_server

Connect = Callable[[], SparkSession]


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    if not is_possible():
        pytest.skip("the client of Spark Connect is not installed (extra: connect)")
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else tmp_path_factory.mktemp("connect")
    with TemporaryDirectory(dir=parent, prefix="airbyte-connect-") as folder, running_server(Path(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def connect(connect_server: ConnectServer) -> Iterator[Connect]:
    """Connects anew, beside a session with a JVM that the process may have."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    opened: list[RemoteSession] = []

    def session() -> SparkSession:
        opened.append(RemoteSession.builder.remote(connect_server.url).create())
        return opened[-1]  # type: ignore[return-value]  # one has no class of the other

    yield session
    for each in opened:
        for one in (vars(each).get("_airbyte_proto_copy"), each):
            if one is not None:  # Else Python does it at its end, and waits for a server that is gone.
                one.client.close()


@pytest.fixture
def _functions_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `SparkSession.builder.remote` sets it for a whole process."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")


@pytest.fixture(scope="session")
def connected_bench(connect: Connect, connect_server: ConnectServer) -> Bench:
    settings, reader = SparkSettings(str(connect_server.warehouse)), connect()

    def read(target: TableTarget) -> list[Row]:
        reader.sql(f"refresh table {target.qualified}")
        return [row.asDict(recursive=True) for row in reader.table(target.qualified).collect()]

    return Bench(
        RemoteIcebergTables(connect(), settings, labels={"connection": "shop", "run-id": "r1"}),
        RemoteIcebergTables(connect(), settings),
        read,
    )
