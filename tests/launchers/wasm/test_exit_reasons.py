"""The words for the end of a component, by its last lines. Real ends are in test_escapes.py and test_launcher.py."""

import pytest

from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.launchers.wasm.exit_reasons import with_reason

_NEEDS_MORE = "the component needs more memory than it may have, 32 MiB"
_TRAPPED = "the component trapped (unreachable)"
_NEARLY_FULL = f"{_TRAPPED}: its memory had 19 MiB of the 32 MiB that it may have, and may have run out"
_RAISE = "(limits: max_memory; raise that, or have it read less at once)"
_DECLARED = "(max_memory of its manifest; only its author can raise that, so have it read less at once)"


@pytest.mark.parametrize(
    ("printed", "memory", "reason"),
    [
        ("memory allocation of 9 bytes failed", "1000 33554432 granted", f"{_NEEDS_MORE} {_RAISE} (unreachable)"),
        ("terminating: std::bad_alloc", "1000 33554432 declared", f"{_NEEDS_MORE} {_DECLARED} (unreachable)"),
        ("no words for it", "20000000 33554432 granted", f"{_NEARLY_FULL} {_RAISE}"),
        ("no words for it", "20000000 33554432 declared", f"{_NEARLY_FULL} {_DECLARED}"),
        ("no words for it", "9000000 33554432 granted", _TRAPPED),
        ("no words for it", "0 33554432 granted", _TRAPPED),
    ],
    ids=["rust", "c++", "nearly_full", "nearly_full_by_manifest", "room", "unknown"],
)
def test_the_end_of_its_memory_is_named_with_who_can_raise_it(printed: str, memory: str, reason: str) -> None:
    tail = (printed, "wasmtime: wasm trap: unreachable", f"wasmtime: memory: {memory}")
    found = with_reason(ExitReport(70, None, stopped=False, seconds=1.0, stderr_tail=tail))
    assert (found.reason, found.stderr_tail) == (reason, (printed,))
