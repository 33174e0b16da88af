"""A running container: the side of it that we hold.

Its stdout and stderr come over a socket each, so that who does not read one does not stop the other; and the daemon
waits for who reads slowly. Where what it says goes past the daemon, the socket tells its end. While something that a
container wrote is unread, the daemon may answer nothing about it once it has exited: so it is asked only when both
streams have ended, and a stop reads on, or lets go of them.
"""

import os
import select
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

import docker

from dagster_airbyte_proto.errors import ConnectorError, InternalError, ProtoError
from dagster_airbyte_proto.launchers.docker import guardian as docker_guardian
from dagster_airbyte_proto.launchers.docker.containers import remove
from dagster_airbyte_proto.launchers.docker.daemon import UNREACHABLE, innermost, refusal
from dagster_airbyte_proto.launchers.docker.fifo import CALLED, Fifo
from dagster_airbyte_proto.launchers.docker.files import FOLDER, taken
from dagster_airbyte_proto.launchers.docker.frames import Frames
from dagster_airbyte_proto.launchers.process import ExitReport, RunOptions
from dagster_airbyte_proto.launchers.stderr_tail import StderrTail
from dagster_airbyte_proto.launchers.stdout_pipe import CHUNK_BYTES

_END_SECONDS = 30.0
_FIRST_SIGNAL_CODE = 128
_INIT_SAYS = "[FATAL tini"
_NOT_EXECUTED = {126: "permission denied", 127: "no such file or directory"}


class Guardian(NamedTuple):
    """The program that removes the container if we cannot. `control` is ours alone."""

    process: subprocess.Popen[bytes]
    control: int

    def release(self) -> None:
        """There is nothing left to guard."""
        with suppress(BrokenPipeError):
            os.write(self.control, docker_guardian.DONE)
        os.close(self.control)
        self.process.wait()

    def hand_over(self) -> None:
        """It is to remove the container once the daemon is back."""
        os.close(self.control)


class Held(NamedTuple):
    """A container that is made and attached to, and all that has to be let go of with it. A file that it may change is
    `watched`, by its name, with what was handed over."""

    daemon: docker.APIClient
    name: str
    stdout: socket.socket
    stderr: socket.socket
    guardian: Guardian
    image: str
    memory: str
    watched: tuple[str, bytes] | None = None
    fifo: Fifo | None = None

    def remove(self) -> None:
        """The container, its files and its guardian. Safe where the container is gone, or was never made."""
        for each in (self.stdout, self.stderr):
            _shut(each)
        give_up(self.daemon, self.name, self.guardian)
        if self.fifo is not None:
            self.fifo.remove()


class DockerConnector:
    """A container at work. Nothing of it is left once `wait` gives its report."""

    def __init__(self, held: Held, options: RunOptions) -> None:
        self._held = held
        self._grace_seconds = options.stop_grace_seconds
        self._frames = Frames()
        self._stderr = StderrTail(options.on_stderr)
        self._reading = threading.Lock()
        self._has_stdout = True
        self._poll = select.poll()
        for each in (held.stdout, held.fifo):
            if each is not None:
                self._poll.register(each, select.POLLIN)
        self._asked_to_stop = False
        self._ended = threading.Event()
        self._report: ExitReport | None = None
        self._failure: Exception | None = None
        self._changed: bytes | None = None
        self._started_at = time.monotonic()
        threading.Thread(target=self._watch, name="container-stderr", daemon=True).start()

    def read(self, timeout_seconds: float) -> bytes | None:
        with self._reading:
            return self._read(timeout_seconds)

    def _read(self, timeout_seconds: float) -> bytes | None:
        deadline = time.monotonic() + timeout_seconds
        while self._has_stdout:
            stdout, fifo = self._held.stdout, self._held.fifo
            readable = [each for each, _ in self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
            if not readable:
                return None
            if stdout.fileno() not in readable:
                assert fifo is not None, "nothing else is asked after"
                return fifo.read()
            if not (chunk := _received(stdout)):
                self._has_stdout = False
                return b"" if fifo is None else fifo.rest()
            if payload := self._frames.feed(chunk):
                return payload
        return b""

    def stop(self) -> None:
        if not self._asked_to_stop and not self._ended.is_set():
            self._asked_to_stop = True
            self._signal_by_and_by("SIGTERM")
        self._discard_until(time.monotonic() + self._grace_seconds)
        if not self._ended.is_set():
            for each in (self._held.stdout, self._held.stderr):
                _shut(each)
            self._signal_by_and_by("SIGKILL")
            if not self._ended.wait(_END_SECONDS):
                raise ConnectorError("stopping the connector", f"container {self._held.name} does not end")
        with self._reading:
            self._has_stdout = False

    def _discard_until(self, deadline: float) -> None:
        """Where no other thread reads what it says on its way out, we do, or it could not end."""
        while not self._ended.wait(0.02) and time.monotonic() < deadline:
            if self._reading.acquire(blocking=False):
                try:
                    self._read(0)
                finally:
                    self._reading.release()

    def _signal_by_and_by(self, name: str) -> None:
        """From a thread of its own: the daemon may answer only when the streams have been read."""

        def send() -> None:
            with suppress(*UNREACHABLE):  # it has ended, or the daemon has: who watches it will find out
                self._held.daemon.kill(self._held.name, signal=name)

        threading.Thread(target=send, name="container-signal", daemon=True).start()

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        """As the interface says. Raises what `on_stderr` raised, ConfigError where the image has no such program, and
        ConnectorError where nobody knows how the container ended; in each case it is gone."""
        if not self._ended.wait(timeout_seconds):
            return None
        if (failure := self._stderr.failure or self._failure) is not None:
            raise failure
        if self._report is None:
            raise InternalError("waiting for the connector", "the thread that watches it died")
        return self._report

    def _watch(self) -> None:
        """The work of our own thread."""
        try:
            self._hear()
            state = self._state_at_end()
            with suppress(*UNREACHABLE):  # how it ended is known, and says more than this
                self._changed = self._change()
            self._report = self._exit_report(state)
            self._failure = _not_begun(self._held, self._report)
        except UNREACHABLE as error:
            self._failure = ConnectorError(
                "running the connector",
                f"Docker's daemon went away, or the container {self._held.name} did: {innermost(error)}",
                retryable=True,
            )
        finally:
            self._held.remove()
            self._ended.set()

    def _hear(self) -> None:
        """Takes stderr to its end."""
        frames = Frames()
        while chunk := _received(self._held.stderr):
            if payload := frames.feed(chunk):
                self._stderr.hear(payload)
        self._stderr.hear(b"")

    def _state_at_end(self) -> dict[str, Any]:
        held = self._held
        held.daemon.wait(held.name, timeout=None)
        return dict(held.daemon.inspect_container(held.name)["State"])

    def _change(self) -> bytes | None:
        if self._held.watched is None:
            return None
        name, handed_over = self._held.watched
        content = taken(self._held.daemon, self._held.name, f"{FOLDER}/{name}")
        return None if content == handed_over else content

    def changed_file(self) -> bytes | None:
        return self._changed

    def _exit_report(self, state: dict[str, Any]) -> ExitReport:
        # Its init says by 128 + n that signal n ended the connector, which looks the same where it says so itself.
        code = int(state["ExitCode"])
        by_signal = code - _FIRST_SIGNAL_CODE if code > _FIRST_SIGNAL_CODE else None
        return ExitReport(
            code=code if by_signal is None else None,
            signal=by_signal,
            stopped=self._asked_to_stop,
            seconds=time.monotonic() - self._started_at,
            stderr_tail=self._stderr.lines(),
            reason=self._reason(by_signal, is_out_of_memory=bool(state.get("OOMKilled"))),
        )

    def _reason(self, by_signal: int | None, *, is_out_of_memory: bool) -> str:
        limit = f"more than the {self._held.memory} that `memory` in its launch gives it"
        if is_out_of_memory:
            return f"it took {limit}"
        # Of its memory the daemon hears apart from its end: now and then later, or never.
        return f"it may have taken {limit}" if by_signal == signal.SIGKILL and not self._asked_to_stop else ""


def _not_begun(held: Held, report: ExitReport) -> ProtoError | None:
    """The error of a container that began and whose init, or the shell before it, then found no program to run."""
    last = report.stderr_tail[-1] if report.stderr_tail else ""
    meaning = _NOT_EXECUTED.get(report.code or 0)
    if meaning is None or not last.startswith((_INIT_SAYS, f"{CALLED}: ")):
        return None
    told = last.partition("] ")[2] if last.startswith(_INIT_SAYS) else f"exec failed: {meaning} ({last})"
    theirs = held.daemon.inspect_image(held.image)["Architecture"]
    if theirs != (here := held.daemon.version()["Arch"]):
        # The init may say something else of such a program: it then tries the shell, as if it were a script.
        told = f"exec format error, as it is for {theirs} and runs on {here} ({told})"
    return refusal("starting the connector", held.image, told)


def give_up(daemon: docker.APIClient, name: str, guardian: Guardian) -> None:
    """Removes a container, or leaves that to its guardian."""
    if remove(daemon, name):
        guardian.release()
    else:
        guardian.hand_over()


def _received(stream: socket.socket) -> bytes:
    """The next bytes; none at the end, nor where the daemon has gone or we have let go."""
    try:
        return stream.recv(CHUNK_BYTES)
    except OSError:
        return b""


def _shut(stream: socket.socket) -> None:
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
