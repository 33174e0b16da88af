"""The columns that are ours: a name for the row, when it was emitted, what did not fit. Never a Python object a row."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import CHANGES, INSTANT
from dagster_airbyte_proto.staging.changes import Changes

_UUID_LENGTH = 36
_COUNTED = np.dtype([("head", "S24"), ("high", "S4"), ("middle", "S4"), ("low", "S4")])
_FOUR_DIGITS = np.array([b"%04x" % number for number in range(1 << 16)], dtype="S4")
_EARLIEST_MILLISECONDS = -62_135_596_800_000  # 0001-01-01
_LATEST_MILLISECONDS = 253_402_300_800_000  # 10000-01-01


class RowNames:
    """UUIDs of version 8: 72 random bits that all rows of one run and stream share, and a counter of the rows."""

    def __init__(self, seed: bytes) -> None:
        digits = seed.hex()
        self._head = f"{digits[:8]}-{digits[8:12]}-8{digits[12:15]}-8{digits[15:18]}-".encode()
        self._next = 0

    def take(self, rows: int) -> pa.Array:
        counters = np.arange(self._next, self._next + rows, dtype=np.int64)
        self._next += rows
        names = np.empty(rows, dtype=_COUNTED)
        names["head"] = self._head
        names["high"] = _FOUR_DIGITS[counters >> 32]
        names["middle"] = _FOUR_DIGITS[(counters >> 16) & 0xFFFF]
        names["low"] = _FOUR_DIGITS[counters & 0xFFFF]
        offsets = np.arange(0, (rows + 1) * _UUID_LENGTH, _UUID_LENGTH, dtype=np.int32)
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(names))


def extracted_at(milliseconds: pa.Array, now_microseconds: int, changes: Changes) -> pa.Array:
    """When each row was emitted. One that does not say, or says nonsense, gets `now` and an entry in `changes`."""
    values = pc.fill_null(milliseconds, np.nan).to_numpy(zero_copy_only=False)
    fits = (values >= _EARLIEST_MILLISECONDS) & (values < _LATEST_MILLISECONDS)
    if not fits.all():
        for row in np.flatnonzero(~fits):
            changes.nulled(int(row), "emitted_at")
        values = np.where(fits, values, now_microseconds / 1000)
    return pa.array(np.rint(values * 1000).astype(np.int64)).view(INSTANT)


def meta(sync_id: int, rows: int, source: pa.Array | None, changes: Changes) -> pa.Array:
    """The column `_airbyte_meta`: the source's own changes first, then ours."""
    if (source is None or source.null_count == rows) and not changes.by_row:
        lists = pa.ListArray.from_arrays(np.zeros(rows + 1, dtype=np.int32), pa.nulls(0, CHANGES.value_type))
    else:
        theirs = [None] * rows if source is None else source.to_pylist()
        entries = [[*(given or ()), *changes.by_row.get(row, ())] for row, given in enumerate(theirs)]
        lists = pa.array(entries, CHANGES)
    return pa.StructArray.from_arrays([pa.repeat(pa.scalar(sync_id, pa.int64()), rows), lists], ["sync_id", "changes"])
