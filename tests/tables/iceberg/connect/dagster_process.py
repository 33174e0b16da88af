"""Dagster in a process of its own, on a Connect server: the assets of a connection, partitioned frames, and a push."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import dagster as dg
import yaml
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame

from dagster_airbyte_proto import (
    Connection,
    ConnectorResource,
    SparkSessionResource,
    SparkTableIOManager,
    build_connector_assets,
    build_push_assets,
)
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.support.connect_server import ConnectServer
from tests.sync.push.pushed_table import PushedTable
from tests.tables.iceberg.connect.remote_connections import RemoteShop

PARITIES = dg.StaticPartitionsDefinition(["even", "odd"])
_USERS = dg.AssetKey(["shop", "users"])


class DagsterOnConnect:
    """The definitions, and runs of their assets. Tables are in a namespace of their own."""

    def __init__(self, folder: Path, url: str, warehouse: Path) -> None:
        self._folder, self._url = folder, url
        # The process of the server is the test's.
        self._shop = RemoteShop(folder, ConnectServer(url, cast(Any, None), warehouse), write="append_dedup")
        (folder / "push").mkdir()
        self._pushed = PushedTable(folder / "push", mode="mirror")
        self.frames = f"lake.{self._shop.namespace}.by_parity"
        self._instance = dg.DagsterInstance.ephemeral()

    def sync(self, records: int) -> dict[str, Any]:
        scenario = {"streams": {"users": {"records": records, "keys": 10}}, "state_every": 5}
        self._shop.offer(scenario)
        [metadata] = self._run([self._streams(scenario)], SparkSessionResource(remote=self._url))
        return metadata

    def filter(self, parity: str) -> dict[str, Any]:
        """Runs an asset that takes the stream's frame and returns one of its partition."""

        @dg.asset(
            partitions_def=PARITIES,
            metadata={"dagster/table_name": self.frames},
            ins={"users": dg.AssetIn(_USERS, metadata={"columns": ["id"]})},
        )
        def by_parity(context: dg.AssetExecutionContext, users: DataFrame) -> DataFrame:
            return users.where(f"id % 2 = {PARITIES.get_partition_keys().index(context.partition_key)}")

        users = dg.AssetSpec(_USERS, metadata={"dagster/table_name": f"lake.{self._shop.namespace}.users"})
        theirs = LazyPySparkResource(spark_config={"spark.remote": self._url})
        [metadata] = self._run([users, by_parity], theirs, partition=parity)
        return metadata

    def push(self) -> dict[str, Any]:
        path = self._pushed.connection_file()
        written = yaml.safe_load(path.read_text())
        written["name"] = f"crm_{self._shop.namespace}"
        written["push"]["contacts"]["from"] = self.frames
        path.write_text(yaml.safe_dump(written))
        [metadata] = self._run([build_push_assets(Connection.from_file(path))], SparkSessionResource(remote=self._url))
        return metadata

    def delivered(self) -> list[int]:
        return sorted(self._pushed.held())

    def query(self, sql: str) -> list[Any]:
        io = SparkTableIOManager(spark=SparkSessionResource(remote=self._url))
        with dg.build_resources({"io": io}) as resources:
            return list(resources.io.query(sql.format(users=f"lake.{self._shop.namespace}.users")).rows)

    def _streams(self, scenario: dict[str, Any]) -> dg.AssetsDefinition:
        catalog = self._folder / "catalog.json"
        streams = [catalog_stream(name, written) for name, written in scenario["streams"].items()]
        catalog.write_text(json.dumps({"streams": streams}))
        return build_connector_assets(Connection.from_file(self._shop.connection_file), catalog=catalog)

    def _run(
        self, assets: list[dg.AssetsDefinition | dg.AssetSpec], spark: Any, *, partition: str | None = None
    ) -> list[dict[str, Any]]:
        """Returns the metadata of each materialization."""
        connector = ConnectorResource(home=str(self._shop.home), lease_seconds=5.0, compact_after_delete_files=1)
        resources = {"io_manager": SparkTableIOManager(spark=spark), "connector": connector}
        done = dg.materialize(assets, resources=resources, partition_key=partition, instance=self._instance)
        events = [event for event in done.all_events if event.is_step_materialization]
        return [
            {name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()}
            for event in events
        ]


def main() -> None:
    """Prints, as JSON, what was in the tables and in the metadata after each run."""
    folder, url, warehouse = sys.argv[1:]
    place = DagsterOnConnect(Path(folder), url, Path(warehouse))
    synced = [place.sync(records) for records in (12, 17)]
    parities = [place.filter(parity) for parity in ("even", "odd", "even")]
    pushed = [place.push() for _ in range(2)]
    operations = place.query("select operation from {users}.snapshots order by committed_at")
    [[delete_files]] = place.query("select count(*) from {users}.delete_files")
    report = {
        "first_rows": synced[0]["dagster/row_count"],
        "users": place.query("select id from {users} order by id"),
        "last_operation": operations[-1][0],
        "delete_files": delete_files,
        "partition_row_counts": [each["dagster/partition_row_count"] for each in parities],
        "by_parity": place.query(f"select id, _airbyte_partition from {place.frames} order by id"),
        "sent": [each["airbyte_proto/sent"] for each in pushed],
        "delivered": place.delivered(),
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
