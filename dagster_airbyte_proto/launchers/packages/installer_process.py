"""Runs an installer. It holds the lock of its build also if it is orphaned, and tells a person who waits how long it
takes. Whoever stops waiting ends it, with all that it started."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_NOTICE_SECONDS = 5.0


class InstallerWatch(NamedTuple):
    """The installation of `package` that `started` (monotonic). `lock` is the descriptor that its programs inherit."""

    package: str
    lock: int
    on_notice: Callable[[str], None] | None
    started: float

    def notice_time(self) -> None:
        if self.on_notice is not None:
            self.on_notice(f"installing {self.package}: {time.monotonic() - self.started:.0f} s")


def run_installer(
    command: Sequence[str], environment: Mapping[str, str], watch: InstallerWatch, *, folder: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Returns when the program has ended, with its code and all that it wrote."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        pass_fds=(watch.lock,), cwd=folder, start_new_session=True,
    ) as program:  # fmt: skip
        try:
            while True:
                try:
                    output, errors = program.communicate(timeout=_NOTICE_SECONDS)
                except subprocess.TimeoutExpired:
                    watch.notice_time()
                else:
                    return subprocess.CompletedProcess(command, program.returncode, output, errors)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
