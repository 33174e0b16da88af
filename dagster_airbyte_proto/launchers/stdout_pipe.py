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
_LONGEST_MOMENT_SECONDS = 0.01


class StdoutPipe:
    """Takes `file` over, which has no buffer of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._has_room = _enlarged(file)
        self._was_small = False
        self._moment_seconds = _LONGEST_MOMENT_SECONDS

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        """Some of what is there. For who knows that there is something, or that it has ended."""
        waits = self._was_small and self._has_room
        if waits:
            time.sleep(self._moment_seconds)
        chunk = self._file.read(CHUNK_BYTES) or b""
        self._was_small = len(chunk) < _SMALL_BYTES
        if waits:
            nearly_full = len(chunk) > CHUNK_BYTES // 2
            self._moment_seconds = min(self._moment_seconds * (0.5 if nearly_full else 2), _LONGEST_MOMENT_SECONDS)
        return chunk

    def rest(self) -> bytes:
        """All that is there."""
        size = array("i", [0])
        fcntl.ioctl(self._file, termios.FIONREAD, size)
        return self._file.read(size[0]) or b""

    def close(self) -> None:
        self._file.close()


def _enlarged(pipe: IO[bytes]) -> bool:
    """Whether it has 1 MiB instead of 64 KiB. A limit of the user or of the system may refuse."""
    with suppress(OSError, AttributeError):
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES) >= CHUNK_BYTES
    return False
