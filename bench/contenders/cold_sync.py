"""Our command line from a cold start: `airbyte-proto sync` in a new home, with a real connector. For wall seconds."""

import json
import subprocess
import sys
from pathlib import Path

from bench.meter import Task, childrens_peak_bytes, measure


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    folder = Path(task.folder)
    document = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": [task.connector]}},
        "config": task.options["config"],
        "streams": {"*": {"read": "full_refresh", "write": "append"}},
        "destination": {"namespace": "bench"},
    }
    connection, printed = folder / "cold.yaml", folder / "report.json"
    connection.write_text(json.dumps(document))

    def land() -> None:
        program = [sys.executable, "-m", "dagster_airbyte_proto", "--home", str(folder / "home"), "sync"]
        with printed.open("wb") as out:
            subprocess.run([*program, str(connection), "--json"], stdout=out, check=True)

    def rows() -> int:
        streams = json.loads(printed.read_text())["streams"]
        return sum(stream["committed"] for stream in streams.values())

    measure(land, rows, {}, peak=childrens_peak_bytes)


if __name__ == "__main__":
    main()
