"""Forks real processes for tests that kill them: that is far cheaper than to start them.

A server is a module that calls `serve` when it is run. It imports what its children need, and has no threads. It reads
one JSON order a line from stdin, forks, and carries the order out in the child. It answers with two lines: the child's
process id at once, for the test that stops or kills it, and the child's exit code at its end.
"""

import faulthandler
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pyarrow as pa

from dagster_airbyte_proto import points
from dagster_airbyte_proto.testing.crash_points import crash_hook

Kill = tuple[str, int]
"""A point, and at which reaching of it the process dies."""
CarryOut = Callable[[dict[str, Any]], int]
"""Does in the child what the order says; the child's exit code."""

_UNCAUGHT = 70
# Modules that a sync imports late.
_LATE_MODULES = ("pyarrow.acero", "pyarrow.dataset", "_strptime", "gzip", "tarfile")


class ForkServer:
    """Forks a process for each order, one at a time."""

    def __init__(self, module: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.pid = self._process.pid

    def fork(self, order: Mapping[str, Any]) -> int:
        """The id of a process that has begun with the order. `end` it before the next one."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        """Waits for the process; its exit code, or minus the signal."""
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def serve(carry_out: CarryOut, *late_modules: str) -> None:
    """Carries out orders until stdin ends. Imports `late_modules` first: else each child would import them."""
    faulthandler.enable()
    _import_for_children(late_modules)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _be_child(carry_out, line)
        _answer(child)
        _, status = os.waitpid(child, 0)
        _answer(os.waitstatus_to_exitcode(status))


def arm(crash: Kill | None, *, until: Path | None = None, log: Path | None = None) -> None:
    """Kills this process at the point of the crash, or lets it wait there `until` that file exists. Each point that it
    reaches is a line of the log."""
    at = f"{crash[0]}:{crash[1]}" if crash else ""
    points.arm(crash_hook(at, log or "", until=until))


def _import_for_children(late_modules: tuple[str, ...]) -> None:
    pa.array([1])  # the first one imports all of pandas, where that is installed: half a second
    for name in (*_LATE_MODULES, *late_modules):
        import_module(name)
    gc.collect()
    gc.freeze()  # a child's collector would write to the pages of all that is here, and so copy them


def _be_child(carry_out: CarryOut, line: str) -> None:
    code = _UNCAUGHT
    try:
        code = carry_out(json.loads(line))
    except BaseException:  # noqa: BLE001 - the edge of the process: nobody else would tell why it ended
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _answer(number: int) -> None:
    print(number, flush=True)  # noqa: T201 - stdout is how it answers


def has_ended(pid: str | int) -> bool:
    """True once the process runs no more. Its parent may not have taken notice yet, above all as the first process."""
    try:
        return psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
