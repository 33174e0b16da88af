"""The guard of removals: a plan that removes more rows than the user allows, or all of them, is not sealed."""

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.plan_query import LEFT_OUT, PlannedRows
from dagster_airbyte_proto.loads.push import PlanFile, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.sync.push.plan.plan_files import column_of


def check_removals(options: PushOptions, plan: SealedPlan, planned: PlannedRows, storage: Storage) -> None:
    removed = plan.counts.removed or 0
    is_guarded = options.mode is PushMode.OVERWRITE and options.max_removed.share != 1.0
    if is_guarded and not any(plan.columns or _has_rows_to_send(file, storage) for file in plan.files):
        found = "transforms leave all its rows out" if planned.rows else "it has no rows"
        raise TableError(
            f"planning the rows of {options.table or 'a query'}",
            f"{found}, and its push would empty the destination",
            remedy="Nothing was sent. If it is to be emptied, set `max_removed: 100 %` for this stream.",
            stream=str(plan.stream),
        )
    if removed and not options.max_removed.allows(removed, planned.delivered):
        raise TableError(
            f"planning the rows of {options.table or 'a query'}",
            f"{removed:,} of the {planned.delivered:,} rows that the destination has are gone, more than max_removed"
            f" ({options.max_removed}) allows",
            remedy="Nothing was sent. If they are to be removed, raise max_removed for this stream.",
            stream=str(plan.stream),
        )


def _has_rows_to_send(file: PlanFile, storage: Storage) -> bool:
    left_out = column_of(file, storage, LEFT_OUT)
    return left_out is None or left_out.null_count > 0
