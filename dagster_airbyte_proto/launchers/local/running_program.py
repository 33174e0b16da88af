"""A running program, as the launcher's process sees it.

Two threads use it: the caller's thread reads stdout; our own thread drains stderr and waits for the guardian's report.
A third may call `stop`. The guardian is the parent of the connector; see guardian.py.
"""

import io
import os
import select
import selectors
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import IO, NamedTuple

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.launchers.local import guardian
from dagster_airbyte_proto.launchers.local.guardian_report import GuardianReport
from dagster_airbyte_proto.launchers.process import ExitReport, LaunchOptions
from dagster_airbyte_proto.launchers.run_folder import RunFolder, WatchedFile
from dagster_airbyte_proto.launchers.stderr_tail import StderrTail
from dagster_airbyte_proto.launchers.stdin_writer import StdinWriter
from dagster_airbyte_proto.launchers.stdout_pipe import StdoutPipe, enlarge

GUARDIAN_END_SECONDS = 10.0
_STDERR_CHUNK_BYTES = 64 * 1024


class Pipes(NamedTuple):
    """The pipes to the guardian.

    We are the only writer of `control`: its end ends the guardian. `report` holds its answers.
    """

    control: int
    report: int


class RunPlace(NamedTuple):
    """The folder of a run, and the file in it that the connector may rewrite, if there is one."""

    folder: RunFolder
    watched: WatchedFile | None


def _nonblocking(stdin: IO[bytes] | None) -> io.FileIO | None:
    """Our end of the pipe, large and without blocking; the program's end has flags of its own, and keeps them."""
    if stdin is None:
        return None
    assert isinstance(stdin, io.FileIO), "it was started without a buffer"
    enlarge(stdin)
    os.set_blocking(stdin.fileno(), False)
    return stdin


class LocalConnector:
    """A running program. After `wait` returned its report, none of its processes runs and its folder is gone."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: Pipes,
        first_report: bytes,
        place: RunPlace,
        options: LaunchOptions,
    ) -> None:
        self._process = process
        self._pipes = pipes
        self._guardian_report = first_report
        self._folder, self._watched = place
        self._permissions = options.permissions
        self._stop_seconds = options.stop_grace_seconds + GUARDIAN_END_SECONDS
        self._stderr = StderrTail(options.on_stderr)
        self._stdout: StdoutPipe | None = None
        if process.stdout is not None:
            self._stdout = StdoutPipe(process.stdout, pauses=not options.waits_for_replies)
        self._stdin = StdinWriter(_nonblocking(process.stdin))
        self._read_lock = threading.Lock()
        self._stop_lock = threading.Lock()
        self._stop_requested = False
        self._ended = threading.Event()
        self._report: ExitReport | None = None
        self._started_at = time.monotonic()
        threading.Thread(target=self._watch, name="connector-stderr", daemon=True).start()

    def read(self, timeout_seconds: float) -> bytes | None:
        with self._read_lock:
            return self._read(timeout_seconds)

    def _read(self, timeout_seconds: float) -> bytes | None:
        if self._stdout is None:
            return b""
        has_ended = self._ended.is_set()
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        if not poll.poll(0 if has_ended else max(0.0, timeout_seconds) * 1000):
            if not has_ended:
                return None
            # A process that nobody could kill (another user's, or one whose guardian was killed) holds the other end.
            self._close_stdout()
            return b""
        chunk = self._stdout.read()
        if not chunk:
            self._close_stdout()
        return chunk

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        return self._stdin.write(data, timeout_seconds)

    def close_input(self) -> None:
        self._stdin.close()

    def stop(self) -> None:
        # Its input stays open until it has ended: a connector that sees the end may take half of the rows for all.
        self.request_stop()
        deadline = time.monotonic() + self._stop_seconds
        # A connector that handles SIGTERM may write a lot before it ends. If no other thread reads it, we discard it
        # here.
        discarded = False
        while not self._ended.wait(0 if discarded else 0.02):
            discarded = self._discard_chunk()
            if time.monotonic() > deadline:
                self._process.kill()  # the guardian does not answer; the kernel kills the connector after it
        with self._read_lock:
            self._close_stdout()

    def _discard_chunk(self) -> bool:
        if not self._read_lock.acquire(blocking=False):
            return False
        try:
            return bool(self._read(0))
        finally:
            self._read_lock.release()

    def request_stop(self) -> None:
        with self._stop_lock:
            if not self._ended.is_set() and not self._stop_requested:
                self._stop_requested = True
                with suppress(BrokenPipeError):  # the guardian has ended already
                    os.write(self._pipes.control, guardian.STOP)

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        """See `RunningConnector`. Raises the error of `on_stderr`, if any, after the connector has ended."""
        if not self._ended.wait(timeout_seconds):
            return None
        if self._stderr.failure is not None:
            raise self._stderr.failure
        if self._report is None:
            raise InternalError("waiting for the connector", "the thread that watches it died")
        return self._report

    def rewritten_file(self) -> bytes | None:
        return None if self._watched is None else self._watched.rewritten_content()

    def _close_stdout(self) -> None:
        if self._stdout is not None:
            self._stdout.close()
            self._stdout = None

    def _watch(self) -> None:
        """The body of our own thread."""
        try:
            self._drain_until_guardian_ends()
            self._drain_remaining_stderr()
            self._report = self._exit_report()
        finally:
            self._stdin.mark_ended()
            with self._stop_lock:
                os.close(self._pipes.control)
                self._ended.set()
            os.close(self._pipes.report)
            self._stdin.close()

    def _drain_until_guardian_ends(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None, "it was started with a pipe"
        with selectors.DefaultSelector() as selector:
            selector.register(stderr, selectors.EVENT_READ)
            selector.register(self._pipes.report, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    chunk = os.read(key.fd, _STDERR_CHUNK_BYTES)
                    if key.fd == self._pipes.report:
                        if not chunk:
                            return
                        self._guardian_report += chunk
                        continue
                    self._stderr.receive(chunk)
                    if not chunk:
                        selector.unregister(stderr)

    def _drain_remaining_stderr(self) -> None:
        """Reads the rest without waiting: a process that the connector left behind may hold the pipe's other end."""
        stderr = self._process.stderr
        assert stderr is not None, "it was started with a pipe"
        os.set_blocking(stderr.fileno(), False)
        with suppress(BlockingIOError):
            while chunk := os.read(stderr.fileno(), _STDERR_CHUNK_BYTES):
                self._stderr.receive(chunk)
        self._stderr.receive(b"")
        stderr.close()

    def _exit_report(self) -> ExitReport:
        self._process.wait()
        ended = GuardianReport.read(self._guardian_report)
        code = ended.code
        if code is None:  # the guardian was killed, and the kernel killed the connector: kill what the connector forked
            code = -signal.SIGKILL
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(ended.process, signal.SIGKILL)
        elif code == 0 and ended.over:  # It ends well at SIGTERM; what it was started for is not done.
            code = -signal.SIGTERM
        if self._watched is not None:
            self._watched.rewritten_content(
                recheck=True
            )  # The last chance: the folder goes now, and `rewritten_file` answers from memory.
        self._folder.remove()
        return ExitReport(
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stopped=self._stop_requested,
            seconds=time.monotonic() - self._started_at,
            stderr_tail=self._stderr.lines(),
            reason=ended.reason(self._permissions, stopped=self._stop_requested),
            is_over_limit=bool(ended.over),
        )
