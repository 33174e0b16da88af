"""What did not fit: entries of `_airbyte_meta.changes`, kept for the few rows that have any.

An entry stands for many rows at once, so that a source whose every timestamp has nanoseconds costs no object a row.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.schema.columns import CHANGES

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"
TYPECAST_ERROR = "DESTINATION_TYPECAST_ERROR"
SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"

_Positions = Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]]


class Misfit(ValueError):
    """A value that its column cannot hold. `reason` is a word of the protocol's."""

    def __init__(self, reason: str = TYPECAST_ERROR) -> None:
        self.reason = reason
        super().__init__(reason)


class Slots:
    """The places of an array's values: a column's rows, the elements of its lists, a member of its objects.

    Columns are taken apart whole; only of a value that does not fit is it asked which row and path it is of.
    """

    def __init__(
        self,
        path: FieldPath,
        outer: "Slots | None" = None,
        offsets: "np.ndarray[tuple[int], np.dtype[np.int32]] | None" = None,
    ) -> None:
        self._path = path
        self._outer = outer
        self._offsets = offsets

    @property
    def field(self) -> str | None:
        """The path of all of them where they are one a row; None where each has its own."""
        if self._offsets is not None:
            return None
        if self._outer is None:
            return ".".join(self._path)
        outer = self._outer.field
        return None if outer is None else ".".join([outer, *self._path])

    def member(self, name: str) -> "Slots":
        return Slots((name,), self)

    def elements(self, offsets: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> "Slots":
        """Those of the lists that stand in these slots, from offset to offset."""
        return Slots((), self, offsets)

    def place(self, position: int) -> tuple[int, FieldPath]:
        """The row, and the path within the record."""
        if self._outer is None:
            return position, self._path
        if self._offsets is None:
            row, path = self._outer.place(position)
            return row, path + self._path
        owner = int(np.searchsorted(self._offsets, position, side="right")) - 1
        row, path = self._outer.place(owner)
        return row, (*path, str(position - int(self._offsets[owner])))


class _Entry(NamedTuple):
    field: str
    change: str
    reason: str


class Changes:
    """The values of one batch that were nulled or cut, by row."""

    def __init__(self) -> None:
        self._rows: list[_Positions] = []
        self._numbers: list[int] = []
        self._entries: dict[_Entry, int] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def nulled(self, slots: Slots, positions: _Positions, reason: str = TYPECAST_ERROR) -> None:
        """The values there are no more."""
        self._note(slots, positions, NULLED, reason)

    def truncated(self, slots: Slots, positions: _Positions) -> None:
        """The values keep what their column holds of them."""
        self._note(slots, positions, TRUNCATED, SIZE_LIMITATION)

    def nulled_each(self, slots: Slots, misfits: Iterable[tuple[int, str]]) -> None:
        """Positions with their reasons."""
        by_reason: dict[str, list[int]] = {}
        for position, reason in misfits:
            by_reason.setdefault(reason, []).append(position)
        for reason, positions in by_reason.items():
            self.nulled(slots, positions, reason)

    def rows_nulled(self, field: str) -> Sequence[int]:
        """The rows in which a field had a value that is not there any more."""
        wanted = {number for entry, number in self._entries.items() if (entry.field, entry.change) == (field, NULLED)}
        noted = zip(self._rows, self._numbers, strict=True)
        return [int(row) for rows, number in noted if number in wanted for row in rows]

    def lists(self, rows: int) -> pa.Array:
        """For each of so many rows the list of its entries, in the order they were noted."""
        if not self._entries:
            return _lists(bytes(4 * (rows + 1)), pa.nulls(0, CHANGES.value_type))
        noted = np.concatenate([np.asarray(some, dtype=np.int64) for some in self._rows])
        entries = np.repeat(np.asarray(self._numbers), [len(some) for some in self._rows])
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(noted, minlength=rows), out=offsets[1:])
        which = pa.array(entries[np.argsort(noted, kind="stable")])
        return _lists(offsets, pa.array([entry._asdict() for entry in self._entries], CHANGES.value_type).take(which))

    def _note(self, slots: Slots, positions: _Positions, change: str, reason: str) -> None:
        if not len(positions):
            return
        field = slots.field
        if field is not None:
            self._add(positions, _Entry(field, change, reason))
            return
        for position in positions:
            row, path = slots.place(int(position))
            self._add((row,), _Entry(".".join(path), change, reason))

    def _add(self, rows: _Positions, entry: _Entry) -> None:
        self._rows.append(rows)
        self._numbers.append(self._entries.setdefault(entry, len(self._entries)))


def _lists(offsets: bytes | np.ndarray[tuple[int], np.dtype[np.int32]], values: pa.Array) -> pa.Array:
    buffer = pa.py_buffer(offsets)
    return pa.Array.from_buffers(CHANGES, buffer.size // 4 - 1, [None, buffer], children=[values])
