"""The partitions of one step, synced one after the other as if they were one sync.

1. Each is a sync of its own, with its own lease, config, slice and states. A step without partitions is one of them.
2. Only the last is delivered to Dagster before its states move. Those before it have rows in their tables and states
   that stand, and no event yet: Dagster takes one for each stream, at the end, for all of its partitions.
3. A stream that fails in a partition is left out of those after it and gets no event: Dagster would not run its failed
   partitions again. What is done stays, and a run that comes again replaces it.
4. What an earlier attempt of the same run has done is not read again.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.delivery import Delivered, Delivery, Undelivered
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus

SyncOfSlice = Callable[[Slice | None, Sequence[str], threading.Event, Delivery], SyncReport]
"""A sync of some streams in one partition, or in none."""


class SliceReport(NamedTuple):
    """A stream in one partition. `rows` are those of its slice; None where they are not known."""

    report: StreamReport
    rows: int | None


class _Attempt(msgspec.Struct, frozen=True):
    """What is read of the report of an earlier attempt."""

    streams: Mapping[str, StreamReport]
    partition: str = ""


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_ATTEMPT = msgspec.json.Decoder(_Attempt)


class Backfill:
    """Belongs to the syncing thread from `run` on; `told` is the step's, for a stream that was delivered."""

    def __init__(self, slices: Sequence[Slice], store: StateStore, connection: str, run_id: str) -> None:
        self.is_partitioned = bool(slices)
        self._slices: Sequence[Slice | None] = slices or (None,)
        self._done: dict[str, dict[str, SliceReport]] = {_key(each): {} for each in self._slices}
        for attempt in map(_ATTEMPT.decode, store.reports(connection, run_id)):
            done = self._done.get(attempt.partition, {})
            for name, report in attempt.streams.items():
                if report.status is SyncStatus.COMPLETE:
                    done[name] = SliceReport(report, _logged_rows(store, name, report))

    @property
    def complete(self) -> frozenset[str]:
        """The streams that earlier attempts have brought through to the last partition: their events are written."""
        return frozenset(self._done[_key(self._slices[-1])])

    def told(self, stream: StreamId) -> Mapping[str, SliceReport]:
        """By the keys of the partitions, in order."""
        return {key: done[str(stream)] for key, done in self._done.items() if str(stream) in done}

    def combined(self, stream: StreamId) -> StreamReport:
        """All of its partitions in one report: their numbers added up, all else as the last one has it."""
        return _combined([each.report for each in self.told(stream).values()])

    def run(self, names: Sequence[str], sync: SyncOfSlice, cancel: threading.Event, delivery: Delivery) -> SyncReport:
        """Syncs one after the other; the report of all of them."""
        reports: list[SyncReport] = []
        left, reached = list(names), 0
        for each in self._slices:
            if not left or (reports and cancel.is_set()):
                break
            reached += 1
            asked = [name for name in left if name not in self._done[_key(each)]]
            if not asked:
                continue
            noting = _Noting(self._done[_key(each)], delivery if each is self._slices[-1] else Undelivered())
            with _naming(each):
                reports.append(sync(each, asked, cancel, noting))
            left = [name for name in left if not _has_failed(reports[-1], name)]
        if not self.is_partitioned:
            return reports[-1]
        missed = self._slices[reached] if reached < len(self._slices) else None
        return _merged(reports, left if missed else (), missed)


class _Noting:
    """A delivery that notes what passes through it."""

    def __init__(self, done: dict[str, SliceReport], onward: Delivery) -> None:
        self._done = done
        self._onward = onward

    def deliver(self, streams: Sequence[Delivered]) -> None:
        for each in streams:
            self._done[str(each.stream)] = SliceReport(each.report, _rows(each.part))
        self._onward.deliver(streams)


@contextmanager
def _naming(partition: Slice | None) -> Iterator[None]:
    """Has an error tell which partition it struck in."""
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


def _logged_rows(store: StateStore, name: str, report: StreamReport) -> int | None:
    logged = store.load(report.load_ids[-1]) if report.load_ids else None
    parts = logged.load.parts if logged else ()
    return next((_rows(part) for part in parts if str(part.stream) == name), None)


def _has_failed(report: SyncReport, name: str) -> bool:
    return name in report.streams and report.streams[name].status is not SyncStatus.COMPLETE


def _merged(reports: Sequence[SyncReport], unread: Sequence[str], missed: Slice | None) -> SyncReport:
    """One report of all: for a stream that failed, that of where it did. `unread` never came to the partition."""
    streams: dict[str, StreamReport] = {}
    for report in reports:
        streams |= {name: _placed(report, told) for name, told in report.streams.items()}
    if missed is not None:
        found = f"cancelled before partition {missed.key}"
        failed = {"status": SyncStatus.FAILED, "error": found, "retryable": True}
        streams |= {name: msgspec.structs.replace(streams[name], **failed) for name in unread if name in streams}
    worst = next((each for each in reports if each.status is not SyncStatus.COMPLETE), reports[-1])
    return msgspec.structs.replace(
        worst,
        streams=streams,
        error=_in_partition(worst, worst.error),
        warnings=tuple(f"partition {each.partition}: {warning}" for each in reports for warning in each.warnings),
        recovered_loads=sum(each.recovered_loads for each in reports),
        loads=sum(each.loads for each in reports),
        partition=worst.partition if len(reports) == 1 else "",
    )


def _placed(report: SyncReport, told: StreamReport) -> StreamReport:
    return msgspec.structs.replace(told, error=_in_partition(report, told.error))


def _in_partition(report: SyncReport, error: str | None) -> str | None:
    return error and f"partition {report.partition}: {error}"


def _combined(reports: Sequence[StreamReport]) -> StreamReport:
    summed = ("emitted", "committed", "rejected", "filtered", "changed", "deleted", "bytes")
    sums = {name: sum(getattr(each, name) for each in reports) for name in summed}
    counted = ("rejections", "ignored_fields")
    counts = {name: dict(sum((Counter(getattr(each, name)) for each in reports), Counter())) for name in counted}
    listed = ("load_ids", "miscounts")
    lists = {name: tuple(one for each in reports for one in getattr(each, name)) for name in listed}
    return msgspec.structs.replace(reports[-1], **sums, **counts, **lists)
