"""The guard of removals: a plan that removes more rows than the user allows, or all of them, is not sealed."""

import pyarrow.compute as pc

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.plan_query import CHANGE, LEFT_OUT, PlannedRows, RowChange
from dagster_airbyte_proto.loads.push import PlanFile, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.sync.push.plan.plan_files import column_of
from dagster_airbyte_proto.transforms.transform import DROPPED


def check_removals(options: PushOptions, plan: SealedPlan, planned: PlannedRows, storage: Storage) -> None:
    is_guarded = options.mode is PushMode.OVERWRITE and options.max_removed.share != 1.0
    if is_guarded and not any(plan.columns or _has_rows_to_send(file, storage) for file in plan.files):
        found = "transforms leave all its rows out" if planned.rows else "it has no rows"
        raise TableError(
            f"planning the rows of {options.table or 'a query'}",
            f"{found}, and its push would empty the destination",
            remedy="Nothing was sent. If it is to be emptied, set `max_removed: 100 %` for this stream.",
            stream=str(plan.stream),
        )
    # A version that is activated removes what transforms drop, too.
    dropped = sum(_dropped_rows(file, storage) for file in plan.files) if plan.activates else 0
    check_max_removed(options, str(plan.stream), (plan.counts.removed or 0) + dropped, planned.delivered)


def check_max_removed(options: PushOptions, stream: str, removed: int, delivered: int) -> None:
    if removed and not options.max_removed.allows(removed, delivered):
        raise TableError(
            f"planning the rows of {options.table or 'a query'}",
            f"{removed:,} of the {delivered:,} rows that the destination has are gone, more than max_removed"
            f" ({options.max_removed}) allows",
            remedy="Nothing was sent. If they are to be removed, raise max_removed for this stream.",
            stream=stream,
        )


def _dropped_rows(file: PlanFile, storage: Storage) -> int:
    """The rows that transforms drop, and that the destination may have. Those that break a rule keep the removals."""
    left_out, changes = column_of(file, storage, LEFT_OUT), column_of(file, storage, CHANGE)
    if left_out is None or changes is None:
        return 0
    is_there = pc.equal(changes, RowChange.CHANGED.value)
    return int(pc.sum(pc.and_kleene(is_there, pc.equal(left_out, DROPPED))).as_py() or 0)


def _has_rows_to_send(file: PlanFile, storage: Storage) -> bool:
    left_out = column_of(file, storage, LEFT_OUT)
    return left_out is None or left_out.null_count > 0
