"""The named points between durable steps, for those who prove that dying there does no harm.

`reach(point)` does nothing unless a test armed a hook; the crash sweep arms one that kills the process with
SIGKILL. A point that is reached but not in `POINTS`, and one in `POINTS` that is never reached, fails the sweep.
The hook is the one piece of module state in this package, and it is set once, before a sync starts.
"""

from collections.abc import Callable

POINTS = (
    "run.leased",
    "run.begun",
    "run.folders_noted",
    "run.ended",
    "table.prepared",
    "stage.file_closed",
    "load.staged",
    "load.announced",
    "table.committing",
    "table.committed",
    "load.committed",
    "run.delivered",
    "load.promoted",
    "recover.begun",
    "recover.swept",
)

PARQUET_POINTS = ("table.version_made",)
"""Those that only plain Parquet tables have, beside the others."""

ASIDE_POINTS = ("recover.branch_dropped",)
"""Those that only a generation comes to that landed aside and is not gone on with."""

FILE_POINTS = ("load.sources_removed",)
"""Those that only a connector comes to that hands records over in files."""

_hook: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None] | None) -> None:
    """Calls `hook` with each point's name from now on; None disarms."""
    global _hook
    _hook = hook


def reach(point: str) -> None:
    """Marks the place between two durable steps."""
    if _hook is not None:
        _hook(point)
