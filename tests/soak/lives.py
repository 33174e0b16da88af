"""Lives that are attacked at random moments, one after the other."""

import random
import shutil
import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tests.soak.grounds import Ground
from tests.soak.tally import Tally
from tests.soak.victims import Victim
from tests.sync.crashes.house import House
from tests.sync.crashes.iceberg_house import IcebergHouse
from tests.sync.crashes.life import SCOPES, Life
from tests.sync.crashes.sweep import SWEPT_MODES

_ROUNDS_A_LIFE = 3
_KILLS_A_ROUND = 4
_PATIENCE_SECONDS = 600.0
_LOOK_SECONDS = 0.005
_STEP_SECONDS = 0.05
_OUR_MISTAKE = ("This is our mistake", "InternalError")
_UNCAUGHT = 70


class Fault(AssertionError):
    """Something that must never happen, beside what a life itself asserts."""


class Soak:
    """Lives and kills on one ground, in one thread."""

    def __init__(self, ground: Ground, tally: Tally, chance: random.Random) -> None:
        self._ground, self._tally, self._chance = ground, tally, chance
        self._lengths: deque[float] = deque(maxlen=9)
        self._steps = 1
        self._lives = 0

    def run(self) -> None:
        while self._tally.goes_on:
            self._lives += 1
            mode, scope = self._chance.choice(list(SWEPT_MODES)), self._chance.choice(SCOPES)
            life = self._ground.life(f"{self._lives}-{mode}-{scope}", mode, scope)
            with judged(self._tally, life):
                self._live(life)
                remove(life)

    def _live(self, life: Life) -> None:
        if not self._lengths:
            self._come_to_an_end(life)
        for _ in range(_ROUNDS_A_LIFE):
            for _ in range(self._chance.randint(1, _KILLS_A_ROUND)):
                if self._tally.goes_on:
                    self._attack(life)
            self._come_to_an_end(life)

    def _come_to_an_end(self, life: Life) -> None:
        self._grow(life)
        began = time.monotonic()
        life.live()
        self._lengths.append(time.monotonic() - began)
        self._steps = len(life.house.points)
        self._tally.recovered(life.house.points)
        if leftovers := self._ground.leftovers():
            raise Fault(f"left behind: {leftovers}")

    def _attack(self, life: Life) -> None:
        self._grow(life)
        weapon = self._chance.choice(self._ground.weapons)
        name = weapon.__name__
        victim = Victim(self._ground.runner.start(life.house))
        came_late = self._lie_in_wait(victim, life)
        if not came_late:
            weapon(victim, self._chance)
            if not victim.ended_within(_PATIENCE_SECONDS):
                victim.kill()
                raise Fault(f"it hung after its {name} was killed")
        ended = self._ground.runner.end()
        victim.close()
        self._tally.recovered(life.house.points)
        if came_late and ended != 0:
            raise Fault(f"it ended with {ended} by itself")
        if ended == _UNCAUGHT or any(word in _told(life.house) for word in _OUR_MISTAKE):
            raise Fault(f"a mistake of our own came to light when {name} was killed")
        if came_late:
            self._tally.came_late()
        else:
            self._tally.killed(name)
        life.expect_order(name)

    def _lie_in_wait(self, victim: Victim, life: Life) -> bool:
        """Until a moment that is drawn by the clock, or by how far the sync has come: most of its time, one with a JVM
        only starts it. True when the sync ended before."""
        if self._chance.random() < 0.5:
            return victim.ended_within(self._chance.uniform(0, statistics.median(self._lengths)))
        steps = self._chance.randint(1, self._steps)
        while len(life.house.points) < steps:
            if victim.ended_within(_LOOK_SECONDS):
                return True
        return victim.ended_within(self._chance.uniform(0, _STEP_SECONDS))

    def _grow(self, life: Life) -> None:
        life.grow(self._chance.randint(*self._ground.new_records))


def _told(house: House) -> str:
    """What the last sync said, if it came to say anything."""
    files = [house.report_file, *([house.errors_file] if isinstance(house, IcebergHouse) else [])]
    return "".join(file.read_text() for file in files if file.exists())


@contextmanager
def judged(tally: Tally, life: Life) -> Iterator[None]:
    """Counts what went wrong, and so ends it all."""
    try:
        yield
    except AssertionError as error:
        tally.fault(f"{error!r}; kept in {life.house.home}", life.census())
    except BaseException:
        tally.fault(f"the soak itself broke; kept in {life.house.home}", (0, 0))
        raise


def remove(life: Life) -> None:
    life.house.store.close()
    shutil.rmtree(life.house.home.parent)
