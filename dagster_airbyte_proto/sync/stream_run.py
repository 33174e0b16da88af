"""The progress of each stream while a sync runs, from which its report is made."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.table import REPLACING, TableFit, TableTarget
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.model import PlannedStream, State
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.events import StreamStatus
from dagster_airbyte_proto.schema.evolution import ColumnMismatch, SchemaChange
from dagster_airbyte_proto.schema.stream_profile import StreamProfile
from dagster_airbyte_proto.staging.rows.shaping import FILTERED
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus

UNCOVERED = "read again next time: no state covered it when the stream failed"
REFUSED = "the table refused the load"
ON_BRANCH = "kept aside until its generation is complete: the next sync goes on from there"

_MAX_TEXTS = 100


class Phase(StrEnum):
    """The phase of a stream in the live view."""

    WAITING = "waiting"
    READING = "reading"
    COMPLETE = "complete"
    FAILED = "failed"


class StreamRun:
    """One stream in one sync: its table, counts, states and error.

    The reading thread alone changes it. The live view reads it from another thread.
    """

    def __init__(self, planned: PlannedStream) -> None:
        self.planned = planned
        self.table = str(planned.table)
        self.location = ""
        self.reported_status: StreamStatus | None = None
        self.error: ProtoError | None = None
        self.emitted = 0
        self.bytes = 0
        self.committed = 0
        self.changed = 0
        self.deleted = 0
        self.rejections: Counter[str] = Counter()
        self.ignored_fields: Counter[str] = Counter()
        self.state: State | None = None
        self.state_before: State | None = None
        self.next_state: State | None = None
        self.load_ids: list[str] = []
        self.miscounts: list[str] = []
        self.states_seen = 0
        self.last_commit: CommittedRows | None = None
        self.fit: TableFit | None = None
        self.table_spec = ""
        # Set for a generation that changes the table's columns. Readers see those only once it is published.
        self.schema_id: int | None = None
        self._excluded_before: tuple[ColumnMismatch, ...] = ()
        self.schema_changes: tuple[SchemaChange, ...] = ()
        self.is_complete = False
        self.is_refused = False
        # Set for a generation that lands on a branch: the branch, the generation's fingerprint, the newest load there.
        self.branch = ""
        self.fingerprint = ""
        self.newest_branch_load: str | None = None
        self.rows_on_branch = 0
        self.can_be_resumed = False

    @property
    def missing_columns(self) -> frozenset[str]:
        """The columns of the stream that its table lacks, and does not get by its schema policy."""
        excluded = self.fit.excluded if self.fit else self._excluded_before
        return frozenset(mismatch.column for mismatch in excluded if not mismatch.in_table and len(mismatch.path) == 1)

    @property
    def has_matching_table(self) -> bool:
        """True if readers of the table already see the columns that it was prepared for."""
        return self.fit is not None and (self.schema_id is None or self.last_commit is not None)

    @property
    def has_failed(self) -> bool:
        return self.error is not None

    @property
    def phase(self) -> Phase:
        if self.has_failed:
            return Phase.FAILED
        if self.is_complete or self.reported_status is StreamStatus.COMPLETE:
            return Phase.COMPLETE
        return Phase.READING if self.reported_status or self.emitted else Phase.WAITING

    def use_known_table(self, profile: StreamProfile) -> None:
        """Notes that an earlier sync prepared the table in the same way: it stays closed unless rows come."""
        self.table, self.location = profile.sql_name, profile.location
        self._excluded_before = tuple(ColumnMismatch((name,), name, *types) for name, types in profile.excluded.items())

    def set_target(self, target: TableTarget, table_spec: str) -> None:
        """Notes that the table is prepared, by the spec that has this digest."""
        self.table, self.location, self.fit = target.qualified, target.location, target.fit
        self.schema_id, self.table_spec = target.schema_id, table_spec

    def fail(self, error: ProtoError) -> None:
        """Fails the stream. Only the first error is kept: those that follow are mostly its consequences."""
        self.error = self.error or error
        self.is_complete = False

    def record_commit(self, load_id: str, part: StagedRows, committed: CommittedRows) -> None:
        """Counts the rows of a committed load. Rows on a branch count as committed when the branch is published."""
        self._add_counts(part)
        self.load_ids.append(load_id)
        self.rows_on_branch += part.rows
        if part.is_shown:
            self.committed += self.rows_on_branch
            self.rows_on_branch = 0
            # A replacement removes all older rows, those of deleted keys among them.
            self.deleted += committed.deleted if part.write in REPLACING else part.deleted
            self.last_commit = committed

    def record_refusal(self, part: StagedRows, error: ProtoError) -> None:
        """Counts the rows of a load that the table refused as rejected, and fails the stream."""
        self._add_counts(part)
        self.rejections[REFUSED] += part.rows
        self.fail_table(error)

    def fail_table(self, error: ProtoError) -> None:
        """Fails the stream because its table takes no row."""
        self.is_refused = True
        self.fail(error)

    def drop_rows(self, rows: int, reason: str = UNCOVERED) -> None:
        """Counts rows as rejected."""
        if rows:
            self.rejections[reason] += rows

    def drop_uncommitted(self) -> None:
        """Counts all rows that are not committed by now as rejected."""
        if self.can_be_resumed:
            self.drop_rows(self.rows_on_branch, ON_BRANCH)
        self.drop_rows(self.emitted - self.committed - self.rejections.total())

    def abandon(self, error: ProtoError) -> None:
        """Fails the stream because the whole sync ended before its last load was committed. The next sync reads the
        uncommitted rows again."""
        self.fail(error)
        self.drop_uncommitted()

    @property
    def status(self) -> SyncStatus:
        return SyncStatus.COMPLETE if self.is_complete and not self.has_failed else SyncStatus.FAILED

    def report(self, protocol: SourceProtocol, mask: Mask, *, before_promotion: bool = False) -> StreamReport:
        """The stream's report at this moment. `before_promotion` it has the state that is about to be saved."""
        state = self.next_state if before_promotion else self.state
        return StreamReport(
            status=self.status,
            table=self.table,
            emitted=self.emitted,
            committed=self.committed,
            rejected=self.rejections.total(),
            changed=self.changed,
            deleted=self.deleted,
            bytes=self.bytes,
            state=mask.value(self._state_of_stream(state, protocol)),
            state_before=mask.value(self._state_of_stream(self.state_before, protocol)),
            load_ids=tuple(self.load_ids),
            miscounts=tuple(self.miscounts),
            generation=self.planned.generation_id,
            error=mask.text(str(self.error)) if self.error else None,
            retryable=self.error is not None and self.error.retryable,
            filtered=self.rejections[FILTERED],
            rejections=dict(self.rejections),
            ignored_fields=dict(self.ignored_fields),
            table_rows=self.last_commit.table_rows if self.last_commit else None,
            snapshot_id=self.last_commit.snapshot_id if self.last_commit else None,
            schema_changes=self.schema_changes,
        )

    def _state_of_stream(self, state: State | None, protocol: SourceProtocol) -> Any:
        """The stream's part of a state, or the whole value if the state has no parts."""
        if state is None:
            return None
        parts = None if state.stream is not None else protocol.states.parts(state)
        return protocol.states.value(state) if parts is None else parts.get(self.planned.id)

    def _add_counts(self, part: StagedRows) -> None:
        self.changed += part.changed
        self.rejections.update(_counts(part.rejected))
        self.ignored_fields.update(_counts(part.ignored_fields))


def append_bounded(texts: list[str], text: str) -> None:
    """Adds a text unless the list is full: a connector may repeat itself endlessly. The log has all texts."""
    if len(texts) < _MAX_TEXTS:
        texts.append(text)
    elif len(texts) == _MAX_TEXTS:
        texts.append("There is more of this in the log.")


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in counts.items() if count}
