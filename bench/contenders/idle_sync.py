"""A sync that brings nothing, as a whole process. Most scheduled syncs are like it.

Two syncs come before it, so that the tables and the state exist, and the last one brought nothing. With `opens_tables`
the JVM is started and the catalog opened beside the rest, as for a sync with rows.
"""

import json
import subprocess
import sys
from pathlib import Path

from bench.meter import Task, childrens_peak_bytes, measure
from bench.orphans import adopt_orphans, wait_for_orphans

_SYNC = """
import sys
from pathlib import Path
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection

home, connection, opens_tables = sys.argv[1:]
with Engine(Settings.load(Path(home))) as engine:
    opening = engine.start_opening_tables() if opens_tables == "True" else None
    report = sync_connection(engine, Connection.from_file(Path(connection)))
    if opening is not None:
        opening.result()
print(sum(stream.emitted for stream in report.streams.values()))
"""


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    folder = Path(task.folder)
    document = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": [task.connector]}},
        "config": task.options["config"],
        "destination": {"namespace": "bench"},
    }
    connection, home = folder / "idle.yaml", folder / "home"
    connection.write_text(json.dumps(document))
    adopt_orphans()

    def land(*, opens_tables: bool) -> int:
        words = [sys.executable, "-c", _SYNC, str(home), str(connection), str(opens_tables)]
        emitted = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        wait_for_orphans()
        return emitted

    for _ in range(2):
        land(opens_tables=False)
    emitted: list[int] = []
    measure(
        lambda: emitted.append(land(opens_tables=task.options["opens_tables"])),
        lambda: emitted[0],
        {},
        peak=childrens_peak_bytes,
    )


if __name__ == "__main__":
    main()
