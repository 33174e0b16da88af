"""The status of a connection at a glance, from the runs and loads of the state store. No table is opened."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import LoggedLoad, LoggedRun, StateStore
from dagster_airbyte_proto.diagnosis.refused_run import RefusedRun
from dagster_airbyte_proto.sync.process_identity import is_dead
from dagster_airbyte_proto.sync.report import ON_BRANCH, UNCOVERED

RUNS_SHOWN = 10

RUNNING, INTERRUPTED, NEVER = "running", "interrupted", "never"
"""The status of a connection whose last run has not ended, has died, or does not exist. Else it is that of the run."""

_COMPLETE = "complete"
_NEVER = datetime.min.replace(tzinfo=UTC)


class _StreamPart(msgspec.Struct):
    """The part of a stream's report that is read here. Reports of older versions may lack some of it."""

    status: str = ""
    committed: int = 0
    acknowledged: int = 0
    rejected: int = 0
    unknown: int = 0
    filtered: int = 0
    dropped: int = 0
    rejections: dict[str, int] = {}
    error: str | None = None

    @property
    def uncommitted(self) -> int:
        return self.rejections.get(UNCOVERED, 0) + self.rejections.get(ON_BRANCH, 0)

    @property
    def refused(self) -> int:
        return max(0, self.rejected - self.filtered - self.dropped - self.uncommitted)


class _ReportPart(msgspec.Struct):
    streams: dict[str, _StreamPart] = {}
    error: str | None = None
    partition: str = ""


_REPORT_DECODER = msgspec.json.Decoder(_ReportPart)


class ConnectionStatus(NamedTuple):
    """The status of a connection.

    The times, rows and streams are those of the last run that has ended. `error` is its own; `failing` are its streams
    that did not complete, with their errors. `complete_at` is the time of the last complete run.
    `stream_complete_at` has for each stream of the last runs when it was last complete, None where it was not.
    `unfinished_loads` are announced by a run that is over: nobody knows yet whether their rows have landed.
    `unfinished_partitions` are theirs, and with `unfinished_is_relayed` some go to a destination, which only a sync
    reaches. `running_partitions` are those that runs work on now, `newest_partition` is that of the run that the
    `status` is of, where it is known.
    `rejected` are the rows that nobody wanted left out, and `uncommitted` those that the next run reads again.
    `rows_by_run` are the committed rows of the last runs, oldest first; None for one that has not ended.
    `refused` is a run that never had the connection, if none has begun since; only who has the logs knows it.
    """

    connection: str
    status: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    partition: str = ""
    rows: int = 0
    rejected: int = 0
    uncommitted: int = 0
    unknown: int = 0
    unfinished_loads: int = 0
    unfinished_partitions: tuple[str, ...] = ()
    unfinished_is_relayed: bool = False
    running_partitions: tuple[str, ...] = ()
    newest_partition: str = ""
    error: str | None = None
    failing: Mapping[str, str] = {}
    complete_at: datetime | None = None
    stream_complete_at: Mapping[str, datetime | None] = {}
    rows_by_run: tuple[int | None, ...] = ()
    refused: RefusedRun | None = None

    def lag_seconds(self, now: datetime) -> float | None:
        """The time since the last complete run; None if there was none."""
        return None if self.complete_at is None else (now - self.complete_at).total_seconds()

    @property
    def oldest_stream(self) -> str | None:
        """The stream that was not complete for the longest time; None if all were complete at the same time."""
        times = self.stream_complete_at
        if len(set(times.values())) < 2:
            return None
        return min(times, key=lambda name: (times[name] or _NEVER).timestamp())


def connection_status(store: StateStore, name: str) -> ConnectionStatus:
    runs = [(run, _report(run)) for run in store.runs(name, limit=RUNS_SHOWN)]
    if not runs:
        return ConnectionStatus(name, NEVER)
    newest, leases = runs[0][0], store.current_leases(name)
    # By the clock of the store, as leases end: that of this machine may be wrong.
    unexpired = {lease.fence for lease in store.current_leases(name, only_live=True)}
    live = [lease for lease in leases if lease.fence in unexpired and not is_dead(lease.holder)]
    is_running = newest.ended_at is None and any(lease.run_id == newest.run_id for lease in live)
    status = newest.status or (RUNNING if is_running else INTERRUPTED)
    unfinished = _unfinished_loads(store, name, {lease.partition for lease in live})
    # Before its report says of which partition a run is, its lease does; after its death, until another run has taken
    # that over, and its announced load.
    partition_of_run = {each.load.run_id: each.partition for each in unfinished}
    partition_of_run |= {lease.run_id: lease.partition for lease in leases}
    ended, report = next(((run, report) for run, report in runs if run.ended_at), (newest, _ReportPart()))
    streams = report.streams.values()
    return ConnectionStatus(
        name,
        status,
        ended.started_at,
        ended.ended_at,
        report.partition,
        rows=sum(stream.committed + stream.acknowledged for stream in streams),
        rejected=sum(stream.refused for stream in streams),
        uncommitted=sum(stream.uncommitted for stream in streams),
        unknown=sum(stream.unknown for stream in streams),
        unfinished_loads=len(unfinished),
        unfinished_partitions=tuple(sorted({each.partition for each in unfinished} - {""})),
        unfinished_is_relayed=any(part.is_relayed for each in unfinished for part in each.load.parts),
        running_partitions=tuple(sorted({lease.partition for lease in live} - {""})),
        newest_partition=runs[0][1].partition if newest.ended_at else partition_of_run.get(newest.run_id, ""),
        error=report.error,
        failing=dict(_failing(report)),
        complete_at=next((run.ended_at for run, _ in runs if run.status == _COMPLETE), None),
        stream_complete_at=_complete_times(runs),
        rows_by_run=tuple(_rows(run, report) for run, report in reversed(runs[:RUNS_SHOWN])),
    )


def _unfinished_loads(store: StateStore, name: str, held: Collection[str]) -> Sequence[LoggedLoad]:
    """The announced loads that no living run can still end: all its runs are of the partitions in `held`, "" for one of
    the whole."""
    if "" in held:
        return ()
    logged = (store.load(load.load_id) for load in store.announced_loads(name))
    return [each for each in logged if each is not None and each.partition not in held]


def _report(run: LoggedRun) -> _ReportPart:
    try:
        return _REPORT_DECODER.decode(run.report)
    except msgspec.DecodeError:  # ValidationError is one
        return _ReportPart()


def _rows(run: LoggedRun, report: _ReportPart) -> int | None:
    return sum(stream.committed + stream.acknowledged for stream in report.streams.values()) if run.ended_at else None


def _failing(report: _ReportPart) -> Iterator[tuple[str, str]]:
    for name, stream in report.streams.items():
        if stream.status != _COMPLETE:
            yield name, stream.error or stream.status


def _complete_times(runs: Sequence[tuple[LoggedRun, _ReportPart]]) -> Mapping[str, datetime | None]:
    times: dict[str, datetime | None] = {}
    for run, report in runs:  # newest first
        for name, stream in report.streams.items():
            if times.setdefault(name, None) is None and stream.status == _COMPLETE:
                times[name] = run.ended_at
    return times
