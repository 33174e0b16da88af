"""The use of an environment: who uses it, since when, and whether a process of it may run now.

Beside each environment lies a file with the names of the connections that use it, a line each. The time of the file is
that of the last use. A process that uses the environment holds a shared lock (flock) on the file, which the kernel
frees however the process ends; who removes an environment must have the lock alone.
"""

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SUFFIX = ".users"


class EnvironmentUse:
    """Holds an environment, named by its link, for a connection: nobody removes it until this object is garbage.

    Waits for a removal that is under way, so the caller has to look afterwards whether the environment is still there.
    Holds nothing where the file cannot be written or locked: a read-only folder, from which nothing can be removed, or
    a network disk without locks.
    """

    def __init__(self, link: Path, connection: str) -> None:
        with suppress(OSError):
            descriptor = _open(link)
            weakref.finalize(self, os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if connection and connection not in users(link):
                os.write(descriptor, f"{connection}\n".encode())
            os.utime(descriptor)


def users(link: Path) -> tuple[str, ...]:
    """The names of the connections that have used the environment, in order of their first use.

    Empty where this user may not read them, as in an image that another one has built.
    """
    try:
        return tuple(dict.fromkeys(users_file(link).read_text(errors="replace").split()))
    except (FileNotFoundError, PermissionError):
        return ()


def used_at(link: Path) -> float | None:
    """The time of the last use, in seconds since 1970; None if no use was noted."""
    try:
        return users_file(link).stat().st_mtime
    except FileNotFoundError:
        return None


@contextmanager
def unused(link: Path) -> Iterator[bool]:
    """Gives True if no process uses the environment. Then none begins to until the block has ended."""
    is_new = not users_file(link).exists()
    descriptor = _open(link)
    try:
        if is_new:  # An older version noted no use. To look must not count as one.
            with suppress(FileNotFoundError):  # Another process has removed the environment.
                installed_at = link.lstat().st_mtime
                os.utime(descriptor, (installed_at, installed_at))
        yield locks_alone(descriptor)
    finally:
        os.close(descriptor)


def locks_alone(descriptor: int) -> bool:
    """Takes the lock of a file for this process alone. Returns False, without waiting, if another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """True if a process has the lock of a file. Writes nothing, and makes no file: the disk may be read-only.

    False where the file is not there, or cannot be opened or locked: a process that uses it there has no lock either.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS gives the lock to nobody who may only read.
    except FileNotFoundError:
        return False
    except OSError:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
    try:
        return not locks_alone(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def users_file(link: Path) -> Path:
    """The file beside an environment that says who uses it."""
    return link.with_name(link.name + _SUFFIX)


def _open(link: Path) -> int:
    return os.open(users_file(link), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
