"""Our whole sync: the connector as a process, staging, announce, commit to Iceberg, promote.

It is warm: the Spark session is up, and the same connection has synced a thousand records twice, once to make its
tables and once to add to them, so that its catalog is cached and the JVM has loaded its classes. CPU is that of this
process, the connector and the JVM.
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
_REHEARSALS = 2


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    home = Path(task.folder) / "home"
    home.mkdir()
    played = Path(task.folder) / "played.jsonl"
    with Path(task.recording).open("rb") as lines, played.open("wb") as some:
        some.writelines(islice(lines, _REHEARSED_LINES))
    with Engine(Settings.load(home)) as engine:
        config = {"recording": str(played), "repeat": task.repeat, **task.options.get("source", {})}
        connection = _connection("bench", task, config)
        for _ in range(_REHEARSALS):
            _synced(engine, connection)
        tables = home / "warehouse" / "bench"
        rehearsed = parquet_rows(tables)
        played.unlink()
        played.symlink_to(task.recording)
        reports: list[SyncReport] = []
        measure(
            lambda: reports.append(_synced(engine, connection)),
            lambda: _rows(reports[0], parquet_rows(tables) - rehearsed),
            {"pyspark": pyspark.__version__, "pyarrow": pa.__version__},
        )


def _connection(name: str, task: Task, config: dict[str, Any]) -> Connection:
    """The connection file: JSON is YAML. It appends, as every contender does."""
    document = {
        "name": name,
        "connector": {
            "protocol": task.options.get("protocol", "airbyte"),
            "launch": {"kind": "local", "command": [task.connector]},
        },
        "config": {"catalog": task.catalog, **config},
        "streams": {"*": {"read": "incremental", "write": "append"}},
        "destination": {"namespace": name},
    }
    file = Path(task.folder) / f"{name}.yaml"
    file.write_text(json.dumps(document))
    return Connection.from_file(file)


def _synced(engine: Engine, connection: Connection) -> SyncReport:
    report = sync_connection(engine, connection)
    if report.status != "complete":
        errors = [report.error, *(stream.error for stream in report.streams.values())]
        raise RuntimeError(
            f"sync of {connection.name} is {report.status}: {next(filter(None, errors), 'no reason given')}"
        )
    return report


def _rows(report: SyncReport, in_files: int) -> int:
    committed = sum(stream.committed for stream in report.streams.values())
    if committed != in_files:
        raise RuntimeError(f"{committed} rows by the report, {in_files} in files")
    return committed


if __name__ == "__main__":
    main()
