"""Streams are measured once a second, and for how long their rows wait for a commit."""

from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.run_options import NoProgressListener
from dagster_airbyte_proto.sync.stream_run import StreamRun
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
