"""The socket to a container's stdin: its own, attached before the start, and closed for writing to end the input.

1. The container is made with `StdinOnce`: the daemon closes its stdin when the one attached client stops writing. Only
   our direction is shut, and only of this socket, so stdout and stderr are read to their ends.
2. What is written waits in the socket, the daemon and two pipes, some 450 kB in all. Then the socket is full, and stays
   so while the connector does not read.
3. The daemon does not notice a container that ended until somebody writes to it, and not at all if it was writing then.
   So whoever sees the end has to `cut` the socket: that wakes a writer who waits for room.
"""

import io
import socket
import ssl
from contextlib import suppress


class StdinSocket(io.RawIOBase):
    """A file to write to, which does not block. Closing it ends the connector's input."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        stream.setblocking(False)

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | memoryview) -> int | None:  # type: ignore[override]  # Buffer has a name only from Python 3.12 on
        # A daemon behind TLS: the socket may have taken a part of a record, whose rest goes out with the next try.
        with suppress(BlockingIOError, ssl.SSLWantWriteError):
            return self._stream.send(data)
        return None

    def close(self) -> None:
        if not self.closed:
            with suppress(OSError):  # the daemon or the container has gone before
                self._stream.shutdown(socket.SHUT_WR)
        super().close()

    def cut(self) -> None:
        """Lets go of the socket, in whatever state it is, from any thread."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
