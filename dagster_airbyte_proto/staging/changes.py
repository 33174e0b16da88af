"""What did not fit: entries of `_airbyte_meta.changes`, kept for the few rows that have any.

An entry stands for many rows at once, so that a source whose every timestamp has nanoseconds costs no object a row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.schema.columns import CHANGES

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"
TYPECAST_ERROR = "DESTINATION_TYPECAST_ERROR"
SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"

_Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


class Misfit(ValueError):
    """A value that its column cannot hold. `reason` is a word of the protocol's."""

    def __init__(self, reason: str = TYPECAST_ERROR) -> None:
        self.reason = reason
        super().__init__(reason)


class _Entry(NamedTuple):
    field: str
    change: str
    reason: str


class Changes:
    """The values of one batch that were nulled or cut, by row."""

    def __init__(self) -> None:
        self._rows: list[Sequence[int] | _Rows] = []
        self._entries: list[_Entry] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def nulled(self, row: int, field: str, reason: str = TYPECAST_ERROR) -> None:
        self._rows.append((row,))
        self._entries.append(_Entry(field, NULLED, reason))

    def truncated(self, rows: _Rows, field: str) -> None:
        """The values keep what their column holds of them."""
        self._rows.append(rows)
        self._entries.append(_Entry(field, TRUNCATED, SIZE_LIMITATION))

    def rows_nulled(self, field: str) -> Sequence[int]:
        """The rows in which a field had a value that is not there any more."""
        noted = zip(self._rows, self._entries, strict=True)
        return [int(row) for rows, entry in noted if (entry.field, entry.change) == (field, NULLED) for row in rows]

    def lists(self, rows: int) -> pa.Array:
        """For each of so many rows the list of its entries, in the order they were noted."""
        if not self._entries:
            return _lists(bytes(4 * (rows + 1)), pa.nulls(0, CHANGES.value_type))
        noted = np.concatenate([np.asarray(some, dtype=np.int64) for some in self._rows])
        entries = np.repeat(np.arange(len(self._entries)), [len(some) for some in self._rows])
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(noted, minlength=rows), out=offsets[1:])
        which = pa.array(entries[np.argsort(noted, kind="stable")])
        return _lists(offsets, pa.array([entry._asdict() for entry in self._entries], CHANGES.value_type).take(which))


def _lists(offsets: bytes | np.ndarray[tuple[int], np.dtype[np.int32]], values: pa.Array) -> pa.Array:
    buffer = pa.py_buffer(offsets)
    return pa.Array.from_buffers(CHANGES, buffer.size // 4 - 1, [None, buffer], children=[values])
