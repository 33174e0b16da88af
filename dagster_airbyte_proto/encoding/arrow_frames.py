"""Batches for a destination that takes Arrow: each a stream of Arrow's IPC format, in types that the protocol names.

- What the protocol has a word for keeps its type. Objects, lists and maps become JSON text, times of day become text.
- A batch says what its columns are. So nothing of our tables goes along: no field ids, no metadata.
"""

import pyarrow as pa

from dagster_airbyte_proto.encoding.json_text import json_texts
from dagster_airbyte_proto.protocols.destination import StreamColumn

_WORDS = {
    pa.bool_(): "Boolean",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.uint64(): "UInt64",
    pa.float16(): "Float16",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "Utf8",
    pa.large_string(): "LargeUtf8",
    pa.binary(): "Binary",
    pa.large_binary(): "LargeBinary",
    pa.date32(): "Date32",
    pa.date64(): "Date64",
}
_END_BYTES = 8
_UNITS = {"ms": "TimestampMillis", "us": "TimestampMicros", "ns": "TimestampNanos"}


def stream_columns(schema: pa.Schema) -> tuple[StreamColumn, ...]:
    """Returns the columns that batches of this schema have at the destination."""
    return tuple(StreamColumn(field.name, _word(field.type), field.nullable) for field in schema)


def arrow_frame(batch: pa.RecordBatch) -> memoryview:
    """Returns the rows of a batch as a stream of Arrow's IPC format. Columns that are as they should be are not copied
    twice."""
    columns = [as_sent(column) for column in batch.columns]
    fields = [
        pa.field(field.name, column.type, field.nullable) for field, column in zip(batch.schema, columns, strict=True)
    ]
    sent = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    # In memory of its size: a stream that grows copies all that it has, again and again.
    buffer = pa.allocate_buffer(sent.schema.serialize().size + pa.ipc.get_record_batch_size(sent) + _END_BYTES)
    sink = pa.FixedSizeBufferWriter(buffer)
    with pa.ipc.new_stream(sink, sent.schema) as stream:
        stream.write_batch(sent)
    return memoryview(buffer)[: sink.tell()].toreadonly()


def _word(kind: pa.DataType) -> str:
    if _is_json(kind):
        return "Json"
    kind = _sent_type(kind)
    if pa.types.is_timestamp(kind):
        return _UNITS[kind.unit]
    return "Decimal128" if pa.types.is_decimal128(kind) else _WORDS[kind]


def as_sent(array: pa.Array) -> pa.Array:
    """Returns a column in the form that it has in a batch."""
    if _is_json(array.type):
        return json_texts(array).cast(pa.string())
    kind = _sent_type(array.type)
    return array if kind == array.type else array.cast(kind)


def _is_json(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.JsonType) or pa.types.is_nested(kind)


def _sent_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column has in a batch; text for whatever the protocol has no word for."""
    if pa.types.is_dictionary(kind):
        return _sent_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms", kind.tz) if kind.unit == "s" else kind
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return kind if kind in _WORDS or pa.types.is_decimal128(kind) else pa.string()
