"""PyAirbyte's read of a source that has nothing new, as a whole process, after a read that brought rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.meter import Task, childrens_peak_bytes, measure
from bench.orphans import adopt_orphans, wait_for_orphans

_READ = """
import json, sys
import airbyte
from airbyte.caches import DuckDBCache

name, program, config, folder, streams = sys.argv[1:]
cache = DuckDBCache(db_path=f"{folder}/cache.duckdb", cache_dir=f"{folder}/files", cleanup=True)
source = airbyte.get_source(
    name, config=json.loads(config), local_executable=program, streams=json.loads(streams), install_if_missing=False
)
print(source.read(cache=cache, skip_validation=True).processed_records)
"""
_ENVIRONMENT = {"AIRBYTE_OFFLINE_MODE": "1", "DO_NOT_TRACK": "1", "AIRBYTE_NO_UV": "1"}


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    options = task.options
    arguments = [options["name"], task.connector, json.dumps(options["config"]), task.folder]
    adopt_orphans()

    def read() -> int:
        words = [sys.executable, "-c", _READ, *arguments, json.dumps(options["streams"])]
        environment = {**os.environ, **_ENVIRONMENT}
        printed = subprocess.run(words, capture_output=True, text=True, check=True, env=environment, cwd=Path.cwd())
        wait_for_orphans()
        return int(printed.stdout.splitlines()[-1])

    read()
    emitted: list[int] = []
    measure(lambda: emitted.append(read()), lambda: emitted[0], {}, peak=childrens_peak_bytes)


if __name__ == "__main__":
    main()
