"""Deletion vectors are read as they were written, by this package and by others."""

import struct
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.tables.deleted_rows import deleted_rows, framed, roaring_bitmap, vector_rows

_ROWS = st.one_of(
    st.sets(st.integers(0, 1 << 36), max_size=60),
    st.tuples(st.integers(0, 1 << 34), st.integers(1, 9000)).map(lambda each: set(range(each[0], each[0] + each[1]))),
)


@given(_ROWS)
def test_what_was_written_is_read(rows: Collection[int]) -> None:
    expected = np.array(sorted(rows), dtype=np.int64)
    assert np.array_equal(vector_rows(framed(roaring_bitmap(expected))), expected)


def _with_runs(runs_by_key: dict[int, list[tuple[int, int]]]) -> bytes:
    """A bitmap as other programs pack it: containers of runs (first value, length)."""
    count = len(runs_by_key)
    data = struct.pack("<iqi", 1681511377, 1, 0) + struct.pack("<I", 12347 | (count - 1) << 16)
    data += bytes([(1 << min(8, count - at)) - 1 for at in range(0, count, 8)])
    for key, runs in runs_by_key.items():
        data += struct.pack("<HH", key, sum(length for _, length in runs) - 1)
    data += bytes(4 * count) if count >= 4 else b""
    for runs in runs_by_key.values():
        data += struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", first, size - 1) for first, size in runs)
    return framed(data)


@pytest.mark.parametrize("keys", [1, 3, 4, 9])
def test_runs_of_other_programs_are_read(keys: int) -> None:
    found = vector_rows(_with_runs({key: [(0, 5), (100, 1)] for key in range(keys)}))
    assert found.tolist() == [(key << 16) + low for key in range(keys) for low in (0, 1, 2, 3, 4, 100)]


def test_other_bytes_are_refused() -> None:
    data = framed(roaring_bitmap(np.array([1, 5], dtype=np.int64)))
    for wrong in (data[:-1], data[:9] + b"\xff" + data[10:], framed(bytes(20)), b""):
        with pytest.raises(ValueError, match="vector"):
            vector_rows(wrong)


def test_a_staged_file_that_was_cut_off_is_an_error_of_its_table(tmp_path: Path) -> None:
    path = tmp_path / "positions.parquet"
    pq.write_table(pa.table({"file_path": ["/f"], "pos": [0]}), path)
    file = StagedFile(str(path), FileContent.POSITION_DELETES, 1, path.stat().st_size)
    assert deleted_rows([file], LOCAL)["/f"].tolist() == [0]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TableError, match=path.name):
        deleted_rows([file], LOCAL)
