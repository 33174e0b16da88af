"""Runs a command and measures the CPU, time and memory of its whole tree of processes.

- CPU is exact. The runner is the reaper of orphans, so each descendant is waited for by its own parent or by us, and
  `wait4` gives the CPU of those to the microsecond. A JVM that outlives its Python is in the sum. Only children of a
  parent that ignores SIGCHLD would be missed; no contender does that.
- Memory of the tree is sampled ten times a second.
- The peak of the command's own process is read and reset each time its source has written another gigabyte. It is
  exact within a gigabyte, and off by up to a tenth of a second at its borders.
"""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from bench.meter import Living, descendants, high_water_bytes
from bench.orphans import adopt_orphans

_SAMPLE_SECONDS = 0.1
_GRACE_SECONDS = 20.0
GIGABYTE = 10**9


class Measured(NamedTuple):
    """The cost of one command. `gigabyte_peaks` has the peak memory of its own process during each gigabyte that its
    source wrote, the last one not whole."""

    exit_code: int
    cpu_seconds: float
    wall_seconds: float
    tree_peak_bytes: int
    gigabyte_peaks: tuple[int, ...]
    output: str


def run_measured(command: list[str], *, folder: Path, environment: dict[str, str]) -> Measured:
    """Runs a command until it and all that it started have ended. What still runs after 20 s is killed, by its id."""
    adopt_orphans()
    started = time.perf_counter()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        # The repository's root is the working directory of every contender: `-m bench.…` is found there.
        root = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
                                cwd=Path(__file__).parent.parent)  # fmt: skip
    watched = _Watched(root.pid)
    root.returncode = watched.until_all_ended()  # waited for by hand, `Popen` must not try again
    wall = watched.root_ended_at - started
    output = (folder / "stdout").read_text(errors="replace")
    return Measured(
        root.returncode, watched.cpu_seconds, wall, watched.peak_bytes, tuple(watched.gigabyte_peaks), output
    )


class _Watched:
    def __init__(self, root: int) -> None:
        self._root = root
        self._source = 0
        self.cpu_seconds = 0.0
        self.peak_bytes = 0
        self.root_ended_at = 0.0
        self.gigabyte_peaks = [0]

    def until_all_ended(self) -> int:
        code: int | None = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                if code is None:
                    raise
                return code
            if pid:
                self.cpu_seconds += usage.ru_utime + usage.ru_stime
                if pid == self._root:
                    code, self.root_ended_at = os.waitstatus_to_exitcode(status), time.perf_counter()
                continue
            below = descendants(os.getpid())
            if code is None:
                self._sample(below)
            elif time.perf_counter() - self.root_ended_at > _GRACE_SECONDS:
                _kill(below)
            time.sleep(_SAMPLE_SECONDS)

    def _sample(self, below: list[Living]) -> None:
        self.peak_bytes = max(self.peak_bytes, sum(process.resident_bytes for process in below))
        if not any(process.pid == self._source for process in below):  # a contender may warm up with another first
            self._source = next((process.pid for process in below if _is_reading_source(process.pid)), 0)
        self._note_peak(_written_bytes(self._source))

    def _note_peak(self, written_bytes: int) -> None:
        if not written_bytes:
            return
        self.gigabyte_peaks[-1] = max(self.gigabyte_peaks[-1], high_water_bytes(self._root))
        if written_bytes >= len(self.gigabyte_peaks) * GIGABYTE:
            Path("/proc", str(self._root), "clear_refs").write_text("5")  # proc(5): resets the high-water mark
            self.gigabyte_peaks.append(0)


def _is_reading_source(pid: int) -> bool:
    arguments = _proc(pid, "cmdline").split("\0")
    return any(argument.endswith("replay_source.py") for argument in arguments) and "read" in arguments


def _written_bytes(pid: int) -> int:
    lines = dict(line.split(": ") for line in _proc(pid, "io").splitlines())
    return int(lines.get("wchar", 0))


def _proc(pid: int, name: str) -> str:
    try:
        return Path("/proc", str(pid), name).read_text()
    except OSError:  # it has just ended
        return ""


def _kill(below: list[Living]) -> None:
    for process in below:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
