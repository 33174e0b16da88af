"""Deletion vectors by the letter of Delta's protocol, as another implementation of the bitmaps reads them."""

import struct
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from pyroaring import BitMap

from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.tables.delta.files.deletion_vectors import deletion_vector
from dagster_airbyte_proto.tables.delta.history import DeletionVector


def read(data: bytes) -> list[int]:
    magic, count = struct.unpack("<iq", data[:12])
    assert (magic, count) == (1681511377, 1)
    assert data[12:16] == bytes(4)
    return list(BitMap.deserialize(data[16:]))


@pytest.mark.parametrize(
    "rows",
    [[0], [65535, 65536, 1 << 31], range(0, 200_000, 2), [*range(5000), 70_000, *range(140_000, 145_000)]],
    ids=["one", "several parts", "dense", "dense and not"],
)
def test_what_is_written_is_what_is_deleted(tmp_path: Path, rows: "list[int] | range") -> None:
    folder = tmp_path / "ta ble"
    folder.mkdir()
    told = deletion_vector(np.array(rows, dtype=np.int64), str(folder), LOCAL)
    vector = msgspec.convert(told, DeletionVector)
    assert vector.cardinality == len(rows)
    if vector.path is None:
        data = _decoded(vector.path_or_inline)[: told["sizeInBytes"]]
    else:
        content = (folder / vector.path).read_bytes()
        size = struct.unpack(">i", content[told["offset"] :][:4])[0]
        data = content[told["offset"] + 4 :][:size]
        assert (content[:1], size, content[-4:]) == (b"\x01", told["sizeInBytes"], struct.pack(">I", zlib.crc32(data)))
    assert read(data) == list(rows)
    assert (vector.path is None) == (len(rows) < 5000)


def _decoded(text: str) -> bytes:
    """By the letters of ZeroMQ's specification."""
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    numbers = [letters.index(letter) for letter in text]
    fives = [numbers[at : at + 5] for at in range(0, len(numbers), 5)]
    return b"".join(sum(n * 85 ** (4 - at) for at, n in enumerate(five)).to_bytes(4, "big") for five in fives)
