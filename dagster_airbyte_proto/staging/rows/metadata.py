"""Builds the metadata columns: the row's id, its time of emission, its changes. No Python object is made per row."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import CHANGES, INSTANT
from dagster_airbyte_proto.staging.values.changes import Changes, ValueLocations
from dagster_airbyte_proto.staging.values.times import timestamps

_INT64 = pa.int64()
_UUID_LENGTH = 36
_COUNTED = np.dtype([("head", "S24"), ("high", "S4"), ("middle", "S4"), ("low", "S4")])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_FOUR_DIGITS = _DIGITS[np.arange(1 << 16)[:, np.newaxis] >> np.array([12, 8, 4, 0]) & 15].view("S4").ravel()
_EARLIEST_MILLISECONDS = -62_135_596_800_000  # 0001-01-01
_LATEST_MILLISECONDS = 253_402_300_800_000  # 10000-01-01
# A stream may well have a field of its own with the name of the time, in the envelope or in the table.
_TIME_LOCATION = ValueLocations(())


class RowOrigin(NamedTuple):
    """The origin of a stream's rows, for their metadata: the sync, and its start in microseconds since 1970.

    `seed` (9 random bytes) makes the ids of the rows unique.
    """

    sync_id: int
    seed: bytes
    began_at: int = 0


class SegmentTimes(NamedTuple):
    """The times at which the sync began, a segment's first row came, and the segment is read.

    In microseconds since 1970.
    """

    sync_began: int
    first_row_came: int
    read: int


class RawIdGenerator:
    """Makes the values of `_airbyte_raw_id`: UUIDs of version 8.

    72 random bits are the same for all rows of one run and stream; the rest counts the rows.
    """

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
    """Returns each row's time of emission from its wire value, or the time of reading where there is none to use.

    - A value that cannot be read gets the time of reading, and an entry in `changes`.
    - A missing value in milliseconds too: the protocol requires it. A missing text gets no entry: it is optional.
    """
    if pa.types.is_string(emitted_at.type):
        return _parse_text(emitted_at, now_microseconds, changes)
    return _convert_milliseconds(emitted_at, now_microseconds, changes)


def _parse_text(text: pa.Array, now_microseconds: int, changes: Changes) -> pa.Array:
    if text.null_count == len(text):
        return pa.repeat(pa.scalar(now_microseconds, INSTANT), len(text))
    found = timestamps(text).values
    if found.null_count:
        if found.null_count > text.null_count:
            misfits = pc.and_(found.is_null(), text.is_valid())
            changes.note_nulled(_TIME_LOCATION, np.flatnonzero(misfits.to_numpy(zero_copy_only=False)))
        found = pc.fill_null(found, pa.scalar(now_microseconds, INSTANT))
    return found


def _convert_milliseconds(milliseconds: pa.Array, now_microseconds: int, changes: Changes) -> pa.Array:
    if milliseconds.null_count:
        milliseconds = pc.fill_null(milliseconds, np.nan)
    values = milliseconds.to_numpy()
    fits = (values >= _EARLIEST_MILLISECONDS) & (values < _LATEST_MILLISECONDS)
    if not fits.all():
        changes.note_nulled(_TIME_LOCATION, np.flatnonzero(~fits))
        values = np.where(fits, values, now_microseconds / 1000)
    microseconds = np.rint(values * 1000).astype(np.int64)
    return _integer_array(microseconds, INSTANT)


def meta_column(sync_id: int, lists: pa.Array, source: pa.Array | None) -> pa.Array:
    """Builds the column `_airbyte_meta`: the source's own changes first, then ours."""
    rows = len(lists)
    if source is not None and source.null_count < rows:
        both = zip(source.to_pylist(), lists.to_pylist(), strict=True)
        lists = pa.array([[*(theirs or ()), *ours] for theirs, ours in both], CHANGES)
    return pa.StructArray.from_arrays([pa.repeat(pa.scalar(sync_id, pa.int64()), rows), lists], ["sync_id", "changes"])


def sdc_arrays(
    names: Iterable[str], extracted: pa.Array, version: pa.Array | None, times: SegmentTimes
) -> list[pa.Array]:
    """Builds the `_sdc_` columns of these names."""
    # A row's own time of arrival is not known. The rows of a segment are spread evenly between the arrival of its first
    # row and the time of reading: so times follow the order of rows, within a segment and over all.
    rows = len(extracted)
    began, since, now = times
    came = since + np.arange(rows, dtype=np.int64) * max(now - since, 0) // max(rows, 1)
    found = {
        "_sdc_extracted_at": extracted,
        "_sdc_received_at": _integer_array(came, INSTANT),
        "_sdc_batched_at": pa.repeat(pa.scalar(since, INSTANT), rows),
        "_sdc_sequence": _integer_array(came // 1000, _INT64),
        "_sdc_table_version": pa.nulls(rows, _INT64) if version is None else version,
        "_sdc_sync_started_at": pa.repeat(pa.scalar(began // 1000, _INT64), rows),
    }
    return [found[name] for name in names]


def _integer_array(values: "np.ndarray[tuple[int], np.dtype[np.int64]]", kind: pa.DataType) -> pa.Array:
    # Not `pa.array`: with its first numpy array it imports numpy.ma, which takes longer than a segment.
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
