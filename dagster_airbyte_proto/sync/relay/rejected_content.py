"""Reads the records that a destination or a source rejected from the staged files of a load, before these go.

- The newest are kept, as many as the store keeps of a stream: nothing limits how many a destination may reject.
- A record is kept as its destination was to get it, so that it can be sent again. What JSON has no form for is text for
  people.
- In a mode by key one is not kept if its load has a later record of the key: sent again, it would take the place of
  that.
- Those that the source rejected are no rows of the plan, so they have places before its first row.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.checkpoints.deliveries import (
    LONGEST_KEPT_BYTES,
    MOST_KEPT_BYTES,
    MOST_KEPT_REJECTIONS,
    RejectedContent,
)
from dagster_airbyte_proto.encoding.record_lines import record_objects
from dagster_airbyte_proto.encoding.sendable import python_rows, readable_row, unsendable_rows
from dagster_airbyte_proto.loads.load import StagedFile
from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.schema.columns import RecordForm
from dagster_airbyte_proto.staging.files.rejections_file import read_rejections
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.sync.relay.record_keys import key_of_record, last_rows
from dagster_airbyte_proto.sync.relay.relay_plan import RelayPlan


class NewestRejections(NamedTuple):
    """The records to keep of a load, and the number of its newest ones that there was room for: of these, some may be
    replaced by later records of the load."""

    contents: list[RejectedContent]
    newest: int


def rejected_content(
    plan: RelayPlan | None, rejected: Sequence[RejectedRow], of_source: Sequence[StagedFile] = ()
) -> NewestRejections:
    """Returns the newest of these rows with their records, in their order, behind the records in the files `of_source`.
    A plan is needed only for rows. Raises StagingError where the files are gone."""
    found: deque[RejectedContent] = deque()
    size_bytes = 0
    by_destination = _contents(plan, rejected[-MOST_KEPT_REJECTIONS:]) if plan is not None else ()
    for each in chain(_contents_of_source(of_source), by_destination):
        found.append(each)
        size_bytes += _bytes_of(each.record)
        while size_bytes > MOST_KEPT_BYTES or len(found) > MOST_KEPT_REJECTIONS:
            size_bytes -= _bytes_of(found.popleft().record)
    rows = [each for each in found if each.row.row >= 0]
    last = rows if plan is None else _last_of_keys(plan, rows)
    return NewestRejections([*(each for each in found if each.row.row < 0), *last], len(found))


def _contents_of_source(files: Sequence[StagedFile]) -> Iterator[RejectedContent]:
    rejections = [each for file in files for each in read_rejections(file)]
    for place, each in enumerate(rejections, -len(rejections)):
        is_kept = _bytes_of(each.record) <= LONGEST_KEPT_BYTES
        yield RejectedContent(RejectedRow(place, each.reason), each.record if is_kept else None, sendable=False)


def _contents(plan: RelayPlan, rejected: Sequence[RejectedRow]) -> Iterator[RejectedContent]:
    begin = 0
    for formed in plan.formed:
        rows = {each.row: each for each in rejected if begin <= each.row < formed.end}
        begin = formed.end
        if not rows:
            continue
        for batch in plan_batches(plan.plan, LOCAL, min(rows), max(rows) + 1):
            for number in sorted(rows.keys() & range(batch.start, batch.end)):
                text, sendable = _record(batch.rows.slice(number - batch.start, 1), formed.form)
                kept = text if _bytes_of(text) <= LONGEST_KEPT_BYTES else None
                yield RejectedContent(rows[number], kept, sendable)


def _bytes_of(record: str | None) -> int:
    return len((record or "").encode(errors="replace"))


def _last_of_keys(plan: RelayPlan, contents: Sequence[RejectedContent]) -> Iterator[RejectedContent]:
    keys = plan.formed[0].form.target.keys if plan.plan.mode is PushMode.UPSERT else ()
    found = {each.row.row: key_of_record(each.record, keys) if each.record else None for each in contents}
    last = last_rows(plan, {key for key in found.values() if key is not None}) if keys else {}
    for each in contents:
        key = found[each.row.row]
        if key is None or last.get(key, each.row.row) == each.row.row:
            yield each


def _record(row: pa.RecordBatch, form: RecordForm) -> tuple[str, bool]:
    """The record of the only row of a batch, as it was to be sent, and whether it can be sent so at all."""
    sent = RowRules(form=form).columns_of(row)
    sendable = not unsendable_rows(sent)
    if form.record_column:
        record = python_rows(sent)[0][form.record_column]
        return ("", False) if record is None else (str(record), sendable)  # One that is no JSON was not staged.
    return (str(record_objects(sent)[0].as_py()), True) if sendable else (readable_row(sent), False)
