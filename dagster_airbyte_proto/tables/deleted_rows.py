"""Converts position deletes, as staging writes them, to the bitmaps of deletion vectors.

Both Iceberg (format 3) and Delta store a deletion vector as the same 64-bit roaring bitmap: for each value of the upper
32 bits, a 32-bit roaring bitmap in its portable serialization.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.loads.storage import Storage

Positions = npt.NDArray[np.int64]
# The magic number of a deletion vector, in the specs of Iceberg (Puffin's `deletion-vector-v1`) and of Delta.
_MAGIC = 1681511377
# The cookie of a portable roaring bitmap without run containers.
_NO_RUNS = 12346
# With more values than this a container is a bitmap of 8 KiB instead of a sorted array of 16-bit numbers.
_LARGEST_ARRAY = 4096


def deleted_rows(files: Iterable[StagedFile], storage: Storage) -> dict[str, Positions]:
    """Returns the rows that files of position deletes remove: sorted positions without duplicates, by data file."""
    tables = [_position_deletes(file, storage) for file in files if file.content is FileContent.POSITION_DELETES]
    if not tables:
        return {}
    grouped = pa.concat_tables(tables).group_by("file_path").aggregate([("pos", "list")])
    rows = zip(grouped["file_path"].to_pylist(), grouped["pos_list"], strict=True)
    return {path: np.unique(np.asarray(each.values.to_numpy(), dtype=np.int64)) for path, each in rows}


def roaring_bitmap(rows: Positions) -> bytes:
    """Returns the bitmap of row positions, which are sorted and without duplicates."""
    parts = [(int(high), rows[rows >> 32 == high] & 0xFFFFFFFF) for high in np.unique(rows >> 32)]
    bitmaps = b"".join(struct.pack("<i", high) + b"".join(_bitmap(low)) for high, low in parts)
    return struct.pack("<iq", _MAGIC, len(parts)) + bitmaps


def framed(data: bytes) -> bytes:
    """Returns a bitmap with the length before it and the checksum after it, as both formats store it in a file."""
    return struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def _position_deletes(file: StagedFile, storage: Storage) -> pa.Table:
    filesystem, path = storage.at(file.path)
    return pq.read_table(path, filesystem=filesystem, columns=["file_path", "pos"], partitioning=None)


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
