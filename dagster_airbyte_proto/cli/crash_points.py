"""The hook that the crash sweep arms: it logs the crash points that a process reaches, and kills it at one of them."""

import os
import signal
import threading
from collections.abc import Callable

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.points import POINTS


def crash_hook(at: str, log: str) -> Callable[[str], None]:
    """Returns a hook for `points.arm`. `at` is `point`, or `point:n` for the n-th time it is reached; if empty, the
    process is not killed. `log` is a file that gets the name of each reached point as a line; if empty, none."""
    fatal_point, _, number = at.partition(":")
    if at and (fatal_point not in POINTS or not (number or "1").isdecimal()):
        raise ConfigError(
            "arming a crash point", f"{at!r} is not a crash point", remedy=f"Known: {', '.join(POINTS)}; then :n"
        )
    fatal_reaching = int(number or "1")
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600) if log else None
    counting = threading.Lock()
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
            if reached == fatal_reaching:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
