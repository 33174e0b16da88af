import pytest

from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import Bench, Row
from tests.support.connect_server import Connect, ConnectServer


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
