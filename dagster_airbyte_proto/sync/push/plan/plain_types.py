"""The types of a table's columns, without that in which a file may differ from another one, or from Spark."""

import pyarrow as pa


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with times in UTC, where Spark has them in the zone of its session, and with nested fields that may be
    null: a writer may know that none is."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    return kind
