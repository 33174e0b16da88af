"""Streams and deliveries are measured once a second, and for how long their rows wait for a commit, or for an
acknowledgement."""

from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.run_options import NoProgressListener
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.sync.telemetry.delivery_metrics import DeliveryMetrics
from dagster_airbyte_proto.sync.telemetry.stream_metrics import StreamMetrics

USERS = StreamId(None, "users")


class _Meter:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def started(self, stream: StreamId) -> None:
        self.calls.append(("started", str(stream)))

    def advanced(self, stream: StreamId, *, rows: int, size_bytes: int) -> None:
        self.calls.append(("advanced", str(stream), rows, size_bytes))

    def lagging(self, stream: StreamId, seconds: float) -> None:
        self.calls.append(("lagging", str(stream), seconds))

    def attempted(self, stream: StreamId, *, is_again: bool) -> None:
        self.calls.append(("attempted", str(stream), is_again))

    def sent(self, stream: StreamId, size_bytes: int) -> None:
        self.calls.append(("sent", str(stream), size_bytes))

    def unacknowledged(self, stream: StreamId, seconds: float) -> None:
        self.calls.append(("unacknowledged", str(stream), seconds))

    def taken(self) -> list[tuple[object, ...]]:
        """The calls since the last time, without the stream: there is one."""
        calls, self.calls = self.calls, []
        assert {call[1] for call in calls} <= {"users"}
        return [(call[0], *call[2:]) for call in calls]


def test_rows_that_wait_for_a_commit_lag_until_it_comes() -> None:
    meter, now = _Meter(), [0.0]
    run = StreamRun(
        PlannedStream(Stream(USERS, {}), TableName("shop", "users"), ReadMode.INCREMENTAL, WriteMode.APPEND)
    )
    metrics = StreamMetrics(NoProgressListener(), meter, lambda: now[0])
    metrics.run_started("run", {USERS: run})
    assert meter.taken() == [("started",)]

    def at(seconds: float) -> list[tuple[object, ...]]:
        now[0] = seconds
        metrics.progressed()
        return meter.taken()

    run.counts.emitted, run.counts.bytes = 10, 100
    assert at(0.5) == []
    assert at(1.0) == [("advanced", 0, 100), ("lagging", 0.0)]
    assert at(3.0) == [("lagging", 2.0)]
    run.outcome.committed = 6
    assert at(4.0) == [("advanced", 6, 0), ("lagging", 0.0)]
    assert at(6.0) == [("lagging", 2.0)]
    run.outcome.committed = 10
    assert at(7.0) == [("advanced", 4, 0), ("lagging", 0.0)]
    assert at(9.0) == []


def test_rows_that_were_sent_lag_until_they_are_acknowledged() -> None:
    meter, now = _Meter(), [0.0]
    metrics = DeliveryMetrics(meter, USERS, lambda: now[0])

    def at(seconds: float, *seen: int) -> list[tuple[object, ...]]:
        now[0] = seconds
        metrics.look(*seen)
        return meter.taken()

    assert at(0.5, 10, 0, 100) == []
    assert at(1.0, 10, 0, 100) == [("sent", 100), ("unacknowledged", 0.0)]
    assert at(1.5, 20, 0, 200) == []
    assert at(3.0, 20, 0, 200) == [("sent", 100), ("unacknowledged", 2.0)]
    assert at(4.0, 20, 10, 200) == [("sent", 0), ("unacknowledged", 0.0)]
    assert at(6.0, 20, 10, 200) == [("sent", 0), ("unacknowledged", 2.0)]
    now[0] = 6.2
    metrics.end(20, 20, 200)
    assert meter.taken() == [("sent", 0), ("unacknowledged", 0.0)]
