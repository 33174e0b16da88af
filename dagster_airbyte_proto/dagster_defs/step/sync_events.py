"""The events of one sync, as a step yields them.

The order of steps for a complete stream:

1. Its rows are committed to the table.
2. Its event is yielded, and the IO manager confirms that the rows are in the table.
3. Dagster writes the event.
4. Its state moves.

A step that ends between two of these leaves the load announced, and the next run of the connection completes it.

Terminate raises DagsterExecutionInterruptedError in the step's main thread, at any point. Complete streams are still
yielded for up to `_DRAIN_SECONDS`; the loads of all others stay announced. If the interrupt strikes inside an IO
manager, Dagster only closes the iterator, which then must not yield.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.assets import check_sample_rows
from dagster_airbyte_proto.dagster_defs.failures import (
    INTERRUPTS,
    cancellation,
    fail_if_incomplete,
    failing_the_step,
)
from dagster_airbyte_proto.dagster_defs.step import stream_metadata
from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync, StreamsCommitted, SyncEnded
from dagster_airbyte_proto.dagster_defs.step.run_progress import RunProgress
from dagster_airbyte_proto.dagster_defs.tables.table_metadata import RequestedMetadata
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus

SyncEvent = dg.MaterializeResult[CommittedStream]
_StreamResult = TypeVar("_StreamResult", CommittedStream, StreamReport)

_POLL_SECONDS = 0.5
_STOP_SECONDS = 10.0
# A terminated step has to be gone within ten seconds; the drain and the stop after it stay below that.
_DRAIN_SECONDS = 7.0
_STOP_AFTER_DRAIN_SECONDS = 1.5


class BuildMaterialization(Protocol):
    """Builds the event of a complete stream. `seconds` is how long the sync has run. A terminated step `ends_at` a
    time (monotonic)."""

    def __call__(
        self, key: dg.AssetKey, committed: CommittedStream, seconds: float, *, ends_at: float | None
    ) -> SyncEvent: ...


class SyncedAssets(NamedTuple):
    """The assets of one sync: the selected ones, upstream first as Dagster requires of a step's events, and the others
    of the definition. Those are synced too where they share a state with a selected one."""

    connection: str
    streams: Mapping[dg.AssetKey, StreamId]
    unselected: Mapping[dg.AssetKey, StreamId]


class SyncEvents(Iterator[SyncEvent]):
    """The events that a step yields: one MaterializeResult for each complete stream. Raises Failure at the end if any
    stream is incomplete.

    Each method returns new events with more metadata, at the cost of a query per stream. They can be chained in any
    order, but only before the first event is taken: that starts the sync.
    """

    def __init__(
        self,
        start: Callable[[RequestedMetadata], Iterator[SyncEvent]],
        requested: RequestedMetadata = RequestedMetadata(),  # noqa: B008 - a tuple, never changed
    ) -> None:
        self._start = start
        self._requested = requested
        self._events: Iterator[SyncEvent] | None = None

    def __iter__(self) -> "SyncEvents":
        return self

    def __next__(self) -> SyncEvent:
        if self._events is None:
            self._events = self._start(self._requested)
        try:
            return next(self._events)
        except dg.Failure as failure:
            # Dagster shows the stack trace beside the message, and frames of this package say nothing about the fault.
            raise failure.with_traceback(None) from failure.__cause__

    def fetch_column_metadata(self) -> "SyncEvents":
        """Adds the columns that each table has after the sync, with types and comments. Adds their lineage too, if the
        metadata `airbyte_proto/source_asset` of the stream's asset names the asset that the connector reads."""
        return self._with_requested(self._requested._replace(column_metadata=True))

    def with_insights(self) -> "SyncEvents":
        """Adds numbers of each whole table, for plots: its rows, the nulls of each column, and the smallest and
        largest value of each numeric or time column."""
        return self._with_requested(self._requested._replace(insights=True))

    def with_sample(self, rows: int = 10) -> "SyncEvents":
        """Adds some of the rows that the sync brought. They stay in Dagster's event log, readable by everyone who can
        see it: keep private data out. Raises ConfigError for fewer than 1 or more than 100 rows."""
        check_sample_rows("choosing a sample", rows)
        return self._with_requested(self._requested._replace(sample_rows=rows))

    def _with_requested(self, requested: RequestedMetadata) -> "SyncEvents":
        if self._events is not None:
            remedy = "Chain the method to sync(context), before the first event is taken."
            raise ConfigError("adding metadata to the events of a sync", "it has started already", remedy=remedy)
        return SyncEvents(self._start, requested)

    def close(self) -> None:
        """Ends the sync, as when its step fails. `yield from` calls it."""
        close = getattr(self._events, "close", None)
        if close is not None:
            close()


class SyncEventStream:
    """Turns the messages of one background sync into Dagster events, in the step's main thread. Call `events` once."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        assets: SyncedAssets,
        background: BackgroundSync[SyncReport],
        progress: RunProgress,
        build_materialization: BuildMaterialization,
    ) -> None:
        self._context = context
        self._build_materialization = build_materialization
        self._assets = assets
        self._background = background
        self._progress = progress
        self._started_at = time.monotonic()
        self._pending: deque[tuple[dg.AssetKey, CommittedStream]] = deque()
        self._awaits_acceptance = False
        self._is_yielding = False
        self._drain_deadline: float | None = None
        self._end: SyncEnded[SyncReport] = SyncEnded(None, None)

    def events(self) -> Iterator[SyncEvent]:
        stop_seconds = _STOP_SECONDS
        try:
            self._background.start()
            yield from self._events_until_end()
            self._raise_unless_complete()
        except INTERRUPTS:
            stop_seconds = _STOP_AFTER_DRAIN_SECONDS
            with suppress(*INTERRUPTS):  # a second interrupt ends the drain at once
                yield from self._drain()
            raise cancellation(self._assets.connection, self._end.error) from None
        finally:
            if not self._background.stop(stop_seconds):
                self._context.log.warning(
                    "The sync is still running. The next run of its connection recovers what it leaves."
                )

    def _raise_unless_complete(self) -> None:
        report, error = self._end
        if error is not None:
            with failing_the_step():
                raise error
        if report is not None:
            self._log_report(report)
            fail_if_incomplete(report)

    def _drain(self) -> Iterator[SyncEvent]:
        """Yields the streams that are complete, until the deadline."""
        if self._is_yielding:
            # The interrupt struck at a yield: Dagster may or may not have written that event, so the load cannot be
            # accepted.
            return
        self._drain_deadline = time.monotonic() + _DRAIN_SECONDS
        self._background.cancel()
        yield from self._events_until_end()
        if self._end.report is not None:
            self._log_report(self._end.report)

    def _events_until_end(self) -> Iterator[SyncEvent]:
        """Can be called again after an interrupt has ended it."""
        while not self._is_past_deadline():
            yield from self._yield_pending()
            message = self._background.next_message(self._wait_seconds())
            if isinstance(message, SyncEnded):
                self._end = message
                return
            if message is not None:
                self._queue(message)
            self._progress.report_progress()

    def _queue(self, ready: StreamsCommitted) -> None:
        committed = {str(each.stream): each for each in ready.streams}
        self._awaits_acceptance = True
        self._pending.extend(_by_asset(self._assets.streams, committed))
        for key, other in _by_asset(self._assets.unselected, committed):
            self._context.log_event(stream_metadata.unselected_materialization(key, other, self._context.run.run_id))

    def _yield_pending(self) -> Iterator[SyncEvent]:
        """Yields every pending event, then accepts the load, so that its states move."""
        while self._pending and not self._is_past_deadline():
            key, committed = self._pending[0]
            seconds = time.monotonic() - self._started_at
            event = self._build_materialization(key, committed, seconds, ends_at=self._drain_deadline)
            self._is_yielding = True
            self._pending.popleft()
            yield event
            self._is_yielding = False
        if self._awaits_acceptance and not self._pending:
            self._awaits_acceptance = False
            self._background.accept()

    def _is_past_deadline(self) -> bool:
        return self._drain_deadline is not None and time.monotonic() > self._drain_deadline

    def _wait_seconds(self) -> float:
        if self._drain_deadline is None:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, self._drain_deadline - time.monotonic())

    def _log_report(self, report: SyncReport) -> None:
        for warning in report.warnings:
            self._progress.warn(warning)
        for key, stream in _by_asset({**self._assets.streams, **self._assets.unselected}, report.streams):
            if stream.status is not SyncStatus.COMPLETE:
                self._context.log_event(stream_metadata.observation(key, stream, report.partition or None))


def _by_asset(
    assets: Mapping[dg.AssetKey, StreamId], by_name: Mapping[str, _StreamResult]
) -> Iterator[tuple[dg.AssetKey, _StreamResult]]:
    return ((key, by_name[str(stream)]) for key, stream in assets.items() if str(stream) in by_name)
