"""Loads of a generation on a branch of an Iceberg table, until `main` is moved there.

Each change is one compare-and-set of all that the table's metadata says. It is made ready in a transaction that is
never committed as such, for that would be tried again on top of whatever came in between; it is put in the place of
exactly the metadata in which the load was looked for. So whoever slept finds it changed, and looks again. A REST
catalog compares no more than the branches that a change touches: there a sleeper may begin a branch again whose
generation is over. Nobody reads that branch; the rows of it are in `main` once, or not at all.

A branch begins at what `main` is, with all of it taken out: so the loads that readers saw before are its ancestors, and
are still found in the log once it is published. What others put into `main` meanwhile is not: it is replaced.

A generation may have another schema than readers have. Its snapshots are made as if that was the current one, in the
same change that puts back the readers'; where it is published it stays. So a reader of `main` has old columns with old
rows, or new columns with new ones, and who reads a branch has to ask for its last snapshot: under the branch's name
Iceberg reads by the current schema.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.loads.load import Aside, CommittedRows, StagedRows
from dagster_airbyte_proto.tables.iceberg.jvm import JavaTable
from dagster_airbyte_proto.tables.iceberg.log import NEWEST, History, Snapshot, TableLog, lineage
from dagster_airbyte_proto.tables.part_checks import landing, newest_after, refuse_aside
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, Failure, failure_of, first_line

_MAIN = "main"


class Landed(NamedTuple):
    """A load that is in. `shown` is what readers see since; `replaced_rows` went with it."""

    snapshot: Snapshot
    was_there: bool
    shown: Snapshot | None
    replaced_rows: int = 0

    def told(self, part: StagedRows) -> CommittedRows:
        rows, totals = (self.shown.rows, self.shown.totals) if self.shown else (0, None)
        snapshot_id = str(self.snapshot.snapshot_id)
        return CommittedRows(part.stream, snapshot_id, self.was_there, self.replaced_rows, rows, totals)


class _Look(NamedTuple):
    """A table as a change of it was begun. The change is refused if it has become another since."""

    base: Any
    log: TableLog
    main: History
    branch: History

    @property
    def newest(self) -> str | None:
        return self.branch.current.load_id if self.branch.current else None

    def landed(self, load_id: str) -> Snapshot | None:
        return self.main.landed(load_id) or self.branch.landed(load_id)


class AsideOf:
    """What is put aside of one table."""

    def __init__(self, table: JavaTable) -> None:
        self._table = table

    def newest(self) -> Mapping[str, str]:
        """The branches that end with a load, each with that load."""
        log = self._table.log_of(self._table.metadata())
        heads = {name: History.of(log, name).current for name in log.branches if name != _MAIN}
        return {name: head.load_id for name, head in heads.items() if head and head.load_id}

    def land(
        self,
        doing: str,
        load: tuple[str, StagedRows],
        labels: Mapping[str, str],
        refuse: Callable[[TableLog], None],
    ) -> Landed | None:
        """Once; None where it was refused because the table changed since it was looked at. `refuse` raises for a table
        that cannot take the part's files."""
        load_id, part = load
        self._table.refresh()
        look = self._look(_aside(part))
        if known := look.landed(load_id):
            return Landed(known, was_there=True, shown=look.main.current)
        refuse(look.log)
        refuse_aside(doing, part, look.newest)
        if newest := newest_after(part, look.branch.standing):
            labels = {**labels, NEWEST: msgspec.json.encode(newest).decode()}
        made = self._made(doing, look, part, labels)
        points.reach("table.committing")
        if not self._replaced(doing, look.base, made):
            return None
        points.reach("table.committed")
        now = self._look(_aside(part))
        if (landed := now.landed(load_id)) is None:
            return None
        before = look.main.current if part.is_shown else None
        replaced = (before.stored_rows if before.rows is None else before.rows) if before else 0
        return Landed(landed, was_there=False, shown=now.main.current, replaced_rows=replaced)

    def drop(self, doing: str, branch: str) -> bool:
        """Whether it is gone. Its snapshots go with it, and the files that nothing else has."""
        base = self._table.metadata()
        log = self._table.log_of(base)
        if branch not in log.branches:
            return True
        if not self._replaced(doing, base, self._table.changed(base).removeRef(branch).build()):
            return False
        # What is left here goes when the table's snapshots expire.
        with suppress(*CALL_ERRORS):
            self._table.expire(own_snapshots(log, branch))
        return True

    def _look(self, aside: Aside) -> _Look:
        base = self._table.metadata()
        log = self._table.log_of(base)
        return _Look(base, log, History.of(log), History.of(log, aside.branch))

    def _made(self, doing: str, look: _Look, part: StagedRows, labels: Mapping[str, str]) -> Any:
        """The table's metadata once the part is in."""
        aside, readers = _aside(part), look.log.current_schema_id
        look.log.columns_of(doing, aside.schema_id)
        transaction = self._table.transaction(self._with_schema(look.base, aside.schema_id))
        if aside.after is None:
            self._begin(transaction, look, aside.branch)
        files = landing(part, holds_rows=False)
        _commit(self._table.addition(transaction, part, files), aside.branch, labels)
        made = transaction.currentMetadata()
        if not aside.publishes:
            return self._with_schema(made, readers)
        head = made.ref(aside.branch).snapshotId()
        return self._table.changed(made).setBranchSnapshot(head, _MAIN).removeRef(aside.branch).build()

    def _with_schema(self, metadata: Any, schema_id: int | None) -> Any:
        if schema_id in (None, metadata.currentSchemaId()):
            return metadata
        return self._table.changed(metadata).setCurrentSchema(schema_id).build()

    def _begin(self, transaction: Any, look: _Look, branch: str) -> None:
        """What `main` is, without its rows. Where `main` is nothing yet, the first load makes the branch."""
        if branch in look.log.branches:
            transaction.manageSnapshots().removeBranch(branch).commit()
        if (current := look.main.current) is None:
            return
        transaction.manageSnapshots().createBranch(branch, current.snapshot_id).commit()
        if current.stored_rows:
            emptying = transaction.newDelete().deleteFromRowFilter(self._table.every_row)
            _commit(emptying, branch, {})

    def _replaced(self, doing: str, base: Any, made: Any) -> bool:
        try:
            self._table.replace(base, made)
        except CALL_ERRORS as error:
            if failure_of(error) is Failure.NO_ANSWER:
                raise CommitUnknown(doing, first_line(error)) from error
            if failure_of(error) is not Failure.CONFLICT:
                raise
            return False
        return True


def own_snapshots(log: TableLog, branch: str) -> set[int]:
    """Those of a branch that are of no other branch and no tag."""
    others = [each.snapshot_id for name, each in log.refs.items() if name != branch]
    kept = {each.snapshot_id for head in others for each in lineage(log, head)}
    return {each.snapshot_id for each in lineage(log, log.branches[branch])} - kept


def _aside(part: StagedRows) -> Aside:
    assert part.aside is not None, "a part that is put aside says where"
    return part.aside


def _commit(change: Any, branch: str, labels: Mapping[str, str]) -> None:
    """Into the transaction that the change is of."""
    for key, value in labels.items():
        change.set(key, value)
    change.toBranch(branch).commit()
