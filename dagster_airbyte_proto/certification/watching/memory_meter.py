"""The memory that a connector takes: of the processes below its guardian, or of its container.

What is measured is the resident memory of all its processes together, a few times a second. Pages that two of them
share count twice, and a peak between two looks is not seen.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dagster_airbyte_proto.errors import ConfigError

MemoryMeter = Callable[[], Callable[[], int | None]]
"""Called before a connector is started; returns what then measures it. None: it cannot be measured, or not any more."""

_LOOK_SECONDS = 0.1
_PROC = Path("/proc")


class PeakMemory:
    """Measures from a thread of its own until it is stopped."""

    def __init__(self, meter: MemoryMeter) -> None:
        self.peak_bytes: int | None = None
        self._measure = meter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory of the connector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the measuring. Safe to call twice."""
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            found = self._measure()
            if found:
                self.peak_bytes = max(found, self.peak_bytes or 0)


def process_meter() -> Callable[[], int | None]:
    """Measures what our next child process starts: that child is the connector's guardian, and does not count."""
    if not (_PROC / "self" / "stat").exists():  # macOS
        return lambda: None
    others = set(_children()[os.getpid()])

    def measure() -> int:
        children = _children()
        guardians = [each for each in children[os.getpid()] if each not in others]
        return sum(_resident_bytes(each) for guardian in guardians for each in _below(guardian, children))

    return measure


def container_meter(connection: str, run_id: str) -> MemoryMeter:
    """Measures the container that runs for this run of a connection."""

    def meter() -> Callable[[], int | None]:
        # Docker's client takes a while to import.
        from dagster_airbyte_proto.launchers.docker.containers import connector_containers
        from dagster_airbyte_proto.launchers.docker.daemon import UNREACHABLE, open_daemon

        try:
            daemon = open_daemon().api
        except ConfigError:
            return lambda: None

        def measure() -> int | None:
            with suppress(*UNREACHABLE):
                for each in connector_containers(daemon):
                    if (each.labels.get("connection"), each.labels.get("run")) == (connection, run_id):
                        found = daemon.stats(each.name, stream=False, one_shot=True).get("memory_stats") or {}
                        return int(found.get("max_usage") or found.get("usage") or 0)
            return None

        return measure

    return meter


def _children() -> "defaultdict[int, list[int]]":
    """The process ids of the children of each process."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                # The second field is the program's name in parentheses, and may hold anything.
                parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                children[int(parent)].append(int(folder.name))
    return children


def _below(process: int, children: "defaultdict[int, list[int]]") -> Iterator[int]:
    for child in children[process]:
        yield child
        yield from _below(child, children)


def _resident_bytes(process: int) -> int:
    try:
        pages = int((_PROC / str(process) / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # It ended.
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
