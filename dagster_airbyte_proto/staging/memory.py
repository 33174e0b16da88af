"""Returns free memory, which the allocators keep for later use, to the operating system."""

import ctypes
from collections.abc import Callable
from typing import Final

import pyarrow as pa

# glibc only: freed memory between two allocations that still live is returned by no other call.
_MALLOC_TRIM: Final[Callable[[int], int] | None] = getattr(ctypes.CDLL(None), "malloc_trim", None)


def release_free_memory() -> None:
    """Returns the memory that Arrow and glibc have free to the system. Called between two loads."""
    # Between loads almost nothing is in use, but the free memory is fragmented, and the fragments grow over the first
    # five loads or so: see docs/decisions/0025-a-load-gives-its-memory-back.md.
    pa.default_memory_pool().release_unused()
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
