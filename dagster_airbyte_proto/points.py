"""The named crash points between durable steps, where tests prove that a dying process does no harm.

`reach(point)` does nothing unless a test armed a hook. The crash sweep arms one that kills the process with SIGKILL.
The sweep fails if a point is reached that is not in `POINTS`, or if one in `POINTS` is never reached.
The hook is the one piece of module state in this package. It is set once, before a sync starts.
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
"""Points that only plain Parquet tables reach, in addition to the others."""

BRANCH_POINTS = ("recover.branch_dropped",)
"""Points that are reached only when a generation landed on a branch and is not resumed."""

FILE_POINTS = ("load.sources_removed",)
"""Points that are reached only for a connector that sends its records in files."""

PUSH_POINTS = ("push.sealed", "push.announced", "push.sent", "push.acknowledged", "push.noted", "push.folded")
"""Points that only a push reaches."""

ENRICHMENT_POINTS = ("enrichment.ended", "enrichment.kept")
"""Points that only an enrichment with a cache reaches: its process has ended, and what came of its rows is kept."""

_hook: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None] | None) -> None:
    """Calls `hook` with each point's name from now on; None disarms."""
    global _hook
    _hook = hook


def reach(point: str) -> None:
    """Marks a crash point. Does nothing outside of tests."""
    if _hook is not None:
        _hook(point)
