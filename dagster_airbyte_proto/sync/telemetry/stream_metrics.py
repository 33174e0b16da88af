"""Measures streams while they are read, as a progress listener in front of another.

The reading thread calls it for each chunk, so it looks at the streams once a second, and at the end.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.run_options import ProgressListener
from dagster_airbyte_proto.sync.stream_run import StreamRun

_INTERVAL_SECONDS = 1.0


class StreamMeter(Protocol):
    """Takes the measures of streams."""

    def started(self, stream: StreamId) -> None: ...

    def advanced(self, stream: StreamId, *, rows: int, size_bytes: int) -> None:
        """Counts rows that were committed, and bytes that were read, since the last call."""
        ...

    def lagging(self, stream: StreamId, seconds: float) -> None:
        """Notes for how long rows of the stream have been waiting for a commit."""
        ...


class _Seen(NamedTuple):
    rows: int = 0
    size_bytes: int = 0
    waiting_since: float | None = None


class StreamMetrics:
    """A ProgressListener that measures, and passes everything on."""

    def __init__(
        self, listener: ProgressListener, meter: StreamMeter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listener = listener
        self._meter = meter
        self._clock = clock
        self._runs: Mapping[StreamId, StreamRun] = {}
        self._seen: dict[StreamId, _Seen] = {}
        self._measured_at = clock()

    def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:
        self._runs = runs
        for stream in runs:
            self._meter.started(stream)
        self._listener.run_started(run_id, runs)

    def progressed(self) -> None:
        if self._clock() - self._measured_at >= _INTERVAL_SECONDS:
            self.measure()
        self._listener.progressed()

    def connector_logged(self, level: str, text: str) -> None:
        self._listener.connector_logged(level, text)

    def measure(self) -> None:
        """Passes on what has changed since the last time."""
        self._measured_at = self._clock()
        for stream, run in self._runs.items():
            self._measure(stream, run)

    def _measure(self, stream: StreamId, run: StreamRun) -> None:
        before = self._seen.get(stream, _Seen())
        rows, size_bytes = run.outcome.committed, run.counts.bytes
        if (rows, size_bytes) != before[:2]:
            self._meter.advanced(stream, rows=rows - before.rows, size_bytes=size_bytes - before.size_bytes)
        waiting_since = self._waiting_since(run, before)
        if waiting_since is not None or before.waiting_since is not None:
            self._meter.lagging(stream, 0.0 if waiting_since is None else self._measured_at - waiting_since)
        self._seen[stream] = _Seen(rows, size_bytes, waiting_since)

    def _waiting_since(self, run: StreamRun, before: _Seen) -> float | None:
        """The time of the first row, or of the last commit, of a stream with rows that no load has ended yet."""
        outcome = run.outcome
        ended = outcome.committed + outcome.unknown + outcome.rejections.total()
        if run.counts.emitted <= ended:
            return None
        if before.waiting_since is None or outcome.committed > before.rows:
            return self._measured_at
        return before.waiting_since
