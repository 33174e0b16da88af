"""Measures what it costs to hold each table against the state store: `python -m bench.scale.witness`.

Whole warm syncs of a few rows into tables of Iceberg and of Delta, by one session. The first row of a stream waits for
the check of its table (`sync/commit/table_witness.py`): the read of the table's log, and the store's answers about the
loads that it names. Both are timed where they are called, beside the whole sync. A log grows with each load, so the
check is measured again when the tables have many. Wall seconds, medians of tables and of syncs.
"""

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from bench.generate import Generated, Recipe, generate
from bench.report import Figure, publish_figures, shown
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import CatalogSettings, CompactAfter, Settings
from dagster_airbyte_proto.sync.commit import target_tables
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / ".bench" / "witness"
_MARK = "witness"
_RECORDS = 60
_REHEARSALS = 3
_AT_MOST_MILLISECONDS = 50
_NEVER = CompactAfter(delete_files=0, small_files=0)
_FormatName = Literal["iceberg", "delta"]


class Checks:
    """The seconds of the checks so far, each of one table."""

    def __init__(self, tables: IcebergTables | DeltaTables) -> None:
        self.reads: list[float] = []
        self.answers: list[float] = []
        # Where they are called: what the names stand for stays as it is.
        for names, name, seconds in (
            (vars(tables), "witness", self.reads),
            (vars(target_tables), "check_witness", self.answers),
        ):
            names[name] = _timed(names.get(name, tables.witness), seconds)

    def take(self) -> float:
        """Returns the median seconds of a table since it was last taken."""
        found = statistics.median(self.reads) + statistics.median(self.answers)
        self.reads.clear()
        self.answers.clear()
        return found


def _timed(inner: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return inner(*args, **named)
        finally:
            seconds.append(time.perf_counter() - began)

    return call


def _connection(folder: Path, tables: int, made: Generated) -> Connection:
    command = [sys.executable, "-I", "-S", str(_ROOT / "bench" / "replay_source.py")]
    document = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"recording": str(made.path), "catalog": str(made.catalog_path)},
        "streams": {"*": {"read": "incremental", "write": "append"}},
    }
    file = folder / f"of_{tables}.yaml"
    file.write_text(json.dumps(document))
    return Connection.from_file(file)


def _synced(engine: Engine, connection: Connection, tables: int) -> float:
    began = time.perf_counter()
    report = sync_connection(engine, connection)
    landed = sum(stream.committed for stream in report.streams.values())
    if landed != _RECORDS * tables:
        raise RuntimeError(f"{landed} rows landed: {report.error}")
    return time.perf_counter() - began


def _measured(format_name: _FormatName, counts: Sequence[int], rounds: int, loads: int) -> list[Figure]:
    home = _FOLDER / format_name
    home.mkdir()
    catalog = CatalogSettings(format=format_name).with_defaults(home)
    settings = Settings.load(home).model_copy(update={"compact_after": _NEVER, "catalog": catalog})
    spark = SparkSettings(catalog.warehouse, catalog.name, format_name)
    tables = (DeltaTables if format_name == "delta" else IcebergTables)(start_session(spark), spark)
    with Engine(settings, tables=tables) as engine:
        return [shown(figure) for figure in _figures(engine, Checks(tables), counts, rounds, loads)]


def _figures(engine: Engine, checks: Checks, counts: Sequence[int], rounds: int, loads: int) -> Iterator[Figure]:
    for count in counts:
        made = generate(
            Recipe(_RECORDS * count, streams=count, run_length=10, state_every=10),
            engine.settings.home / f"{count}.jsonl",
        )
        connection = _connection(engine.settings.home, count, made)
        for _ in range(_REHEARSALS):
            _synced(engine, connection, count)
        for has_many in (False, True):
            if has_many:
                for _ in range(loads):
                    _synced(engine, connection, count)
            checks.take()
            seconds = statistics.median(_synced(engine, connection, count) for _ in range(rounds))
            what = f"{engine.settings.catalog.format}, {count} table{'s' if count > 1 else ''}"
            what += f", {loads} loads later" if has_many else ""
            yield Figure(f"{what}: warm sync, s", seconds)
            yield Figure(f"{what}: check, ms a table", 1000 * checks.take(), _AT_MOST_MILLISECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scale.witness", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, nargs="*", default=[1, 20])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--loads", type=int, default=100, help="syncs between the first measure and the second")
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    formats: tuple[_FormatName, ...] = ("iceberg", "delta")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as alone:
        works = [alone.submit(_measured, each, chosen.tables, chosen.rounds, chosen.loads) for each in formats]
        figures = [figure for work in works for figure in work.result()]
    publish_figures(figures, chosen.write, _MARK)
    shutil.rmtree(_FOLDER)


if __name__ == "__main__":
    main()
