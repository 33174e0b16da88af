"""Syncs the partitions of one step, one after the other, and reports them as one sync.

1. Each partition is a sync of its own, with its own lease, config, slice and states. A step without partitions runs one
   sync.
2. Only the last partition's streams go to Dagster before their states move. The earlier partitions have committed their
   rows and moved their states without an event: Dagster takes one event for each stream, at the end, for all
   partitions.
3. A stream that fails in a partition is skipped in the later ones and gets no event: with one, Dagster would not run
   its failed partitions again. The finished partitions keep their rows, and the next run replaces them.
4. A retry does not read again what an earlier attempt of the same run has completed.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.bounded_counts import add_field_counts
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit_listener import CommitListener, CommittedStream, NoCommitListener
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus

_MAX_WARNINGS = 100

SyncOfSlice = Callable[[Slice | None, Sequence[str], threading.Event, CommitListener], SyncReport]
"""Syncs the named streams in one partition, or without a partition."""


class SliceReport(NamedTuple):
    """The report of a stream in one partition. `rows` is the size of its slice, None if unknown."""

    report: StreamReport
    rows: int | None


class _EarlierReport(msgspec.Struct, frozen=True):
    """The fields that are read from the stored report of an earlier attempt."""

    streams: Mapping[str, StreamReport]
    partition: str = ""


_EARLIER_REPORT = msgspec.json.Decoder(_EarlierReport)


class Backfill:
    """The syncs of one step's partitions. From `run` on it belongs to the sync's thread; the step's thread calls
    `reports_by_partition` and `combined_report` only for streams that were committed."""

    def __init__(self, slices: Sequence[Slice], store: StateStore, connection: str, run_id: str) -> None:
        self.is_partitioned = bool(slices)
        self._slices: Sequence[Slice | None] = slices or (None,)
        self._done: dict[str, dict[str, SliceReport]] = {_key(each): {} for each in self._slices}
        # A load is read once: it may have a thousand streams.
        logged_rows = cache(partial(_logged_rows, store))
        for attempt in map(_EARLIER_REPORT.decode, store.reports(connection, run_id)):
            done = self._done.get(attempt.partition, {})
            for name, report in attempt.streams.items():
                if report.status is SyncStatus.COMPLETE:
                    rows = logged_rows(report.load_ids[-1]).get(name) if report.load_ids else None
                    done[name] = SliceReport(report, rows)

    @property
    def completed_streams(self) -> frozenset[str]:
        """The streams that earlier attempts have completed in the last partition: their events are written."""
        return frozenset(self._done[_key(self._slices[-1])])

    def reports_by_partition(self, stream: StreamId) -> Mapping[str, SliceReport]:
        """Returns the stream's reports by partition key, in the order of the partitions."""
        return {key: done[str(stream)] for key, done in self._done.items() if str(stream) in done}

    def combined_report(self, stream: StreamId) -> StreamReport:
        """Returns one report for all partitions: the numbers summed, everything else from the last one."""
        return _combined([each.report for each in self.reports_by_partition(stream).values()])

    def run(
        self, names: Sequence[str], sync: SyncOfSlice, cancel: threading.Event, listener: CommitListener
    ) -> SyncReport:
        """Syncs the partitions one after the other and returns one report for all."""
        reports: list[SyncReport] = []
        remaining, reached = list(names), 0
        for each in self._slices:
            if not remaining or (reports and cancel.is_set()):
                break
            reached += 1
            requested = [name for name in remaining if name not in self._done[_key(each)]]
            if not requested:
                continue
            is_last = each is self._slices[-1]
            recording = _RecordingListener(self._done[_key(each)], listener if is_last else NoCommitListener())
            with _naming_partition(each):
                reports.append(sync(each, requested, cancel, recording))
            remaining = [name for name in remaining if not _has_failed(reports[-1], name)]
        if not self.is_partitioned:
            return reports[-1]
        missed = self._slices[reached] if reached < len(self._slices) else None
        return _merged(reports, remaining if missed else (), missed)


class _RecordingListener:
    """Records the report of each committed stream, then passes the streams on."""

    def __init__(self, done: dict[str, SliceReport], next_listener: CommitListener) -> None:
        self._done = done
        self._next = next_listener

    def committed(self, streams: Sequence[CommittedStream]) -> None:
        for each in streams:
            self._done[str(each.stream)] = SliceReport(each.report, _rows(each.part))
        self._next.committed(streams)


@contextmanager
def _naming_partition(partition: Slice | None) -> Iterator[None]:
    """Adds the partition to the message of an error."""
    try:
        yield
    except ProtoError as error:
        if partition is not None:
            error.doing = f"partition {partition.key}: {error.doing}"
        raise


def _key(partition: Slice | None) -> str:
    return partition.key if partition else ""


def _rows(part: StagedRows | None) -> int | None:
    return None if part is None else part.rows - part.duplicates


def _logged_rows(store: StateStore, load_id: str) -> Mapping[str, int | None]:
    """The rows that a load has of each of its streams."""
    logged = store.load(load_id)
    return {str(part.stream): _rows(part) for part in logged.load.parts} if logged else {}


def _has_failed(report: SyncReport, name: str) -> bool:
    return name in report.streams and report.streams[name].status is not SyncStatus.COMPLETE


def _merged(reports: Sequence[SyncReport], unread: Sequence[str], missed: Slice | None) -> SyncReport:
    """One report for all partitions. A failed stream keeps the report of the partition in which it failed. After a
    cancel, the `unread` streams are cancelled too: they never reached the `missed` partition."""
    streams: dict[str, StreamReport] = {}
    for report in reports:
        streams |= {name: _with_partition(report, stream) for name, stream in report.streams.items()}
    if missed is not None:
        found = f"cancelled before partition {missed.key}"
        cancelled = {"status": SyncStatus.CANCELLED, "error": found, "retryable": True}
        streams |= {name: msgspec.structs.replace(streams[name], **cancelled) for name in unread if name in streams}
    worst = next((each for each in reports if each.status is not SyncStatus.COMPLETE), reports[-1])
    return msgspec.structs.replace(
        worst,
        streams=streams,
        error=_in_partition(worst, worst.error),
        warnings=_warnings(reports),
        recovered_loads=sum(each.recovered_loads for each in reports),
        loads=sum(each.loads for each in reports),
        partition=worst.partition if len(reports) == 1 else "",
    )


def _warnings(reports: Sequence[SyncReport]) -> tuple[str, ...]:
    """The first warnings, with their partitions: each is an event of the run, and a backfill may have thousands."""
    found = [f"partition {each.partition}: {warning}" for each in reports for warning in each.warnings]
    more = [f"{len(found) - _MAX_WARNINGS:,} more warnings are in the stored reports of the partitions"]
    return tuple(found if len(found) <= _MAX_WARNINGS else found[:_MAX_WARNINGS] + more)


def _with_partition(report: SyncReport, stream: StreamReport) -> StreamReport:
    return msgspec.structs.replace(stream, error=_in_partition(report, stream.error))


def _in_partition(report: SyncReport, error: str | None) -> str | None:
    return error and f"partition {report.partition}: {error}"


def _combined(reports: Sequence[StreamReport]) -> StreamReport:
    summed = (
        "emitted",
        "committed",
        "rejected",
        "unknown",
        "filtered",
        "dropped",
        "added",
        "changed",
        "deleted",
        "bytes",
    )
    sums = {name: sum(getattr(each, name) for each in reports) for name in summed}
    rejections: Counter[str] = Counter()
    ignored_fields: Counter[str] = Counter()
    nulled: Counter[str] = Counter()
    for each in reports:
        rejections.update(each.rejections)
        add_field_counts(ignored_fields, each.ignored_fields)
        add_field_counts(nulled, each.nulled)
    counts = {"rejections": dict(rejections), "ignored_fields": dict(ignored_fields), "nulled": dict(nulled)}
    listed = ("load_ids", "miscounts")
    lists = {name: tuple(one for each in reports for one in getattr(each, name)) for name in listed}
    return msgspec.structs.replace(reports[-1], **sums, **counts, **lists)
