"""One writer at a time for tables in folders of this machine.

Delta's log on a local disk, and an Iceberg catalog of type `hadoop`, look whether a version exists and then rename a
file to it. Between the two another process may do the same, and one of the commits is lost. So our commits hold a lock
(flock) on the table's folder meanwhile, which the kernel frees however its holder ends. Only the jobs of a compaction
do not: they commit by themselves, after minutes for which loads would wait.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dagster_airbyte_proto.loads.storage import is_local, without_file_scheme

_POLL_SECONDS = 0.01
_MOST_SECONDS = 30.0


@contextmanager
def only_writer(location: str) -> Iterator[None]:
    """Waits until no other process commits to the table at `location`.

    For one that is stopped in the middle it waits half a minute, and then goes on: the version that it was about to
    write is then most likely written, or taken.
    """
    folder = _open_folder(location)
    if folder is None:
        yield
        return
    try:
        with suppress(OSError):  # NFS locks no folder.
            locked_in_time(folder, _MOST_SECONDS)
        yield
    finally:
        os.close(folder)


def locked_in_time(file: int, seconds: float, mode: int = fcntl.LOCK_EX) -> bool:
    """Waits for the lock of an open file. False if another process held it all the time. Raises OSError where the file
    system has no locks."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)


def _open_folder(location: str) -> int | None:
    """The table's folder; None if it is not on this machine, or not there yet."""
    if not is_local(location):
        return None
    try:
        return os.open(without_file_scheme(location), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
