"""Connections with tables on a Connect server. Each sync and push is a process of its own, as users have it."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from tests.support.connect_server import Connect, ConnectServer, run_alone
from tests.sync.push.pushed_table import PushedTable, Row
from tests.sync.shop import Shop

_SYNC = """
import json, sys
from pathlib import Path
from dagster_airbyte_proto import Connection, sync
home, connection, settings = sys.argv[1:]
report = sync(Connection.from_file(Path(connection)), home=home, settings=Path(settings))
print(json.dumps(report.as_json()), flush=True)
"""
_PUSH = """
import json, sys
from pathlib import Path
from dagster_airbyte_proto import Connection, push
home, connection, settings = sys.argv[1:]
report = push(Connection.from_file(Path(connection)), home=home, settings=Path(settings))
print(json.dumps(report.as_json()), flush=True)
"""
_COMMAND = "import sys; from dagster_airbyte_proto.cli.main import main; sys.exit(main())"


class RemoteShop(Shop):
    def __init__(self, folder: Path, server: ConnectServer, *, write: str, **more_settings: Any) -> None:
        settings = {
            "catalog": {"format": "iceberg", "warehouse": str(server.warehouse)},
            "spark": {"spark.remote": server.url},
            "lease_seconds": 1,
            **more_settings,
        }
        super().__init__(folder, write=write, settings=settings)
        self.namespace = f"shop_{uuid4().hex[:8]}"
        self.more = {"destination": {"namespace": self.namespace}}

    def run(self) -> subprocess.CompletedProcess[str]:
        return run_alone(_SYNC, self.home, self.connection_file, self.home / "settings.yaml")

    def synced(self) -> dict[str, Any]:
        ended = self.run()
        assert ended.returncode == 0, ended.stderr[-2000:]
        report: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        assert report["status"] == "complete", report
        return report

    def query(self, sql: str) -> dict[str, Any]:
        """Returns what the command line prints."""
        place: list[str | Path] = ["--home", self.home, "--settings", self.home / "settings.yaml"]
        ended = run_alone(_COMMAND, *place, "query", sql, "--json")
        assert ended.returncode == 0, ended.stderr[-2000:]
        printed: dict[str, Any] = json.loads(ended.stdout)
        return printed


class RemotePushedTable(PushedTable):
    """A table of a Connect server, and the connection that pushes it to a file."""

    def __init__(self, folder: Path, server: ConnectServer, connect: Connect, table_format: str, mode: str) -> None:
        super().__init__(folder, mode=mode)
        self._session, self._format = connect(), table_format
        # The delivered tables of all connections of one name would be the same.
        self.name = f"crm_{uuid4().hex[:8]}"
        self._namespace = f"{'lake' if table_format == 'iceberg' else 'spark_catalog'}.shop"
        self.source = f"{self._namespace}.people_{self.name}"
        self.push["from"] = self.source
        settings = {
            "catalog": {"format": table_format, "warehouse": str(server.warehouse)},
            "spark": {"spark.remote": server.url},
        }
        self.settings_file.write_text(yaml.safe_dump(settings))

    def fill(self, rows: Sequence[Row]) -> None:
        self._session.sql(f"create namespace if not exists {self._namespace}")
        values = ", ".join(f"({row['id']}, '{row['name']}')" for row in rows)
        self._session.sql(
            f"create or replace table {self.source} using {self._format} as "
            f"select cast(id as bigint) as id, name from values {values} as t(id, name)"
        )

    def change(self, *statements: str) -> None:
        for statement in statements:
            self._session.sql(statement.format(table=self.source))

    def pushed(self) -> Row:
        file = self.connection_file().rename(self.folder / f"{self.name}.yaml")
        ended = run_alone(_PUSH, self.home, file, self.settings_file)
        assert ended.returncode == 0, ended.stderr[-2000:]
        report: Row = json.loads(ended.stdout.splitlines()[-1])
        assert report["status"] == "complete", report
        stream: Row = report["streams"]["contacts"]
        return stream

    def names(self) -> dict[int, str]:
        """The names that the destination has, by key."""
        return {number: row["name"] for number, row in self.held().items()}

    def tags(self) -> list[str]:
        rows = self._session.sql(f"select name from {self.source}.refs where type = 'TAG'").collect()
        return [row["name"] for row in rows]
