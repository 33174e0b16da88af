"""The reasons for which the child program of a component ends, by its exit codes and its last lines."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from dagster_airbyte_proto.launchers.permissions import shown_size
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.launchers.wasm.child_program import (
    DECLARED,
    INSTANCES,
    MARK,
    MEMORIES,
    MEMORY,
    NOT_LOADED,
    OUT_OF_MEMORY,
    TABLE_ELEMENTS,
    TABLES,
    TRAPPED,
)

_OUT_OF_MEMORY = re.compile(
    r"memory allocation of|.*std::bad_alloc|panic: runtime error: out of memory|fatal error: runtime: out of memory"
    r"|MemoryError\b"
)
"""The words with which Rust, C++, TinyGo, Go and Python give up once memory was refused to them."""
_TRAP = "wasm trap: "
_STACK_ENDED = "call stack exhausted"
_BELOW_MEMORY = re.compile(r"memory fault at wasm address 0xff[0-9a-f]{6}\b")
"""The stack of C and of Rust grows down to address 0 of the memory, and behind that is its other end."""
_COUNTED = ("exceeds table limits", "resource limit exceeded")


class _Memory(NamedTuple):
    """The size of a component's memory, 0 if it is not known, and its limit."""

    size_bytes: int = 0
    limit_bytes: int = 0
    is_declared: bool = False

    @classmethod
    def read(cls, line: str) -> "_Memory":
        _, size, limit, set_by = line.split()
        return cls(int(size), int(limit), set_by == DECLARED)

    def __str__(self) -> str:
        return f"its memory had {shown_size(self.size_bytes)} of the {shown_size(self.limit_bytes)} that it may have"

    @property
    def is_nearly_full(self) -> bool:
        """Half is enough: an allocator that doubles what it has is refused then."""
        return self.size_bytes * 2 >= self.limit_bytes > 0

    @property
    def way_out(self) -> str:
        if self.is_declared:
            return "max_memory of its manifest; only its author can raise that, so have it read less at once"
        return "limits: max_memory; raise that, or have it read less at once"


def with_reason(report: ExitReport) -> ExitReport:
    """The report, with the reason for the exit code. Its last lines are those that the component printed.

    The trace of a trap is in the log of the run: all of stderr is.
    """
    code = report.code
    if code not in (TRAPPED, OUT_OF_MEMORY, NOT_LOADED):
        return report
    ours = [line.removeprefix(MARK) for line in report.stderr_tail if line.startswith(MARK)]
    memory = _Memory.read(ours.pop()) if ours and ours[-1].startswith(MEMORY) else _Memory()
    printed = tuple(line for line in report.stderr_tail if line and not line.startswith(MARK))
    # A connector sees that memory was refused, and gives up.
    if code == TRAPPED and any(map(_OUT_OF_MEMORY.match, printed)):
        code = OUT_OF_MEMORY
    detail = ours[-1].rpartition(_TRAP)[2] if ours else ""  # Causes may be numbered.
    return report._replace(reason=_reason(code, detail, ours, memory), stderr_tail=printed)


def _reason(code: int, detail: str, ours: Sequence[str], memory: _Memory) -> str:
    cause = f" ({detail})" if detail else ""
    if code == OUT_OF_MEMORY:
        limit = f", {shown_size(memory.limit_bytes)}" if memory.limit_bytes else ""
        return f"the component needs more memory than it may have{limit} ({memory.way_out}){cause}"
    if code == NOT_LOADED:
        counted = f"{MEMORIES} memories, {TABLES} tables of {TABLE_ELEMENTS:,} elements, {INSTANCES} instances"
        more = f": it may have {counted}" if any(words in detail for words in _COUNTED) else ""
        return f"the component cannot be loaded{cause}{more}"
    if detail == _STACK_ENDED:
        return f"the component trapped{cause}: its calls were nested too deeply, and the stack of all components ended"
    if any(map(_BELOW_MEMORY.search, ours)):
        nested = "its calls were probably nested too deeply, and its stack ended, whose size its compiler sets"
        return f"the component trapped{cause}: {nested}"
    if memory.is_nearly_full:
        return f"the component trapped{cause}: {memory}, and may have run out ({memory.way_out})"
    return f"the component trapped{cause}"
