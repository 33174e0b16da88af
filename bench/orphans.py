"""Waits for programs that outlive their parent, such as a JVM, so that their CPU is counted with the rest."""

import ctypes
import os
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes this process the parent of whatever its children leave behind."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot become the reaper of orphans")


def wait_for_orphans() -> None:
    """Waits until no child is left."""
    with suppress(ChildProcessError):
        while True:
            os.wait()
