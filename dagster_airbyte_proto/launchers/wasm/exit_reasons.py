"""The reasons for which the child program of a component ends, by its exit codes."""

from collections.abc import Mapping
from types import MappingProxyType

from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.launchers.wasm.child_program import MARK, NOT_LOADED, OUT_OF_MEMORY, TRAPPED

_REASONS: Mapping[int, str] = MappingProxyType(
    {
        TRAPPED: "the component trapped",
        OUT_OF_MEMORY: "the component needs more memory than it may have (limits: max_memory)",
        NOT_LOADED: "the component cannot be loaded",
    }
)
_RUST_OUT_OF_MEMORY = "memory allocation of"
_TRAP = "wasm trap: "


def with_reason(report: ExitReport) -> ExitReport:
    """The report, with the reason for the exit code. Its last lines are those that the component printed.

    The trace of a trap is in the log of the run: all of stderr is.
    """
    code = report.code
    if code is None or code not in _REASONS:
        return report
    ours = [line.removeprefix(MARK) for line in report.stderr_tail if line.startswith(MARK)]
    printed = tuple(line for line in report.stderr_tail if line and not line.startswith(MARK))
    # A connector sees that memory was refused, and gives up: Rust's words for that are always the same.
    if code == TRAPPED and any(line.startswith(_RUST_OUT_OF_MEMORY) for line in printed):
        code = OUT_OF_MEMORY
    detail = ours[-1].rpartition(_TRAP)[2] if ours else ""  # Causes may be numbered.
    reason = f"{_REASONS[code]} ({detail})" if detail else _REASONS[code]
    return report._replace(reason=reason, stderr_tail=printed)
