"""Memory that is free, and that the allocators keep in case it is wanted again."""

import ctypes
from collections.abc import Callable
from typing import Final

import pyarrow as pa

# glibc's own. What lies between two things that are still there it gives back when asked alone.
_TRIM: Final[Callable[[int], int] | None] = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Hands it back to the system. Between two loads next to nothing is held; but what is free lies in pieces, and they
    would be more after each of the first five loads or so."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)
