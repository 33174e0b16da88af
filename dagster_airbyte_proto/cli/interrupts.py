"""Handles Ctrl-C and SIGTERM: the first signal stops the command in order, the second ends the process at once.

`timeout` and some supervisors send a signal to the process and again to its process group. So a second signal within
half a second counts as an echo of the first.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from dagster_airbyte_proto.tables.remote_sessions import stop_waiting, wait_again

CANCELLED = 130
_ECHO_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CURSOR_ON = "\x1b[?25h"

_Handler = Callable[[int, FrameType | None], None]


@contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt, like Ctrl-C, so that connectors are stopped and leases released."""
    wait_again()
    # A command in the background of a shell does not get Ctrl-C, and shall not.
    has_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with _handlers_set(_interrupt, _SIGNALS if has_ctrl_c else (signal.SIGTERM,)):
        yield


@contextmanager
def cancelling(
    cancel: threading.Event, is_reading: Callable[[], bool], kept: str = "complete loads are committed"
) -> Iterator[None]:
    """Sets `cancel` at the first signal; before the connector is read, or a stream is pushed, there is nothing to
    commit, so it raises KeyboardInterrupt too. The second signal ends the process at once."""
    first: float | None = None

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature of a handler
        nonlocal first
        if first is not None:
            if time.monotonic() - first > _ECHO_SECONDS:
                _exit_now()
            return
        first = time.monotonic()
        stop_waiting()
        cancel.set()
        _write(f"stopping: {kept} (press again to stop at once)")
        if not is_reading():
            raise KeyboardInterrupt

    with _handlers_set(on_signal, _SIGNALS):
        yield


def _interrupt(number: int, frame: FrameType | None) -> None:
    stop_waiting()
    signal.default_int_handler(number, frame)


@contextmanager
def _handlers_set(handler: _Handler, numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _exit_now() -> None:
    _write("left at once: the next run recovers")
    os._exit(CANCELLED)


def _write(text: str) -> None:
    """Writes to stderr with a plain `os.write`, because the signal may interrupt a print."""
    cursor = _CURSOR_ON if sys.stderr.isatty() else ""
    with suppress(OSError):  # as everything else that cannot be written to stderr
        os.write(2, f"{cursor}\n{text}\n".encode())
