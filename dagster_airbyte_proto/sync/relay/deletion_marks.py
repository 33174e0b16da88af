"""The marks of deleted rows that a source sends and does not declare, as many taps do with `_sdc_deleted_at`.

- They are staged beside the columns of a stream with keys (`RecordForm.marks`). A plan that has a marked row declares
  and sends them, with nulls for all other rows, as if the source had declared them; any other plan shows none.
- That holds for a plan as a whole: the rows of a replacement go to one process, in one form.
"""

from collections.abc import Collection

import msgspec
import pyarrow.parquet as pq

from dagster_airbyte_proto.schema.columns import RecordForm

_DECLARED = {"type": ["null", "string"], "format": "date-time"}


def marks_with_values(form: RecordForm, file: pq.FileMetaData) -> frozenset[str]:
    """Returns the marks of the form that some row of a file has, by the counts in its footer."""
    if not form.marks or not file.num_columns:
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
    return msgspec.structs.replace(form, json_schema=schema, columns=(*form.columns, *fields), marks=())
