"""Computes the partition of each row of a batch by Iceberg's partition transforms, whole columns at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import IDENTITY, PartitionField, PartitionValue
from dagster_airbyte_proto.staging.files.murmur import murmur3_hashes

_MICROSECONDS = 1_000_000
_HOUR = 3600 * _MICROSECONDS
_DAY = 24 * _HOUR
_MAX_INT32 = 0x7FFFFFFF

_Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


def split_by_partition(
    batch: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[PartitionValue, ...], _Rows]]:
    """Yields each partition with the numbers of its rows, in order of arrival.

    A column that the batch lacks counts as null: the schema policy has left it out, for the table does not take it.
    """
    there = set(batch.schema.names)
    columns = [
        partition_values(field, batch.column(field.column))
        if field.column in there
        else pa.nulls(batch.num_rows, pa.int32())
        for field in fields
    ]
    codes = np.zeros(batch.num_rows, np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy().astype(np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)[1].reshape(-1)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for rows in np.split(order, starts[1:]) if batch.num_rows else ():
        yield tuple(column[int(rows[0])].as_py() for column in columns), rows


def partition_values(field: PartitionField, column: pa.Array) -> pa.Array:
    """Returns the value of a partition field for each row; null for a null. Dates and times count from 1970."""
    return _TRANSFORMS[field.transform](column, field.width)


def _identity(column: pa.Array, _width: int) -> pa.Array:
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _whole_units(column: pa.Array, _width: int, *, unit: int) -> pa.Array:
    """Counts whole units of time, rounded towards the past."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return _int32_array(column, np.floor_divide(_as_int64(column), unit))


def _calendar(column: pa.Array, _width: int, *, unit: str) -> pa.Array:
    days = _as_int64(column) if pa.types.is_date32(column.type) else np.floor_divide(_as_int64(column), _DAY)
    return _int32_array(column, days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64))


def _bucket(column: pa.Array, width: int) -> pa.Array:
    return _int32_array(column, (murmur3_hashes(column) & _MAX_INT32) % width)


def _truncate(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    numbers = _as_int64(column)
    return pa.array(numbers - np.mod(numbers, width), column.type, mask=_null_mask(column))


def _as_int64(column: pa.Array) -> _Rows:
    whole = (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).cast(pa.int64())
    return np.frombuffer(whole.buffers()[1] or b"", np.int64, len(whole), 8 * whole.offset)


def _int32_array(column: pa.Array, numbers: "np.ndarray[tuple[int], np.dtype[np.signedinteger]]") -> pa.Array:
    return pa.array(numbers.astype(np.int32), pa.int32(), mask=_null_mask(column))


def _null_mask(column: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]] | None":
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


_TRANSFORMS: Mapping[str, Callable[[pa.Array, int], pa.Array]] = {
    IDENTITY: _identity,
    "year": partial(_calendar, unit="Y"),
    "month": partial(_calendar, unit="M"),
    "day": partial(_whole_units, unit=_DAY),
    "hour": partial(_whole_units, unit=_HOUR),
    "bucket": _bucket,
    "truncate": _truncate,
}
