"""Searches columns of keys for a set of keys, column by column, without an object for a key.

Each key gets a number. It is that of its first column's value among the distinct values there; then, for each further
column, that of the pair of the number so far and the value. A row whose number is none of the keys' drops out, so a
further column is looked at only in the rows that are left.

Values are equal as Iceberg's equality deletes have them: null equals null, and NaN equals NaN. But 0.0 equals -0.0 too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.tables.deleted_rows import Positions


class _Step(NamedTuple):
    """The distinct values of one key column, and the distinct pairs of a number so far with one of them: None for the
    first column, where the number is that of the value."""

    values: pa.Array
    pairs: pa.Array | None


class KeySearch:
    """A set of keys to search for. Threads may share it."""

    def __init__(self, keys: pa.Table) -> None:
        self._steps: list[_Step] = []
        self._types = [field.type for field in keys.schema]
        numbers: pa.Array | None = None
        for column in keys.columns:
            joined = _joined(column)
            values = pc.unique(joined)
            found = pc.index_in(joined, value_set=values)
            if numbers is None:
                self._steps.append(_Step(values, None))
                numbers = found
                continue
            combined = _paired(numbers, found, len(values))
            pairs = pc.unique(combined)
            self._steps.append(_Step(values, pairs))
            numbers = pc.index_in(combined, value_set=pairs)

    def rows(self, columns: Sequence[pa.ChunkedArray | None], count: int) -> Positions:
        """Returns the sorted numbers of the rows, `count` in all, that have one of the keys.

        The columns are in the order of the keys; None stands for a column that is null in every row. Raises
        pyarrow.ArrowInvalid or ArrowNotImplementedError for a column whose values do not fit the type of the keys.
        """
        rows = np.arange(count, dtype=np.int64)
        numbers: pa.Array | None = None
        for place, (step, kind, column) in enumerate(zip(self._steps, self._types, columns, strict=True), 1):
            values = pa.nulls(count, kind) if column is None else _joined(column).cast(kind)
            if len(rows) < count:
                values = values.take(pa.array(rows))
            known = step.values
            if numbers is not None and step.pairs is not None:
                found = pc.index_in(values, value_set=step.values)
                values, known = _paired(numbers, found, len(step.values)), step.pairs
            if place == len(self._steps):
                # Half the time of a lookup of numbers that nobody needs.
                return rows[_flags(pc.is_in(values, value_set=known))]
            found = pc.index_in(values, value_set=known)
            hits = found.is_valid()
            rows = rows[_flags(hits)]
            numbers = found.filter(hits)
        return rows


def _flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _paired(numbers: pa.Array, found: pa.Array, width: int) -> pa.Array:
    """Returns a number for each pair. It fits 64 bits, as neither part has more values than there are keys."""
    return pc.add(pc.multiply(numbers.cast(pa.int64()), width), found.cast(pa.int64()))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """Returns the values in one array, plain ones where they are encoded as a dictionary, and 0.0 for -0.0."""
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = pa.concat_arrays(joined.chunks) if joined.num_chunks else pa.array([], column.type)
    plain = joined.dictionary_decode() if isinstance(joined, pa.DictionaryArray) else joined
    return pc.add(plain, pa.scalar(0.0, plain.type)) if pa.types.is_floating(plain.type) else plain
