"""The pipe of a program's stdout, read in few and large chunks.

Programs write 8 KiB at a time, and mostly slower than we read. Parsing a chunk of 8 KiB costs as much as one of
100 KiB. So after a small chunk we pause before the next read, to let more arrive. The pause adapts: it shrinks when the
pipe was nearly full, so that the program never waits for long.
"""

import fcntl
import termios
import time
from array import array
from contextlib import suppress
from typing import IO

CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10
_DEFAULT_PIPE_BYTES = 64 << 10
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.00001, 0.01


class StdoutPipe:
    """Reads from `file`, which must be unbuffered. Closing the pipe closes the file.

    Without `pauses` each read is at once: for a program that waits for our answer to what it wrote.
    """

    def __init__(self, file: IO[bytes], *, pauses: bool = True) -> None:
        self._pauses = pauses
        self._file = file
        self._capacity_bytes = enlarge(file)
        self._was_small = False
        self._pause_seconds = _MAX_PAUSE_SECONDS

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        """Returns one chunk.

        The caller must know by `poll` that there is data or the end: a read may block otherwise.
        """
        waited = self._was_small
        if waited:
            time.sleep(self._pause_seconds)
        chunk = self._file.read(CHUNK_BYTES) or b""
        if waited:
            nearly_full = len(chunk) > self._capacity_bytes // 2
            pause = self._pause_seconds * (0.5 if nearly_full else 2)
            self._pause_seconds = min(max(pause, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
        self._was_small = self._pauses and len(chunk) < _SMALL_BYTES
        return chunk

    def read_rest(self) -> bytes:
        """Returns everything the pipe holds now."""
        size = array("i", [0])
        fcntl.ioctl(self._file, termios.FIONREAD, size)
        return self._file.read(size[0]) or b""

    def close(self) -> None:
        self._file.close()


def enlarge(pipe: IO[bytes]) -> int:
    """Enlarges the pipe to 1 MiB if the limits of the user and the system allow it. Returns its capacity."""
    with suppress(OSError, AttributeError):
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
    return _DEFAULT_PIPE_BYTES
