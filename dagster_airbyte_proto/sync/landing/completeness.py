"""Decides whether a stream is complete, once its connector has ended.

- A stream with the status COMPLETE is complete. If no state covers its last rows, its connector must also have ended
  well: the Airbyte CDK sends the last state after the status, and without that state the rows come again.
- A stream without a status is complete if its connector sent no status for any stream and ended well.
"""

from typing import NamedTuple

from dagster_airbyte_proto.errors import Cancelled, ConnectorError, ProtoError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.protocols.events import StreamStatus
from dagster_airbyte_proto.sync.stream_run import StreamRun

READING = "reading from the connector"


class ConnectorEnding(NamedTuple):
    """The end of a connector. `error` is one that names no stream; `has_statuses` if it sent any stream status.

    `how_it_ended` follows "the connector".
    """

    exit: ExitReport | None
    was_cancelled: bool
    error: ConnectorError | None
    has_statuses: bool
    how_it_ended: str = "did not end"


def why_incomplete(run: StreamRun, ending: ConnectorEnding, *, is_covered: bool) -> ProtoError | None:
    """The reason why a stream is incomplete, or None when it is complete. `is_covered`: no row waits for a state."""
    stream = str(run.planned.id)
    if run.reported_status is StreamStatus.COMPLETE:
        if is_covered or ended_by_itself(ending.exit):
            return None
        found = "no state covered its last records when the connector ended"
        return ConnectorError(READING, found, stream=stream, retryable=True)
    if ending.was_cancelled:
        return Cancelled(READING, "the sync was cancelled", stream=stream)
    # One that is ended for a limit may report that as an error of its own, in words that name no limit.
    if ending.error is not None and not (ending.exit and ending.exit.is_over_limit):
        return ending.error
    if ending.exit is None or not ending.exit.ended_cleanly:
        return ConnectorError(READING, f"the connector {ending.how_it_ended}", stream=stream, retryable=True)
    if ending.has_statuses:
        found = "the connector ended well but never sent the status COMPLETE for it"
        return ConnectorError(READING, found, stream=stream, retryable=True)
    return None


def ended_by_itself(report: ExitReport | None) -> bool:
    """True when the connector ended cleanly, without being stopped."""
    return report is not None and report.ended_cleanly and not report.stopped
