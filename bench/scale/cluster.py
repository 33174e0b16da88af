"""Measures syncs on executors beside the same syncs on the driver: `python -m bench.scale.cluster`.

A standalone cluster of two workers on this machine, and one session on it. The same recording is synced in alternation,
with the connector on the driver and on an executor. CPU seconds: of the driver (this process, its JVM, and the
connector where it runs here), and of the cluster's workers with their executors. Medians; the ratio of the driver's
counts.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from bench.generate import Generated, Recipe, generate
from bench.meter import cpu_seconds, descendants
from bench.report import Figure, publish_figures
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection
from tests.sync.cluster.spark_cluster import running_cluster

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / ".bench" / "cluster"
_MARK = "cluster"
_PLACES = ("driver", "executors")


class Spent(NamedTuple):
    """The cost of one sync. `workers` is the CPU of the cluster, idle or not."""

    driver: float
    workers: float
    wall: float


def _spent(settings: Mapping[str, str], workers: Sequence[int], made: Generated, rounds: int) -> dict[str, list[Spent]]:
    """The syncs of each place. Runs in a process of its own: the cluster is none of its descendants."""
    home = _FOLDER / "home"
    home.mkdir()
    (home / "settings.yaml").write_text(json.dumps({"spark": settings}))
    found: dict[str, list[Spent]] = {place: [] for place in _PLACES}
    with Engine(Settings.load(home, home / "settings.yaml")) as engine:
        connections = {place: _connection(place, made) for place in _PLACES}
        for number in range(rounds + 1):
            for place in _PLACES[:: -1 if number % 2 else 1]:
                spent = _sync(engine, connections[place], workers, made)
                print(f"{place:>10} {spent}", file=sys.stderr, flush=True)
                if number:  # The first one warms up.
                    found[place].append(spent)
    return found


def _sync(engine: Engine, connection: Connection, workers: Sequence[int], made: Generated) -> Spent:
    ours, theirs, began = cpu_seconds(), _cpu_below(workers), time.perf_counter()
    report = sync_connection(engine, connection)
    spent = Spent(cpu_seconds() - ours, _cpu_below(workers) - theirs, time.perf_counter() - began)
    landed = sum(stream.committed for stream in report.streams.values())
    if report.status != "complete" or landed != made.total_records:
        raise RuntimeError(f"{landed} rows of {made.total_records} landed: {report.error}")
    return spent


def _cpu_below(roots: Sequence[int]) -> float:
    return sum(process.cpu_seconds for root in roots for process in descendants(root))


def _connection(place: str, made: Generated) -> Connection:
    command = [sys.executable, "-I", "-S", str(_ROOT / "bench" / "replay_source.py")]
    document = {
        "name": f"on_{place}",
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"recording": str(made.path), "catalog": str(made.catalog_path)},
        "streams": {"*": {"read": "incremental", "write": "append"}},
        "run_on": place,
    }
    file = _FOLDER / f"on_{place}.yaml"
    file.write_text(json.dumps(document))
    return Connection.from_file(file)


def _figures(spent: Mapping[str, Sequence[Spent]], records: int) -> list[Figure]:
    millions = records / 1_000_000
    figures = []
    for place in _PLACES:
        driver, workers, wall = (statistics.median(each) for each in zip(*spent[place], strict=True))
        what = f"a million records, connector on the {place.removesuffix('s')}"
        figures += [
            Figure(f"{what}: CPU s of the driver", driver / millions),
            Figure(f"{what}: CPU s of the workers", workers / millions),
            Figure(f"{what}: wall s", wall / millions),
        ]
    pairs = zip(*(spent[place] for place in _PLACES), strict=True)
    ratio = statistics.median(there.driver / here.driver for here, there in pairs)
    return [*figures, Figure("CPU of the driver, connector on an executor / on the driver", ratio, 1 / 3)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scale.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    recipe = Recipe(chosen.records)
    data = _FOLDER.parent / "data"
    data.mkdir(exist_ok=True)
    made = generate(recipe, data / f"{recipe.name}.jsonl")
    os.environ["PYTHONPATH"] = str(_ROOT)
    with running_cluster(_FOLDER) as cluster, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        spent = alone.submit(_spent, cluster.settings, cluster.pids, made, chosen.rounds).result()
    publish_figures(_figures(spent, chosen.records), chosen.write, _MARK)
    shutil.rmtree(_FOLDER)


if __name__ == "__main__":
    main()
