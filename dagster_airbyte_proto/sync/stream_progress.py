"""The parts of a stream's progress in one sync, by who writes them.

- `ReaderCounts`: the reading thread counts what the connector has sent.
- `TableState`: the preparation of the table.
- `GenerationProgress`: the plan, then the loads that land on a branch.
- `CommitOutcome`: the commits.

The live view reads them from another thread.
"""

from collections import Counter
from collections.abc import Mapping

from dagster_airbyte_proto.loads.bounded_counts import add_field_counts
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.table import TableFit, TableTarget
from dagster_airbyte_proto.model import REPLACING, State
from dagster_airbyte_proto.schema.evolution import ColumnMismatch
from dagster_airbyte_proto.schema.stream_profile import StreamProfile


class ReaderCounts:
    """The records, bytes and states of a stream that have come so far."""

    def __init__(self) -> None:
        self.emitted = 0
        self.bytes = 0
        self.states = 0


class TableState:
    """The stream's table, as it was prepared for this sync or for an earlier one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.location = ""
        self.table_id = ""
        self.fit: TableFit | None = None
        self.spec = ""
        self.log_position: int | None = None
        # Set for a generation that changes the table's columns. Readers see those only once it is published.
        self.schema_id: int | None = None
        self._excluded_before: tuple[ColumnMismatch, ...] = ()

    @property
    def missing_columns(self) -> frozenset[str]:
        """The columns of the stream that its table lacks, and does not get by its schema policy."""
        excluded = self.fit.excluded if self.fit else self._excluded_before
        return frozenset(mismatch.column for mismatch in excluded if not mismatch.in_table and len(mismatch.path) == 1)

    def use_known(self, profile: StreamProfile) -> None:
        """Notes that an earlier sync prepared the table in the same way: it stays closed unless rows come."""
        self.name, self.location = profile.sql_name, profile.location
        self._excluded_before = tuple(ColumnMismatch((name,), name, *types) for name, types in profile.excluded.items())

    def set_target(self, target: TableTarget, spec: str) -> None:
        """Notes that the table is prepared, by the spec that has this digest."""
        self.name, self.location, self.fit = target.qualified, target.location, target.fit
        # The target may be that of before, and loads have landed since.
        known = (self.log_position or 0) if target.table_id == self.table_id else 0
        self.log_position = None if target.log_position is None else max(known, target.log_position)
        self.schema_id, self.table_id, self.spec = target.schema_id, target.table_id, spec

    def note_commit(self, committed: CommittedRows) -> None:
        """Notes how far the table's log went when a load of the stream had landed."""
        if committed.log_position is not None:
            self.log_position = committed.log_position


class GenerationProgress:
    """A generation that lands on a branch, and the newest load there. Without a branch all is empty. One that a run
    before began goes on from `resumed_state`."""

    def __init__(self) -> None:
        self.branch = ""
        self.fingerprint = ""
        self.newest_load: str | None = None
        self.resumed_state: State | None = None
        self.can_be_resumed = False


class CommitOutcome:
    """The rows, loads and states of a stream that are committed, and the rows that will not be."""

    def __init__(self) -> None:
        self.committed = 0
        self.unknown = 0
        self.changed = 0
        self.added = 0
        self.deleted = 0
        self.rejections: Counter[str] = Counter()
        self.ignored_fields: Counter[str] = Counter()
        self.nulled: Counter[str] = Counter()
        self.load_ids: list[str] = []
        self.last_commit: CommittedRows | None = None
        self.rows_on_branch = 0
        self.state: State | None = None
        self.next_state: State | None = None

    def record_commit(self, load_id: str, part: StagedRows, committed: CommittedRows) -> None:
        """Counts the rows of a committed load. Rows on a branch count as committed when the branch is published."""
        self.add_counts(part)
        self.load_ids.append(load_id)
        self.rows_on_branch += part.rows
        if part.is_shown:
            self.committed += self.rows_on_branch - sum(committed.rejected.values())
            self.rejections.update(committed.rejected)
            self.rows_on_branch = 0
            # A replacement removes all older rows, those of deleted keys among them.
            self.deleted += committed.deleted if part.write in REPLACING else part.deleted
            self.last_commit = committed

    def add_counts(self, part: StagedRows) -> None:
        """Counts what a part says about its rows, whether they land or not."""
        self.changed += part.changed
        self.added += part.added
        self.rejections.update(_counts(part.rejected))
        add_field_counts(self.ignored_fields, _counts(part.ignored_fields))
        add_field_counts(self.nulled, part.nulled)

    def reject(self, rows: int, reason: str) -> None:
        """Counts rows as rejected."""
        if rows:
            self.rejections[reason] += rows


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in counts.items() if count}
