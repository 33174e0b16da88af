"""A running container, as the launcher's process sees it.

1. Stdout and stderr have a socket each, so that an unread stream does not block the other. The daemon waits for a slow
   reader, which is our back-pressure.
2. If stdout goes through a pipe (fifo.py), the stdout socket still tells its end.
3. Stdin, if the connector takes input, has a third (stdin_socket.py).
4. After a container has exited, the daemon may answer no request about it until all of its output is read. So we ask
   only after both streams have ended, and `stop` keeps reading, or shuts the sockets down.
"""

import errno
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import docker

from dagster_airbyte_proto.errors import ConnectorError, InternalError, ProtoError
from dagster_airbyte_proto.launchers.docker.containers import remove
from dagster_airbyte_proto.launchers.docker.daemon import UNREACHABLE, error_from_message, root_cause
from dagster_airbyte_proto.launchers.docker.fifo import SHELL_NAME, Fifo
from dagster_airbyte_proto.launchers.docker.files import FOLDER, read_file
from dagster_airbyte_proto.launchers.docker.frames import FrameDecoder
from dagster_airbyte_proto.launchers.docker.guardian import DONE
from dagster_airbyte_proto.launchers.docker.stdin_socket import StdinSocket
from dagster_airbyte_proto.launchers.process import ExitReport, LaunchOptions
from dagster_airbyte_proto.launchers.stderr_tail import StderrTail
from dagster_airbyte_proto.launchers.stdin_writer import StdinWriter
from dagster_airbyte_proto.launchers.stdout_pipe import CHUNK_BYTES

_END_SECONDS = 30.0
_SIGNAL_CODE_BASE = 128
_EXEC_FAILURES = {126: errno.EACCES, 127: errno.ENOENT}
_NO_EXEC = re.compile(rf"\[FATAL tini \([0-9]+\)\] exec .* failed: |{SHELL_NAME}: ")


class Guardian(NamedTuple):
    """The process that removes the container if we cannot. We are the only writer of the `control` pipe."""

    process: subprocess.Popen[bytes]
    control: int

    def release(self) -> None:
        """Ends the guardian: the container is gone."""
        with suppress(BrokenPipeError):
            os.write(self.control, DONE)
        os.close(self.control)
        self.process.wait()

    def hand_over(self) -> None:
        """Leaves the container to the guardian, which removes it when the daemon is back."""
        os.close(self.control)


class ContainerHandle(NamedTuple):
    """A container that we are attached to, with everything that must be released with it.

    `watched` is the name and the original content of the file that the connector may rewrite.
    """

    daemon: docker.APIClient
    name: str
    stdout: socket.socket
    stderr: socket.socket
    guardian: Guardian
    image: str
    watched: tuple[str, bytes] | None = None
    fifo: Fifo | None = None
    stdin: StdinSocket | None = None

    def remove(self) -> None:
        """Removes the container, its files and its guardian. Safe if the container is gone or was never created."""
        for each in (self.stdout, self.stderr):
            _shut_down(each)
        if self.stdin is not None:
            self.stdin.cut()
        remove_or_hand_over(self.daemon, self.name, self.guardian)
        if self.fifo is not None:
            self.fifo.remove()


class DockerConnector:
    """A connector in a container. After `wait` returned its report, nothing of the container is left.

    `over_memory` is the reason for its end where the kernel ends it for its limit of memory.
    """

    def __init__(self, container: ContainerHandle, options: LaunchOptions, *, over_memory: str = "") -> None:
        self._container = container
        self._permissions, self._over_memory = options.permissions, over_memory
        self._grace_seconds = options.stop_grace_seconds
        self._frames = FrameDecoder()
        self._stderr = StderrTail(options.on_stderr)
        self._stdin = StdinWriter(container.stdin)
        self._read_lock = threading.Lock()
        self._has_stdout = True
        self._poll = select.poll()
        for each in (container.stdout, container.fifo):
            if each is not None:
                self._poll.register(each, select.POLLIN)
        self._stop_requested = self._is_over_time = False
        self._ended = threading.Event()
        self._report: ExitReport | None = None
        self._failure: Exception | None = None
        self._rewritten: bytes | None = None
        self._started_at = time.monotonic()
        threading.Thread(target=self._watch, name="container-stderr", daemon=True).start()
        if self._permissions.seconds is not None:
            threading.Thread(target=self._hold_to_time, name="container-time", daemon=True).start()

    def read(self, timeout_seconds: float) -> bytes | None:
        with self._read_lock:
            return self._read(timeout_seconds)

    def _read(self, timeout_seconds: float) -> bytes | None:
        deadline = time.monotonic() + timeout_seconds
        while self._has_stdout:
            stdout, fifo = self._container.stdout, self._container.fifo
            readable = [each for each, _ in self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
            if not readable:
                return None
            if stdout.fileno() not in readable:
                assert fifo is not None, "only these two are polled"
                return fifo.read()
            if not (chunk := _receive(stdout)):
                self._has_stdout = False
                return b"" if fifo is None else fifo.read_rest()
            if payload := self._frames.feed(chunk):
                return payload
        return b""

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        return self._stdin.write(data, timeout_seconds)

    def close_input(self) -> None:
        self._stdin.close()

    def request_stop(self) -> None:
        if not self._stop_requested and not self._ended.is_set():
            self._stop_requested = True
            self._signal_in_background("SIGTERM")

    def stop(self) -> None:
        self.request_stop()
        self._discard_until(time.monotonic() + self._grace_seconds)
        if not self._ended.is_set():
            for each in (self._container.stdout, self._container.stderr):
                _shut_down(each)
            self._signal_in_background("SIGKILL")
            if not self._ended.wait(_END_SECONDS):
                found = f"container {self._container.name} does not end"
                remedy = f"Once Docker's daemon answers: airbyte-proto containers reap {self._container.name}"
                raise ConnectorError("stopping the connector", found, remedy=remedy)
        with self._read_lock:
            self._has_stdout = False

    def _discard_until(self, deadline: float) -> None:
        """Discards output if no other thread reads it: a connector with a full pipe could not end."""
        while not self._ended.wait(0.02) and time.monotonic() < deadline:
            if self._read_lock.acquire(blocking=False):
                try:
                    self._read(0)
                finally:
                    self._read_lock.release()

    def _hold_to_time(self) -> None:
        """The body of the thread of one that has a limit of time. What it still writes can be read, as after a stop."""
        if self._ended.wait(self._permissions.seconds) or self._stop_requested:
            return
        self._is_over_time = True
        self._signal_in_background("SIGTERM")
        if not self._ended.wait(self._grace_seconds):
            self._signal_in_background("SIGKILL")

    def _signal_in_background(self, name: str) -> None:
        """Sends a signal from a thread, because the daemon may answer only after the streams have been read."""

        def send() -> None:
            with suppress(*UNREACHABLE):  # the container or the daemon has ended: the watching thread finds out
                self._container.daemon.kill(self._container.name, signal=name)

        threading.Thread(target=send, name="container-signal", daemon=True).start()

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        """See `RunningConnector`.

        Raises the error of `on_stderr`, ConfigError if the image lacks the program, ConnectorError if it is unknown how
        the container ended. The container is gone in each case.
        """
        if not self._ended.wait(timeout_seconds):
            return None
        if (failure := self._stderr.failure or self._failure) is not None:
            raise failure
        if self._report is None:
            raise InternalError("waiting for the connector", "the thread that watches it died")
        return self._report

    def _watch(self) -> None:
        """The body of our own thread."""
        try:
            self._drain_stderr()
            if not self._stop_requested:
                # The init holds stderr, so the container has ended: a writer need not wait until stdout is read.
                # After a stop we may have shut stderr down ourselves: see `LocalConnector.stop` on its input.
                self._end_input()
            state = self._state_at_end()
            with suppress(*UNREACHABLE):  # the exit state is known already, and matters more than the rewritten file
                self._rewritten = self._rewritten_content()
            self._report = self._exit_report(state)
            self._failure = _exec_error(self._container, self._report)
        except UNREACHABLE as error:
            self._failure = ConnectorError(
                "running the connector",
                f"Docker's daemon went away, or the container {self._container.name} did: {root_cause(error)}",
                retryable=True,
            )
        finally:
            self._end_input()
            self._container.remove()
            self._ended.set()

    def _end_input(self) -> None:
        if self._container.stdin is not None:
            self._stdin.mark_ended()
            self._container.stdin.cut()

    def _drain_stderr(self) -> None:
        """Reads stderr to its end."""
        frames = FrameDecoder()
        while chunk := _receive(self._container.stderr):
            if payload := frames.feed(chunk):
                self._stderr.receive(payload)
        self._stderr.receive(b"")

    def _state_at_end(self) -> dict[str, Any]:
        container = self._container
        container.daemon.wait(container.name, timeout=None)
        return dict(container.daemon.inspect_container(container.name)["State"])

    def _rewritten_content(self) -> bytes | None:
        if self._container.watched is None:
            return None
        name, handed_over = self._container.watched
        content = read_file(self._container.daemon, self._container.name, f"{FOLDER}/{name}")
        return None if content == handed_over else content

    def rewritten_file(self) -> bytes | None:
        return self._rewritten

    def _exit_report(self, state: dict[str, Any]) -> ExitReport:
        # The init reports 128 + n if signal n ended the connector. A connector that exits with such a code looks the
        # same.
        code = int(state["ExitCode"])
        by_signal = _signal_of(code)
        if self._is_over_time and code == 0:  # It ends well at SIGTERM; what it was started for is not done.
            by_signal = signal.SIGTERM
        return ExitReport(
            code=code if by_signal is None else None,
            signal=by_signal,
            stopped=self._stop_requested,
            seconds=time.monotonic() - self._started_at,
            stderr_tail=self._stderr.lines(),
            reason=self._reason(by_signal, is_out_of_memory=_was_out_of_memory(state)),
            is_over_limit=self._is_over_time or _was_out_of_memory(state),
        )

    def _reason(self, by_signal: int | None, *, is_out_of_memory: bool) -> str:
        if self._is_over_time:
            return self._permissions.over_time()
        if is_out_of_memory:
            return self._over_memory
        # The daemon learns of out-of-memory separately from the exit: sometimes later, or never.
        is_killed = by_signal == signal.SIGKILL and not self._stop_requested
        return f"perhaps {self._over_memory}" if is_killed else ""


def _was_out_of_memory(state: Mapping[str, Any]) -> bool:
    """True if the connector ended for its memory. The daemon notes that also where the kernel has ended another process
    of the container, and the connector ends well after that: then its own errors count."""
    return bool(state.get("OOMKilled")) and int(state["ExitCode"]) != 0


def _signal_of(code: int) -> int | None:
    """The signal by which an init reports that the connector ended; None for a code, such as the 255 of `exit(-1)`."""
    number = code - _SIGNAL_CODE_BASE
    return number if 0 < number < signal.NSIG else None


def _exec_error(container: ContainerHandle, report: ExitReport) -> ProtoError | None:
    """The error of a container that started, but whose init or shell found no program to run; None otherwise.

    A connector could write the line that it is known by, and no mask is known here. So the error has no word of that
    line, only those of ours that it is about.
    """
    last = report.stderr_tail[-1] if report.stderr_tail else ""
    by_code = _EXEC_FAILURES.get(report.code or 0)
    if by_code is None or not _NO_EXEC.match(last):
        return None
    causes = [os.strerror(each) for each in (errno.ENOEXEC, errno.EACCES, errno.ENOENT)]
    cause = next((each for each in causes if each.lower() in last.lower()), os.strerror(by_code))
    problem = f"exec {_program(container)} failed: {cause}"
    theirs = container.daemon.inspect_image(container.image)["Architecture"]
    if theirs != (here := container.daemon.version()["Arch"]):
        # For such a program the init may report another error: it retries it as a script, through the shell.
        problem = f"exec format error, as it is for {theirs} and runs on {here} ({problem})"
    return error_from_message("starting the connector", container.image, problem)


def _program(container: ContainerHandle) -> str:
    """The program that the container was made to run, behind the shell that opens our pipe."""
    config = container.daemon.inspect_container(container.name)["Config"]
    words = [*(config["Entrypoint"] or ()), *(config["Cmd"] or ())]
    return str(words[words.index(SHELL_NAME) + 1 if SHELL_NAME in words else 0])


def remove_or_hand_over(daemon: docker.APIClient, name: str, guardian: Guardian) -> None:
    """Removes a container, or leaves it to the guardian if the daemon does not answer."""
    if remove(daemon, name):
        guardian.release()
    else:
        guardian.hand_over()


def _receive(stream: socket.socket) -> bytes:
    """Returns the next bytes; none at the end, or if the daemon is gone or we shut the socket down."""
    try:
        return stream.recv(CHUNK_BYTES)
    except OSError:
        return b""


def _shut_down(stream: socket.socket) -> None:
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
