"""Names a process in words that a person can read and that its own machine can check.

The name holds the pid, the start time (a pid may be reused) and a mark of the kernel and pid namespace (containers have
pids of their own). Leases and containers are owned under such names. The process of a task has the number of its
attempt behind it.
"""

import os
import re
import socket
from pathlib import Path
from zlib import crc32

import psutil

_PATTERN = re.compile(r"pid (\d+) on .* \(started ([\d.]+), kernel ([0-9a-f]{8})\)(?:, attempt \d+)?")


def this_process() -> str:
    """The name of this process."""
    return f"pid {os.getpid()} on {socket.gethostname()} (started {_start_time(os.getpid())}, kernel {_kernel_id()})"


def is_dead(holder: str) -> bool:
    """True if the holder is certainly dead: then its lease can be taken over before it runs out."""
    return is_alive(holder) is False


def is_alive(holder: str) -> bool | None:
    """True if the process is alive; a stopped one is. None if nothing is known of it: it belongs to another machine or
    pid namespace, or the kernel hides it from us."""
    found = _PATTERN.fullmatch(holder)
    if found is None or found[3] != _kernel_id():
        return None
    try:
        return _start_time(int(found[1])) == found[2]
    except psutil.ZombieProcess:
        return False
    except (psutil.Error, OSError):
        # With `hidepid`, /proc has no processes of other users. Whether there is one, the kernel tells anyway.
        return None if _is_there(int(found[1])) else False


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # EPERM: there is one, of another user.
        return True
    return True


def _start_time(pid: int) -> str:
    process = psutil.Process(pid)
    if process.status() == psutil.STATUS_ZOMBIE:
        raise psutil.ZombieProcess(pid)
    if psutil.LINUX:
        # Field 22 of stat, in ticks since boot. psutil converts it to a time of day, which moves when the clock is set.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{process.create_time():.2f}"


def _kernel_id() -> str:
    """A mark of this host, boot and pid namespace: the same pid in two containers means two processes."""
    marks = [socket.gethostname()]
    for path, read in (("/proc/sys/kernel/random/boot_id", Path.read_text), ("/proc/self/ns/pid", os.readlink)):
        try:
            marks.append(str(read(Path(path))))
        except OSError:
            continue
    return f"{crc32(' '.join(marks).encode()):08x}"
