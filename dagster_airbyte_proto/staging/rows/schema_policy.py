"""What a table does not take is left out of a batch: the values, or the rows that have one (`schema/evolution.py`).

Only streams whose table lacks something come here. A value that has no column is counted as an ignored field; one whose
column is of another type is null from here on, with an entry in the row's changes.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import FieldPath, SchemaPolicy
from dagster_airbyte_proto.schema.columns import CHANGES, META, nulls
from dagster_airbyte_proto.schema.evolution import Misfit
from dagster_airbyte_proto.schema.names import folded
from dagster_airbyte_proto.staging.rows.batches import Parsed
from dagster_airbyte_proto.staging.rows.changes import Changes, Slots


class _Found(NamedTuple):
    """Which rows have a value that the table does not take."""

    misfit: Misfit
    has_value: pa.Array

    @property
    def values(self) -> int:
        return int(self.has_value.true_count)


def without_withheld(parsed: Parsed, withheld: Sequence[Misfit], policy: SchemaPolicy, schema: pa.Schema) -> Parsed:
    """The batch as a table of this `schema` takes it. Every row and every value that is left out is counted."""
    found = [_Found(misfit, _to_land(parsed, misfit)) for misfit in withheld]
    if policy is SchemaPolicy.DISCARD_ROW:
        return _projected(_without_rows(parsed, found), withheld, schema)
    ignored = Counter({each.misfit.column: each.values for each in found if not each.misfit.in_table and each.values})
    nulled = [each for each in found if each.misfit.in_table and each.values]
    noted = _noted(parsed, nulled) if nulled else parsed
    return _projected(noted._replace(ignored=parsed.ignored + ignored), withheld, schema)


def _without_rows(parsed: Parsed, found: Sequence[_Found]) -> Parsed:
    """A row is rejected for the first column that it has such a value in. One that deletes its key is not: what it has
    beside the key is left out."""
    rows = parsed.batch.num_rows
    deletes = np.zeros(rows, dtype=bool) if parsed.deletions is None else _numpy(parsed.deletions)
    stays = np.ones(rows, dtype=bool)
    rejected: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    for each in found:
        has_value = _numpy(each.has_value)
        rejected[_reason(each.misfit)] = int(np.count_nonzero(stays & has_value & ~deletes))
        ignored[each.misfit.column] = int(np.count_nonzero(has_value & deletes))
        stays &= ~has_value | deletes
    counted = parsed._replace(rejected=parsed.rejected + rejected, ignored=parsed.ignored + ignored)
    if stays.all():
        return counted
    left = pa.array(stays)
    batch = parsed.batch.filter(left)
    deletions = None if parsed.deletions is None else parsed.deletions.filter(left)
    gone = None if parsed.gone is None else parsed.gone.filter(left)
    kept = counted._replace(batch=batch, deletions=deletions, gone=gone)
    return kept._replace(changed=_changed(kept))


def _numpy(mask: pa.BooleanArray) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = mask.to_numpy(zero_copy_only=False)
    return found


def _reason(misfit: Misfit) -> str:
    if not misfit.in_table:
        return f"it has a value in {misfit.column}, a column that the table does not have"
    return f"it has a value in {misfit.column}, which is {misfit.in_table} in the table and no longer in the stream"


def _noted(parsed: Parsed, nulled: Sequence[_Found]) -> Parsed:
    """With an entry for each value that is about to be nulled."""
    changes = Changes()
    for each in nulled:
        rows = np.flatnonzero(_numpy(each.has_value))
        changes.nulled(Slots(tuple(step for step in each.misfit.path if step != "element")), rows)
    batch = parsed.batch
    place, meta = batch.schema.get_field_index(META), batch.column(META)
    inside = meta.type.get_field_index("changes")
    parts = [meta.field(number) for number in range(meta.type.num_fields)]
    parts[inside] = _joined(parts[inside], changes.lists(batch.num_rows))
    batch = batch.set_column(
        place, batch.schema.field(place), pa.StructArray.from_arrays(parts, fields=list(meta.type))
    )
    noted = parsed._replace(batch=batch)
    return noted._replace(changed=_changed(noted))


def _joined(first: pa.ListArray, second: pa.ListArray) -> pa.ListArray:
    """Row by row the one list and then the other."""
    owners = np.concatenate([pc.list_parent_indices(lists).to_numpy() for lists in (first, second)])
    values = pa.concat_arrays([pc.list_flatten(lists) for lists in (first, second)])
    offsets = np.zeros(len(first) + 1, dtype=np.int32)
    np.cumsum(np.bincount(owners, minlength=len(first)), out=offsets[1:])
    order = pa.array(np.argsort(owners, kind="stable"))
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(order), type=CHANGES)


def _changed(parsed: Parsed) -> int:
    batch = parsed.rows
    lengths = pc.list_value_length(pc.struct_field(batch.column(META), [_changes_place(batch)]))
    return int(pc.sum(pc.greater(lengths, 0)).as_py() or 0)


def _changes_place(batch: pa.RecordBatch) -> int:
    return int(batch.schema.field(META).type.get_field_index("changes"))


def _projected(parsed: Parsed, withheld: Sequence[Misfit], schema: pa.Schema) -> Parsed:
    """Without the columns that the table lacks. Nested fields that it lacks go when the batch is written."""
    batch = parsed.batch
    for misfit in withheld:
        place = _place(batch.schema, misfit.path[0])
        if misfit.in_table:
            name, kind = batch.schema.names[place], schema.field(_place(schema, misfit.path[0])).type
            batch = batch.set_column(place, name, _nulled(batch.column(place), misfit.path[1:], kind))
        elif len(misfit.path) == 1:
            batch = batch.remove_column(place)
    return parsed._replace(batch=batch)


def _to_land(parsed: Parsed, misfit: Misfit) -> pa.BooleanArray:
    """The rows that have a value there, but for those that are gone already."""
    column = parsed.batch.column(_place(parsed.batch.schema, misfit.path[0]))
    has_value = _has_value(column, misfit.path[1:])
    return has_value if parsed.gone is None else pc.and_(has_value, pc.invert(parsed.gone))


def _has_value(array: pa.Array, path: FieldPath) -> pa.Array:
    if not path or pa.types.is_map(array.type):
        return array.is_valid()
    if pa.types.is_struct(array.type):
        return _has_value(pc.struct_field(array, [_place(array.type, path[0])]), path[1:])
    inside = _has_value(pc.list_flatten(array), path[1:])
    rows = pc.list_parent_indices(array).filter(inside).to_numpy()
    found = np.zeros(len(array), dtype=bool)
    found[rows] = True
    return pa.array(found)


def _nulled(array: pa.Array, path: FieldPath, kind: pa.DataType) -> pa.Array:
    """Nulls where `path` leads, of the type that the table has there."""
    if not path or pa.types.is_map(array.type):
        return nulls(len(array), kind)
    if pa.types.is_struct(array.type):
        place, parts = _place(array.type, path[0]), [pc.struct_field(array, [i]) for i in range(array.type.num_fields)]
        names = [field.name for field in array.type]
        parts[place] = _nulled(parts[place], path[1:], kind.field(_place(kind, path[0])).type)
        return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
    items = _nulled(pc.list_flatten(array), path[1:], kind.value_type)
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=array.is_null())


def _place(fields: pa.Schema | pa.StructType, name: str) -> int:
    """Where a column stands, whose name may differ in case."""
    names = [field.name for field in fields]
    return names.index(name) if name in names else [folded(each) for each in names].index(folded(name))
