"""The step of a push: runs it beside the step's thread, and turns its report into Dagster's events."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.failures import INTERRUPTS, StepCancelled, failing_the_step
from dagster_airbyte_proto.dagster_defs.push.delivered_tables import record_table
from dagster_airbyte_proto.dagster_defs.push.partition_pushes import PartitionPushes
from dagster_airbyte_proto.dagster_defs.push.push_checks import PushCheckInput, push_check_results
from dagster_airbyte_proto.dagster_defs.push.push_metadata import fields_metadata, push_metadata
from dagster_airbyte_proto.dagster_defs.push.translator import table_asset
from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync, SyncEnded
from dagster_airbyte_proto.dagster_defs.step.table_queries import TableQueries
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.push_report import PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import SyncStatus

_POLL_SECONDS = 0.5
# A terminated step has to be gone within ten seconds. The destination gets this share of them to prove what it has.
_DRAIN_SECONDS = 7.0
_STOP_SECONDS = 1.0

PushEvents = Iterator[dg.MaterializeResult[None]]


class PushedAssets(NamedTuple):
    """The streams that a step pushes, by their assets, the IO manager of the tables, and the pushes themselves.

    `connection` is the one of the definition, or another for this run.
    """

    connection: Connection
    definition: ConnectionDefinition
    streams: dict[dg.AssetKey, StreamId]
    io_manager: object
    pushes: PartitionPushes


class PushStep:
    """Waits for a push, and yields a materialization for each stream that is complete."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        pushed: PushedAssets,
        background: BackgroundSync[PushReport],
        report_progress: Callable[[], None],
    ) -> None:
        self._context, self._pushed, self._background = context, pushed, background
        self._report_progress = report_progress
        self._queries = TableQueries.of(pushed.io_manager)

    def events(self) -> PushEvents:
        """Raises dg.Failure where a stream is not complete, after the good ones. A step that is terminated yields these
        too, and raises one that is not tried again."""
        waiting = PushWait(self._background, self._report_progress)
        try:
            report = waiting.report()
            if report is not None:
                yield from self._events_of(report, waiting)
            if waiting.is_interrupted:
                raise cancelled_push(self._pushed.connection.name)
            if report is not None:
                fail_unless_pushed(report)
        finally:
            if not self._background.stop(_STOP_SECONDS):
                self._context.log.warning("The push is still running. The next one goes on with what it leaves.")

    def _events_of(self, report: PushReport, waiting: "PushWait") -> PushEvents:
        """An interrupt bounds the queries of the streams that are left. A second one ends them."""
        for warning in report.warnings:
            self._context.log.warning(warning)
        for note in report.notes:
            self._context.log.info(note)
        streams = deque((key, each) for key, each in self._pushed.streams.items() if str(each) in report.streams)
        try:
            self._bound_queries(waiting)
            yield from self._stream_events(report, streams)
        except INTERRUPTS:
            waiting.interrupt()
            with suppress(*INTERRUPTS):
                self._bound_queries(waiting)
                yield from self._stream_events(report, streams)

    def _bound_queries(self, waiting: "PushWait") -> None:
        if self._queries is not None:
            self._queries.ends_at = waiting.ends_at

    def _stream_events(self, report: PushReport, streams: deque[tuple[dg.AssetKey, StreamId]]) -> PushEvents:
        """Takes a stream from the list before its event is yielded. Can be called again after an interrupt."""
        while streams:
            key, stream = streams[0]
            pushed = report.streams[str(stream)]
            if pushed.status is SyncStatus.COMPLETE:
                event = self._materialization(key, report, pushed)
                streams.popleft()
                yield event
                if self._pushed.definition.records_tables:
                    record_table(self._context, key, self._pushed.connection.name, stream, pushed)
            else:
                # Not a materialization: with one, Dagster's re-execution from failure would skip the stream.
                metadata = push_metadata(report, pushed, self._upstream(key))
                partition = report.partition or None
                self._context.log_event(dg.AssetObservation(key, pushed.error, metadata=metadata, partition=partition))
                streams.popleft()

    def _materialization(
        self, key: dg.AssetKey, report: PushReport, pushed: PushedStreamReport
    ) -> dg.MaterializeResult[None]:
        self._log_partitions(key)
        checks = self._pushed.definition.checks
        options = (self._pushed.connection.push or {})[str(self._pushed.streams[key])]
        query = self._queries.query if self._queries else None
        inputs = PushCheckInput(options, pushed, query)
        selected = self._context.selected_asset_check_keys
        return dg.MaterializeResult(
            asset_key=key,
            metadata=self._event_metadata(key, report, pushed),
            check_results=push_check_results(key, inputs, checks, selected) if checks else [],
        )

    def _event_metadata(self, key: dg.AssetKey, report: PushReport, pushed: PushedStreamReport) -> dict[str, Any]:
        """The metadata of a stream's event. Of partitions it has what their events share: each has its own numbers."""
        upstream = self._upstream(key)
        if self._pushed.pushes.is_partitioned:
            return fields_metadata(pushed.fields, upstream)
        return push_metadata(report, pushed, upstream)

    def _log_partitions(self, key: dg.AssetKey) -> None:
        """Adds the numbers of each partition to its own event."""
        if self._pushed.pushes.is_partitioned:
            for partition, report in self._pushed.pushes.reports.items():
                pushed = report.streams.get(str(self._pushed.streams[key]))
                if pushed is not None:
                    metadata = push_metadata(report, pushed, None)
                    self._context.add_asset_metadata(metadata, asset_key=key, partition_key=partition)

    def _upstream(self, key: dg.AssetKey) -> dg.AssetKey | None:
        return source_table(self._pushed.connection, self._pushed.streams[key], self._context.assets_def, key)


class PushWait:
    """Waits for a push in the step's main thread, which Terminate can interrupt at any moment. Then the step `ends_at`
    a time (monotonic)."""

    def __init__(
        self, background: BackgroundSync[PushReport], report_progress: Callable[[], None] = lambda: None
    ) -> None:
        self._background, self._report_progress = background, report_progress
        self.ends_at: float | None = None

    @property
    def is_interrupted(self) -> bool:
        return self.ends_at is not None

    def interrupt(self) -> None:
        """Has the step end, if it is not ending yet."""
        self.ends_at = self.ends_at or time.monotonic() + _DRAIN_SECONDS

    def report(self) -> PushReport | None:
        """Returns the report; None if the step was interrupted, and the push did not end in time. Raises dg.Failure for
        an error of the push."""
        self._background.start()
        ended: SyncEnded[PushReport] | None = None
        try:
            while ended is None:
                ended = self._ended(_POLL_SECONDS)
                self._report_progress()
        except INTERRUPTS:
            self.interrupt()
            self._background.cancel()
            with suppress(*INTERRUPTS):  # a second interrupt ends the drain at once
                ended = ended or self._drained()  # it may have ended while its progress was reported
        if ended is None or (ended.error is not None and self.is_interrupted):
            return None
        with failing_the_step():
            if ended.error is not None:
                raise ended.error
        report: PushReport | None = ended.report
        return report

    def _drained(self) -> SyncEnded[PushReport] | None:
        ended: SyncEnded[PushReport] | None = None
        while ended is None and self.ends_at is not None and (left := self.ends_at - time.monotonic()) > 0:
            ended = self._ended(min(left, _POLL_SECONDS))
        return ended

    def _ended(self, timeout_seconds: float) -> SyncEnded[PushReport] | None:
        message = self._background.next_message(timeout_seconds)
        return message if isinstance(message, SyncEnded) else None


def source_table(
    connection: Connection, stream: StreamId, assets: dg.AssetsDefinition, key: dg.AssetKey
) -> dg.AssetKey | None:
    """The asset of the table that a stream reads, if its own asset depends on it."""
    table, upstream = (connection.push or {})[str(stream)].table, assets.asset_deps[key]
    if table is None:
        return None
    return next(iter(upstream)) if len(upstream) == 1 else next(iter(upstream & {table_asset(table)}), None)


def fail_unless_pushed(report: PushReport) -> None:
    """Raises one Failure for all incomplete streams. It allows retries only if every one of them is retryable."""
    failed = {name: each for name, each in report.streams.items() if each.status is not SyncStatus.COMPLETE}
    if failed:
        raise dg.Failure(
            "\n".join(f"{name}: {each.error or each.status.value}" for name, each in failed.items()),
            metadata={"airbyte_proto/run": report.run_id, "airbyte_proto/log": dg.PathMetadataValue(report.log)},
            allow_retries=all(each.retryable for each in failed.values()),
        )


def cancelled_push(connection: str) -> StepCancelled:
    """Returns the failure of the terminated step of a push."""
    return StepCancelled(
        f"The push of {connection} was cancelled. What the destination acknowledged is kept, and the next push goes on"
        " from there."
    )
