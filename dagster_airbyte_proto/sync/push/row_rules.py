"""The rules by which the rows of a plan become lines for a destination."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.connection.push import RowLimit
from dagster_airbyte_proto.encoding.json_text import json_texts
from dagster_airbyte_proto.encoding.record_lines import (
    RecordFrame,
    framed_lines,
    record_lines,
    record_objects,
    without_nulls,
)
from dagster_airbyte_proto.encoding.row_schema import RowSchema
from dagster_airbyte_proto.encoding.sendable import half_letters
from dagster_airbyte_proto.loads.plan_query import OWN_COLUMNS
from dagster_airbyte_proto.schema.columns import RecordForm

LOST_RECORD: Final = "the record is no JSON (NaN, an infinity), or its text is no UTF-8"
HALF_LETTER: Final = 'a text in the record has half of a surrogate pair ("\\ud83d"), which stands for no letter'


class RowRules(NamedTuple):
    """The rules by which rows become lines: whether nulls are left out, and how many rows may be refused.

    Rows with a `form` were staged from records, and become such again. Rows that do not fit the `schema` are refused.
    So are removals, where there is a `reason_to_keep` the removed rows.
    """

    omits_nulls: bool = False
    max_rejected: RowLimit = RowLimit(share=0.01)
    form: RecordForm | None = None
    schema: Mapping[str, Any] | None = None
    reason_to_keep: str = ""

    def lost_records(self, rows: pa.RecordBatch) -> dict[int, str]:
        """Returns the places of the records that would be lost, with the reasons: they would count as acknowledged.

        A whole record that could not be staged has no line. Of one with half of a letter a destination drops the line.
        """
        if self.form is None:
            return {}
        if not self.form.record_column:
            texts = (json_texts(rows.column(name)) for name in sorted(self.form.json_columns))
            return dict.fromkeys(chain.from_iterable(map(half_letters, texts)), HALF_LETTER)
        records = rows.column(0)
        lost = dict.fromkeys(pc.indices_nonzero(records.is_null()).to_pylist(), LOST_RECORD)
        return {**dict.fromkeys(half_letters(records), HALF_LETTER), **lost}

    def columns_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows with the columns that are sent."""
        if self.form is None:
            return rows.select([name for name in rows.schema.names if name not in OWN_COLUMNS])
        if self.form.record_column:
            sent = rows.select([self.form.record_column])
            if not self.omits_nulls:
                return sent
            return pa.RecordBatch.from_arrays([without_nulls(sent.column(0))], names=sent.schema.names)
        sent = rows.select([*self.form.columns])
        return sent.cast(pa.schema([sent_field(self.form, field) for field in sent.schema]))

    def are_proved(self, rows: pa.RecordBatch, schema: RowSchema) -> bool:
        """True if the columns of these rows prove that each fits the schema."""
        if self.form is not None and self.form.record_column:
            return False
        return schema.fits_all(rows, omits_nulls=self.omits_nulls)

    def objects(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns the JSON object of each row."""
        if self.form is not None and self.form.record_column:
            return rows.column(0)
        return record_objects(rows, omits_nulls=self.omits_nulls)

    def lines(self, rows: pa.RecordBatch, frame: RecordFrame) -> memoryview:
        """Returns the line of each row."""
        if self.form is not None and self.form.record_column:
            return framed_lines(rows.column(0), frame)
        return record_lines(rows, frame, omits_nulls=self.omits_nulls)


def sent_field(form: RecordForm, field: pa.Field) -> pa.Field:
    """Returns a field of staged rows as it is sent: with JSON in the place of text where it holds such."""
    return _with_json(field) if field.name in form.json_columns else field


def _with_json(field: pa.Field) -> pa.Field:
    """The field with JSON in the place of text, in lists too."""
    kind, depth = field.type, 0
    while pa.types.is_list(kind):
        kind, depth = kind.value_type, depth + 1
    kind = pa.json_(kind)
    for _ in range(depth):
        kind = pa.list_(kind)
    return field.with_type(kind)
