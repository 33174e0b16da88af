"""Deletion vectors, as Delta's protocol has them: which rows of a file readers leave out.

The bits are a roaring bitmap in its portable form, within a frame of Delta's for numbers of 64 bits. A small one stands
in the log, any other in a file of its own beside the table's.
"""

import base64
import struct
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dagster_airbyte_proto.tables.delta_history import to_z85
from dagster_airbyte_proto.tables.storage import Storage

_LONGEST_IN_LOG = 8 << 10
_MAGIC = 1681511377
_NO_RUNS = 12346
_LARGEST_ARRAY = 4096
_VERSION = b"\x01"


def deletion_vector(positions: npt.NDArray[np.int64], location: str, storage: Storage) -> dict[str, Any]:
    """What an `add` action says of the deleted rows of its file, which is in the table at a location. Durable on
    return."""
    rows = np.unique(positions)
    data = _serialized(rows)
    told = {"sizeInBytes": len(data), "cardinality": len(rows)}
    if len(data) <= _LONGEST_IN_LOG:
        return {"storageType": "i", "pathOrInlineDv": _coded(data), **told}
    name = uuid.uuid4()
    filesystem, folder = storage.at(location)
    with filesystem.open_output_stream(f"{folder}/deletion_vector_{name}.bin") as file:
        file.write(_VERSION + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    return {"storageType": "u", "pathOrInlineDv": _coded(name.bytes), "offset": len(_VERSION), **told}


def _serialized(rows: npt.NDArray[np.int64]) -> bytes:
    """Of rows in order, each once."""
    parts = [(int(high), rows[rows >> 32 == high] & 0xFFFFFFFF) for high in np.unique(rows >> 32)]
    bitmaps = b"".join(struct.pack("<i", high) + b"".join(_bitmap(low)) for high, low in parts)
    return struct.pack("<iq", _MAGIC, len(parts)) + bitmaps


def _bitmap(rows: npt.NDArray[np.int64]) -> Iterator[bytes]:
    keys, starts = np.unique(rows >> 16, return_index=True)
    containers = [each.astype("<u2") for each in np.split(rows & 0xFFFF, starts[1:])]
    packed = [_packed(each) for each in containers]
    yield struct.pack("<II", _NO_RUNS, len(containers))
    yield b"".join(struct.pack("<HH", key, len(each) - 1) for key, each in zip(keys, containers, strict=True))
    first = 8 + 8 * len(containers)
    offsets = first + np.cumsum([0, *(len(each) for each in packed[:-1])])
    yield offsets.astype("<u4").tobytes()
    yield from packed


def _packed(container: npt.NDArray[np.uint16]) -> bytes:
    if len(container) <= _LARGEST_ARRAY:
        return container.tobytes()
    bits = np.zeros(1 << 16, dtype=np.uint8)
    bits[container] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _coded(data: bytes) -> str:
    """As text, of which each four bytes make five letters."""
    return to_z85(base64.b85encode(data + bytes(-len(data) % 4)).decode())
