"""Which partition each row of a batch is of, by Iceberg's own rules, for whole columns at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import PartitionField, PartitionValue
from dagster_airbyte_proto.schema.partitioning import IDENTITY
from dagster_airbyte_proto.staging.files.murmur import hashes

_MICROSECONDS = 1_000_000
_HOUR = 3600 * _MICROSECONDS
_DAY = 24 * _HOUR
_LARGEST = 0x7FFFFFFF

_Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


def parted(
    batch: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[PartitionValue, ...], _Rows]]:
    """Each partition that the batch has rows of, and which rows, in their order. A column that the batch lacks, as the
    table does not take what came, is null."""
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
    """The value of one field for each row; null for a null. Dates and times are counted from 1970."""
    return _TRANSFORMS[field.transform](column, field.width)


def _identity(column: pa.Array, _width: int) -> pa.Array:
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _counted(column: pa.Array, _width: int, *, unit: int) -> pa.Array:
    """Whole units of time, towards the past."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return _ints(column, np.floor_divide(_numbers(column), unit))


def _calendar(column: pa.Array, _width: int, *, unit: str) -> pa.Array:
    days = _numbers(column) if pa.types.is_date32(column.type) else np.floor_divide(_numbers(column), _DAY)
    return _ints(column, days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64))


def _bucket(column: pa.Array, width: int) -> pa.Array:
    return _ints(column, (hashes(column) & _LARGEST) % width)


def _truncate(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    numbers = _numbers(column)
    return pa.array(numbers - np.mod(numbers, width), column.type, mask=_nulls(column))


def _numbers(column: pa.Array) -> _Rows:
    whole = (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).cast(pa.int64())
    return np.frombuffer(whole.buffers()[1] or b"", np.int64, len(whole), 8 * whole.offset)


def _ints(column: pa.Array, numbers: "np.ndarray[tuple[int], np.dtype[np.signedinteger]]") -> pa.Array:
    return pa.array(numbers.astype(np.int32), pa.int32(), mask=_nulls(column))


def _nulls(column: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]] | None":
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


_TRANSFORMS: Mapping[str, Callable[[pa.Array, int], pa.Array]] = {
    IDENTITY: _identity,
    "year": partial(_calendar, unit="Y"),
    "month": partial(_calendar, unit="M"),
    "day": partial(_counted, unit=_DAY),
    "hour": partial(_counted, unit=_HOUR),
    "bucket": _bucket,
    "truncate": _truncate,
}
