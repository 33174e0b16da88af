"""What is known of each stream while a sync runs, and what is told of it afterwards."""

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
from dagster_airbyte_proto.schema.evolution import Change
from dagster_airbyte_proto.staging.rows.shaping import FILTERED
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus

UNCOVERED = "read again next time: no state covered it when the stream failed"
REFUSED = "the table refused the load"
KEPT_ASIDE = "kept aside until its generation is complete: the next sync goes on from there"

_KEPT_TEXTS = 100


class Phase(StrEnum):
    """Where a stream stands, in the words of the live view."""

    WAITING = "waiting"
    READING = "reading"
    COMPLETE = "complete"
    FAILED = "failed"


class StreamRun:
    """One stream in one sync. Owned by the reading thread; the live view only looks."""

    def __init__(self, planned: PlannedStream) -> None:
        self.planned = planned
        self.table = str(planned.table)
        self.location = ""
        self.said: StreamStatus | None = None
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
        self.landed: CommittedRows | None = None
        self.fit: TableFit | None = None
        # Of a generation that changes the table's columns: they are so only once it is published.
        self.schema_id: int | None = None
        self.schema_changes: tuple[Change, ...] = ()
        self.is_complete = False
        self.is_refused = False
        # Of a generation that lands by and by: its branch, what it was begun with, the load that came last there.
        self.branch = ""
        self.likeness = ""
        self.newest_aside: str | None = None
        self.rows_aside = 0
        self.can_go_on = False

    @property
    def lacking(self) -> frozenset[str]:
        """The columns that its table does not have, and does not get."""
        withheld = self.fit.withheld if self.fit else ()
        return frozenset(misfit.column for misfit in withheld if not misfit.in_table and len(misfit.path) == 1)

    @property
    def has_fitting_table(self) -> bool:
        """Whether its table has the columns by now that it was made ready for."""
        return self.fit is not None and (self.schema_id is None or self.landed is not None)

    @property
    def has_failed(self) -> bool:
        return self.error is not None

    @property
    def phase(self) -> Phase:
        if self.has_failed:
            return Phase.FAILED
        if self.is_complete or self.said is StreamStatus.COMPLETE:
            return Phase.COMPLETE
        return Phase.READING if self.said or self.emitted else Phase.WAITING

    def place(self, target: TableTarget) -> None:
        """Its table is ready."""
        self.table, self.location, self.fit = target.qualified, target.location, target.fit
        self.schema_id = target.schema_id

    def fail(self, error: ProtoError) -> None:
        """The first error is kept: what follows is mostly its echo."""
        self.error = self.error or error
        self.is_complete = False

    def land(self, load_id: str, part: StagedRows, committed: CommittedRows) -> None:
        self._account(part)
        self.load_ids.append(load_id)
        self.rows_aside += part.rows
        if part.is_shown:
            self.committed += self.rows_aside
            self.rows_aside = 0
            # What a replacement takes out is all that was there: keys that the source deleted are among it.
            self.deleted += committed.deleted if part.write in REPLACING else part.deleted
            self.landed = committed

    def refuse(self, part: StagedRows, error: ProtoError) -> None:
        self._account(part)
        self.rejections[REFUSED] += part.rows
        self.refuse_all(error)

    def refuse_all(self, error: ProtoError) -> None:
        """Its table cannot take any row."""
        self.is_refused = True
        self.fail(error)

    def drop(self, rows: int, reason: str = UNCOVERED) -> None:
        if rows:
            self.rejections[reason] += rows

    def drop_the_rest(self) -> None:
        """What is not committed by now is not going to be."""
        if self.can_go_on:
            self.drop(self.rows_aside, KEPT_ASIDE)
        self.drop(self.emitted - self.committed - self.rejections.total())

    def abandon(self, error: ProtoError) -> None:
        """The sync ended as a whole, before its last load was in: what is not committed is read again."""
        self.fail(error)
        self.drop_the_rest()

    @property
    def status(self) -> SyncStatus:
        return SyncStatus.COMPLETE if self.is_complete and not self.has_failed else SyncStatus.FAILED

    def report(self, protocol: SourceProtocol, mask: Mask, *, is_delivered: bool = False) -> StreamReport:
        """As it stands. While it `is_delivered` its state has not moved yet: the one that will is told."""
        state = self.next_state if is_delivered else self.state
        return StreamReport(
            status=self.status,
            table=self.table,
            emitted=self.emitted,
            committed=self.committed,
            rejected=self.rejections.total(),
            changed=self.changed,
            deleted=self.deleted,
            bytes=self.bytes,
            state=mask.value(self._told_by(state, protocol)),
            state_before=mask.value(self._told_by(self.state_before, protocol)),
            load_ids=tuple(self.load_ids),
            miscounts=tuple(self.miscounts),
            generation=self.planned.generation_id,
            error=mask.text(str(self.error)) if self.error else None,
            retryable=self.error is not None and self.error.retryable,
            filtered=self.rejections[FILTERED],
            rejections=dict(self.rejections),
            ignored_fields=dict(self.ignored_fields),
            table_rows=self.landed.table_rows if self.landed else None,
            snapshot_id=self.landed.snapshot_id if self.landed else None,
            schema_changes=self.schema_changes,
        )

    def _told_by(self, state: State | None, protocol: SourceProtocol) -> Any:
        """What a state says of the stream: all that it says, unless it has parts."""
        if state is None:
            return None
        parts = None if state.stream is not None else protocol.state_parts(state)
        return protocol.state_value(state) if parts is None else parts.get(self.planned.id)

    def _account(self, part: StagedRows) -> None:
        self.changed += part.changed
        self.rejections.update(_counts(part.rejected))
        self.ignored_fields.update(_counts(part.ignored_fields))


def keep(texts: list[str], text: str) -> None:
    """Adds a text, up to a bound. A connector may repeat itself without end; the log has it all."""
    if len(texts) < _KEPT_TEXTS:
        texts.append(text)
    elif len(texts) == _KEPT_TEXTS:
        texts.append("There is more of this in the log.")


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in counts.items() if count}
