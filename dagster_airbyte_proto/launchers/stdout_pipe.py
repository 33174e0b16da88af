"""The pipe that a program's stdout comes through, read in few and large chunks.

Programs write 8 KiB at a time, and mostly slower than we read. To take a chunk of that size apart costs as much as one
of 100 KiB, so after a small one what comes within a moment is waited for. The moment is so short that the pipe does
not fill in it, so that the program never waits for long.
"""

import fcntl
import termios
import time
from array import array
from contextlib import suppress
from typing import IO

CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10
_PLAIN_PIPE_BYTES = 64 << 10
_SHORTEST_MOMENT_SECONDS, _LONGEST_MOMENT_SECONDS = 0.00001, 0.01


class StdoutPipe:
    """Takes `file` over, which has no buffer of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._room_bytes = _enlarged(file)
        self._was_small = False
        self._moment_seconds = _LONGEST_MOMENT_SECONDS

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        """Some of what is there. For who knows that there is something, or that it has ended."""
        waited = self._was_small
        if waited:
            time.sleep(self._moment_seconds)
        chunk = self._file.read(CHUNK_BYTES) or b""
        if waited:
            nearly_full = len(chunk) > self._room_bytes // 2
            moment = self._moment_seconds * (0.5 if nearly_full else 2)
            self._moment_seconds = min(max(moment, _SHORTEST_MOMENT_SECONDS), _LONGEST_MOMENT_SECONDS)
        self._was_small = len(chunk) < _SMALL_BYTES
        return chunk

    def rest(self) -> bytes:
        """All that is there."""
        size = array("i", [0])
        fcntl.ioctl(self._file, termios.FIONREAD, size)
        return self._file.read(size[0]) or b""

    def close(self) -> None:
        self._file.close()


def _enlarged(pipe: IO[bytes]) -> int:
    """How much the pipe holds: 1 MiB where no limit of the user or of the system refuses that."""
    with suppress(OSError, AttributeError):
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
    return _PLAIN_PIPE_BYTES
