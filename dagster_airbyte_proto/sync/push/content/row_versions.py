"""The versions of a mirror's rows, where rows that are gone are removed by versions (`removals: version`).

A target that heeds versions removes, once a version is activated, all rows that have an older one. So a plan that
removes rows has all rows that are there: they go as a new version, which is activated when each of them is proved.

- Until then the destination has all that it had, and the rows that have come. A push that dies goes on in its version.
- None of its rows counts as delivered before it is activated: a target may keep them apart until then. If the plan is
  given up, all that was sent is sent again, in a version that the destination shows.
- A plan that removes no row goes on in the version of the one before. Its rows have that too: targets on Meltano's SDK
  remove no row without a version.
- A row that is rejected is missing in the new version. If the destination may have it as it was before, it would be
  removed too: then the version is not activated, and the removals are rejected.
"""

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.loads.plan_query import CHANGE, RowChange
from dagster_airbyte_proto.loads.push import PushPosition, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.sync.push.content.refused_rows import RejectedInOrder
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.transforms.transform import DROPPED


def row_version(position: PushPosition | None, first_free: int, *, is_new: bool) -> int:
    """Returns the version of a plan's rows: that of the position, if there is one and it is not to be a new one.

    A new one is greater than all before, those of `overwrite` too: `first_free` goes by the clock, as these do.
    """
    before = 0 if position is None else position.version
    return before if before and not is_new else max(first_free, before + 1)


def reason_to_keep_removed(store: DeliveryStore, plan: SealedPlan, storage: Storage) -> str:
    """Returns why the version of a plan is not to be activated; empty if it may be.

    Rows that a transform leaves out are removed with the others: the user wants none of them there.
    """
    if not any(reason != DROPPED for reason in store.rejection_reasons(plan, end=plan.rows_to_write)):
        return ""
    rejected, there = RejectedInOrder(store, plan, 0), 0
    for batch in plan_batches(plan, storage, 0, plan.rows_to_write):
        for row, found in rejected.until(batch.end).items():
            was_sent = batch.rows.column(CHANGE)[row - batch.start].as_py() == RowChange.CHANGED
            there += was_sent and found.reason != DROPPED
    if not there:
        return ""
    return (
        f"the version is not activated: rows that the destination may have are rejected ({there:,}), and would be"
        " removed too. Mend them, or set `on_error: skip`"
    )
