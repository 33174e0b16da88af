"""Syncs of a house in processes of their own, to be stopped or killed; see support/fork_server.py."""

import json
import resource
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import Wanted
from dagster_airbyte_proto.sync.run import sync_connection
from tests.support.fork_server import ForkServer, Kill, arm, serve
from tests.sync.crashes.house import House


class Zygote(ForkServer):
    """Runs syncs one at a time."""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({}), module: str = __name__) -> None:
        super().__init__(module, environment)

    def sync(self, house: House, crash: Kill | None = None, *, refresh: bool = False) -> int:
        """How the process ended: its exit code, or minus the signal. Its report is in `house.report`."""
        self.start(house, crash, refresh=refresh)
        return self.end()

    def start(
        self, house: House, crash: Kill | None = None, until: Path | None = None, *, refresh: bool = False
    ) -> int:
        """The process id of a sync that has begun. `end` it before the next one. It dies at the point of the crash,
        or waits there `until` that file is."""
        house.report_file.unlink(missing_ok=True)
        house.points_file.unlink(missing_ok=True)
        order = {
            "home": str(house.home),
            "connection": str(house.connection_file),
            "crash": crash,
            "until": str(until) if until else None,
            "points": str(house.points_file),
            "report": str(house.report_file),
            "refresh": refresh,
        }
        return self.fork(order)

    def care(self, house: House) -> None:
        """Folder tables keep what they have as it is."""


def carry_out(order: dict[str, Any]) -> int:
    crash, until = order["crash"], order["until"]
    arm(tuple(crash) if crash else None, until=Path(until) if until else None, log=Path(order["points"]))
    home = Path(order["home"])
    try:
        with Engine(Settings.load(home, home / "settings.yaml")) as engine:
            report = sync_connection(
                engine, Connection.from_file(order["connection"]), Wanted(refresh=order["refresh"])
            )
    except ProtoError as error:
        Path(order["report"]).write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 2
    told = {**report.as_json(), "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    Path(order["report"]).write_text(json.dumps(told))
    return 0 if report.status == "complete" else 1


if __name__ == "__main__":
    serve(carry_out)
