"""Cuts the rows of a plan into the batches that a destination gets."""

import time
from collections.abc import Iterator

import pyarrow as pa

from dagster_airbyte_proto.loads.push import SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch, ReadSize, plan_batches
from dagster_airbyte_proto.sync.push.push_context import DeliveryContext

_MANY_ROWS = 100_000
"""The rows of a batch that goes as Arrow, or that is not acknowledged by itself, unless the connection names a number;
`batch.bytes` mostly makes them fewer. Each batch is a transaction of the store, which costs as much as a megabyte."""


def paced_batches(
    context: DeliveryContext, plan: SealedPlan, storage: Storage, start: int, end: int
) -> Iterator[PlanBatch]:
    """The batches from one position to another, cut to the sizes that the connection names. A batch has as many rows as
    the destination takes in `seconds`, at the pace at which it took the one before.

    Removals that go by a version are one batch, without their keys: of several states behind which no record comes some
    targets send the first back, and no other.
    """
    if plan.activates and start >= plan.rows_to_write:
        yield PlanBatch(start, pa.RecordBatch.from_arrays([pa.nulls(end - start)], ["removed"]), is_removal=True)
        return
    limits, rate = context.connection.batch, context.connection.rate
    max_rows = limits.rows
    protocol = context.destination.protocol
    if (protocol.takes_batches or protocol.proves_by_result) and "rows" not in limits.model_fields_set:
        max_rows = _MANY_ROWS
    if rate is not None:
        max_rows = min(max_rows, limits.rows)  # What is free to go goes at once.
        max_rows = max(1, min(max_rows, int(rate.rows_per_second * limits.seconds)))
    paced_rows = float(max_rows)
    for batch in plan_batches(plan, storage, start, end, ReadSize(max_rows, limits.bytes)):
        row_bytes = max(1, batch.rows.nbytes // batch.rows.num_rows)
        place = 0
        while place < batch.rows.num_rows:
            rows = batch.rows.slice(place, max(1, int(min(max_rows, paced_rows, limits.bytes // row_bytes))))
            began_at = time.monotonic()
            yield PlanBatch(batch.start + place, rows, batch.is_removal)
            place += rows.num_rows
            paced_rows = rows.num_rows * limits.seconds / max(time.monotonic() - began_at, 1e-6)
