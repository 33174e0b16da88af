"""A connector's stdin, written without blocking: a pipe to a program, or a socket to the daemon of a container.

One thread may thus write and read in turn: a connector that fills its stdout before it reads its stdin, and one that
does the opposite, both go on. The kernel's buffer is the only one on our side: when it is full, a slow connector holds
the writer up, and our memory stays as it is.
"""

import io
import select
import threading
import time

from dagster_airbyte_proto.errors import ConnectorError, InternalError

_DOING = "writing to the connector"


class StdinWriter:
    """Writes to `file`, which does not buffer and does not block; None if the connector takes no input.

    Python ignores SIGPIPE, so a closed pipe is an error of the call.
    """

    def __init__(self, file: io.RawIOBase | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._has_ended = False
        self._poll = select.poll()
        if file is not None:
            self._poll.register(file.fileno(), select.POLLOUT)

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        """Returns how many bytes were taken; 0 if there was no room for that long. Raises ConnectorError at the end."""
        if self._file is None:
            raise InternalError(_DOING, "its invocation takes no input")
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            if self._has_ended:
                raise ConnectorError(_DOING, "it has ended")
            if self._file.closed:
                raise InternalError(_DOING, "its input was closed")
            while self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                # The kernel may call a pipe writable that has no room for all of a small write: try again.
                if (taken := self._write_now(self._file, data)) is not None:
                    return taken
                if time.monotonic() >= deadline:
                    break
        return 0

    def _write_now(self, file: io.RawIOBase, data: bytes | memoryview) -> int | None:
        try:
            return file.write(data)
        except OSError as error:
            found = "it has ended" if self._has_ended else "it no longer reads its input"
            raise ConnectorError(_DOING, found) from error

    def close(self) -> None:
        """Ends the connector's input. Safe to call twice."""
        if self._file is not None:
            with self._lock:
                self._file.close()

    def mark_ended(self) -> None:
        """Later writes raise ConnectorError, whether or not the input was closed. Never waits for a writer."""
        self._has_ended = True
