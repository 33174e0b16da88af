"""The files of a plan that is about to be sealed, and the counts of their rows."""

from typing import NamedTuple

import pyarrow.compute as pc

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.plan_query import CHANGE, PlannedRows, PlanQuery, RowChange
from dagster_airbyte_proto.loads.push import PlanColumn, PlanFile, PlannedCounts
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.sync.push.plan.plan_files import column_of, plan_files
from dagster_airbyte_proto.sync.push.plan.table_files import TableFiles


class WrittenPlan(NamedTuple):
    """The files of a plan, and the counts of their rows. They have `columns` where they are a table's own."""

    folder: str
    files: tuple[PlanFile, ...]
    removal_files: tuple[PlanFile, ...]
    counts: PlannedCounts
    columns: tuple[PlanColumn, ...]


def written_plan(
    query: PlanQuery, folder: str, planned: PlannedRows, own: TableFiles | None, storage: Storage
) -> WrittenPlan:
    """Counts the rows in the files that Spark has written to the folder of a plan, or in those of the table itself.

    Raises TableError where some are missing.
    """
    files = own.files if own is not None else plan_files(f"{folder}/rows", storage)
    removal_files = plan_files(f"{folder}/removed", storage)
    changes = [column_of(file, storage, CHANGE) for file in files] if own is None else []
    changed = sum(int(pc.sum(pc.equal(each, RowChange.CHANGED.value)).as_py() or 0) for each in changes)
    changed = 0 if query.sends_all else changed  # Then all rows count as new.
    written = sum(file.rows for file in files)
    removed = sum(file.rows for file in removal_files)
    _check_all_found(query, folder, planned, written + removed)
    counts = _counts(query, planned, written, changed, removed)
    return WrittenPlan(folder, files, removal_files, counts, own.columns if own is not None else ())


def _check_all_found(query: PlanQuery, folder: str, planned: PlannedRows, found: int) -> None:
    """Raises TableError if Spark wrote rows where this machine does not see them: they would never be sent."""
    if planned.written is not None and found < planned.written:
        raise TableError(
            f"planning the rows of {query.table or 'a query'}",
            f"Spark wrote {planned.written:,} rows to {folder}, and this machine finds {found:,} there",
            remedy="Executors and a Connect server must write to the same folder: put the home folder (--home), or for "
            "a push that compares keys the warehouse, where all machines reach it.",
            stream=query.stream,
        )


def _counts(query: PlanQuery, planned: PlannedRows, written: int, changed: int, removed: int) -> PlannedCounts:
    if not query.compares_keys:
        return PlannedCounts(written, None, None, None)
    unchanged: int | None = planned.rows - written
    if not planned.has_compared_all:
        unchanged = planned.delivered - changed - removed if planned.delivered else None
    return PlannedCounts(written - changed, changed, removed if query.finds_removed else None, unchanged)
