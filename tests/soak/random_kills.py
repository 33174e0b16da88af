"""Kills syncs of one connection after the other at random moments."""

import random
import shutil
import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tests.soak.environments import Environment
from tests.soak.kill_methods import RunningSync
from tests.soak.tally import Tally
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.killed_connection import SCOPES, KilledConnection
from tests.sync.crashes.spark_connections import IcebergConnection
from tests.sync.crashes.sweep import SWEPT_MODES

_ROUNDS = 3
_MAX_KILLS_IN_A_ROW = 4
_TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.005
_STEP_SECONDS = 0.05
_INTERNAL_ERROR_SIGNS = ("This is a bug of airbyte-proto", "InternalError")
_UNCAUGHT = 70


class Fault(AssertionError):
    """An event that must never happen, beside those that a killed connection asserts."""


class Soak:
    """Runs and kills syncs in one environment, in one thread."""

    def __init__(self, environment: Environment, tally: Tally, chance: random.Random) -> None:
        self._environment, self._tally, self._chance = environment, tally, chance
        self._lengths: deque[float] = deque(maxlen=9)
        self._steps = 1
        self._connections = 0

    def run(self) -> None:
        while self._tally.goes_on:
            self._connections += 1
            mode, scope = self._chance.choice(list(SWEPT_MODES)), self._chance.choice(SCOPES)
            killed = self._environment.new_connection(f"{self._connections}-{mode}-{scope}", mode, scope)
            with recording_faults(self._tally, killed):
                self._run_one_connection(killed)
                remove(killed)

    def _run_one_connection(self, killed: KilledConnection) -> None:
        if not self._lengths:
            self._sync_to_end(killed)
        for _ in range(_ROUNDS):
            for _ in range(self._chance.randint(1, _MAX_KILLS_IN_A_ROW)):
                if self._tally.goes_on:
                    self._kill_one_sync(killed)
            self._sync_to_end(killed)

    def _sync_to_end(self, killed: KilledConnection) -> None:
        self._grow(killed)
        began = time.monotonic()
        killed.sync_to_end()
        self._lengths.append(time.monotonic() - began)
        self._steps = len(killed.connection.points)
        self._tally.recovered(killed.connection.points)
        if leftovers := self._environment.leftovers():
            raise Fault(f"left behind: {leftovers}")

    def _kill_one_sync(self, killed: KilledConnection) -> None:
        self._grow(killed)
        kill_method = self._chance.choice(self._environment.kill_methods)
        name = kill_method.__name__
        running = RunningSync(self._environment.runner.start(killed.connection))
        ended_first = self._wait_for_moment(running, killed)
        if not ended_first:
            kill_method(running, self._chance)
            if not running.ended_within(_TIMEOUT_SECONDS):
                running.kill()
                raise Fault(f"it hung after its {name} was killed")
        ended = self._environment.runner.end()
        running.close()
        self._tally.recovered(killed.connection.points)
        if ended_first and ended != 0:
            raise Fault(f"it ended with {ended} by itself")
        if ended == _UNCAUGHT or any(word in _output(killed.connection) for word in _INTERNAL_ERROR_SIGNS):
            raise Fault(f"a mistake of our own came to light when {name} was killed")
        if ended_first:
            self._tally.came_late()
        else:
            self._tally.killed(name)
        killed.expect_order(name)

    def _wait_for_moment(self, running: RunningSync, killed: KilledConnection) -> bool:
        """Waits until a random moment, by the clock or by the progress of the sync: one with a JVM spends most
        of its time on starting it. True if the sync ended before."""
        if self._chance.random() < 0.5:
            return running.ended_within(self._chance.uniform(0, statistics.median(self._lengths)))
        steps = self._chance.randint(1, self._steps)
        while len(killed.connection.points) < steps:
            if running.ended_within(_POLL_SECONDS):
                return True
        return running.ended_within(self._chance.uniform(0, _STEP_SECONDS))

    def _grow(self, killed: KilledConnection) -> None:
        killed.add_records(self._chance.randint(*self._environment.new_records))


def _output(connection: FakeConnection) -> str:
    """The report and the errors of the last sync, if it wrote any."""
    files = [connection.report_file, *([connection.errors_file] if isinstance(connection, IcebergConnection) else [])]
    return "".join(file.read_text() for file in files if file.exists())


@contextmanager
def recording_faults(tally: Tally, killed: KilledConnection) -> Iterator[None]:
    """Records a failed assertion as a fault, which ends the soak."""
    try:
        yield
    except AssertionError as error:
        tally.fault(f"{error!r}; kept in {killed.connection.home}", killed.count_faults())
    except BaseException:
        tally.fault(f"the soak itself broke; kept in {killed.connection.home}", (0, 0))
        raise


def remove(killed: KilledConnection) -> None:
    killed.connection.store.close()
    shutil.rmtree(killed.connection.home.parent)
