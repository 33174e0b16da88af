"""Kills real syncs at random moments, and looks whether anything is lost or there twice.

    python -m tests.soak --kills 2000 --tables folder     minutes: forked processes, no JVM
    python -m tests.soak --kills 100                      Iceberg: a command line and a JVM for each kill
    python -m tests.soak --kills 20 --through dagster     Iceberg: Dagster's run worker and a JVM for each kill
    python -m tests.soak --kills 0 --matrix               every point, mode and scope, and again in the recovery: hours
    python -m tests.soak --kills 0 --year 150             a year of so many days, beside a model: an hour on Iceberg

A life is one connection in one mode and scope, both drawn. Its source has more to tell each time; some syncs in a row
are killed, then one comes to its end and every row is counted. Killed is, at a moment drawn from the length or from the
steps of the syncs before: Python alone, the connector, its guardian, the JVM, or all of them at once; through Dagster
it is the run worker. The first fault ends it all with exit code 1, and the house that it happened in is kept.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.points import POINTS
from tests.fork_server import Kill
from tests.soak.grounds import Ground, open_ground, reading_session
from tests.soak.lives import Soak, judged, remove
from tests.soak.tally import Tally, tell
from tests.soak.years import live_years
from tests.sync.life import MODES, SCOPES, Life, every_kill


def _soak(grounds: list[Ground], kills: int, seed: int) -> Tally:
    tally = Tally(kills)
    soaks = [Soak(ground, tally, random.Random(f"{seed} {number}")) for number, ground in enumerate(grounds)]
    with ThreadPoolExecutor(len(soaks)) as pool:
        try:
            list(pool.map(Soak.run, soaks))
        finally:
            tally.stop()
    return tally


def _matrix(grounds: list[Ground]) -> Tally:
    """The crash sweep of the tests, on these grounds."""
    tally = Tally(0)
    for mode in MODES:
        for scope in SCOPES:
            lives = [ground.life(f"matrix-{mode}-{scope}", mode, scope) for ground in grounds]
            _sweep(lives, tally)
            reached = sum((life.reached for life in lives), Counter[str]())
            if not tally.faults and set(reached) != set(POINTS):
                tally.fault(f"points never reached, or not in the list: {set(reached) ^ set(POINTS)}", (0, 0))
            if tally.faults:
                return tally
            for life in lives:
                remove(life)
            tell(f"matrix: {mode}, {scope} state: killed at every point, and again in its recovery")
    return tally


def _sweep(lives: list[Life], tally: Tally) -> None:
    def run_clean(life: Life) -> list[str]:
        with judged(tally, life):
            life.survive()
            life.survive()
        return life.house.points

    def suffer(life: Life, kills: list[Kill]) -> None:
        with judged(tally, life):
            life.survive_all(kills)

    with ThreadPoolExecutor(len(lives)) as pool:
        kills = every_kill(next(iter(pool.map(run_clean, lives))))
        list(pool.map(suffer, lives, [kills[number :: len(lives)] for number in range(len(lives))]))


class _Options(NamedTuple):
    kills: int
    tables: str
    through: str
    matrix: bool
    year: int
    seed: int
    at_once: int


def _options(words: list[str]) -> _Options:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="how many syncs to kill")
    parser.add_argument("--tables", choices=("iceberg", "folder"), default="iceberg")
    parser.add_argument("--through", choices=("engine", "dagster"), default="engine", help="dagster takes Iceberg")
    parser.add_argument("--matrix", action="store_true", help="and then every point, mode and scope")
    parser.add_argument("--year", type=int, default=0, metavar="DAYS", help="and then a year of a connection")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--at-once", type=int, default=0, metavar="N", help="default: 1 with JVMs, else the processors")
    told = parser.parse_args(words)
    if told.through == "dagster" and told.tables != "iceberg":
        parser.error("--through dagster takes --tables iceberg")
    at_once = told.at_once or (1 if told.tables == "iceberg" else os.cpu_count() or 1)
    return _Options(told.kills, told.tables, told.through, told.matrix, told.year, told.seed, at_once)


def main(words: list[str]) -> int:
    options = _options(words)
    tell(f"soak of {options.kills} kills on {options.tables} tables through {options.through}, --seed {options.seed}")
    # A killed process loses nothing of what is in memory, and syncing it to there costs nothing.
    fast = "/dev/shm" if options.tables == "folder" and Path("/dev/shm").is_dir() else None
    root = Path(tempfile.mkdtemp(prefix="airbyte-proto-soak-", dir=fast))
    with ExitStack() as open_things:
        session = open_things.enter_context(reading_session(root)) if options.tables == "iceberg" else None
        grounds = [
            open_things.enter_context(open_ground(root / str(number), session, options.through))
            for number in range(options.at_once)
        ]
        tally = _soak(grounds, options.kills, options.seed)
        swept = _matrix(grounds) if options.matrix and not tally.faults else None
        if options.year and not tally.faults and not (swept and swept.faults):
            live_years(root / "years", session, options.year, options.seed)
    if options.kills:
        tell(str(tally))
    if tally.faults or (swept and swept.faults):
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
