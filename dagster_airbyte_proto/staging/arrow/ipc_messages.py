"""Reads Arrow's IPC streams, of a stranger's making, as far as their size is bounded by what came.

The format lets a writer compress the buffers of a batch (lz4, zstd). Half a megabyte may then unpack to any size, and
Arrow unpacks before anybody can look. So a compressed batch is refused: pipes between processes gain nothing from it.
What a message is stands in its metadata, a flatbuffer, of which two fields are read here.
"""

import struct

import pyarrow as pa

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import StreamId

_DOING = "reading an Arrow batch"
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA_OF_DICTIONARY, _COMPRESSION_OF_BATCH = 1, 3


def record_batches(content: bytes, stream: StreamId) -> tuple[pa.RecordBatch, ...]:
    """Returns the batches of an IPC stream, without a copy. Raises ProtocolViolation."""
    try:
        for message in pa.ipc.MessageReader.open_stream(content):
            if _is_compressed(memoryview(message.metadata)):
                found = "its buffers are compressed, and could unpack to any size: the connector must send them plain"
                raise ProtocolViolation(_DOING, found, stream=str(stream))
        with pa.ipc.open_stream(content) as reader:
            return tuple(reader)
    except (pa.ArrowException, OSError, EOFError, ValueError, IndexError, struct.error) as error:
        raise ProtocolViolation(_DOING, str(error)[:500], stream=str(stream)) from error


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
