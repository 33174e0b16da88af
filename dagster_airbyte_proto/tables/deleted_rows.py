"""Which rows of a load's own files do not count: as staging says it, and in the form that tables keep.

The bits are a roaring bitmap in its portable form, within a frame for numbers of 64 bits. It is the same in Delta's
deletion vectors and in Iceberg's.
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
_MAGIC = 1681511377
_NO_RUNS = 12346
_LARGEST_ARRAY = 4096


def deleted_rows(files: Iterable[StagedFile], storage: Storage) -> dict[str, Positions]:
    """By the paths of the files that the rows are in, in order, each once: what files of position deletes say."""
    tables = [_position_deletes(file, storage) for file in files if file.content is FileContent.POSITION_DELETES]
    if not tables:
        return {}
    grouped = pa.concat_tables(tables).group_by("file_path").aggregate([("pos", "list")])
    rows = zip(grouped["file_path"].to_pylist(), grouped["pos_list"], strict=True)
    return {path: np.unique(np.asarray(each.values.to_numpy(), dtype=np.int64)) for path, each in rows}


def bitmap(rows: Positions) -> bytes:
    """Of rows in order, each once."""
    parts = [(int(high), rows[rows >> 32 == high] & 0xFFFFFFFF) for high in np.unique(rows >> 32)]
    bitmaps = b"".join(struct.pack("<i", high) + b"".join(_bitmap(low)) for high, low in parts)
    return struct.pack("<iq", _MAGIC, len(parts)) + bitmaps


def framed(data: bytes) -> bytes:
    """A bitmap as it stands in a file."""
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
