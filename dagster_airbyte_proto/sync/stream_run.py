"""One stream in one sync, from its plan to its report."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from dagster_airbyte_proto.errors import Cancelled, ProtoError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableFit
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.model import PlannedStream, State, StreamId
from dagster_airbyte_proto.plurals import counted
from dagster_airbyte_proto.protocols.events import StreamStatus
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.schema.evolution import SchemaChange
from dagster_airbyte_proto.staging.rows.shaping import FILTERED
from dagster_airbyte_proto.sync.report import ON_BRANCH, UNCOVERED, StreamReport, SyncStatus
from dagster_airbyte_proto.sync.stream_progress import CommitOutcome, GenerationProgress, ReaderCounts, TableState
from dagster_airbyte_proto.transforms.transform import DROPPED

REFUSED = "the table refused the load"
NOT_TAKEN = "the destination did not take the load"

_MAX_TEXTS = 100
_MAX_SHARED_BYTES = 1 << 20


class Phase(StrEnum):
    """The phase of a stream in the live view."""

    WAITING = "waiting"
    READING = "reading"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StreamRun:
    """One stream in one sync: the parts of its progress, and how it ends.

    The plan and the reading thread change it, one after the other; on the driver of a task, what the task reports. The
    live view reads it from another thread.
    """

    def __init__(self, planned: PlannedStream, table: str = "") -> None:
        self.planned = planned
        self.counts = ReaderCounts()
        self.table = TableState(table or str(planned.table))
        self.generation = GenerationProgress()
        self.outcome = CommitOutcome()
        self.state_before: State | None = None
        self.version_before: int | None = None
        self.reported_status: StreamStatus | None = None
        self.error: ProtoError | None = None
        self.miscounts: list[str] = []
        self.schema_changes: tuple[SchemaChange, ...] = ()
        self.is_complete = False
        self.is_refused = False
        self.is_unknown = False

    @property
    def has_matching_table(self) -> bool:
        """True if readers of the table already see the columns that it was prepared for."""
        is_shown = self.table.schema_id is None or self.outcome.last_commit is not None
        return self.table.fit is not None and is_shown

    @property
    def has_failed(self) -> bool:
        return self.error is not None

    @property
    def is_cancelled(self) -> bool:
        """True if the stream is incomplete for no other reason than that its sync was cancelled."""
        return isinstance(self.error, Cancelled)

    @property
    def phase(self) -> Phase:
        if self.has_failed:
            return Phase.CANCELLED if self.is_cancelled else Phase.FAILED
        if self.is_complete or self.reported_status is StreamStatus.COMPLETE:
            return Phase.COMPLETE
        return Phase.READING if self.reported_status or self.counts.emitted else Phase.WAITING

    @property
    def status(self) -> SyncStatus:
        if self.is_unknown:
            return SyncStatus.UNKNOWN
        if self.is_cancelled:
            return SyncStatus.CANCELLED
        return SyncStatus.COMPLETE if self.is_complete and not self.has_failed else SyncStatus.FAILED

    def fail(self, error: ProtoError) -> None:
        """Fails the stream. Only the first error is kept: those that follow are mostly its consequences."""
        self.error = self.error or error
        self.is_complete = False

    def fail_table(self, error: ProtoError) -> None:
        """Fails the stream because its table takes no row."""
        self.is_refused = True
        self.fail(error)

    def record_refusal(self, part: StagedRows, error: ProtoError) -> None:
        """Counts the rows of a load that the table or destination refused as rejected, and fails the stream.

        The rows of a delivery that was cancelled come again, as others do that are not committed yet.
        """
        self.outcome.add_counts(part)
        reason = REFUSED if self.planned.relay is None else NOT_TAKEN
        self.outcome.reject(part.rows, UNCOVERED if isinstance(error, Cancelled) else reason)
        self.fail_table(error)

    def record_unknown(self, part: StagedRows) -> None:
        """Counts the rows of a load as unknown: nobody can tell yet whether they have landed. With those of a load that
        publishes a branch go the rows on it."""
        self.outcome.add_counts(part)
        self.outcome.unknown += part.rows
        if part.is_shown:
            self.outcome.unknown += self.outcome.rows_on_branch
            self.outcome.rows_on_branch = 0
        self.is_unknown = True

    def drop_uncommitted(self) -> None:
        """Counts all other rows that are not committed by now as rejected. A sync that fails at its very end does so
        again: what was counted is not counted twice."""
        outcome = self.outcome
        if self.generation.can_be_resumed:
            outcome.reject(outcome.rows_on_branch - outcome.rejections[ON_BRANCH], ON_BRANCH)
        ended = outcome.committed + outcome.unknown + outcome.rejections.total()
        outcome.reject(self.counts.emitted + outcome.added - ended, UNCOVERED)

    def abandon(self, error: ProtoError) -> None:
        """Fails the stream because the whole sync ended before its last load was committed. The next sync reads the
        uncommitted rows again."""
        self.fail(error)
        self.drop_uncommitted()


class StreamStates:
    """Gives each of so many `streams` its part of a state, for its report. A state that they share is read once."""

    def __init__(self, codec: StateCodec, streams: int) -> None:
        self._codec, self._streams = codec, streams
        self._parts: dict[State, Mapping[StreamId, Any] | None] = {}

    def value(self, stream: StreamId, state: State | None) -> Any:
        """Returns the stream's part of a state, or the whole value if the state has no parts.

        A report has the whole value for each stream. So where that would be much, the state is only named.
        """
        if state is None:
            return None
        if state.stream is not None:
            return self._codec.value(state)
        if state not in self._parts:
            self._parts[state] = self._codec.parts(state)
        parts = self._parts[state]
        if parts is not None:
            return parts.get(stream)
        size_bytes = len(state.message)
        if size_bytes * self._streams > _MAX_SHARED_BYTES:
            return f"a state of {size_bytes:,} bytes for all streams: `airbyte-proto state show` has it"
        return self._codec.value(state)


def stream_report(
    run: StreamRun,
    states: StreamStates,
    mask: Mask,
    *,
    before_promotion: bool = False,
    metrics: Mapping[str, Mapping[str, float]],
) -> StreamReport:
    """The stream's report at this moment, with the metrics that its connectors have sent so far. `before_promotion` it
    has the state that is about to be saved."""
    outcome = run.outcome
    state = outcome.next_state if before_promotion else outcome.state
    last_commit = outcome.last_commit
    return StreamReport(
        status=run.status,
        table=run.table.name,
        emitted=run.counts.emitted,
        committed=outcome.committed,
        rejected=outcome.rejections.total(),
        unknown=outcome.unknown,
        changed=outcome.changed,
        added=outcome.added,
        deleted=outcome.deleted,
        bytes=run.counts.bytes,
        state=mask.value(states.value(run.planned.id, state)),
        state_before=mask.value(states.value(run.planned.id, run.state_before)),
        load_ids=tuple(outcome.load_ids),
        miscounts=tuple(run.miscounts),
        generation=run.planned.generation_id,
        error=mask.text(str(run.error)) if run.error else None,
        retryable=run.error is not None and run.error.retryable,
        filtered=outcome.rejections[FILTERED],
        dropped=outcome.rejections[DROPPED],
        rejections=dict(outcome.rejections),
        ignored_fields=dict(outcome.ignored_fields),
        nulled=dict(outcome.nulled),
        table_rows=last_commit.table_rows if last_commit else None,
        snapshot_id=last_commit.snapshot_id if last_commit else None,
        version_before=run.version_before,
        schema_changes=run.schema_changes,
        metrics=metrics,
    )


def nulled_texts(run: StreamRun) -> Iterator[str]:
    """A line for each column in which values became NULL because they did not fit."""
    fit = run.table.fit or TableFit()
    types = {**fit.landed, **{mismatch.column: mismatch.in_table for mismatch in fit.excluded}}
    for column, count in run.outcome.nulled.items():
        kind = types.get(column, "").upper() or "its column"
        yield f"{run.planned.id}: {counted(count, 'value')} of {column} did not fit {kind}, now NULL"


def refused_report(planned: PlannedStream, error: ProtoError, mask: Mask) -> StreamReport:
    """The report of a stream that failed before the connector read."""
    return StreamReport(status=SyncStatus.FAILED, table=str(planned.table), error=mask.text(str(error)))


def append_bounded(texts: list[str], text: str) -> None:
    """Adds a text unless the list is full: a connector may repeat itself endlessly. The log has all texts."""
    if len(texts) < _MAX_TEXTS:
        texts.append(text)
    elif len(texts) == _MAX_TEXTS:
        texts.append("There is more of this in the log.")
