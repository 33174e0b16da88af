"""Pushes the partitions of one step, one after the other, and reports them as one push.

- Each partition is a push of its own. A step without partitions runs one push.
- A stream that fails in a partition is left out of the later ones, and gets no materialization: with one, Dagster would
  not run its failed partitions again.
- A retry does not push again what an earlier attempt of the same run has pushed to its end. That attempt may have ended
  before Dagster had its events: so the retry reports it again, from the stored report.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.loads.push import PlannedCounts
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.push_report import PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import SyncStatus

PushOfPartition = Callable[[Slice | None, Sequence[str]], PushReport]
"""Pushes the named streams in one partition, or without a partition."""

_SUMMED = ("sent", "acknowledged", "rejected", "unknown", "unnamed", "resumed", "bytes")


_REPORT = msgspec.json.Decoder(PushReport)


class PartitionPushes:
    """The pushes of one step. `run` belongs to the thread of the push; `reports` are read once it has ended."""

    def __init__(self, slices: Sequence[Slice], store: StateStore, connection: str, run_id: str) -> None:
        self.is_partitioned = bool(slices)
        self.reports: dict[str, PushReport] = {}
        self._slices: Sequence[Slice | None] = slices or (None,)
        self._earlier: dict[str, PushReport] = {}
        self._done: dict[str, dict[str, PushedStreamReport]] = {_key(each): {} for each in self._slices}
        for attempt in map(_REPORT.decode, store.reports(connection, run_id)):
            complete = {name: each for name, each in attempt.streams.items() if _is_complete(each)}
            self._done.get(attempt.partition, {}).update(complete)
            self._earlier[attempt.partition] = attempt

    @property
    def is_retry(self) -> bool:
        """True if an earlier attempt of the same run has ended."""
        return bool(self._earlier)

    def run(self, names: Sequence[str], push: PushOfPartition, cancel: threading.Event) -> PushReport:
        """Pushes the partitions one after the other, and returns one report for all."""
        remaining, missed, has_pushed = list(names), "", False
        for each in self._slices:
            key = _key(each)
            if has_pushed and cancel.is_set():
                missed = key
                break
            streams = {name: self._done[key][name] for name in remaining if name in self._done[key]}
            wanted = [name for name in remaining if name not in streams]
            if wanted:
                report, has_pushed = push(each, wanted), True
                streams |= report.streams
            elif streams:
                report = self._earlier[key]
            else:
                continue
            self.reports[key] = msgspec.structs.replace(report, streams=streams)
            remaining = [name for name in remaining if name not in streams or _is_complete(streams[name])]
        if not self.is_partitioned:
            return self.reports[""]
        return _merged(self.reports, remaining if missed else (), missed)


def _is_complete(report: PushedStreamReport) -> bool:
    return report.status is SyncStatus.COMPLETE


def _key(partition: Slice | None) -> str:
    return partition.key if partition else ""


def _merged(reports: Mapping[str, PushReport], unsent: Sequence[str], missed: str) -> PushReport:
    """One report for all partitions. After a cancel, the `unsent` streams are cancelled too: they never reached the
    `missed` partition."""
    streams: dict[str, list[PushedStreamReport]] = {}
    for key, report in reports.items():
        for name, each in report.streams.items():
            error = each.error and f"partition {key}: {each.error}"
            streams.setdefault(name, []).append(msgspec.structs.replace(each, error=error))
    combined = {name: _combined(each) for name, each in streams.items()}
    for name in unsent:
        found = {"status": SyncStatus.CANCELLED, "error": f"cancelled before partition {missed}", "retryable": True}
        combined[name] = msgspec.structs.replace(combined[name], **found)
    worst = next((each for each in reports.values() if each.status is not SyncStatus.COMPLETE), None)
    last = worst or list(reports.values())[-1]
    seconds = sum(each.seconds for each in reports.values())
    texts = {
        name: tuple(dict.fromkeys(text for report in reports.values() for text in getattr(report, name)))
        for name in ("warnings", "notes")
    }
    partition = last.partition if len(reports) == 1 else ""
    return msgspec.structs.replace(last, streams=combined, partition=partition, seconds=seconds, **texts)


def _combined(reports: Sequence[PushedStreamReport]) -> PushedStreamReport:
    """One report of a stream: the numbers summed, the version from before the first push, everything else from the last
    partition."""
    rejections: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for each in reports:
        rejections.update(each.rejections)
        before.update(each.rejections_before)
    sums = {name: sum(getattr(each, name) for each in reports) for name in _SUMMED}
    planned = PlannedCounts(
        sum(each.planned.added for each in reports),
        *(_sum([getattr(each.planned, name) for each in reports]) for name in ("changed", "removed", "unchanged")),
    )
    versions = [each.version_before for each in reports if each.version_before is not None]
    return msgspec.structs.replace(
        reports[-1],
        **sums,
        planned=planned,
        rejections=dict(rejections),
        rejections_before=dict(before),
        version_before=min(versions, default=None),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
