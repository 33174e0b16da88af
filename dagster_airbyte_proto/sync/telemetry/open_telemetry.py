"""Spans and metrics by OpenTelemetry's API. Whoever runs a sync sets up the SDK and its exporters; without them the
API does nothing.

1. Spans nest by the current context, which the committer's threads copy. So a sync is below the span of its caller.
2. No exception's text is in a span: it is masked only in the report. The class of an error is enough to count by.
3. An exporter or span processor that raises must not end a sync, least of all between a commit and its promotion. So
   each call is guarded.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Status, StatusCode

from dagster_airbyte_proto.loads.load import Load, StagedRows
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.push_report import PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run_options import ProgressListener
from dagster_airbyte_proto.sync.telemetry.delivery_metrics import DeliveryMeter
from dagster_airbyte_proto.sync.telemetry.run_telemetry import RunIdentity
from dagster_airbyte_proto.sync.telemetry.sent_metrics import MetricsBySender
from dagster_airbyte_proto.sync.telemetry.stream_metrics import StreamMetrics

_SCOPE = "dagster_airbyte_proto"
CONNECTION, STREAM, STATUS = "airbyte_proto.connection", "airbyte_proto.stream", "airbyte_proto.status"
SENDER, METRIC = "airbyte_proto.sender", "airbyte_proto.metric"
_SYNC_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14400)
_COMMIT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)

# Instruments are made once for each process: the SDK warns of a second one of the same name. They are proxies until the
# SDK is set up, which may be later.
_METER = metrics.get_meter(_SCOPE)
_ROWS = _METER.create_counter("airbyte_proto.rows", "{row}", "Rows that were committed")
_BYTES = _METER.create_counter("airbyte_proto.bytes", "By", "Bytes of records that were read")
_REJECTED = _METER.create_counter("airbyte_proto.rejected", "{row}", "Rows that were rejected")
_UNKNOWN = _METER.create_gauge("airbyte_proto.unknown", "{row}", "Rows of which nobody knows whether they arrived")
_NULLED = _METER.create_counter("airbyte_proto.nulled", "{value}", "Values that did not fit, and are NULL")
_RETRIES = _METER.create_counter("airbyte_proto.retries", "{retry}", "Streams that a retry of a run read again")
_RECOVERED = _METER.create_counter("airbyte_proto.recovered", "{load}", "Loads of dead runs that were ended")
_LAG = _METER.create_gauge("airbyte_proto.commit.lag", "s", "Time for which rows have been waiting for a commit")
_SENT = _METER.create_gauge("airbyte_proto.connector.metric", "", "Metrics that connectors sent in their last run")
_COMPLETED = _METER.create_gauge("airbyte_proto.completed", "s", "Unix time at which the stream was last complete")
_SYNC_SECONDS = _METER.create_histogram(
    "airbyte_proto.sync.duration", "s", "Duration of syncs", explicit_bucket_boundaries_advisory=_SYNC_BUCKETS
)
_PUSHED = _METER.create_counter("airbyte_proto.push.rows", "{row}", "Rows that destinations acknowledged")
_PUSHED_BYTES = _METER.create_counter("airbyte_proto.push.bytes", "By", "Bytes of records that destinations were sent")
_PUSH_RETRIES = _METER.create_counter("airbyte_proto.push.retries", "{retry}", "Attempts to deliver rows, made again")
_PUSH_LAG = _METER.create_gauge("airbyte_proto.push.lag", "s", "Time for which sent rows have been unacknowledged")
_PUSH_SECONDS = _METER.create_histogram(
    "airbyte_proto.push.duration", "s", "Duration of pushes", explicit_bucket_boundaries_advisory=_SYNC_BUCKETS
)
_COMMIT_SECONDS = _METER.create_histogram(
    "airbyte_proto.commit.duration", "s", "Duration of commits", explicit_bucket_boundaries_advisory=_COMMIT_BUCKETS
)


class OpenTelemetry:
    """The RunTelemetry of one run."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(_SCOPE)
        self._meter = _OpenTelemetryMeter("", is_retry=False)
        self._streams: StreamMetrics | None = None
        self._run = _Step(self._tracer, "run", {})
        self._delivery = _Step(self._tracer, "deliver", {})

    @property
    def delivery_meter(self) -> DeliveryMeter:
        return self._meter

    def sync(self, run: RunIdentity) -> AbstractContextManager[object]:
        return self._begin(f"sync {run.connection}", run, _SYNC_SECONDS)

    def push(self, run: RunIdentity) -> AbstractContextManager[object]:
        return self._begin(f"push {run.connection}", run, _PUSH_SECONDS)

    def _begin(self, name: str, run: RunIdentity, duration: metrics.Histogram) -> AbstractContextManager[object]:
        self._meter = _OpenTelemetryMeter(run.connection, is_retry=run.attempt > 1)
        attributes: dict[str, str | int] = {
            CONNECTION: run.connection,
            "airbyte_proto.run.id": run.run_id,
            "airbyte_proto.attempt": run.attempt,
            **({"airbyte_proto.partition": run.partition} if run.partition else {}),
        }
        self._run = _Step(self._tracer, name, attributes)
        return self._run.timed(duration, {CONNECTION: run.connection, STATUS: str(SyncStatus.FAILED)})

    def following(self, listener: ProgressListener) -> ProgressListener:
        self._streams = StreamMetrics(listener, self._meter)
        return self._streams

    def load(self, load: Load) -> AbstractContextManager[object]:
        rows = sum(part.rows for part in load.parts)
        attributes: dict[str, str | int] = {
            CONNECTION: load.connection,
            "airbyte_proto.load.id": load.load_id,
            "airbyte_proto.load.streams": len(load.parts),
            "airbyte_proto.load.rows": rows,
        }
        return _Step(self._tracer, "load", attributes)

    def commit(self, load: Load, part: StagedRows) -> AbstractContextManager[object]:
        measured = {CONNECTION: load.connection, STREAM: str(part.stream)}
        attributes: dict[str, str | int] = {
            **measured,
            "airbyte_proto.load.id": load.load_id,
            "airbyte_proto.load.rows": part.rows,
            "airbyte_proto.table": str(part.table),
            "airbyte_proto.write": str(part.write),
        }
        return _Step(self._tracer, "commit", attributes).timed(_COMMIT_SECONDS, measured)

    def ended(self, report: SyncReport) -> None:
        with suppress(Exception):
            if self._streams is not None:
                self._streams.measure()
            self._meter.reported(report)
            self._run.conclude(str(report.status), is_error=report.status is not SyncStatus.COMPLETE)

    def delivery(self, connection: str, stream: StreamId) -> AbstractContextManager[object]:
        self._meter.began(stream)
        self._meter.sent(stream, 0)
        self._meter.unacknowledged(stream, 0.0)
        self._meter.attempted(stream, is_again=False)
        self._delivery = _Step(self._tracer, "deliver", {CONNECTION: connection, STREAM: str(stream)})
        return self._delivery

    def delivered(self, report: PushedStreamReport) -> None:
        with suppress(Exception):
            for name in ("sent", "acknowledged", "rejected", "unknown"):
                self._delivery.note(f"airbyte_proto.push.{name}", getattr(report, name))
            self._delivery.conclude(str(report.status), is_error=report.status is not SyncStatus.COMPLETE)

    def pushed(self, report: PushReport) -> None:
        with suppress(Exception):
            self._meter.pushed(report)
            self._run.conclude(str(report.status), is_error=report.status is not SyncStatus.COMPLETE)


class _OpenTelemetryMeter:
    """The metrics of a connection's streams."""

    def __init__(self, connection: str, *, is_retry: bool) -> None:
        self._connection = connection
        self._is_retry = is_retry

    def started(self, stream: StreamId) -> None:
        self.began(stream)
        self.lagging(stream, 0.0)

    def began(self, stream: StreamId) -> None:
        # Zeroes too: a dashboard cannot tell a series that is missing from one that nobody sends.
        self._add(_RETRIES, int(self._is_retry), stream)

    def advanced(self, stream: StreamId, *, rows: int, size_bytes: int) -> None:
        self._add(_ROWS, rows, stream)
        self._add(_BYTES, size_bytes, stream)

    def lagging(self, stream: StreamId, seconds: float) -> None:
        with suppress(Exception):
            _LAG.set(seconds, self._attributes(str(stream)))

    def attempted(self, stream: StreamId, *, is_again: bool) -> None:
        self._add(_PUSH_RETRIES, int(is_again), stream)

    def sent(self, stream: StreamId, size_bytes: int) -> None:
        self._add(_PUSHED_BYTES, size_bytes, stream)

    def unacknowledged(self, stream: StreamId, seconds: float) -> None:
        with suppress(Exception):
            _PUSH_LAG.set(seconds, self._attributes(str(stream)))

    def reported(self, report: SyncReport) -> None:
        _RECOVERED.add(report.recovered_loads, {CONNECTION: self._connection})
        for name, stream in report.streams.items():
            attributes = self._attributes(name)
            _REJECTED.add(max(0, stream.refused - stream.uncommitted), attributes)
            _UNKNOWN.set(stream.unknown, attributes)
            _NULLED.add(sum(stream.nulled.values()), attributes)
            self._sent(name, stream.metrics)
            if stream.status is SyncStatus.COMPLETE:
                _COMPLETED.set(time.time(), attributes)

    def pushed(self, report: PushReport) -> None:
        _RECOVERED.add(report.recovered_loads, {CONNECTION: self._connection})
        for name, stream in report.streams.items():
            attributes = self._attributes(name)
            _PUSHED.add(stream.acknowledged, attributes)
            self._sent(name, stream.metrics)
            _REJECTED.add(stream.refused, attributes)
            _UNKNOWN.set(stream.unknown, attributes)
            if stream.status is SyncStatus.COMPLETE:
                _COMPLETED.set(time.time(), attributes)

    def _sent(self, stream: str, metrics: MetricsBySender) -> None:
        """A counter too is a gauge: a connector may send one name as both, and an instrument is either."""
        for sender, values in metrics.items():
            for name, value in values.items():
                _SENT.set(value, {**self._attributes(stream), SENDER: sender, METRIC: name})

    def _add(self, counter: metrics.Counter, count: int, stream: StreamId) -> None:
        with suppress(Exception):
            counter.add(count, self._attributes(str(stream)))

    def _attributes(self, stream: str) -> dict[str, str]:
        return {CONNECTION: self._connection, STREAM: stream}


class _Step:
    """A span that is the current one while its body runs, and a histogram of the body's seconds where it is `timed`."""

    def __init__(self, tracer: trace.Tracer, name: str, attributes: Mapping[str, str | int]) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = attributes
        self._histogram: metrics.Histogram | None = None
        self._measured: dict[str, str] = {}
        self._began = 0.0
        self._span: trace.Span = trace.INVALID_SPAN
        self._token: Any = None

    def timed(self, histogram: metrics.Histogram, attributes: Mapping[str, str]) -> "_Step":
        self._histogram = histogram
        self._measured = dict(attributes)
        return self

    def conclude(self, status: str, *, is_error: bool) -> None:
        """Notes how the step ended, beside errors that it raises."""
        self._measured[STATUS] = status
        self._span.set_attribute(STATUS, status)
        if is_error:
            self._span.set_status(Status(StatusCode.ERROR))

    def note(self, name: str, value: int) -> None:
        self._span.set_attribute(name, value)

    def __enter__(self) -> None:
        self._began = time.monotonic()
        with suppress(Exception):
            self._span = self._tracer.start_span(self._name, attributes=self._attributes)
            self._token = context.attach(trace.set_span_in_context(self._span))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_back: TracebackType | None
    ) -> None:
        with suppress(Exception):
            if self._histogram is not None:
                self._histogram.record(time.monotonic() - self._began, self._measured)
        with suppress(Exception):
            if kind is not None:
                self._span.set_attribute("error.type", kind.__name__)
                self._span.set_status(Status(StatusCode.ERROR))
            self._span.end()
        with suppress(Exception):
            if self._token is not None:
                context.detach(self._token)
