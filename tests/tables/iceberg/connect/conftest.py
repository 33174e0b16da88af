from collections.abc import Iterator

import pytest

from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import Bench, Row
from tests.support.connect_server import Connect, ConnectServer, running_server, sessions
from tests.support.needs import require_spark_connect


@pytest.fixture(scope="session")
def connected_bench(connect: Connect, connect_server: ConnectServer) -> Bench:
    return _bench(connect, connect_server)


@pytest.fixture(scope="session")
def rest_connected_bench(rest_catalog_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """On a server whose catalog is one of Iceberg's own REST server."""
    require_spark_connect()
    catalog = {"type": "rest", "uri": rest_catalog_uri}
    with (
        running_server(tmp_path_factory.mktemp("connect-rest"), catalog=catalog) as server,
        sessions(server) as connect,
    ):
        yield _bench(connect, server)


def _bench(connect: Connect, server: ConnectServer) -> Bench:
    settings, reader = SparkSettings(str(server.warehouse)), connect()

    def read(target: TableTarget) -> list[Row]:
        reader.sql(f"refresh table {target.qualified}")
        return [row.asDict(recursive=True) for row in reader.table(target.qualified).collect()]

    return Bench(
        RemoteIcebergTables(connect(), settings, labels={"connection": "shop", "run-id": "r1"}),
        RemoteIcebergTables(connect(), settings),
        read,
    )
