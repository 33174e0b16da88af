"""Syncs of a connection in processes of their own, to be stopped or killed; see support/fork_server.py."""

import json
import resource
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import RunOptions
from tests.support.fork_server import ForkServer, Kill, arm, serve
from tests.sync.crashes.fake_connection import FakeConnection


class SyncForkServer(ForkServer):
    """Runs syncs one at a time."""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({}), module: str = __name__) -> None:
        super().__init__(module, environment)

    def sync(
        self,
        connection: FakeConnection,
        crash: Kill | None = None,
        *,
        refresh: bool = False,
        retries_rejected: bool = False,
    ) -> int:
        """Runs a sync. Returns its exit code, or minus the signal. Its report is in `connection.report`."""
        self.start(connection, crash, refresh=refresh, retries_rejected=retries_rejected)
        return self.end()

    def start(
        self,
        connection: FakeConnection,
        crash: Kill | None = None,
        until: Path | None = None,
        *,
        refresh: bool = False,
        retries_rejected: bool = False,
    ) -> int:
        """The process id of a sync that has begun. `end` it before the next one. It dies at the point of the crash,
        or waits there `until` that file is."""
        connection.report_file.unlink(missing_ok=True)
        connection.points_file.unlink(missing_ok=True)
        order = {
            "home": str(connection.home),
            "connection": str(connection.connection_file),
            "crash": crash,
            "until": str(until) if until else None,
            "points": str(connection.points_file),
            "report": str(connection.report_file),
            "lease_wait_seconds": connection.lease_wait_seconds,
            "request": {"refresh": refresh, "retries_rejected": retries_rejected},
        }
        return self.fork(order)

    def care(self, connection: FakeConnection) -> None:
        """Does nothing: folder tables need no compaction or expiry."""


def carry_out(order: dict[str, Any]) -> int:
    crash, until = order["crash"], order["until"]
    arm(tuple(crash) if crash else None, until=Path(until) if until else None, log=Path(order["points"]))
    home = Path(order["home"])
    try:
        with Engine(Settings.load(home, home / "settings.yaml")) as engine:
            options = RunOptions(threading.Event(), lease_wait_seconds=order["lease_wait_seconds"])
            request = SyncRequest(**order["request"])
            report = sync_connection(engine, Connection.from_file(order["connection"]), request, options)
    except ProtoError as error:
        Path(order["report"]).write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 2
    report_json = {**report.as_json(), "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    Path(order["report"]).write_text(json.dumps(report_json))
    return 0 if report.status == "complete" else 1


if __name__ == "__main__":
    serve(carry_out)
