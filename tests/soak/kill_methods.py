"""A running sync, and the processes of it that can be killed."""

import os
import random
import select
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

_COMPONENT = "child_program.py"
"""A component, at either end of a relay."""


class RunningSync:
    """A running sync, held by a descriptor, since its process id may later be that of another process."""

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
        """Its descendants at any depth with `word` in their command line."""
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


KillMethod = Callable[[RunningSync, random.Random], None]


def python(running: RunningSync, chance: random.Random) -> None:
    running.kill()


def tree(running: RunningSync, chance: random.Random) -> None:
    below = running.below()
    running.kill()
    kill_each(below)


def connector(running: RunningSync, chance: random.Random) -> None:
    _kill_connectors(running, ("fake_source", _COMPONENT))


def destination(running: RunningSync, chance: random.Random) -> None:
    _kill_connectors(running, ("fake_destination", "fake_syncmaven", _COMPONENT))


def guardian(running: RunningSync, chance: random.Random) -> None:
    kill_each(running.below("guardian.py"))


def executor(running: RunningSync, chance: random.Random) -> None:
    """Kills the process of the task. Another attempt takes its place."""
    kill_each(running.below("spawn_main"))


def jvm(running: RunningSync, chance: random.Random) -> None:
    """Kills the JVM. Python notices later, or dies right after."""
    kill_each(running.below("org.apache.spark"))
    if chance.random() < 0.5 and not running.ended_within(chance.uniform(0, 1)):
        running.kill()


def _kill_connectors(running: RunningSync, words: tuple[str, ...]) -> None:
    below = [process for word in words for process in running.below(word)]
    kill_each([process for process in below if "guardian.py" not in " ".join(words_of(process))])


def kill_each(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
