"""Runs many schedules, from as many seeds: `make simulate N=100000`. `--replay FILE` runs one that was written down."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.simulation.schedule import Schedule, described, from_json, schedule_of, to_json
from tests.simulation.simulation import run_schedule
from tests.simulation.world import Place

_SEEDS_AT_ONCE = 50


class Found(NamedTuple):
    seed: int
    violation: str


class BatchResult(NamedTuple):
    """What some seeds brought: broken promises, the faults that happened, and syncs by outcome."""

    found: list[Found]
    fired: Counter[str]
    runs: Counter[str]


def run_seeds(seeds: Sequence[int], schedule_of: Callable[[int], Schedule] = schedule_of) -> BatchResult:
    """Runs the schedules of these seeds, one after the other."""
    result = BatchResult([], Counter(), Counter())
    with _place() as folder:
        place = Place(Path(folder))
        for seed in seeds:
            violation, fired, runs = run_schedule(schedule_of(seed), place)
            result.runs.update(runs)
            result.fired.update(f"{kind} {where.partition(' ')[0]}" for where, kind in fired)
            if violation:
                result.found.append(Found(seed, violation))
    return result


def shrunk(schedule: Schedule) -> tuple[Schedule, str]:
    """The smallest schedule below this one that breaks a promise, and what it breaks."""
    with _place() as folder:
        place = Place(Path(folder))
        violation = run_schedule(schedule, place).violation
        while smaller := next(_still_broken(schedule, place), None):
            schedule, violation = smaller
    return schedule, violation


def _still_broken(schedule: Schedule, place: Place) -> Iterator[tuple[Schedule, str]]:
    for smaller in schedule.smaller():
        if violation := run_schedule(smaller, place).violation:
            yield smaller, violation


def _place() -> "tempfile.TemporaryDirectory[str]":
    # Thousands of small files that are synced to disk: memory is quicker.
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="simulation-", dir=memory if os.access(memory, os.W_OK) else None)


def _report(found: Found) -> None:
    schedule, violation = shrunk(schedule_of(found.seed))
    name = Path(f"simulation-{found.seed}.json")
    name.write_text(to_json(schedule))
    _say(f"seed {found.seed}: {found.violation}")
    _say(f"  shrunk: {violation or 'it does not fail again'}\n  {described(schedule)}")
    _say(f"  again: python -m tests.simulation --replay {name}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _replay(file: Path) -> int:
    with _place() as folder:
        violation = run_schedule(from_json(file.read_text()), Place(Path(folder))).violation
    _say(violation or "it holds")
    return int(bool(violation))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("number", nargs="?", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--replay", type=Path, help="a schedule as JSON")
    given = parser.parse_args()
    if given.replay:
        return _replay(given.replay)
    started, total = time.monotonic(), BatchResult([], Counter(), Counter())
    seeds = range(given.first, given.first + given.number)
    batches = [seeds[at : at + _SEEDS_AT_ONCE] for at in range(0, len(seeds), _SEEDS_AT_ONCE)]
    with ProcessPoolExecutor() as pool:
        for result in pool.map(run_seeds, batches):
            total.fired.update(result.fired)
            total.runs.update(result.runs)
            total.found.extend(result.found)
            for found in result.found:
                _report(found)
    minutes = (time.monotonic() - started) / 60
    faults, runs = total.fired.total(), total.runs.total()
    _say(f"{len(seeds)} schedules with {faults} faults in {runs} runs: {len(total.found)} broken")
    _say(f"{minutes:.1f} minutes, {len(seeds) / minutes:.0f} schedules a minute")
    _say(f"runs: {dict(total.runs.most_common())}")
    _say(f"faults: {dict(total.fired.most_common())}")
    return int(bool(total.found))


if __name__ == "__main__":
    sys.exit(main())
