"""A home with one connection, `source`, to a real tap: its tables are folders, or Dagster's assets in Iceberg."""

import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
import yaml

from dagster_airbyte_proto import ConnectorResource, SparkSessionResource, SparkTableIOManager, build_connector_assets
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.spark.settings import SparkSettings


class TapTables(Protocol):
    """The way to sync, and the place of the rows."""

    namespace: str

    def sync(self, home: Path) -> Mapping[str, int]: ...

    def rows(self, home: Path, stream: str) -> list[dict[str, Any]]: ...


class TapHome:
    """A home with a connection. `launch` has the package, `environments` is the folder where packages are installed."""

    def __init__(self, folder: Path, environments: Path, tables: TapTables, launch: Mapping[str, str]) -> None:
        self._folder = folder
        self._tables = tables
        self._launch = {"kind": "pypi", **launch}
        (folder / "venvs").symlink_to(environments)

    def connect(self, config: Mapping[str, Any], streams: Mapping[str, Any] | None = None) -> None:
        connector = {"protocol": "singer", "launch": self._launch}
        destination = {"namespace": self._tables.namespace}
        document = {"connector": connector, "config": dict(config), "destination": destination}
        chosen = {} if streams is None else {"streams": dict(streams)}
        _file(self._folder).write_text(yaml.safe_dump({**document, **chosen}))

    def sync(self) -> Mapping[str, int]:
        """The number of committed rows of each stream, by a sync without any error."""
        return self._tables.sync(self._folder)

    def rows(self, stream: str) -> list[dict[str, Any]]:
        return sorted(self._tables.rows(self._folder, stream), key=lambda row: int(row["id"]))


class Folders:
    """Folder tables, which are fast to write and to read."""

    namespace = "source"

    def sync(self, home: Path) -> Mapping[str, int]:
        settings = home / "settings.yaml"
        settings.write_text(f"catalog: {{format: {FOLDER_FORMAT}}}\n")
        with Engine(Settings.load(home, settings)) as engine:
            report = sync_connection(engine, Connection.from_file(_file(home)))
        others = [each for each in report.warnings if "did not fit" not in each]
        assert (report.status, others) == (SyncStatus.COMPLETE, []), report
        assert all((told.ignored_fields, told.rejected) == ({}, 0) for told in report.streams.values()), report
        return {stream: told.committed for stream, told in report.streams.items()}

    def rows(self, home: Path, stream: str) -> list[dict[str, Any]]:
        return list(FolderTables(home / "warehouse").rows(TableName(self.namespace, stream)).to_pylist())


class Assets:
    """Each stream is an asset, which Dagster materialises into Iceberg."""

    def __init__(self, spark: "SparkSession", settings: "SparkSettings") -> None:
        self.namespace = f"n{uuid.uuid4().hex[:8]}"
        self._spark = spark
        self._session = SparkSessionResource(warehouse=settings.warehouse, spark_config=dict(settings.config))

    def sync(self, home: Path) -> Mapping[str, int]:
        words = ("--home", str(home), "discover", str(_file(home)), "--save")
        subprocess.run([sys.executable, "-m", "dagster_airbyte_proto", *words], check=True, capture_output=True)
        assets = build_connector_assets(Connection.from_file(_file(home)), home=home)
        connector, tables = ConnectorResource(home=str(home)), SparkTableIOManager(spark=self._session)
        with dg.DagsterInstance.ephemeral() as instance:
            done = dg.materialize([assets], resources={"connector": connector, "io_manager": tables}, instance=instance)
        counts = {}
        for event in done.get_asset_materialization_events():
            told = {name: value.value for name, value in event.materialization.metadata.items()}
            assert told["airbyte_proto/rejected"] == 0
            counts[event.materialization.asset_key.path[-1]] = int(str(told["airbyte_proto/committed"]))
        return counts

    def rows(self, home: Path, stream: str) -> list[dict[str, Any]]:  # noqa: ARG002 - they are in the warehouse
        return list(self._spark.table(f"lake.{self.namespace}.`{stream}`").toArrow().to_pylist())


def _file(home: Path) -> Path:
    return home / "source.yaml"
