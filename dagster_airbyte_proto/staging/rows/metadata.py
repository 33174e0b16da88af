"""The columns that are ours: a name for the row, when it was emitted, what did not fit. Never a Python object a row."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import CHANGES, INSTANT
from dagster_airbyte_proto.staging.rows.changes import Changes, Slots
from dagster_airbyte_proto.staging.rows.times import timestamps

_INT64 = pa.int64()
_UUID_LENGTH = 36
_COUNTED = np.dtype([("head", "S24"), ("high", "S4"), ("middle", "S4"), ("low", "S4")])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_FOUR_DIGITS = _DIGITS[np.arange(1 << 16)[:, np.newaxis] >> np.array([12, 8, 4, 0]) & 15].view("S4").ravel()
_EARLIEST_MILLISECONDS = -62_135_596_800_000  # 0001-01-01
_LATEST_MILLISECONDS = 253_402_300_800_000  # 10000-01-01
_SLOTS = Slots(("emitted_at",))


class Moments(NamedTuple):
    """When a sync began, the first row of a segment came, and the segment is read: in microseconds since 1970."""

    began: int
    since: int
    now: int


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


def extracted_at(emitted_at: pa.Array, now_microseconds: int, changes: Changes) -> pa.Array:
    """When each row was emitted, as the wire has it. One that says nonsense, or does not say it in milliseconds, gets
    `now` and an entry in `changes`. One that does not say it in a text, which need not be there, gets `now`."""
    if pa.types.is_string(emitted_at.type):
        return _from_text(emitted_at, now_microseconds, changes)
    return _from_milliseconds(emitted_at, now_microseconds, changes)


def _from_text(text: pa.Array, now_microseconds: int, changes: Changes) -> pa.Array:
    if text.null_count == len(text):
        return pa.repeat(pa.scalar(now_microseconds, INSTANT), len(text))
    found = timestamps(text).values
    if found.null_count:
        if found.null_count > text.null_count:
            misfits = pc.and_(found.is_null(), text.is_valid())
            changes.nulled(_SLOTS, np.flatnonzero(misfits.to_numpy(zero_copy_only=False)))
        found = pc.fill_null(found, pa.scalar(now_microseconds, INSTANT))
    return found


def _from_milliseconds(milliseconds: pa.Array, now_microseconds: int, changes: Changes) -> pa.Array:
    if milliseconds.null_count:
        milliseconds = pc.fill_null(milliseconds, np.nan)
    values = milliseconds.to_numpy()
    fits = (values >= _EARLIEST_MILLISECONDS) & (values < _LATEST_MILLISECONDS)
    if not fits.all():
        changes.nulled(_SLOTS, np.flatnonzero(~fits))
        values = np.where(fits, values, now_microseconds / 1000)
    microseconds = np.rint(values * 1000).astype(np.int64)
    return _of_integers(microseconds, INSTANT)


def meta(sync_id: int, rows: int, source: pa.Array | None, changes: Changes) -> pa.Array:
    """The column `_airbyte_meta`: the source's own changes first, then ours."""
    lists = changes.lists(rows)
    if source is not None and source.null_count < rows:
        both = zip(source.to_pylist(), lists.to_pylist(), strict=True)
        lists = pa.array([[*(theirs or ()), *ours] for theirs, ours in both], CHANGES)
    return pa.StructArray.from_arrays([pa.repeat(pa.scalar(sync_id, pa.int64()), rows), lists], ["sync_id", "changes"])


def sdc_arrays(names: Iterable[str], extracted: pa.Array, version: pa.Array | None, moments: Moments) -> list[pa.Array]:
    """Those of the columns SDC that have these names. A row is said to have come when, of the rows of its segment, it
    would have if they came evenly: in their order, and none before its segment's first or after it was read."""
    rows = len(extracted)
    began, since, now = moments
    came = since + np.arange(rows, dtype=np.int64) * max(now - since, 0) // max(rows, 1)
    found = {
        "_sdc_extracted_at": extracted,
        "_sdc_received_at": _of_integers(came, INSTANT),
        "_sdc_batched_at": pa.repeat(pa.scalar(since, INSTANT), rows),
        "_sdc_sequence": _of_integers(came // 1000, _INT64),
        "_sdc_table_version": pa.nulls(rows, _INT64) if version is None else version,
        "_sdc_sync_started_at": pa.repeat(pa.scalar(began // 1000, _INT64), rows),
    }
    return [found[name] for name in names]


def _of_integers(values: "np.ndarray[tuple[int], np.dtype[np.int64]]", kind: pa.DataType) -> pa.Array:
    # Not `pa.array`: the first time it is given numpy's, it imports numpy.ma, which takes longer than a segment.
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
