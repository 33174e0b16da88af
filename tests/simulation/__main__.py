"""Runs many schedules, from as many seeds: `make simulate N=100000`. `--through push` runs those of pushes, `--through
relay` those of relays, `--replay FILE` one that was written down."""

import argparse
import gc
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import msgspec

from tests.simulation.pushes.push_schedule import PushSchedule, push_schedule_of
from tests.simulation.pushes.push_simulation import run_push_schedule
from tests.simulation.relays.relay_schedule import RelaySchedule, relay_schedule_of
from tests.simulation.relays.relay_simulation import run_relay_schedule
from tests.simulation.schedule import Schedule, described, schedule_of
from tests.simulation.simulation import SimulationResult, run_schedule
from tests.simulation.world import Place

_SEEDS_AT_ONCE = 50


class _Shrinkable(Protocol):
    def smaller(self) -> Iterable[Self]: ...


_Schedule = TypeVar("_Schedule", bound=_Shrinkable)


class Lane(NamedTuple, Generic[_Schedule]):
    """The schedules of one kind of run, how one of them is run, and how it is read from JSON."""

    schedule_of: Callable[[int], _Schedule]
    run: Callable[[_Schedule, Place], SimulationResult]
    kind: type[_Schedule]


SYNCS: Final = Lane(schedule_of, run_schedule, Schedule)
PUSHES: Final = Lane(push_schedule_of, run_push_schedule, PushSchedule)
RELAYS: Final = Lane(relay_schedule_of, run_relay_schedule, RelaySchedule)
LANES: Final[dict[str, Lane[Any]]] = {"sync": SYNCS, "push": PUSHES, "relay": RELAYS}


class Found(NamedTuple):
    seed: int
    violation: str


class BatchResult(NamedTuple):
    """What some seeds brought: broken promises, the faults that happened, and syncs by outcome."""

    found: list[Found]
    fired: Counter[str]
    runs: Counter[str]


def run_seeds(seeds: Sequence[int], lane: Lane[Any] = SYNCS) -> BatchResult:
    """Runs the schedules of these seeds, one after the other."""
    result = BatchResult([], Counter(), Counter())
    with _place() as folder:
        place = Place(Path(folder))
        for seed in seeds:
            violation, fired, runs = lane.run(lane.schedule_of(seed), place)
            result.runs.update(runs)
            result.fired.update(f"{kind} {where.partition(' ')[0]}" for where, kind in fired)
            if violation:
                result.found.append(Found(seed, violation))
    return result


def shrunk(lane: Lane[_Schedule], schedule: _Schedule) -> tuple[_Schedule, str]:
    """The smallest schedule below this one that breaks a promise, and what it breaks."""
    with _place() as folder:
        place = Place(Path(folder))
        violation = lane.run(schedule, place).violation
        while smaller := next(_still_broken(lane, schedule, place), None):
            schedule, violation = smaller
    return schedule, violation


def _still_broken(lane: Lane[_Schedule], schedule: _Schedule, place: Place) -> Iterator[tuple[_Schedule, str]]:
    for smaller in schedule.smaller():
        if violation := lane.run(smaller, place).violation:
            yield smaller, violation


def _place() -> "tempfile.TemporaryDirectory[str]":
    # Thousands of small files that are synced to disk: memory is quicker.
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="simulation-", dir=memory if os.access(memory, os.W_OK) else None)


def _report(through: str, found: Found) -> None:
    lane = LANES[through]
    schedule, violation = shrunk(lane, lane.schedule_of(found.seed))
    name = Path(f"simulation-{through}-{found.seed}.json")
    name.write_bytes(msgspec.json.encode(schedule))
    _say(f"seed {found.seed}: {found.violation}")
    _say(f"  shrunk: {violation or 'it does not fail again'}\n  {described(schedule)}")
    _say(f"  again: python -m tests.simulation --through {through} --replay {name}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _replay(lane: Lane[Any], file: Path) -> int:
    with _place() as folder:
        violation = lane.run(msgspec.json.decode(file.read_bytes(), type=lane.kind), Place(Path(folder))).violation
    _say(violation or "it holds")
    return int(bool(violation))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("number", nargs="?", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--through", choices=LANES, default="sync", help="what the schedules run")
    parser.add_argument("--replay", type=Path, help="a schedule as JSON")
    given = parser.parse_args()
    lane = LANES[given.through]
    if given.replay:
        return _replay(lane, given.replay)
    started, total = time.monotonic(), BatchResult([], Counter(), Counter())
    seeds = range(given.first, given.first + given.number)
    batches = [seeds[at : at + _SEEDS_AT_ONCE] for at in range(0, len(seeds), _SEEDS_AT_ONCE)]
    # What is loaded by now is not looked through again and again for garbage.
    with ProcessPoolExecutor(initializer=gc.freeze) as pool:
        for result in pool.map(partial(run_seeds, lane=lane), batches):
            total.fired.update(result.fired)
            total.runs.update(result.runs)
            total.found.extend(result.found)
            for found in result.found:
                _report(given.through, found)
    minutes = (time.monotonic() - started) / 60
    faults, runs = total.fired.total(), total.runs.total()
    _say(f"{len(seeds)} schedules with {faults} faults in {runs} runs: {len(total.found)} broken")
    _say(f"{minutes:.1f} minutes, {len(seeds) / minutes:.0f} schedules a minute")
    _say(f"runs: {dict(total.runs.most_common())}")
    _say(f"faults: {dict(total.fired.most_common())}")
    return int(bool(total.found))


if __name__ == "__main__":
    sys.exit(main())
