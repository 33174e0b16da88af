"""The events of one sync, as a step yields them.

The order for a complete stream: its rows are in, its event is yielded, its IO manager finds the rows in the table, the
event is written, and only then its state moves. A step that ends in the middle leaves the load announced, and the next
run of the connection ends it.

Terminate raises DagsterExecutionInterruptedError in the step's main thread. What is complete may be yielded still, for
as long as `_PARTING_SECONDS`; what is not yielded by then is left announced. (Where it strikes inside an IO manager
the iterator is only closed, and must yield nothing.)
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

import dagster as dg

from dagster_airbyte_proto.dagster_defs.step import events
from dagster_airbyte_proto.dagster_defs.step.background import Background, Ended, Ready
from dagster_airbyte_proto.dagster_defs.step.failures import cancelled, fail_if_incomplete, failing_the_step
from dagster_airbyte_proto.dagster_defs.step.watching import RunWatcher
from dagster_airbyte_proto.dagster_defs.tables.table_facts import Asked
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.delivery import Delivered
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus

SyncEvent = dg.MaterializeResult[Delivered]
_Told = TypeVar("_Told", Delivered, StreamReport)

_INTERRUPTS = (dg.DagsterExecutionInterruptedError, KeyboardInterrupt)
_LOOK_SECONDS = 0.5
_PARTING_SECONDS = 7.0
_STOP_SECONDS = 10.0
_STOP_AFTER_PARTING_SECONDS = 1.5
_MOST_SAMPLE_ROWS = 100


class EventOf(Protocol):
    """The event of a complete stream, when the sync has run for so many seconds."""

    def __call__(self, key: dg.AssetKey, delivered: Delivered, seconds: float, *, in_haste: bool) -> SyncEvent: ...


class SyncedAssets(NamedTuple):
    """The assets of one sync: those that were selected, in the order in which Dagster wants to hear of them, and the
    others that the definition has."""

    connection: str
    streams: Mapping[dg.AssetKey, StreamId]
    others: Mapping[dg.AssetKey, StreamId]


class SyncEvents(Iterator[SyncEvent]):
    """What a step yields: one MaterializeResult for each complete stream. Raises Failure at the end if any is not.

    Each of its methods answers one that tells more, and costs a query for each stream. They may be chained in any
    order, and not once the first event was taken: with that the sync begins.
    """

    def __init__(self, begin: Callable[[Asked], Iterator[SyncEvent]], asked: Asked = Asked()) -> None:  # noqa: B008 - a tuple
        self._begin = begin
        self._asked = asked
        self._source: Iterator[SyncEvent] | None = None

    def __iter__(self) -> "SyncEvents":
        return self

    def __next__(self) -> SyncEvent:
        if self._source is None:
            self._source = self._begin(self._asked)
        return next(self._source)

    def fetch_column_metadata(self) -> "SyncEvents":
        """With the columns that each table has after the sync, their types and comments; and where they come from, if
        the stream's asset names in its metadata `airbyte_proto/source_asset` which asset the connector reads."""
        return self._asking(self._asked._replace(column_metadata=True))

    def with_insights(self) -> "SyncEvents":
        """With numbers of each whole table, for plots: its rows; of each column the nulls, of each that is a number or
        a time the smallest and the largest value."""
        return self._asking(self._asked._replace(insights=True))

    def with_sample(self, rows: int = 10) -> "SyncEvents":
        """With some of the rows that came. They stay in Dagster's event log, for all who may see it: mind what is
        private. Raises ConfigError for more than 100, or none."""
        if not 1 <= rows <= _MOST_SAMPLE_ROWS:
            raise ConfigError("choosing a sample", f"{rows} rows", remedy=f"It has 1 to {_MOST_SAMPLE_ROWS}.")
        return self._asking(self._asked._replace(sample_rows=rows))

    def _asking(self, asked: Asked) -> "SyncEvents":
        if self._source is not None:
            remedy = "Chain it to sync(context), before the first event."
            raise ConfigError("asking for more in the events of a sync", "it has begun already", remedy=remedy)
        return SyncEvents(self._begin, asked)

    def close(self) -> None:
        """Ends the sync, as when its step has failed. `yield from` calls it."""
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


class Following:
    """Follows one sync from the step's main thread. `events` is called once."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        assets: SyncedAssets,
        work: Background,
        watcher: RunWatcher,
        event_of: EventOf,
    ) -> None:
        self._context = context
        self._event_of = event_of
        self._assets = assets
        self._work = work
        self._watcher = watcher
        self._began = time.monotonic()
        self._unyielded: deque[tuple[dg.AssetKey, Delivered]] = deque()
        self._is_delivering = False
        self._is_yielding = False
        self._deadline: float | None = None
        self._ended = Ended(None, None)

    def events(self) -> Iterator[SyncEvent]:
        stop_seconds = _STOP_SECONDS
        try:
            self._work.start()
            yield from self._until_ended()
            self._check_end()
        except _INTERRUPTS as interrupt:
            stop_seconds = _STOP_AFTER_PARTING_SECONDS
            with suppress(*_INTERRUPTS):  # asked to end once more: at once, then
                yield from self._parting()
            raise cancelled(self._assets.connection, self._ended.error) from interrupt
        finally:
            if not self._work.stop(stop_seconds):
                self._context.log.warning("The sync is still at work. What it leaves, its connection's next run heals.")

    def _check_end(self) -> None:
        report, error = self._ended
        if error is not None:
            with failing_the_step():
                raise error
        if report is not None:
            self._tell(report)
            fail_if_incomplete(report)

    def _parting(self) -> Iterator[SyncEvent]:
        """What is complete is yielded still, if that takes no long time."""
        if self._is_yielding:  # struck so close to a yield that nobody knows whether its event is written
            return
        self._deadline = time.monotonic() + _PARTING_SECONDS
        self._work.cancel()
        yield from self._until_ended()
        if self._ended.report is not None:
            self._tell(self._ended.report)

    def _until_ended(self) -> Iterator[SyncEvent]:
        """May be begun again where an interrupt ended it."""
        while not self._is_too_late():
            yield from self._delivered()
            message = self._work.message(self._patience_seconds())
            if isinstance(message, Ended):
                self._ended = message
                return
            if message is not None:
                self._take(message)
            self._watcher.tell_progress()

    def _take(self, ready: Ready) -> None:
        delivered = {str(each.stream): each for each in ready.streams}
        self._is_delivering = True
        self._unyielded.extend(_found(self._assets.streams, delivered))
        for key, other in _found(self._assets.others, delivered):
            self._context.log_event(events.unasked(key, other))

    def _delivered(self) -> Iterator[SyncEvent]:
        """All of what is to be delivered, and then its acceptance."""
        while self._unyielded and not self._is_too_late():
            key, delivered = self._unyielded[0]
            is_parting, seconds = self._deadline is not None, time.monotonic() - self._began
            event = self._event_of(key, delivered, seconds, in_haste=is_parting)
            self._is_yielding = True
            self._unyielded.popleft()
            yield event
            self._is_yielding = False
        if self._is_delivering and not self._unyielded:
            self._is_delivering = False
            self._work.accept()

    def _is_too_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _patience_seconds(self) -> float:
        return _LOOK_SECONDS if self._deadline is None else min(_LOOK_SECONDS, self._deadline - time.monotonic())

    def _tell(self, report: SyncReport) -> None:
        for warning in report.warnings:
            self._watcher.warn(warning)
        for key, told in _found({**self._assets.streams, **self._assets.others}, report.streams):
            if told.status is not SyncStatus.COMPLETE:
                self._context.log_event(events.observation(key, told, report.partition or None))


def _found(assets: Mapping[dg.AssetKey, StreamId], by_name: Mapping[str, _Told]) -> Iterator[tuple[dg.AssetKey, _Told]]:
    return ((key, by_name[str(stream)]) for key, stream in assets.items() if str(stream) in by_name)
