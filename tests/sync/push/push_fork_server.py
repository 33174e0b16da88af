"""Pushes of a connection in processes of their own, to be killed; see support/fork_server.py."""

import sys
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push.run import push_connection
from tests.support.fork_server import ForkServer, Kill, arm, serve
from tests.sync.push.pushed_table import PushedTable


class PushForkServer(ForkServer):
    """Runs pushes one at a time."""

    def __init__(self, module: str = __name__) -> None:
        super().__init__(module)

    def push(self, table: PushedTable, crash: Kill | None = None) -> int:
        """Runs a push that dies at a point. Returns its exit code, or minus the signal."""
        self.start(table, crash)
        return self.end()

    def start(self, table: PushedTable, crash: Kill | None = None) -> int:
        """The process id of a push that has begun. `end` it before the next one."""
        table.points_file.unlink(missing_ok=True)
        order = {
            "home": str(table.home),
            "settings": str(table.settings_file),
            "connection": str(table.connection_file()),
            "crash": crash,
            "points": str(table.points_file),
        }
        return self.fork(order)


def carry_out(order: dict[str, Any]) -> int:
    crash = order["crash"]
    arm(tuple(crash) if crash else None, until=None, log=Path(order["points"]))
    try:
        with Engine(Settings.load(Path(order["home"]), Path(order["settings"]))) as engine:
            report = push_connection(
                engine, Connection.from_file(order["connection"]), PushRequest(retries_unknown=True)
            )
    except ProtoError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0 if report.status == "complete" else 1


if __name__ == "__main__":
    serve(carry_out)
