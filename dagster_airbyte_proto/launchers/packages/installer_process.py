"""Runs an installer under the lock of its build, which it holds also if it is orphaned. A person who waits sees how
long it takes. Whoever stops waiting ends it, with all that it started, and so does the end of our process.

One that hangs is ended after an hour. If it was orphaned, since our process was killed, nobody ends it, and whoever
waits for its lock gives up after three.
"""

import atexit
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.packages.environment_use import locks_alone

_NOTICE_SECONDS = 5.0
_POLL_SECONDS = 0.2
_LIMIT_SECONDS = 3600.0  # Packages that are compiled were seen to take half of it.
_MOST_COMMANDS = 3  # of one installation
_LAST_WORDS_SECONDS = 2.0


class InstallerWatch(NamedTuple):
    """The installation of `package` that `started` (monotonic). `lock` is the descriptor that its programs inherit."""

    package: str
    lock: int
    on_notice: Callable[[str], None] | None
    started: float

    def notice_time(self) -> None:
        if self.on_notice is not None:
            self.on_notice(f"installing {self.package}: {time.monotonic() - self.started:.0f} s")

    def next_notice(self) -> float:
        """The time (monotonic) of the next notice: after 5, 10, 20, 40 seconds and so on."""
        seconds, now = _NOTICE_SECONDS, time.monotonic()
        while self.started + seconds <= now:
            seconds *= 2
        return self.started + seconds


@contextmanager
def locked_build(path: Path, package: str, on_notice: Callable[[str], None] | None) -> Iterator[InstallerWatch]:
    """Waits for the lock of a build, and holds it. Raises ConnectorError if whoever holds it does not end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(descriptor, path, InstallerWatch(package, descriptor, on_notice, time.monotonic()))
        yield InstallerWatch(package, descriptor, on_notice, time.monotonic())
    finally:
        os.close(descriptor)


def run_installer(
    command: Sequence[str], environment: Mapping[str, str], watch: InstallerWatch, *, folder: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Returns when the program has ended, with its code and all that it wrote. Raises ConnectorError if it hangs.

    A process that it leaves behind, such as the daemon of a build tool, is ended: it would hold the lock of the build.
    """
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        pass_fds=(watch.lock,), cwd=folder, start_new_session=True,
    ) as program:  # fmt: skip
        # Threads that wait here do not keep a process from ending, as where Dagster terminates a run.
        kill_at_exit = atexit.register(partial(_kill_with_owner, program, os.getpid()))
        try:
            return _completed(program, command, watch)
        except BaseException:
            _kill_session(program)
            raise
        finally:
            atexit.unregister(kill_at_exit)


def _completed(
    program: "subprocess.Popen[bytes]", command: Sequence[str], watch: InstallerWatch
) -> "subprocess.CompletedProcess[bytes]":
    ends_at = time.monotonic() + _LIMIT_SECONDS
    while True:
        has_ended = _has_ended(program)
        wakes_at = min(watch.next_notice(), ends_at)
        seconds = _LAST_WORDS_SECONDS if has_ended else wakes_at - time.monotonic()
        try:
            output, errors = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as waited:
            if has_ended:  # What it left behind has its pipes too, and they would never end.
                _kill_session(program)
                return subprocess.CompletedProcess(command, program.wait(), waited.stdout or b"", waited.stderr or b"")
            watch.notice_time()
            if time.monotonic() >= ends_at:
                raise _hangs(command, watch) from None
        else:
            return subprocess.CompletedProcess(command, program.returncode, output, errors)


def _has_ended(program: "subprocess.Popen[bytes]") -> bool:
    """Does not reap it: its session is known by its number."""
    try:
        return psutil.Process(program.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # Others have reaped it.
        return True


def _kill_session(program: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):  # all gone; only zombies (macOS)
        os.killpg(program.pid, signal.SIGKILL)


def _kill_with_owner(program: "subprocess.Popen[bytes]", owner: int) -> None:
    """For the end of the process that started it. One that was forked from that has the same to do at its own end."""
    if os.getpid() == owner:
        _kill_session(program)


def _wait_for_lock(descriptor: int, path: Path, watch: InstallerWatch) -> None:
    notice_at = watch.next_notice()
    while not locks_alone(descriptor):
        now = time.monotonic()
        if now - watch.started > _MOST_COMMANDS * _LIMIT_SECONDS:
            raise ConnectorError(
                f"installing {watch.package}",
                f"another process has been installing it for {now - watch.started:,.0f} s",
                remedy=f"Does it hang? `fuser {path}` names it. Once it has ended, running again is safe.",
                retryable=True,
            )
        if now >= notice_at:
            watch.notice_time()
            notice_at = watch.next_notice()
        time.sleep(_POLL_SECONDS)


def _hangs(command: Sequence[str], watch: InstallerWatch) -> ConnectorError:
    return ConnectorError(
        f"installing {watch.package}",
        f"{Path(command[0]).name} had not ended after {_LIMIT_SECONDS:,.0f} s, and was stopped",
        remedy="Does the package index answer from this machine? Running again is safe.",
        retryable=True,
    )
