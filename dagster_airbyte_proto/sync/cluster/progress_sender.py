"""Sends the progress of a sync from its executor to the driver, and learns from its answers whether it is cancelled."""

import threading
from collections import deque
from collections.abc import Mapping
from types import TracebackType

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.cluster.sync_order import LogLine, StreamCounts, SyncDriver
from dagster_airbyte_proto.sync.cluster.values import as_remote
from dagster_airbyte_proto.sync.stream_run import StreamRun

_INTERVAL_SECONDS = 0.5
_MAX_LINES = 2000
"""The lines of half a second that are sent. All are in the log of the executor."""


class ProgressSender:
    """A ProgressListener that sends twice a second. It sets `cancel` when the driver says so, or is gone.

    A driver that does not answer for as long as a call is repeated is gone: its run is over, and the rows that no state
    covers are read again by the next.
    """

    def __init__(self, driver: SyncDriver, cancel: threading.Event) -> None:
        self._driver = driver
        self._cancel = cancel
        self._runs: Mapping[StreamId, StreamRun] = {}
        self._lines: deque[LogLine] = deque()
        self._skipped = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send_until_over, name="progress", daemon=True)

    def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:
        self._driver.started(run_id, [run.planned for run in runs.values()])
        self._runs = runs

    def progressed(self) -> None:
        """Does nothing: the thread sends."""

    def connector_logged(self, level: str, text: str) -> None:
        with self._lock:
            if len(self._lines) < _MAX_LINES:
                self._lines.append(LogLine(level, text))
            else:
                self._skipped += 1

    def __enter__(self) -> "ProgressSender":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _send_until_over(self) -> None:
        while True:
            is_last = self._over.wait(_INTERVAL_SECONDS)
            try:
                if self._driver.progressed(self._taken_lines(), [*map(_counts, self._runs.values())]):
                    self._cancel.set()
            except ProtoError:
                self._cancel.set()
            if is_last:
                return

    def _taken_lines(self) -> list[LogLine]:
        with self._lock:
            lines = [*self._lines]
            if self._skipped:
                lines.append(LogLine("WARN", f"{self._skipped:,} more lines are in the log of the executor"))
            self._lines.clear()
            self._skipped = 0
        return lines


def _counts(run: StreamRun) -> StreamCounts:
    return StreamCounts(
        run.planned.id,
        run.counts.emitted,
        run.counts.bytes,
        run.counts.states,
        run.outcome.committed,
        run.outcome.rejections.total(),
        run.reported_status,
        run.is_complete,
        as_remote(run.error) if run.error else None,
    )
