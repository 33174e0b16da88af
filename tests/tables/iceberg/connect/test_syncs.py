"""Syncs into the tables of a Connect server, each in a process of its own, as users have it."""

import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.sync.shop import Shop
from tests.tables.iceberg.connect.conftest import Connect
from tests.tables.iceberg.connect.connect_server import ConnectServer, run_alone

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_functions_of_connect")]

_SYNC = """
import json, sys
from pathlib import Path
from dagster_airbyte_proto import Connection, sync
home, connection, settings = sys.argv[1:]
report = sync(Connection.from_file(Path(connection)), home=home, settings=Path(settings))
print(json.dumps(report.as_json()), flush=True)
"""


class RemoteShop(Shop):
    def __init__(self, folder: Path, server: ConnectServer, *, write: str) -> None:
        settings = {
            "catalog": {"format": "iceberg", "warehouse": str(server.warehouse)},
            "spark": {"spark.remote": server.url},
            "lease_seconds": 1,
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


def _ids(connect: Connect, shop: RemoteShop, stream: str = "users") -> list[int]:
    rows = connect().sql(f"select id from lake.{shop.namespace}.{stream}").collect()
    return sorted(row["id"] for row in rows)


def _load_ids(connect: Connect, shop: RemoteShop) -> list[str]:
    log = f"select summary['airbyte-proto.load-id'] as id from lake.{shop.namespace}.users.snapshots"
    return [row["id"] for row in connect().sql(log).collect() if row["id"]]


def test_rows_land_once_and_later_ones_replace_those_of_their_keys(
    tmp_path: Path, connect: Connect, connect_server: ConnectServer
) -> None:
    shop = RemoteShop(tmp_path, connect_server, write="append_dedup")
    for records in (12, 17):
        # Ten keys: the newest record of each stays.
        shop.offer({"streams": {"users": {"records": records, "keys": 10}}, "state_every": 5})
        report = shop.synced()
        assert report["streams"]["users"]["table"] == f"lake.{shop.namespace}.users"
        assert _ids(connect, shop) == list(range(records - 10, records))
    loads = _load_ids(connect, shop)
    assert len(loads) == len(set(loads)) >= 2
    assert shop.synced()["streams"]["users"]["emitted"] == 0
