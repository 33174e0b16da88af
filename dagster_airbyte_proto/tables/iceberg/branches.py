"""Commits the loads of a generation to a branch of an Iceberg table, and publishes the branch as `main`.

The rules:

- Each change is one compare-and-set of the table's whole metadata, against exactly the metadata in which we looked for
  the load. A writer that was paused in between finds other metadata, is refused, and looks again.
- A change is built in an Iceberg transaction, but the transaction is never committed as such: Iceberg would retry it on
  top of whatever was committed in between, and could land a load twice.
- A REST catalog compares only the branches that a change touches. So a writer that wakes up late may create the branch
  of a finished generation again. Nobody reads that branch; its rows are in `main` once, or not at all.
- A branch starts at the current snapshot of `main`, followed by a snapshot that removes all rows. So the loads that
  readers saw before are ancestors of the branch, and are still in the log after it is published. Loads that others
  commit to `main` in the meantime are not: publishing replaces them.
- A generation may have another schema than the one that readers have. Its snapshots are created as if its schema was
  current, and the same change sets the readers' schema back. The change that publishes the branch keeps the new one.
  So a reader of `main` sees old columns with old rows, or new columns with new rows.
- Read a branch by the id of its last snapshot. By the branch's name Iceberg would use the current schema.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.loads.load import BranchPosition, CommittedRows, StagedRows
from dagster_airbyte_proto.tables.iceberg.jvm import JavaTable
from dagster_airbyte_proto.tables.iceberg.log import (
    HIGH_WATER_MARK,
    History,
    Snapshot,
    TableLog,
    check_placement,
    lineage,
    snapshots_since,
)
from dagster_airbyte_proto.tables.iceberg.positions.position_merge import PositionMerge, needs_positions
from dagster_airbyte_proto.tables.outcome_unknown import outcome_unknown
from dagster_airbyte_proto.tables.part_checks import (
    check_branch,
    check_table_id,
    effective_files,
    high_water_mark_after,
)
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, NO_OUTCOME, Failure, failure_of, first_line

_MAIN = "main"


class LandedLoad(NamedTuple):
    """A load that is in the table. `shown` is the snapshot that readers see. The load removed `replaced_rows`."""

    snapshot: Snapshot
    was_there: bool
    shown: Snapshot | None
    format_version: int = 2
    replaced_rows: int = 0

    def committed_rows(self, part: StagedRows) -> CommittedRows:
        rows = self.shown.rows if self.shown else 0
        totals = self.shown.totals_for_readers(self.format_version) if self.shown else None
        snapshot_id, position = str(self.snapshot.snapshot_id), self.snapshot.sequence_number or None
        return CommittedRows(
            part.stream, snapshot_id, self.was_there, self.replaced_rows, rows, totals, log_position=position
        )


class _TableView(NamedTuple):
    """A table as it is when a change of it starts. The change is refused if the table is another by then."""

    base: Any
    log: TableLog
    main: History
    branch: History

    @property
    def last_load_id(self) -> str | None:
        return self.branch.current.load_id if self.branch.current else None

    def snapshot_of(self, load_id: str) -> Snapshot | None:
        return self.main.snapshot_of(load_id) or self.branch.snapshot_of(load_id)


class TableBranches:
    """The branches of one table, apart from `main`."""

    def __init__(self, table: JavaTable, merge: PositionMerge | None = None) -> None:
        self._table, self._merge = table, merge

    def last_load_ids(self) -> Mapping[str, str]:
        """Returns the branches that end with a load, each with the id of that load."""
        log = self._table.log_of(self._table.metadata())
        heads = {name: History.from_log(log, name).current for name in log.branches if name != _MAIN}
        return {name: head.load_id for name, head in heads.items() if head and head.load_id}

    def land(self, doing: str, load_id: str, part: StagedRows, labels: Mapping[str, str]) -> LandedLoad | None:
        """Lands a part once. Returns None if the table changed since it was read.

        Raises TableError for a table that cannot take the part's files.
        """
        self._table.refresh()
        view = self._read(_position(part))
        if known := view.snapshot_of(load_id):
            return LandedLoad(known, was_there=True, shown=view.main.current, format_version=view.log.format_version)
        check_table_id(doing, view.log.table_uuid, part)
        check_placement(doing, view.log, part)
        check_branch(doing, part, view.last_load_id)
        if mark := high_water_mark_after(part, view.branch.freshness):
            labels = {**labels, HIGH_WATER_MARK: msgspec.json.encode(mark).decode()}
        changed = self._metadata_after(doing, view, part, labels)
        points.reach("table.committing")
        refusal: BaseException | None = None
        with outcome_unknown(doing, str(part.stream)):
            try:
                self._table.swap_metadata(view.base, changed)
            except CALL_ERRORS as error:
                if failure_of(error) in NO_OUTCOME:
                    raise
                refusal = error
            else:
                points.reach("table.committed")
            # Some errors come after the effect: what the log says counts, at the next attempt too.
            after = self._read(_position(part))
            landed = after.snapshot_of(load_id)
        if refusal is not None or landed is None:
            if landed is None and refusal is not None and failure_of(refusal) is not Failure.CONFLICT:
                raise refusal
            holders = snapshots_since(after.log, load_id, before=view.log)
            if self._merge and holders is not None:
                self._merge.discard(holders)
            if landed is None:
                return None
            return LandedLoad(landed, True, after.main.current, after.log.format_version)
        before = view.main.current if part.is_shown else None
        # Where deletes leave the number of visible rows open, all stored rows count.
        counts = (before.rows, before.stored_rows) if before else ()
        replaced = next((count for count in counts if count is not None), 0)
        return LandedLoad(landed, False, after.main.current, after.log.format_version, replaced)

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Returns the result of a part that is on its branch, or in `main`; None if it is in neither."""
        view = self._read(_position(part))
        known = view.snapshot_of(load_id)
        if known is None:
            return None
        return LandedLoad(
            known, was_there=True, shown=view.main.current, format_version=view.log.format_version
        ).committed_rows(part)

    def drop(self, doing: str, branch: str) -> bool:
        """Drops a branch with its snapshots and the files that only they have. Returns False if the table changed."""
        base = self._table.metadata()
        log = self._table.log_of(base)
        if branch not in log.branches:
            return True
        if not self._swap(doing, base, self._table.metadata_builder(base).removeRef(branch).build()):
            return False
        # What readers saw before the branch began stays, also if a rollback has undone it meanwhile: the table may be
        # taken forward to it. The branch is gone already: the next expiry removes what stays because of an error here.
        with suppress(*CALL_ERRORS):
            self._table.expire(own_snapshots(log, branch) - log.shown)
        return True

    def _read(self, position: BranchPosition) -> _TableView:
        base = self._table.metadata()
        log = self._table.log_of(base)
        return _TableView(base, log, History.from_log(log), History.from_log(log, position.branch))

    def _metadata_after(self, doing: str, view: _TableView, part: StagedRows, labels: Mapping[str, str]) -> Any:
        """Returns the table's metadata with the part added, not yet committed."""
        position, readers_schema_id = _position(part), view.log.current_schema_id
        view.log.columns_of(doing, position.schema_id)
        transaction = self._table.transaction(self._with_schema(view.base, position.schema_id))
        if position.after is None:
            self._start_branch(transaction, view, position.branch)
        head = transaction.currentMetadata().ref(position.branch)
        change = self._change(transaction, view, part, None if head is None else head.snapshotId())
        _commit(change, position.branch, labels)
        changed = transaction.currentMetadata()
        if not position.publishes:
            return self._with_schema(changed, readers_schema_id)
        head = changed.ref(position.branch).snapshotId()
        return self._table.metadata_builder(changed).setBranchSnapshot(head, _MAIN).removeRef(position.branch).build()

    def _change(self, transaction: Any, view: _TableView, part: StagedRows, head: int | None) -> Any:
        """Returns the change that adds a part to the branch, whose last snapshot is `head`."""
        if self._merge is None or view.branch.current is None or not needs_positions(part, view.branch):
            return self._table.append_change(transaction, part, effective_files(part, holds_rows=False), head)
        # From the first snapshot on, Iceberg would take the branch's own older vectors for concurrent ones.
        change = transaction.newRowDelta().validateFromSnapshot(head)
        self._merge.add_files(change, part, view.branch.current, self._table.every_row)
        return change

    def _with_schema(self, metadata: Any, schema_id: int | None) -> Any:
        if schema_id in (None, metadata.currentSchemaId()):
            return metadata
        return self._table.metadata_builder(metadata).setCurrentSchema(schema_id).build()

    def _start_branch(self, transaction: Any, view: _TableView, branch: str) -> None:
        """Creates the branch from `main`, without its rows. If `main` has no snapshot, the first load creates it."""
        if branch in view.log.branches:
            transaction.manageSnapshots().removeBranch(branch).commit()
        if (current := view.main.current) is None:
            return
        transaction.manageSnapshots().createBranch(branch, current.snapshot_id).commit()
        if view.main.may_have_rows:
            emptying = transaction.newDelete().deleteFromRowFilter(self._table.every_row)
            _commit(emptying, branch, {})

    def _swap(self, doing: str, base: Any, changed: Any) -> bool:
        """Puts the changed metadata in the place of `base`. Returns False if `base` is no longer the table's."""
        try:
            self._table.swap_metadata(base, changed)
        except CALL_ERRORS as error:
            if failure_of(error) is Failure.NO_ANSWER:
                raise CommitUnknown(doing, first_line(error)) from error
            if failure_of(error) is not Failure.CONFLICT:
                raise
            return False
        return True


def own_snapshots(log: TableLog, branch: str) -> set[int]:
    """Returns the ids of the snapshots of a branch that no other branch and no tag has."""
    others = [each.snapshot_id for name, each in log.refs.items() if name != branch]
    kept = {each.snapshot_id for head in others for each in lineage(log, head)}
    return {each.snapshot_id for each in lineage(log, log.branches[branch])} - kept


def _position(part: StagedRows) -> BranchPosition:
    assert part.branch_position is not None, "a part for a branch has a branch position"
    return part.branch_position


def _commit(change: Any, branch: str, labels: Mapping[str, str]) -> None:
    """Commits a change to the branch, within the transaction that made the change."""
    for key, value in labels.items():
        change.set(key, value)
    change.toBranch(branch).commit()
