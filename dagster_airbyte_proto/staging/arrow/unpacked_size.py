"""The memory that the values of an Arrow array need once each value is written out, computed without doing so.

Some layouts let a few bytes stand for any number of values: nulls have none at all, and dictionaries, views, runs and
dense unions name the same value again and again. `nbytes` counts what is stored, so it bounds nothing there.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.arrow_schema import is_bytes

VALUE_BYTES = 8
"""The least that a value counts, as it may become one of a table: a null of a number's column has as many."""
_VIEW = np.dtype([("length", "<i4"), ("rest", "V12")])


def unpacked_bytes(array: pa.Array) -> int:
    """Returns an upper bound for an array that is valid. It is near the truth, but for odd nestings."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return unpacked_bytes(array.storage)
    least = len(array) * VALUE_BYTES
    if pa.types.is_dictionary(kind):
        return least + _named_bytes(array)
    if pa.types.is_run_end_encoded(kind):
        return least + len(array) * unpacked_bytes(array.values)
    if kind in (pa.string_view(), pa.binary_view()):
        return least + _viewed_bytes(array)
    inside = sum(map(unpacked_bytes, _children(array)))
    if pa.types.is_struct(kind):  # As JSON text, each of its rows has the names of all members.
        inside += len(array) * sum(len(field.name) for field in kind)
    if isinstance(array, pa.ListViewArray | pa.LargeListViewArray):
        return least + len(array) * inside
    if pa.types.is_union(kind):
        return least + (len(array) * inside if kind.mode == "dense" else inside)
    return least + inside if inside else max(least, int(array.nbytes))


def _named_bytes(array: pa.DictionaryArray) -> int:
    """The bytes of the entries that the indices name, each as often as they do."""
    entries = array.dictionary
    if is_bytes(entries.type) or pa.types.is_string(entries.type) or pa.types.is_large_string(entries.type):
        lengths = pc.binary_length(entries).cast(pa.int64()).take(array.indices)
        return int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_primitive(entries.type):
        return len(array) * int(entries.type.bit_width) // 8
    return len(array) * unpacked_bytes(entries)


def _viewed_bytes(array: pa.Array) -> int:
    views = np.frombuffer(array.buffers()[1] or b"", _VIEW)[array.offset : array.offset + len(array)]
    return int(views["length"].sum(where=array.is_valid().to_numpy(zero_copy_only=False), dtype=np.int64))


def _children(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [array.field(number) for number in range(kind.num_fields)]
    return [array.values] if kind.num_fields else []
