"""Plays many connections that are due at once: `python -m bench.scale.many`.

Whole syncs of small connections, three streams and 60 records each, by many processes that share one state store and
begin their next sync as soon as one has ended: the worst minute of an hour with 1,000 connections. Tables are plain
folders, so that the store is what they have in common. Each store gets the same connections, once for each number of
processes. An error counts, and so does the slowest sync beside the median one: a store that lets some wait for others
without end is not fair.
"""

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from bench.generate import Generated, Recipe, generate
from bench.meter import cpu_seconds
from bench.report import Figure, publish_figures, shown
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync import run
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT, tables
from tests.support.postgres import programs, running_server

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / ".bench" / "many"
_MARK = "many"
_RECORDS = 60
_AN_HOUR = 3600
_PROMISED = 1000


class Ended(NamedTuple):
    """The end of one sync. `error` is empty if it is complete, with all of its rows."""

    connection: str
    seconds: float
    error: str


class Played(NamedTuple):
    """Syncs that ended: `first` those by which each process imports what it needs, then those that are measured."""

    first: Sequence[Ended]
    measured: Sequence[Ended]
    seconds: float
    cpu_seconds: float

    @property
    def errors(self) -> list[str]:
        return [f"{each.connection}: {each.error}" for each in (*self.first, *self.measured) if each.error]


def _sync(home: Path, name: str) -> Ended:
    began = time.perf_counter()
    error = ""
    try:
        with Engine(Settings.load(home, home / "settings.yaml")) as engine:
            report = run.sync_connection(engine, Connection.from_file(home / f"{name}.yaml"))
        landed = sum(stream.committed for stream in report.streams.values())
        if (report.status, landed) != ("complete", _RECORDS):
            error = f"{report.status}, {landed} rows: {report.error}"
    except ProtoError as raised:
        error = str(raised)
    return Ended(name, time.perf_counter() - began, error)


def new_home(folder: Path, state_url: str, names: Sequence[str], made: Generated) -> Path:
    """Makes a home with connections of these names, whose source plays what was generated."""
    folder.mkdir()
    settings = {"state_url": state_url, "catalog": {"format": FOLDER_FORMAT}}
    (folder / "settings.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-I", "-S", str(_ROOT / "bench" / "replay_source.py")]
    document = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"recording": str(made.path), "catalog": str(made.catalog_path)},
        "streams": {"*": {"read": "incremental", "write": "append"}},
    }
    for name in names:
        (folder / f"{name}.yaml").write_text(json.dumps(document))
    return folder


def play(home: Path, names: Sequence[str], processes: int) -> Played:
    """Syncs each connection of a home once, in so many processes at a time."""
    # Each process is a fork of one that has imported everything, and shares its memory.
    context = get_context("forkserver")
    context.set_forkserver_preload([run.__name__, tables.__name__])
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        first = list(pool.map(partial(_sync, home), names[:processes]))
        cpu, began = cpu_seconds(), time.perf_counter()
        measured = list(pool.map(partial(_sync, home), names[processes:]))
        return Played(first, measured, time.perf_counter() - began, cpu_seconds() - cpu)


def _figures(what: str, home: Path, names: Sequence[str], processes: int) -> Iterator[Figure]:
    played = play(home, names, processes)
    for error in played.errors[:3]:
        print(f"{what}, {error}", file=sys.stderr)
    number, seconds = len(played.measured), [each.seconds for each in played.measured]
    median = statistics.median(seconds)
    what = f"{what}, {processes} processes"
    yield Figure(f"{what}: errors in {len(names)} syncs", len(played.errors), 0)
    yield Figure(f"{what}: time of the hour that {_PROMISED} take", played.seconds / number * _PROMISED / _AN_HOUR, 1)
    yield Figure(f"{what}: CPU s a sync", played.cpu_seconds / number)
    yield Figure(f"{what}: slowest sync / median one", max(seconds) / median)
    yield Figure(f"{what}: median sync, s", median)


def records(folder: Path) -> Generated:
    """Generates what each connection reads."""
    return generate(Recipe(_RECORDS, run_length=10, state_every=10), folder / "records.jsonl")


@contextmanager
def _stores() -> Iterator[dict[str, str]]:
    """The URL of each kind of store, as a template of a name."""
    sqlite = {"SQLite": f"sqlite:///{_FOLDER}/{{}}.db"}
    bin_folder = programs()
    if bin_folder is None:
        print("PostgreSQL is not installed, and not measured", file=sys.stderr)
        yield sqlite
        return
    with running_server(bin_folder) as server:
        yield {"PostgreSQL": server.new_store(), **sqlite}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scale.many", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connections", type=int, default=_PROMISED)
    parser.add_argument("--processes", type=int, nargs="*", default=[10, 50])
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    made = records(_FOLDER)
    found: list[Figure] = []
    with _stores() as stores:
        for kind, url in stores.items():
            for processes in chosen.processes:
                place = f"{kind}_{processes}".lower()
                names = [f"{place}_{number}" for number in range(processes + chosen.connections)]
                home = new_home(_FOLDER / place, url.format(place), names, made)
                found += map(shown, _figures(kind, home, names, processes))
    publish_figures(found, chosen.write, _MARK)
    shutil.rmtree(_FOLDER)


if __name__ == "__main__":
    main()
