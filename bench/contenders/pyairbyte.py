"""PyAirbyte, from the same source into its DuckDB cache.

Its best settings for this work: append (no merge), a full refresh (no look at earlier state), the source's config
not validated, offline and with no telemetry, all streams in one read. Imports are not counted; the calls
of spec and discover that `read` makes are.
"""

import os
import sys
from pathlib import Path

os.environ |= {"AIRBYTE_OFFLINE_MODE": "1", "DO_NOT_TRACK": "1", "AIRBYTE_NO_UV": "1"}  # read when it is imported

import airbyte
import duckdb
from airbyte.caches import DuckDBCache

from bench.contenders.catalog import json_schemas
from bench.meter import Task, measure


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    database = Path(task.folder) / "cache.duckdb"
    config = task.options.get("config") or {"recording": task.recording, "catalog": task.catalog}
    streams = task.options.get("streams") or list(json_schemas(task.catalog))

    cache = DuckDBCache(db_path=database, cache_dir=Path(task.folder) / "files", cleanup=True)

    def land() -> None:
        source = airbyte.get_source(
            task.options.get("name", "source-replay"), config=config, local_executable=Path(task.connector),
            streams=streams, install_if_missing=False,
        )  # fmt: skip
        source.read(cache=cache, write_strategy="append", force_full_refresh=True, skip_validation=True)

    def rows() -> int:
        return sum(len(cache[name]) for name in streams)  # a SELECT count(*) each

    measure(land, rows, {"airbyte": airbyte.version.get_version(), "duckdb": duckdb.__version__})


if __name__ == "__main__":
    main()
