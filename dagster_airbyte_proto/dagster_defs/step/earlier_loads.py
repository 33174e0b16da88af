"""The loads of syncs that did not complete: the checks of the sync that completes a stream count them too.

A sync that fails, or dies, may have landed rows, and the next one goes on behind them. So no report of a complete sync
has the records that were rejected before, and the values that became NULL. One that died has left no report at all,
but the loads log of the store has its loads.

Those count that landed since a sync of their stream was complete, whoever ran it, as far as the store has the runs.
Where a sync died with its events written and its end not stored, they count twice: that is better than not at all.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.logs import loads_newest_first
from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.staging.rows.shaping import FILTERED
from dagster_airbyte_proto.sync.plan.stream_plan import replaces_table
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from dagster_airbyte_proto.sync.stream_progress import CommitOutcome
from dagster_airbyte_proto.transforms.transform import DROPPED

# Mostly the sync before was complete: then nothing else is read.
_FEW_RUNS = 3
_RUNS = 100
# Those of some days, where one lands every minute.
_LOADS = 5000


class _StreamEnd(msgspec.Struct, frozen=True):
    status: str = ""


class _RunEnd(msgspec.Struct, frozen=True):
    """The fields that are read from the stored report of a run; empty for one that died."""

    streams: Mapping[str, _StreamEnd] = {}
    partition: str = ""

    def completes(self, stream: str) -> bool:
        found = self.streams.get(stream)
        return not self.partition and found is not None and found.status == SyncStatus.COMPLETE


class _PastRun(NamedTuple):
    fence: int
    end: _RunEnd


class _LandedPart(NamedTuple):
    load_id: str
    part: StagedRows
    committed: CommittedRows


_RUN_END = msgspec.json.Decoder(_RunEnd)


class EarlierLoads:
    """The loads of a connection's streams, without a partition, by syncs that did not complete them.

    For a step whose own sync has begun, and holds the connection. The store is read when it is needed, as far back as
    it is, and once for all streams.
    """

    def __init__(self, store: StateStore, connection: str) -> None:
        self._store, self._connection = store, connection
        self._runs_before, self._fences = cache(self._read_runs), cache(self._fences_of)
        self._log = islice(loads_newest_first(store, connection), _LOADS)
        self._read_to: float = math.inf
        self._landed: defaultdict[StreamId, list[_LandedPart]] = defaultdict(list)

    def report(self, planned: PlannedStream, own: StreamReport) -> StreamReport | None:
        """Returns the counts of the loads that landed since a sync of the stream was complete; None without any. `own`
        is the report of the sync that completes it now: its loads do not count. Raises ProtoError."""
        if planned.slice is not None:  # It is read from its beginning, and replaced as a whole.
            return None
        fences = self._fences(str(planned.id))
        if not fences:
            return None
        self._read_back_to(min(fences))
        outcome, emitted, counted = CommitOutcome(), 0, frozenset(own.load_ids)
        for load_id, part, committed in reversed(self._landed[planned.id]):
            is_gone = replaces_table(planned) and part.generation_id != own.generation
            if load_id not in counted and not is_gone:
                outcome.record_commit(load_id, part, committed)
                emitted += part.emitted
        return _report(own.table, emitted, outcome) if outcome.load_ids else None

    def _fences_of(self, stream: str) -> frozenset[int]:
        """The fences of the runs since the newest one that completed the stream, without the run that goes on.

        Loads of no run that the store has do not count: the newest load of a table is kept for longer than its run,
        and that may have completed the stream.
        """
        since: Sequence[_PastRun] = ()
        for limit in (_FEW_RUNS, _RUNS):
            runs = self._runs_before(limit)
            since = [*takewhile(lambda each: not each.end.completes(stream), runs)]
            if len(since) < len(runs) or len(runs) < limit - 1:
                break
        # Nobody looks further back: one that completed the stream may lie behind a hundred of other streams.
        return frozenset(each.fence for each in since)

    def _read_runs(self, limit: int) -> Sequence[_PastRun]:
        """The runs before the one that goes on, the newest first. To the newest ones the store adds the last that was
        complete, whichever it is."""
        found = self._store.runs(self._connection, limit=limit)[1:limit]
        return [_PastRun(each.fence, _RUN_END.decode(each.report or "{}")) for each in found]

    def _read_back_to(self, fence: int) -> None:
        """Reads on in the log, newest first, until a load of a run before that one, and keeps the parts that count.

        A run without a partition works alone, so that all its loads lie behind those of the runs before it. Records
        that were sent again belong to loads before.
        """
        while self._read_to >= fence and (logged := next(self._log, None)) is not None:
            self._read_to = logged.fence
            landed = {each.stream: each for each in logged.committed if not logged.partition}
            for part in logged.load.parts:
                if part.stream in landed and not part.resends and logged.fence in self._fences(str(part.stream)):
                    self._landed[part.stream].append(_LandedPart(logged.load.load_id, part, landed[part.stream]))


def _report(table: str, emitted: int, outcome: CommitOutcome) -> StreamReport:
    return StreamReport(
        status=SyncStatus.FAILED,
        table=table,
        emitted=emitted,
        committed=outcome.committed,
        rejected=outcome.rejections.total(),
        changed=outcome.changed,
        added=outcome.added,
        filtered=outcome.rejections[FILTERED],
        dropped=outcome.rejections[DROPPED],
        rejections=dict(outcome.rejections),
        ignored_fields=dict(outcome.ignored_fields),
        nulled=dict(outcome.nulled),
    )
