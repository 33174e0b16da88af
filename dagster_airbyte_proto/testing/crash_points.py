"""Kills a sync at a named point between two of its durable steps, to see that the next one recovers.

`command` is `airbyte-proto` with such a death armed. The points are those of `points.py`: at `load.announced` the load
is in the state store and not yet in its tables, at `load.committed` it is in all its tables and its states have not
moved.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import ConfigError

_KNOWN_POINTS = (
    *points.POINTS,
    *points.PARQUET_POINTS,
    *points.BRANCH_POINTS,
    *points.FILE_POINTS,
    *points.PUSH_POINTS,
    *points.ENRICHMENT_POINTS,
)


def command(at: str = "", log: Path | str = "") -> list[str]:
    """The command line of `airbyte-proto`, killed at a point. Put its own words behind it.

    `at` is `point`, or `point:n` for the n-th time it is reached; if empty, nothing is killed. Each point that is
    reached is a line of the `log`; if empty, there is none.
    """
    return [sys.executable, "-m", __name__, at, str(log)]


def crash_hook(at: str, log: Path | str = "", *, until: Path | None = None) -> Callable[[str], None]:
    """Returns a hook for `points.arm`, with `at` and `log` as `command` has them.

    With `until` the process is not killed: it waits at the point until that file exists.
    """
    fatal_point, _, number = at.partition(":")
    if at and (fatal_point not in _KNOWN_POINTS or not (number or "1").isdecimal()):
        raise ConfigError(
            "arming a crash point", f"{at!r} is not a crash point", remedy=f"Known: {', '.join(_KNOWN_POINTS)}; then :n"
        )
    fatal_reaching = int(number or "1")
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600) if log else None
    counting, pause = threading.Lock(), threading.Event()
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        if descriptor is not None:
            # One write: several processes, and several threads, share the file.
            os.write(descriptor, f"{point}\n".encode())
        if point != fatal_point:
            return
        with counting:
            reached += 1
            if reached != fatal_reaching:
                return
            if until is None:
                os.kill(os.getpid(), signal.SIGKILL)
        while until is not None and not until.exists():
            pause.wait(0.01)

    return hook


def _main(arguments: Sequence[str]) -> int:
    from dagster_airbyte_proto.cli.main import main

    at, log, *words = arguments
    points.arm(crash_hook(at, log))
    return main(words)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
