"""Kills real syncs at random moments, and looks whether anything is lost or there twice.

    python -m tests.soak --kills 2000 --tables folder     minutes: forked processes, no JVM
    python -m tests.soak --kills 100                      Iceberg: a command line and a JVM for each kill
    python -m tests.soak --kills 20 --through dagster     Iceberg: Dagster's run worker and a JVM for each kill
    python -m tests.soak --kills 100 --tables folder --launch docker
                                                          connectors in containers of an engine that is killed too
    python -m tests.soak --kills 0 --matrix               every point, mode and scope, and again in the recovery, on
                                                          Iceberg; with `--tables delta` on Delta
    python -m tests.soak --kills 0 --year 150             a year of so many days, beside a model: an hour on Iceberg

A life is one connection in one mode and scope, both drawn. Its source has more to tell each time; some syncs in a row
are killed, then one comes to its end and every row is counted. Killed is, at a moment drawn from the length or from the
steps of the syncs before: Python alone, the connector, its guardian, the JVM, or all of them at once; through Dagster
it is the run worker; with containers, the connector's, and Docker's daemon too. The first fault ends it all with exit
code 1, and the house that it happened in is kept.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from tests.soak.containers import docker_daemon
from tests.soak.grounds import Ground, open_ground, reading_session
from tests.soak.lives import Soak
from tests.soak.tally import Tally, tell
from tests.soak.years import live_years
from tests.sync.crashes.house import House
from tests.sync.crashes.iceberg_house import DeltaHouse, IcebergHouse
from tests.sync.crashes.life import SCOPES
from tests.sync.crashes.spark_zygote import SparkZygote
from tests.sync.crashes.sweep import SWEPT_MODES, life_of, sweep
from tests.sync.crashes.zygote import Zygote

_HOUSES: Mapping[str, type[House]] = {"iceberg": IcebergHouse, "delta": DeltaHouse, "folder": House}


def _soak(grounds: list[Ground], kills: int, seed: int) -> Tally:
    tally = Tally(kills)
    soaks = [Soak(ground, tally, random.Random(f"{seed} {number}")) for number, ground in enumerate(grounds)]
    with ThreadPoolExecutor(len(soaks)) as pool:
        try:
            list(pool.map(Soak.run, soaks))
        finally:
            tally.stop()
    return tally


def _matrix(root: Path, tables: str, session: SparkSession | None, at_once: int) -> None:
    """The crash sweep of the tests. Raises AssertionError at the first fault, and leaves the house that it is in."""
    made = _HOUSES[tables]

    def house(place: Path, protocol: str) -> House:
        found = made(place, session) if session and issubclass(made, IcebergHouse) else House(place)
        found.protocol = protocol
        return found

    zygotes = [SparkZygote(session) if session else Zygote() for _ in range(at_once)]
    of_airbyte = [(mode, scope, "airbyte") for mode in SWEPT_MODES for scope in SCOPES]
    for mode, scope, protocol in (*of_airbyte, ("append", "global", "singer")):
        folder = root / f"{mode}-{scope}-{protocol}"
        sweep(life_of(mode, scope, partial(house, protocol=protocol)), zygotes, folder)
        shutil.rmtree(folder)
        where = f"{protocol}, {mode}, {scope} state"
        tell(f"matrix of {tables}: {where}: killed at every point, and again in its recovery")
    for zygote in zygotes:
        zygote.close()


class _Options(NamedTuple):
    kills: int
    tables: str
    through: str
    launch: str
    matrix: bool
    year: int
    seed: int
    at_once: int


def _options(words: list[str]) -> _Options:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="how many syncs to kill")
    parser.add_argument("--tables", choices=tuple(_HOUSES), default="iceberg")
    parser.add_argument("--through", choices=("engine", "dagster"), default="engine", help="dagster takes Iceberg")
    parser.add_argument("--launch", choices=("local", "docker"), default="local", help="docker takes folder tables")
    parser.add_argument("--matrix", action="store_true", help="and then every point, mode and scope")
    parser.add_argument("--year", type=int, default=0, metavar="DAYS", help="and then a year of a connection")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--at-once", type=int, default=0, metavar="N", help="default: processors; 1 where each has a JVM"
    )
    told = parser.parse_args(words)
    if told.tables != "iceberg" and told.through == "dagster":
        parser.error("--through dagster takes --tables iceberg")
    if told.tables == "delta" and (told.kills or told.year):
        parser.error("--tables delta takes --kills 0 --matrix")
    if told.launch == "docker" and (told.tables != "folder" or told.matrix or told.year or told.at_once > 1):
        parser.error("--launch docker takes --tables folder and kills, one at a time")
    if told.launch == "docker":
        told.at_once = 1
    has_jvms = told.tables != "folder" and (told.kills or told.year)
    at_once = told.at_once or (1 if has_jvms else os.cpu_count() or 1)
    return _Options(told.kills, told.tables, told.through, told.launch, told.matrix, told.year, told.seed, at_once)


def main(words: list[str]) -> int:
    options = _options(words)
    tell(f"soak of {options.kills} kills on {options.tables} tables through {options.through}, --seed {options.seed}")
    # A killed process loses nothing of what is in memory, and syncing it to there costs nothing.
    fast = "/dev/shm" if options.tables == "folder" and Path("/dev/shm").is_dir() else None
    root = Path(tempfile.mkdtemp(prefix="airbyte-proto-soak-", dir=fast))
    with ExitStack() as open_things:
        session = (
            open_things.enter_context(reading_session(root, options.tables)) if options.tables != "folder" else None
        )
        daemon = open_things.enter_context(docker_daemon()) if options.launch == "docker" else None
        grounds = [
            open_things.enter_context(open_ground(root / str(number), session, options.through, daemon))
            for number in range(options.at_once)
        ]
        tally = _soak(grounds, options.kills, options.seed)
        if options.matrix and not tally.faults:
            _matrix(root / "matrix", options.tables, session, options.at_once)
        if options.year and not tally.faults:
            live_years(root / "years", session, options.year, options.seed)
    if options.kills:
        tell(str(tally))
    if tally.faults:
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
