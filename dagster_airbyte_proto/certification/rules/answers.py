"""Judges whether a request was answered at all: in time, by one message, with a clean end."""

from typing import Any

from dagster_airbyte_proto.certification.evidence import Reply
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, holds

_MAX_OUTPUT_LINES = 3


def reply_ruling(reply: Reply[Any], answer: str) -> Ruling:
    """The ruling on a request that must be answered."""
    if reply.error is not None:
        return Ruling(Outcome.BROKEN, f"no answer: {reply.error.found}", _output_samples(reply))
    seconds = sum(run.seconds for run in reply.runs)
    last = reply.runs[-1] if reply.runs else None
    if last is not None and last.report is not None and not last.report.ended_cleanly:
        found = f"{answer} came, and then the connector {last.how_it_ended}"
        return Ruling(Outcome.WARNING, found, remedy="End with exit code 0 after an answer.")
    return holds(f"{answer} came in {seconds:.1f} s")


def is_hung(reply: Reply[Any]) -> bool:
    """True if it was stopped without an answer. A connector that is asked on its stdin need not end by itself."""
    return reply.answer is None and any(run.was_stopped for run in reply.runs)


def _output_samples(reply: Reply[Any]) -> tuple[Sample, ...]:
    """The last lines that the connector wrote in the place of an answer."""
    if not reply.runs:
        return ()
    lines = reply.runs[-1].output.decode(errors="replace").splitlines()
    start = max(0, len(lines) - _MAX_OUTPUT_LINES)
    report = reply.runs[-1].report
    stderr = report.stderr_tail[-_MAX_OUTPUT_LINES:] if report else ()
    return (
        *(Sample(f"line {start + number} of stdout", line) for number, line in enumerate(lines[start:], 1)),
        *(Sample("end of stderr", line) for line in stderr),
    )
