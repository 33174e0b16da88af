"""Whether a stream is complete, once its connector has ended.

- A stream that never said so is, if its connector says nothing of any stream and ends well.
- A stream that said COMPLETE is, with rows that no state covers, only if its connector then ended well: the CDK sends
  the last state after the status, and without that state the rows come again.
"""

from typing import NamedTuple

from dagster_airbyte_proto.errors import ConnectorError, ProtoError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.protocols.events import StreamStatus
from dagster_airbyte_proto.sync.stream_run import StreamRun

READING = "reading from the connector"


class Ending(NamedTuple):
    """How a connector's output ended. `error` is one that it did not place in a stream."""

    exit: ExitReport | None
    was_cancelled: bool
    error: ConnectorError | None
    heard_statuses: bool


def why_incomplete(run: StreamRun, ending: Ending, *, is_covered: bool) -> ProtoError | None:
    """None when it is complete. `is_covered`: no row of it waits for a state."""
    stream = str(run.planned.id)
    if run.said is StreamStatus.COMPLETE:
        if is_covered or ended_by_itself(ending.exit):
            return None
        found = "no state covered its last records when the connector ended"
        return ConnectorError(READING, found, stream=stream, retryable=True)
    if ending.was_cancelled:
        return ConnectorError(READING, "the sync was cancelled", stream=stream, retryable=True)
    if ending.error is not None:
        return ending.error
    if ending.exit is None or not ending.exit.ended_cleanly:
        found, words = _how_it_ended(ending.exit), _last_words(ending.exit)
        return ConnectorError(READING, found, remedy=words, stream=stream, retryable=True)
    if ending.heard_statuses:
        found = "the connector ended well but never called it complete"
        return ConnectorError(READING, found, stream=stream, retryable=True)
    return None


def ended_by_itself(report: ExitReport | None) -> bool:
    """Whether it came to its end, and nobody brought it there."""
    return report is not None and report.ended_cleanly and not report.stopped


def _how_it_ended(report: ExitReport | None) -> str:
    return f"the connector {report.how}" if report else "the connector did not end"


def _last_words(report: ExitReport | None) -> str:
    return "\n".join(("Its last words on stderr:", *report.stderr_tail)) if report and report.stderr_tail else ""
