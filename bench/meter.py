"""Measures from inside a contender what its work costs. Standard library only: every environment imports it.

CPU is this process, its children that have ended, and its descendants that still live (a JVM, for one), the
living ones read from /proc in ticks of 10 ms. So a contender can leave out its imports and the start of a session,
and still counts the CPU of every process that works for it. The runner checks it from outside, see `process_tree`.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Task(NamedTuple):
    """The task of a contender, as JSON in its one argument. It has `folder`, which is empty, for itself."""

    recording: str
    catalog: str
    connector: str
    folder: str
    repeat: int = 1
    options: Mapping[str, Any] = {}

    @classmethod
    def from_argument(cls, argument: str) -> "Task":
        return cls(**json.loads(argument))


class Cost(NamedTuple):
    """The cost of a contender. `rows` is the number of rows in the destination, counted after the clock has stopped."""

    rows: int
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    versions: dict[str, str]


class Living(NamedTuple):
    pid: int
    parent: int
    cpu_seconds: float
    resident_bytes: int


def processes() -> dict[int, Living]:
    """All running processes, without those that end meanwhile."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - called many times a second, pathlib triples its cost
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = text[text.rindex(")") + 2 :].split()
            cpu = sum(int(ticks) for ticks in fields[11:15]) * _TICK
            found[int(entry)] = Living(int(entry), int(fields[1]), cpu, int(fields[21]) * _PAGE_BYTES)
    return found


def descendants(root: int) -> list[Living]:
    """The living descendants of `root`."""
    alive = processes()
    below, edge = [], {root}
    while edge:
        generation = [process for process in alive.values() if process.parent in edge]
        below += generation
        edge = {process.pid for process in generation}
    return below


def cpu_seconds() -> float:
    """The CPU seconds of this process and all that it started, ended or alive."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    past = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return past + sum(process.cpu_seconds for process in descendants(os.getpid()))


def peak_bytes() -> int:
    """The peak memory of this process. Not `ru_maxrss`: that includes the parent's size from before the exec."""
    return high_water_bytes("self")


def high_water_bytes(pid: int | str) -> int:
    """The peak memory of a process since the last reset; 0 when it has ended."""
    try:
        lines = Path("/proc", str(pid), "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def childrens_peak_bytes() -> int:
    """The peak memory of the largest child that has ended, for contenders that only start a program."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def measure(
    work: Callable[[], object],
    rows: Callable[[], int],
    versions: dict[str, str],
    peak: Callable[[], int] = peak_bytes,
) -> None:
    """Times `work`, counts its rows, and prints the cost as the last line of stdout, which the runner reads."""
    if arrow := sys.modules.get("pyarrow"):
        arrow.array([0])  # the first one imports pandas, where that is installed
    wall, cpu = time.perf_counter(), cpu_seconds()
    work()
    cost = cpu_seconds() - cpu, time.perf_counter() - wall, peak()
    print(json.dumps(Cost(rows(), *cost, versions)._asdict()), flush=True)
