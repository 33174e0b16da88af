"""Reads the records that a destination rejected from the staged files of a load, before these go.

The newest are kept, as many as the store keeps of a stream: nothing limits how many a destination may reject.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dagster_airbyte_proto.checkpoints.deliveries import (
    LONGEST_KEPT_BYTES,
    MOST_KEPT_BYTES,
    MOST_KEPT_REJECTIONS,
    RejectedContent,
)
from dagster_airbyte_proto.encoding.sendable import python_rows, readable_row
from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.schema.columns import RecordForm
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.sync.relay.relay_plan import RelayPlan


def rejected_content(plan: RelayPlan, rejected: Sequence[RejectedRow]) -> list[RejectedContent]:
    """Returns the newest of these rows with their records, in their order. Raises StagingError where the files are
    gone."""
    found: deque[RejectedContent] = deque()
    size_bytes = 0
    for each in _contents(plan, rejected[-MOST_KEPT_REJECTIONS:]):
        found.append(each)
        size_bytes += _bytes_of(each.record)
        while size_bytes > MOST_KEPT_BYTES:
            size_bytes -= _bytes_of(found.popleft().record)
    return [*found]


def _contents(plan: RelayPlan, rejected: Sequence[RejectedRow]) -> Iterator[RejectedContent]:
    begin = 0
    for formed in plan.formed:
        rows = {each.row: each for each in rejected if begin <= each.row < formed.end}
        begin = formed.end
        if not rows:
            continue
        for batch in plan_batches(plan.plan, LOCAL, min(rows), max(rows) + 1):
            for number in sorted(rows.keys() & range(batch.start, batch.end)):
                text = _record(batch.rows.slice(number - batch.start, 1), formed.form)
                yield RejectedContent(rows[number], text if _bytes_of(text) <= LONGEST_KEPT_BYTES else None)


def _bytes_of(record: str | None) -> int:
    return len((record or "").encode(errors="replace"))


def _record(row: pa.RecordBatch, form: RecordForm) -> str:
    """The record of the only row of a batch, as it was to be sent."""
    sent = RowRules(form=form).columns_of(row)
    if form.record_column:
        return str(python_rows(sent)[0][form.record_column])
    return readable_row(sent)
