"""The first rows of a plan, for people who look at it before it is sent."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.encoding.sendable import python_rows
from dagster_airbyte_proto.loads.plan_query import CHANGE, OWN_COLUMNS, RowChange
from dagster_airbyte_proto.loads.push import SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch, plan_batches


def samples_of(plan: SealedPlan, storage: Storage, count: int) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the first rows of each kind of a plan, for people."""
    counts = {"added": plan.counts.added, "changed": plan.counts.changed or 0, "removed": plan.counts.removed or 0}
    found: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in counts}
    for batch in plan_batches(plan, storage, 0, plan.rows):
        for kind, rows in _by_kind(batch).items():
            shown = rows.select([name for name in rows.schema.names if name not in OWN_COLUMNS])
            found[kind] += python_rows(shown.slice(0, count - len(found[kind])))
        if all(len(found[kind]) >= min(count, rows) for kind, rows in counts.items()):
            break
    return {kind: rows for kind, rows in found.items() if rows}


def _by_kind(batch: PlanBatch) -> Mapping[str, pa.RecordBatch]:
    if batch.is_removal:
        return {"removed": batch.rows}
    if CHANGE not in batch.rows.schema.names:
        return {"added": batch.rows}  # Rows of the table's own files.
    changes = batch.rows.column(CHANGE)
    return {kind.value: batch.rows.filter(pc.equal(changes, kind.value)) for kind in RowChange}
