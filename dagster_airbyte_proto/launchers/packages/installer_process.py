"""Runs an installer. It holds the lock of its build also if it is orphaned, and tells a person who waits how long it
takes. Whoever stops waiting ends it, with all that it started; one that hangs is ended after an hour."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConnectorError

_NOTICE_SECONDS = 5.0
_LIMIT_SECONDS = 3600.0  # Packages that are compiled were seen to take half of it.


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
    """Returns when the program has ended, with its code and all that it wrote. Raises ConnectorError if it hangs."""
    ends_at = time.monotonic() + _LIMIT_SECONDS
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
                    if time.monotonic() > ends_at:
                        raise _hangs(command, watch) from None
                else:
                    return subprocess.CompletedProcess(command, program.returncode, output, errors)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise


def _hangs(command: Sequence[str], watch: InstallerWatch) -> ConnectorError:
    return ConnectorError(
        f"installing {watch.package}",
        f"{Path(command[0]).name} had not ended after {_LIMIT_SECONDS:,.0f} s, and was stopped",
        remedy="Does the package index answer from this machine? Running again is safe.",
        retryable=True,
    )
