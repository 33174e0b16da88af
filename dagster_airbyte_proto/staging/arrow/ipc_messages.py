"""Reads Arrow's IPC streams, of a stranger's making, as far as their size is bounded by what came.

A frame may have several streams, one behind the other: a writer that is opened for each batch makes such. Arrow reads
the first, and is silent about the rest.

The format lets a writer compress the buffers of a batch (lz4, zstd). Half a megabyte may then unpack to any size, and
Arrow unpacks before anybody can look. So a compressed batch is refused: pipes between processes gain nothing from it.
What a message is stands in its metadata, a flatbuffer, of which three fields are read here. Metadata of before Arrow
1.0 (V4) may say in another place that a batch is compressed, and no connector needs it: it is refused too.

Arrow checks nothing of what it reads: an offset may lead behind the buffer that came, into our memory. So nothing may
be done with a batch before all of it is validated, and its size computed.
"""

import struct
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.arrow_schema import layout_of
from dagster_airbyte_proto.staging.arrow.unpacked_size import VALUE_BYTES, unpacked_bytes

MAX_UNPACKED_BYTES = 1 << 30
"""Twice what a batch may have as it is sent: 128 million values that are null, or text that is named by an index."""
_DOING = "reading an Arrow batch"
_VERSION, _HEADER_TYPE, _HEADER = 0, 1, 2
_V5 = 4
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA_OF_DICTIONARY, _COMPRESSION_OF_BATCH = 1, 3


def record_batches(content: bytes, stream: StreamId, *, with_valid_values: bool = False) -> tuple[pa.RecordBatch, ...]:
    """Returns the batches of the IPC streams in it, without a copy. Raises ProtocolViolation.

    Their layout is valid. Some values may not be, see `valid_values`, unless none may: then these are a violation too.
    """
    try:
        batches = tuple(_batches(content, stream))
        for batch in batches if with_valid_values else ():
            batch.validate(full=True)
        return batches
    except (pa.ArrowException, OSError, EOFError, ValueError, IndexError, struct.error) as error:
        raise ProtocolViolation(_DOING, str(error)[:500], stream=str(stream)) from error


def _batches(content: bytes, stream: StreamId) -> Iterator[pa.RecordBatch]:
    source, start = pa.BufferReader(content), 0
    while True:
        for message in pa.ipc.MessageReader.open_stream(source):
            _check_message(memoryview(message.metadata), stream)
        source.seek(start)
        with pa.ipc.open_stream(source) as reader:
            _check_names(reader.schema, stream)
            for batch in reader:
                yield _checked(batch, stream)
        start = source.tell()
        if content.count(0, start) == len(content) - start:  # Nothing follows, or padding.
            return


def _check_names(schema: pa.Schema, stream: StreamId) -> None:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        named = ", ".join(twice[:20])[:500]
        raise ProtocolViolation(_DOING, f"it has several columns of one name: {named}", stream=str(stream))


def _checked(batch: pa.RecordBatch, stream: StreamId) -> pa.RecordBatch:
    _layout(batch).validate(full=True)
    # A batch without columns has as many rows as it says, in no bytes at all.
    size = sum(map(unpacked_bytes, batch.columns)) or batch.num_rows * VALUE_BYTES
    if size > MAX_UNPACKED_BYTES:
        found = f"its {batch.num_rows:,} rows unpack to {size:,} bytes, and may to {MAX_UNPACKED_BYTES:,}"
        raise ProtocolViolation(_DOING, found, stream=str(stream))
    return batch


def _layout(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch as its layout alone: what is in no array of its own cannot be read. To Arrow bytes that are no
    text, a decimal of too many digits, a day off midnight, or the time 24:00 make the whole batch invalid; to us they
    are values that do not fit their columns."""
    kinds = [layout_of(each) for each in batch.schema.types]
    if kinds == batch.schema.types:
        return batch
    batch.validate()
    columns = [each if each.type == kind else each.view(kind) for each, kind in zip(batch.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _check_message(metadata: memoryview, stream: StreamId) -> None:
    version_at = _field(metadata, int(struct.unpack_from("<I", metadata)[0]), _VERSION)
    if not version_at or struct.unpack_from("<h", metadata, version_at)[0] < _V5:
        found = "its metadata is of before Arrow 1.0: the connector must send version 5"
        raise ProtocolViolation(_DOING, found, stream=str(stream))
    if _is_compressed(metadata):
        found = "its buffers are compressed, and could unpack to any size: the connector must send them plain"
        raise ProtocolViolation(_DOING, found, stream=str(stream))


def _is_compressed(metadata: memoryview) -> bool:
    (root,) = struct.unpack_from("<I", metadata)
    kind_at = _field(metadata, root, _HEADER_TYPE)
    kind = metadata[kind_at] if kind_at else 0
    if kind not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return False
    batch = _table(metadata, root, _HEADER)
    if kind == _DICTIONARY_BATCH:
        batch = _table(metadata, batch, _DATA_OF_DICTIONARY)
    return _field(metadata, batch, _COMPRESSION_OF_BATCH) != 0


def _table(metadata: memoryview, table: int, number: int) -> int:
    """The position of the table that a field of a table refers to."""
    at = _field(metadata, table, number)
    if not at:
        raise ValueError("a message lacks its header")
    return at + int(struct.unpack_from("<I", metadata, at)[0])


def _field(metadata: memoryview, table: int, number: int) -> int:
    """The position of a field of a table; 0 if the table has none."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    if vtable < 0:
        raise ValueError("a message has no vtable")
    (size,) = struct.unpack_from("<H", metadata, vtable)
    place = 4 + 2 * number
    if place + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + place)
    return table + offset if offset else 0
