"""Decides when a connector counts as hung: it brings nothing new.

A record is progress. So is a state that differs from the stream's previous one: a source of changes may read its log
for hours without a row for us. Heartbeats repeat a state, and are none. States that differ without end (a counter, a
clock) are no proof either, so without any record there is a longer limit. A sync that ends there keeps its last state,
so the next one goes on from it.
"""

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.sync.landing.completeness import READING
from dagster_airbyte_proto.sync.report import LineCounts
from dagster_airbyte_proto.sync.run_options import Timeouts


class HangDetector:
    """The times at which the connector made progress. All times are those of the monotonic clock, in seconds."""

    def __init__(self, timeouts: Timeouts, now: float) -> None:
        self._timeouts = timeouts
        self._began = self._last_record = self._last_progress = now
        self._records = 0
        self._newest_states: dict[StreamId | None, int] = {}
        self._had_new_state = False
        self._limited_until = 0.0

    def state_came(self, state: State) -> None:
        """Notes a state of a stream that was requested, or a shared one."""
        digest = hash(state.message)
        if self._newest_states.get(state.stream) != digest:
            self._newest_states[state.stream] = digest
            self._had_new_state = True

    def rate_limited(self, until: float) -> None:
        """Notes that the connector waits until then, which counts as progress."""
        self._limited_until = until

    def check(self, lines: LineCounts, now: float) -> None:
        """Raises ConnectorError if the connector counts as hung."""
        if lines.record != self._records:
            self._records, self._last_record, self._last_progress = lines.record, now, now
        elif self._had_new_state:
            self._last_progress = now
        self._had_new_state = False
        limits = self._timeouts
        is_silent = not any((lines.record, lines.state, lines.log, lines.trace, lines.other))
        if is_silent and now - self._began > limits.startup_seconds:
            raise _hung_error(f"it wrote nothing in the first {limits.startup_seconds:.0f} s")
        if now - max(self._last_progress, self._limited_until) > limits.heartbeat_seconds:
            raise _hung_error(f"no record and no new state was received for {limits.heartbeat_seconds:.0f} s")
        if now - max(self._last_record, self._limited_until) > limits.states_seconds:
            raise _hung_error(f"only states and no record were received for {limits.states_seconds:.0f} s")


def _hung_error(found: str) -> ConnectorError:
    return ConnectorError(READING, f"{found}: it was stopped", remedy="Its log is stored with the run.", retryable=True)
