"""The marks of deleted rows that a source sends and does not declare, as many taps do with `_sdc_deleted_at`.

- They are staged beside the columns of a stream with keys (`RecordForm.marks`). A plan that has a marked row declares
  and sends them, with nulls for all other rows, as if the source had declared them; any other plan shows none.
- Whole records have them as they came, and are searched for them. The plan only declares them: a destination with typed
  columns would leave out what no schema names, and the deleted row would be a living one without values.
- That holds for a plan as a whole: the rows of a replacement go to one process, in one form.
"""

from collections.abc import Collection

import msgspec
import pyarrow.parquet as pq

from dagster_airbyte_proto.schema.columns import RecordForm
from dagster_airbyte_proto.staging.rows.deletions import marks_of_records

_RECORDS_AT_ONCE = 1000
_DECLARED = {"type": ["null", "string"], "format": "date-time"}


def marks_with_values(form: RecordForm, parquet: pq.ParquetFile) -> frozenset[str]:
    """Returns the marks of the form that some row of a file has: by the counts in its footer, or by its records."""
    if not form.marks:
        return frozenset()
    return _marks_in_records(form, parquet) if form.record_column else _counted_marks(form, parquet.metadata)


def _marks_in_records(form: RecordForm, parquet: pq.ParquetFile) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for batch in parquet.iter_batches(_RECORDS_AT_ONCE, columns=[form.record_column]):
        for marks in marks_of_records(batch.column(0)):
            found |= marks
            if found.issuperset(form.marks):
                return found
    return found


def _counted_marks(form: RecordForm, file: pq.FileMetaData) -> frozenset[str]:
    if not file.num_columns:
        return frozenset()
    places = {file.schema.column(place).path: place for place in range(file.num_columns)}
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    return frozenset(
        mark for mark in form.marks if mark in places and any(_has_values(each, places[mark]) for each in groups)
    )


def _has_values(group: pq.RowGroupMetaData, place: int) -> bool:
    """True if a column has a value there, and where nobody counted its nulls."""
    statistics = group.column(place).statistics
    has_count = statistics is not None and statistics.has_null_count
    return not has_count or statistics.null_count < group.num_rows


def with_marks(form: RecordForm, marks: Collection[str]) -> RecordForm:
    """Returns the form in which these marks are fields as all others."""
    fields = tuple(mark for mark in form.marks if mark in marks)
    schema = form.json_schema
    if fields:
        properties = {**schema.get("properties", {}), **dict.fromkeys(fields, _DECLARED)}
        schema = {**schema, "properties": properties}
    columns = form.columns if form.record_column else (*form.columns, *fields)
    return msgspec.structs.replace(form, json_schema=schema, columns=columns, marks=())
