"""Who holds a lease, in words that a person reads and that this machine can check."""

import os
import re
import socket
from pathlib import Path
from zlib import crc32

import psutil

_WORDS = re.compile(r"pid (\d+) on .* \(started ([\d.]+), kernel ([0-9a-f]{8})\)")


def this_process() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()} (started {_started(os.getpid())}, kernel {_kernel()})"


def is_dead(holder: str) -> bool:
    """True only when it is known for certain, so that its lease need not run out first."""
    return lives(holder) is False


def lives(holder: str) -> bool | None:
    """Whether it does, if it is a process of this very kernel and process namespace: one that is stopped does. None for
    another machine's, of which nothing is known."""
    words = _WORDS.fullmatch(holder)
    if words is None or words[3] != _kernel():
        return None
    try:
        return _started(int(words[1])) == words[2]
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return False


def _started(pid: int) -> str:
    process = psutil.Process(pid)
    if process.status() == psutil.STATUS_ZOMBIE:
        raise psutil.NoSuchProcess(pid)
    if psutil.LINUX:
        # In ticks since the boot: the time of day that psutil makes of it moves when the clock is set.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{process.create_time():.2f}"


def _kernel() -> str:
    """Tells one boot and one process namespace from another: pids of two containers have nothing to do with another."""
    marks = [socket.gethostname()]
    for path, read in (("/proc/sys/kernel/random/boot_id", Path.read_text), ("/proc/self/ns/pid", os.readlink)):
        try:
            marks.append(str(read(Path(path))))
        except OSError:
            continue
    return f"{crc32(' '.join(marks).encode()):08x}"
