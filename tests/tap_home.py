"""A home with one connection, `source`, to a real tap, whose tables are folders: quick to land in and to look at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.folder import FolderTables


class TapHome:
    """`launch` has the package, `environments` is the folder where those are installed."""

    def __init__(self, folder: Path, environments: Path, launch: Mapping[str, str]) -> None:
        self._folder = folder
        self._launch = {"kind": "pypi", **launch}
        (folder / "venvs").symlink_to(environments)
        (folder / "settings.yaml").write_text("catalog: {format: folder}\n")

    def connect(self, config: Mapping[str, Any], streams: Mapping[str, Any] | None = None) -> None:
        document = {"connector": {"protocol": "singer", "launch": self._launch}, "config": dict(config)}
        chosen = {} if streams is None else {"streams": dict(streams)}
        (self._folder / "source.yaml").write_text(yaml.safe_dump({**document, **chosen}))

    def sync(self) -> Mapping[str, StreamReport]:
        """What is told of the streams of a sync in which nothing is amiss."""
        with Engine(Settings.load(self._folder, self._folder / "settings.yaml")) as engine:
            report = sync_connection(engine, Connection.from_file(self._folder / "source.yaml"))
        assert (report.status, report.warnings) == (SyncStatus.COMPLETE, ()), report
        assert all((told.ignored_fields, told.rejected) == ({}, 0) for told in report.streams.values()), report
        return report.streams

    def rows(self, stream: str) -> list[dict[str, Any]]:
        found = FolderTables(self._folder / "warehouse").rows(TableName("source", stream)).to_pylist()
        return sorted(found, key=lambda row: int(row["id"]))
