"""Applies a stream's schema policy to a batch: leaves out the values that its table does not take, or their rows.

`schema/evolution.py` decides what is left out; most streams have nothing to leave out and do not come here.

- Under `discard_row` a row with such a value is rejected.
- Otherwise a value without a column is counted as an ignored field, and a value whose column has another type becomes
  null, with an entry in the row's changes.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import FieldPath, SchemaPolicy
from dagster_airbyte_proto.schema.columns import CHANGES, META, Columns, null_array
from dagster_airbyte_proto.schema.evolution import ColumnMismatch
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch
from dagster_airbyte_proto.staging.values.changes import Changes, ValueLocations, count_nulled

_Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


class _ExcludedValues(NamedTuple):
    """The rows that have a value which the table does not take."""

    mismatch: ColumnMismatch
    has_value: _Mask

    @property
    def value_count(self) -> int:
        return int(np.count_nonzero(self.has_value))


def apply_schema_policy(
    parsed: ParsedBatch,
    excluded: Sequence[ColumnMismatch],
    policy: SchemaPolicy,
    columns: Columns,
    schema: pa.Schema,
) -> ParsedBatch:
    """Returns the batch of these `columns` as a table of this `schema` takes it. Counts every row and value that is
    left out."""
    found = [_ExcludedValues(mismatch, _landing_values(parsed, mismatch)) for mismatch in excluded]
    if policy is SchemaPolicy.DISCARD_ROW:
        return _project(_reject_rows(parsed, found), excluded, schema)
    ignored = Counter(
        {each.mismatch.column: each.value_count for each in found if not each.mismatch.in_table and each.value_count}
    )
    nulled = [each for each in found if each.mismatch.in_table and each.value_count]
    noted = _note_nulled(parsed, nulled, columns) if nulled else parsed
    return _project(noted._replace(ignored=parsed.ignored + ignored), excluded, schema)


def _reject_rows(parsed: ParsedBatch, found: Sequence[_ExcludedValues]) -> ParsedBatch:
    """Rejects the rows that have such a value, for the first column with one.

    A row that deletes its key is not rejected: its values beside the key are left out.
    """
    rows = parsed.batch.num_rows
    deletes = np.zeros(rows, dtype=bool)
    if parsed.deletions is not None:
        deletes = parsed.deletions.to_numpy(zero_copy_only=False)
    stays = np.ones(rows, dtype=bool)
    rejected: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    for each in found:
        rejected[_reason(each.mismatch)] = int(np.count_nonzero(stays & each.has_value & ~deletes))
        ignored[each.mismatch.column] = int(np.count_nonzero(each.has_value & deletes))
        stays &= ~each.has_value | deletes
    counted = parsed._replace(rejected=parsed.rejected + rejected, ignored=parsed.ignored + ignored)
    if stays.all():
        return counted
    left = pa.array(stays)
    batch = parsed.batch.filter(left)
    deletions = None if parsed.deletions is None else parsed.deletions.filter(left)
    filtered_out = None if parsed.filtered_out is None else parsed.filtered_out.filter(left)
    return recount(counted._replace(batch=batch, deletions=deletions, filtered_out=filtered_out))


def _reason(mismatch: ColumnMismatch) -> str:
    if not mismatch.in_table:
        return f"it has a value in {mismatch.column}, a column that the table does not have"
    return f"it has a value in {mismatch.column}, which is {mismatch.in_table} in the table and no longer in the stream"


def _note_nulled(parsed: ParsedBatch, nulled: Sequence[_ExcludedValues], columns: Columns) -> ParsedBatch:
    """Adds an entry to the row's changes for each value that will become null."""
    changes = Changes()
    for each in nulled:
        rows = np.flatnonzero(each.has_value)
        changes.note_nulled(ValueLocations(_path_in_record(columns, each.mismatch)), rows)
    batch = parsed.batch
    index, meta = batch.schema.get_field_index(META), batch.column(META)
    inside = meta.type.get_field_index("changes")
    parts = [meta.field(number) for number in range(meta.type.num_fields)]
    parts[inside] = concat_lists(parts[inside], changes.entry_lists(batch.num_rows, columns.all))
    batch = batch.set_column(
        index, batch.schema.field(index), pa.StructArray.from_arrays(parts, fields=list(meta.type))
    )
    return recount(parsed._replace(batch=batch))


def _path_in_record(columns: Columns, mismatch: ColumnMismatch) -> FieldPath:
    """Returns the path by the source's names, without the steps into lists.

    Only the types tell those steps from fields with the name `element`.
    """
    top, *inside = mismatch.path
    column = columns.all[_index_of(top, [column.name for column in columns.all])]
    path, kind = column.path, column.type
    for step in inside:
        if kind.depth:
            kind = kind.element_type
        else:
            member = kind.members[_index_of(step, [member.name for member in kind.members])]
            path, kind = (*path, member.source), member.type
    return path


def concat_lists(first: pa.ListArray, second: pa.ListArray) -> pa.ListArray:
    """Concatenates two columns of lists row by row."""
    owners = np.concatenate([pc.list_parent_indices(lists).to_numpy() for lists in (first, second)])
    values = pa.concat_arrays([pc.list_flatten(lists) for lists in (first, second)])
    offsets = np.zeros(len(first) + 1, dtype=np.int32)
    np.cumsum(np.bincount(owners, minlength=len(first)), out=offsets[1:])
    order = pa.array(np.argsort(owners, kind="stable"))
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(order), type=CHANGES)


def recount(parsed: ParsedBatch) -> ParsedBatch:
    """Counts the changes of the landing rows again."""
    entry_lists = pc.struct_field(parsed.landing_rows.column(META), "changes")
    changed = int(pc.sum(pc.greater(pc.list_value_length(entry_lists), 0)).as_py() or 0)
    return parsed._replace(changed=changed, nulled=count_nulled(entry_lists))


def _project(parsed: ParsedBatch, excluded: Sequence[ColumnMismatch], schema: pa.Schema) -> ParsedBatch:
    """Removes the columns that the table lacks. Nested fields that it lacks are removed when the batch is written."""
    batch = parsed.batch
    for mismatch in excluded:
        index = _field_index(batch.schema, mismatch.path[0])
        if mismatch.in_table:
            name, kind = batch.schema.names[index], schema.field(_field_index(schema, mismatch.path[0])).type
            batch = batch.set_column(index, name, _replace_with_nulls(batch.column(index), mismatch.path[1:], kind))
        elif len(mismatch.path) == 1:
            batch = batch.remove_column(index)
    return parsed._replace(batch=batch)


def _landing_values(parsed: ParsedBatch, mismatch: ColumnMismatch) -> _Mask:
    """Returns a mask of the rows that have a value there, without those that the filter left out."""
    column = parsed.batch.column(_field_index(parsed.batch.schema, mismatch.path[0]))
    has_value: _Mask = _has_value(column, mismatch.path[1:]).to_numpy(zero_copy_only=False)
    if parsed.filtered_out is None:
        return has_value
    filtered_out: _Mask = parsed.filtered_out.to_numpy(zero_copy_only=False)
    return has_value & ~filtered_out


def _has_value(array: pa.Array, path: FieldPath) -> pa.Array:
    if not path or pa.types.is_map(array.type):
        return array.is_valid()
    if pa.types.is_struct(array.type):
        return _has_value(pc.struct_field(array, [_field_index(array.type, path[0])]), path[1:])
    inside = _has_value(pc.list_flatten(array), path[1:])
    rows = pc.list_parent_indices(array).filter(inside).to_numpy()
    found = np.zeros(len(array), dtype=bool)
    found[rows] = True
    return pa.array(found)


def _replace_with_nulls(array: pa.Array, path: FieldPath, kind: pa.DataType) -> pa.Array:
    """Replaces the values at `path` with nulls of the type that the table has there."""
    if not path or pa.types.is_map(array.type):
        return null_array(len(array), kind)
    if pa.types.is_struct(array.type):
        index, parts = (
            _field_index(array.type, path[0]),
            [pc.struct_field(array, [i]) for i in range(array.type.num_fields)],
        )
        names = [field.name for field in array.type]
        parts[index] = _replace_with_nulls(parts[index], path[1:], kind.field(_field_index(kind, path[0])).type)
        return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
    items = _replace_with_nulls(pc.list_flatten(array), path[1:], kind.value_type)
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=array.is_null())


def _field_index(fields: pa.Schema | pa.StructType, name: str) -> int:
    return _index_of(name, [field.name for field in fields])


def _index_of(name: str, names: Sequence[str]) -> int:
    """Returns the index of a name, which may differ in case."""
    return names.index(name) if name in names else [case_folded(each) for each in names].index(case_folded(name))
