"""The shop with its tables on a Connect server; each sync is a process of its own, as users have it."""

import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.connect_server import ConnectServer, run_alone
from tests.sync.shop import Shop

_SYNC = """
import json, sys
from pathlib import Path
from dagster_airbyte_proto import Connection, sync
home, connection, settings = sys.argv[1:]
report = sync(Connection.from_file(Path(connection)), home=home, settings=Path(settings))
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
