"""Ctrl-C and SIGTERM: the first asks to stop, the second does not ask.

`timeout` and some supervisors send a signal to the process and once more to its group: what follows at once is an
echo of the first, not a second thought.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CANCELLED = 130
_ECHO_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CURSOR_ON = "\x1b[?25h"

_Handler = Callable[[int, FrameType | None], None]


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: by an exception, so that connectors are stopped and leases given back."""
    with _in_force(signal.default_int_handler, (signal.SIGTERM,)):
        yield


@contextmanager
def cancelling(cancel: threading.Event, is_reading: Callable[[], bool]) -> Iterator[None]:
    """Sets `cancel` at the first signal. Before the connector is read there is nothing to bring to a good end, and
    the command is left by KeyboardInterrupt. The second signal ends the process on the spot."""
    first: float | None = None

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature is Python's
        nonlocal first
        if first is not None:
            if time.monotonic() - first > _ECHO_SECONDS:
                _leave()
            return
        first = time.monotonic()
        cancel.set()
        _say("stopping: what is complete is committed (once more to leave at once)")
        if not is_reading():
            raise KeyboardInterrupt

    with _in_force(on_signal, _SIGNALS):
        yield


@contextmanager
def _in_force(handler: _Handler, numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _leave() -> None:
    _say("left at once: the next run recovers")
    os._exit(CANCELLED)


def _say(text: str) -> None:
    """By a plain write: a signal may come in the middle of any print."""
    cursor = _CURSOR_ON if sys.stderr.isatty() else ""
    os.write(2, f"{cursor}\n{text}\n".encode())
