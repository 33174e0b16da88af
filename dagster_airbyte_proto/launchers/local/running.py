"""A running program: the side of it that we hold.

Two threads touch it: the caller's, which reads stdout, and one of our own, which drains stderr and waits for what the
guardian reports. `stop` may come from a third.
"""

import os
import select
import selectors
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.launchers.local import guardian
from dagster_airbyte_proto.launchers.process import ExitReport, RunOptions
from dagster_airbyte_proto.launchers.run_folder import RunFolder, WatchedFile
from dagster_airbyte_proto.launchers.stderr_tail import StderrTail
from dagster_airbyte_proto.launchers.stdout_pipe import StdoutPipe

GUARDIAN_END_SECONDS = 10.0
_STDERR_CHUNK_BYTES = 64 * 1024


class Pipes(NamedTuple):
    """`control` is ours alone: its end ends the guardian. `report` is how the guardian answers."""

    control: int
    report: int


class LocalConnector:
    """A running program. Nothing of it runs any more, and its folder is gone, once `wait` gives its report."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: Pipes,
        said: bytes,
        place: tuple[RunFolder, WatchedFile | None],
        options: RunOptions,
    ) -> None:
        self._process = process
        self._pipes = pipes
        self._said = said
        self._folder, self._watched = place
        self._stop_seconds = options.stop_grace_seconds + GUARDIAN_END_SECONDS
        self._stderr = StderrTail(options.on_stderr)
        self._stdout = None if process.stdout is None else StdoutPipe(process.stdout)
        self._reading = threading.Lock()
        self._asking = threading.Lock()
        self._asked_to_stop = False
        self._ended = threading.Event()
        self._report: ExitReport | None = None
        self._started_at = time.monotonic()
        threading.Thread(target=self._watch, name="connector-stderr", daemon=True).start()

    def read(self, timeout_seconds: float) -> bytes | None:
        with self._reading:
            return self._read(timeout_seconds)

    def _read(self, timeout_seconds: float) -> bytes | None:
        if self._stdout is None:
            return b""
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        if not poll.poll(max(0.0, timeout_seconds) * 1000):
            return None
        chunk = self._stdout.read()
        if not chunk:
            self._close_stdout()
        return chunk

    def stop(self) -> None:
        self._ask_to_stop()
        deadline = time.monotonic() + self._stop_seconds
        # A connector that handles SIGTERM may have much to say before it ends. Where no other thread reads it, we do.
        discarded = False
        while not self._ended.wait(0 if discarded else 0.02):
            discarded = self._discard_chunk()
            if time.monotonic() > deadline:
                self._process.kill()  # a guardian that does not answer; the kernel kills the connector after it
        with self._reading:
            self._close_stdout()

    def _discard_chunk(self) -> bool:
        if not self._reading.acquire(blocking=False):
            return False
        try:
            return bool(self._read(0))
        finally:
            self._reading.release()

    def _ask_to_stop(self) -> None:
        with self._asking:
            if not self._ended.is_set() and not self._asked_to_stop:
                self._asked_to_stop = True
                with suppress(BrokenPipeError):  # the guardian has just ended
                    os.write(self._pipes.control, guardian.STOP)

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        """As the interface says. Raises what `on_stderr` raised, once the connector has ended."""
        if not self._ended.wait(timeout_seconds):
            return None
        if self._stderr.failure is not None:
            raise self._stderr.failure
        if self._report is None:
            raise InternalError("waiting for the connector", "the thread that watches it died")
        return self._report

    def changed_file(self) -> bytes | None:
        return None if self._watched is None else self._watched.change()

    def _close_stdout(self) -> None:
        if self._stdout is not None:
            self._stdout.close()
            self._stdout = None

    def _watch(self) -> None:
        """The work of our own thread."""
        try:
            self._hear_until_gone()
            self._stderr_ended()
            self._report = self._exit_report()
        finally:
            with self._asking:
                os.close(self._pipes.control)
                self._ended.set()
            os.close(self._pipes.report)

    def _hear_until_gone(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None, "it was started with a pipe"
        with selectors.DefaultSelector() as selector:
            selector.register(stderr, selectors.EVENT_READ)
            selector.register(self._pipes.report, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    heard = os.read(key.fd, _STDERR_CHUNK_BYTES)
                    if key.fd == self._pipes.report:
                        if not heard:
                            return
                        self._said += heard
                        continue
                    self._stderr.hear(heard)
                    if not heard:
                        selector.unregister(stderr)

    def _stderr_ended(self) -> None:
        """Takes what is still in the pipe. Never waits: a stranger may hold its other end."""
        stderr = self._process.stderr
        assert stderr is not None, "it was started with a pipe"
        os.set_blocking(stderr.fileno(), False)
        with suppress(BlockingIOError):
            while chunk := os.read(stderr.fileno(), _STDERR_CHUNK_BYTES):
                self._stderr.hear(chunk)
        self._stderr.hear(b"")
        stderr.close()

    def _exit_report(self) -> ExitReport:
        self._process.wait()
        said = dict(line.split(b" ", 1) for line in self._said.splitlines())
        if b"exited" in said:
            code = int(said[b"exited"])
        else:  # the guardian was killed, and the kernel killed the connector after it: now what the connector forked
            code = -signal.SIGKILL
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(said[b"started"]), signal.SIGKILL)
        if self._watched is not None:
            self._watched.change(anew=True)  # It tells of it from now on.
        self._folder.remove()
        return ExitReport(
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stopped=self._asked_to_stop,
            seconds=time.monotonic() - self._started_at,
            stderr_tail=self._stderr.lines(),
        )
