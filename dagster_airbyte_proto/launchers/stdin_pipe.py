"""The pipe to a program's stdin, written without blocking.

One thread may thus write and read in turn: a program that fills its stdout before it reads its stdin, and one that does
the opposite, both go on. A full pipe is the back-pressure of a slow program.
"""

import os
import select
import threading
import time
from contextlib import suppress
from typing import IO

from dagster_airbyte_proto.errors import ConnectorError, InternalError
from dagster_airbyte_proto.launchers.stdout_pipe import enlarge


class StdinPipe:
    """Writes to `file`, which must be unbuffered. Python ignores SIGPIPE, so a closed pipe is an error of the call."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()
        enlarge(file)
        # Only our end: the two ends of a pipe have flags of their own, and the program's stays as programs expect it.
        os.set_blocking(file.fileno(), False)

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        """Returns how many bytes the pipe took; 0 if it was full for that long. Raises ConnectorError if it is shut."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            if self._file.closed:
                raise InternalError("writing to the connector", "its input was closed, or it has ended")
            poll = select.poll()
            poll.register(self._file, select.POLLOUT)
            while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                # The kernel may call a pipe writable that has no room for all of a small write: try again.
                with suppress(BlockingIOError):
                    return self._write_now(data)
                if time.monotonic() >= deadline:
                    break
        return 0

    def _write_now(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._file.fileno(), data)
        except BrokenPipeError as error:
            raise ConnectorError("writing to the connector", "it no longer reads its input") from error

    def close(self) -> None:
        """Ends the program's input. Safe to call twice."""
        with self._lock:
            self._file.close()
