"""The output of the JVM: in a file, or on the stderr of this process.

Each start writes some thirty lines that tell nobody anything: Ivy's report of the packages, log4j's of its profile, the
JVM's of a module. No setting turns Ivy's off. So on stderr, the output of a start is shown only if the start fails.
"""

import os
import selectors
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOG_TAIL_BYTES = 2000
_READ_BYTES = 1 << 16
_MAX_HELD_BYTES = 1 << 20
_MAX_LOG_BYTES = 16 << 20


@contextmanager
def jvm_output(log: Path | None) -> Iterator[int]:
    """The file descriptor for the output of a JVM that is launched and starts meanwhile."""
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        _make_room(log)
        with log.open("ab") as file:
            yield file.fileno()
        return
    reading, writing = os.pipe()
    relay = _Relay(reading)
    try:
        yield writing
    except BaseException:
        os.close(writing)
        relay.show_start()
        raise
    os.close(writing)
    relay.drop_start()


def _make_room(log: Path) -> None:
    """Moves a large log to the place of the one before: each start adds to it. A JVM that runs goes on in that."""
    with suppress(OSError):  # It is not there yet, another process is quicker, or its folder cannot be changed.
        if log.stat().st_size > _MAX_LOG_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))


def last_output(log: Path | None) -> str:
    """Returns a text for an error: the last output of a JVM that did not start, or where it is."""
    if log is None or not log.is_file():
        return "The output of the JVM is on the stderr of this process."
    return f"The last output of the JVM:\n{log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors='replace').strip()}"


class _Relay:
    """Copies a pipe to stderr, in a thread that ends with the JVM. The output of the start is held back."""

    def __init__(self, reading: int) -> None:
        os.set_blocking(reading, False)
        self._reading: int | None = reading
        self._held: bytearray | None = bytearray()
        self._lock = threading.Lock()
        threading.Thread(target=self._copy, args=(reading,), name="jvm-output", daemon=True).start()

    def show_start(self) -> None:
        """Writes what was held back, and from now on everything at once."""
        with self._lock:
            self._read_waiting()
            held, self._held = self._held, None
        _write_to_stderr(bytes(held or b""))

    def drop_start(self) -> None:
        """Forgets what was held back. From now on everything is written at once."""
        with self._lock:
            self._read_waiting()
            self._held = None

    def _copy(self, reading: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(reading, selectors.EVENT_READ)
            while self._reading is not None:
                selector.select()
                with self._lock:
                    if self._read_waiting():
                        self._reading = None
        os.close(reading)

    def _read_waiting(self) -> bool:
        """Reads what waits in the pipe. True at its end."""
        while self._reading is not None:
            try:
                data = os.read(self._reading, _READ_BYTES)
            except BlockingIOError:
                return False
            if not data:
                return True
            if self._held is None:
                _write_to_stderr(data)
            else:
                self._held += data
                del self._held[:-_MAX_HELD_BYTES]
        return True


def _write_to_stderr(data: bytes) -> None:
    """To the file descriptor, as the JVM would: Dagster captures that, and `sys.stderr` may be something else.

    What cannot be written there (a full disk, a pipe without a reader) is lost: the JVM would wait for ever if nobody
    read on.
    """
    place = sys.__stderr__.fileno() if sys.__stderr__ else 2
    with suppress(OSError):
        while data:
            data = data[os.write(place, data) :]
