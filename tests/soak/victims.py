"""A running sync, and what of it can be killed."""

import os
import random
import select
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil


class Victim:
    """A running sync. It is held by a descriptor, for its number may come to name another process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor: int | None = None
        with suppress(ProcessLookupError):  # it has ended already
            self._descriptor = os.pidfd_open(pid)

    def ended_within(self, seconds: float) -> bool:
        return self._descriptor is None or bool(select.select([self._descriptor], [], [], seconds)[0])

    def kill(self) -> None:
        if self._descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def below(self, word: str = "") -> list[psutil.Process]:
        """Its descendants, of those with `word` in the command line."""
        try:
            found = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in found if any(word in each for each in words_of(process))]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


Weapon = Callable[[Victim, random.Random], None]


def python(victim: Victim, chance: random.Random) -> None:
    victim.kill()


def tree(victim: Victim, chance: random.Random) -> None:
    below = victim.below()
    victim.kill()
    _kill_each(below)


def connector(victim: Victim, chance: random.Random) -> None:
    _kill_each([process for process in victim.below("fake_source") if "guardian.py" not in " ".join(words_of(process))])


def guardian(victim: Victim, chance: random.Random) -> None:
    _kill_each(victim.below("guardian.py"))


def jvm(victim: Victim, chance: random.Random) -> None:
    """Python learns of it in its own time, or dies right after."""
    _kill_each(victim.below("org.apache.spark"))
    if chance.random() < 0.5 and not victim.ended_within(chance.uniform(0, 1)):
        victim.kill()


def _kill_each(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
