"""The start of this process's JVM: one at a time, and how it is given up.

A process may end while a thread of it starts a JVM. One that is still resolving its packages notices neither the end
of its parent nor the signal that its parent got, and the thread that waits for it keeps the interpreter from exiting.
"""

import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psutil
import pyspark
from pyspark import SparkContext

_POLL_SECONDS = 0.1
_KILL_WAIT_SECONDS = 3.0
_lock = threading.Lock()
# The thread that has the lock, if any.
_starting: set[int] = set()

given_up: Final = threading.Event()
"""Set while a start is given up: then it waits for no other process that downloads jars."""


@contextmanager
def one_start_at_a_time() -> Iterator[None]:
    """Waits until no other thread starts a JVM."""
    with _lock:
        _starting.add(threading.get_ident())
        try:
            yield
        finally:
            _starting.clear()


def kill_starting_jvm(threads: Collection[int] | None = None) -> None:
    """Kills the JVM that another thread is starting, if it is one of these; that thread's `start_session` raises
    ConfigError. The one that anybody else is starting stays, and so does one that has started."""
    deadline = time.monotonic() + _KILL_WAIT_SECONDS
    try:
        while not _lock.acquire(timeout=_POLL_SECONDS):
            is_wanted = threads is None or not _starting.isdisjoint(threads)
            if not is_wanted or SparkContext._active_spark_context is not None or time.monotonic() > deadline:
                return
            given_up.set()
            _kill_child_jvms()
        _lock.release()
    finally:
        given_up.clear()


def _kill_child_jvms() -> None:
    for child in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError):
            if "pyspark-shell" in child.cmdline():
                os.killpg(child.pid, signal.SIGKILL)
