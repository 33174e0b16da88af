"""Our whole sync: the connector as a process, staging, announce, commit to Iceberg, promote.

It is warm: the Spark session stands, and the same engine has synced a thousand records of the same streams into other
tables, so that the JVM has loaded its classes. The tables that count are made within the clock. CPU
is that of this process, the connector and the JVM.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from bench.contenders.parquet_rows import parquet_rows
from bench.meter import Task, measure
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection

_REHEARSED_LINES = 1_000


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    home = Path(task.folder) / "home"
    home.mkdir()
    rehearsal = Path(task.folder) / "rehearsal.jsonl"
    with Path(task.recording).open("rb") as lines, rehearsal.open("wb") as some:
        some.writelines(islice(lines, _REHEARSED_LINES))
    with Engine(Settings.load(home)) as engine:
        sync_connection(engine, _connection("rehearsal", task, {"recording": str(rehearsal)}))
        connection = _connection("bench", task, {"recording": task.recording, "repeat": task.repeat})
        reports: list[SyncReport] = []
        measure(
            lambda: reports.append(sync_connection(engine, connection)),
            lambda: _rows(reports[0], home / "warehouse" / "bench"),
            {"pyspark": pyspark.__version__, "pyarrow": pa.__version__},
        )


def _connection(name: str, task: Task, config: dict[str, Any]) -> Connection:
    """JSON is YAML. An append, as for every contender: merging by key is another day's work."""
    document = {
        "name": name,
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": [task.connector]}},
        "config": {"catalog": task.catalog, **config},
        "streams": {"*": {"read": "incremental", "write": "append"}},
        "destination": {"namespace": name},
    }
    file = Path(task.folder) / f"{name}.yaml"
    file.write_text(json.dumps(document))
    return Connection.from_file(file)


def _rows(report: SyncReport, tables: Path) -> int:
    committed = sum(stream.committed for stream in report.streams.values())
    if report.status != "complete" or committed != parquet_rows(tables):
        raise ValueError(
            f"the sync is {report.status}: {committed} rows by its report, {parquet_rows(tables)} in files"
        )
    return committed


if __name__ == "__main__":
    main()
