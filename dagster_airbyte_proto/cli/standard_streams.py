"""The standard streams of a command, which cron, supervisors and pipes may close, fill up or leave without a reader.

- A closed one is /dev/null. Otherwise the next file that is opened would get its number, and what libraries and child
  processes print would go into that file.
- stderr has progress and messages: what cannot be written there is lost, and the command goes on.
- stdout has the answer: letters that its encoding lacks are replaced.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast

_NUMBERS = (0, 1, 2)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Makes the streams of this process such, until the block ends."""
    _open_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    stderr = sys.stderr
    sys.stderr = cast("TextIO", _LossyStream(stderr))
    try:
        yield
    finally:
        sys.stderr = stderr
        try:
            stderr.flush()
        except OSError:
            give_up(stderr)


@contextmanager
def kept_stdout() -> Iterator[Callable[[], str]]:
    """Keeps what is printed to stdout in the block, and gives a function that returns it. Click prints help itself,
    where an error in writing would be taken for one of the command."""
    kept = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(kept, encoding="utf-8", write_through=True)) as stdout:
        yield lambda: "" if stdout.closed else kept.getvalue().decode()


def give_up(stream: TextIO) -> None:
    """Points a stream that cannot be written at /dev/null. Python flushes it again at its exit, and an error there
    would change the exit code."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _LossyStream:
    """A stream whose errors in writing are no errors."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def buffer(self) -> "_LossyStream":
        """Its bytes. Click writes to these where the encoding is ASCII."""
        return _LossyStream(self._stream.buffer)

    def write(self, text: str | bytes) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _open_closed() -> None:
    for number in _NUMBERS:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(number, True)
    # Python has none for those that were closed when it began.
    sys.stdout = sys.stdout or io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = sys.stderr or io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), line_buffering=True, errors="backslashreplace"
    )
