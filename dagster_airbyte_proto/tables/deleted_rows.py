"""Converts position deletes, as staging writes them, to the bitmaps of deletion vectors, and reads such bitmaps.

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

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.loads.storage import Storage

Positions = npt.NDArray[np.int64]
# The magic number of a deletion vector, in the specs of Iceberg (Puffin's `deletion-vector-v1`) and of Delta.
_MAGIC = 1681511377
# The cookies of a portable roaring bitmap without run containers, and of one that may have them.
_NO_RUNS = 12346
_RUNS = 12347
# A bitmap with run containers has the offsets of its containers only if it has so many.
_FEWEST_OFFSETS = 4
# With more values than this a container is a bitmap of 8 KiB instead of a sorted array of 16-bit numbers.
_LARGEST_ARRAY = 4096
_BITMAP_BYTES = 1 << 13


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


def vector_rows(data: bytes) -> Positions:
    """Returns the rows of a vector as `framed` has it: sorted, without duplicates.

    Raises ValueError for anything else. Other programs may have written it, with run containers too.
    """
    length, checksum = int.from_bytes(data[:4], "big"), int.from_bytes(data[-4:], "big")
    if length + 8 != len(data) or zlib.crc32(data[4:-4]) != checksum:
        raise ValueError("the length or the checksum of the deletion vector is wrong")
    magic, parts = struct.unpack_from("<iq", data, 4)
    if magic != _MAGIC:
        raise ValueError("the deletion vector has another encoding")
    at, found = 16, []
    for _ in range(parts):
        (high,) = struct.unpack_from("<i", data, at)
        rows, at = _rows_of_bitmap(data, at + 4)
        found += [(high << 32) + each for each in rows]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _rows_of_bitmap(data: bytes, at: int) -> tuple[list[Positions], int]:
    """Returns the rows of each container of the bitmap that begins at `at`, and where the bitmap ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == _RUNS:
        count, at = (cookie >> 16) + 1, at + 4
        flags = np.frombuffer(data, np.uint8, (count + 7) // 8, at)
        has_runs = np.unpackbits(flags, bitorder="little")[:count].tolist()
        at += len(flags)
        has_offsets = count >= _FEWEST_OFFSETS
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", data, at + 4)
        has_runs, has_offsets, at = [0] * count, True, at + 8
    else:
        raise ValueError("the deletion vector is not a roaring bitmap")
    heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2).tolist()
    at += 4 * count * (2 if has_offsets else 1)
    found = []
    for (key, last), is_run in zip(heads, has_runs, strict=True):
        rows, at = _rows_of_runs(data, at) if is_run else _rows_of_container(data, at, last + 1)
        found.append((key << 16) + rows)
    return found, at


def _rows_of_runs(data: bytes, at: int) -> tuple[Positions, int]:
    (count,) = struct.unpack_from("<H", data, at)
    runs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(-1, 2).astype(np.int64)
    return np.concatenate([np.arange(first, first + more + 1) for first, more in runs]), at + 2 + 4 * count


def _rows_of_container(data: bytes, at: int, count: int) -> tuple[Positions, int]:
    if count <= _LARGEST_ARRAY:
        return np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    bits = np.frombuffer(data, np.uint8, _BITMAP_BYTES, at)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")), at + _BITMAP_BYTES


def _position_deletes(file: StagedFile, storage: Storage) -> pa.Table:
    filesystem, path = storage.at(file.path)
    try:
        return pq.read_table(path, filesystem=filesystem, columns=["file_path", "pos"], partitioning=None)
    except pa.ArrowInvalid as error:
        raise TableError("committing a load", f"{file.path}: {str(error).partition(chr(10))[0]}") from error


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
