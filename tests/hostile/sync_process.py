"""Syncs of hostile connectors in processes of their own, one at a time, each with what it cost; see fork_server.py."""

import json
import resource
import threading
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from tests.support.fork_server import serve

# For tricks that have an end, and for those that have none.
PATIENT = Timeouts(startup_seconds=60.0, heartbeat_seconds=60.0, exit_seconds=1.0, states_seconds=60.0)
IMPATIENT = Timeouts(startup_seconds=10.0, heartbeat_seconds=2.0, exit_seconds=1.0, states_seconds=3.0)


def carry_out(order: dict[str, Any]) -> int:
    home = Path(order["home"])
    found: dict[str, Any]
    try:
        with Engine(Settings.load(home, home / "settings.yaml")) as engine:
            options = RunOptions(threading.Event(), timeouts=IMPATIENT if order["impatient"] else PATIENT)
            report = sync_connection(engine, Connection.from_file(order["connection"]), SyncRequest(), options)
            found = report.as_json()
    except ProtoError as error:
        found = {"status": "refused", "error": f"{type(error).__name__}: {error}"}
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Path(order["report"]).write_text(json.dumps({**found, "peak_bytes": peak_bytes}))
    return 0


if __name__ == "__main__":
    serve(carry_out)
