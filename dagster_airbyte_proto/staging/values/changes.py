"""Collects the entries of `_airbyte_meta.changes`: values that did not fit their column.

One entry is noted for many rows at once: a source that sends nanoseconds in every timestamp must not cost a Python
object per row.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.schema.columns import CHANGES, EXTRACTED_AT, Column, ValueKind

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"
TYPECAST_ERROR = "DESTINATION_TYPECAST_ERROR"
SERIALIZATION_ERROR = "DESTINATION_SERIALIZATION_ERROR"
SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"
# A source has reasons of its own for what it nulled.
_OUR_REASONS = (TYPECAST_ERROR, SERIALIZATION_ERROR, SIZE_LIMITATION)
_OF_TEXT = (TYPECAST_ERROR, SIZE_LIMITATION)

_Positions = Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]]


class ValueDoesNotFit(ValueError):
    """Raised for a value that its column cannot hold. `reason` is one of the Airbyte protocol's reasons."""

    def __init__(self, reason: str = TYPECAST_ERROR) -> None:
        self.reason = reason
        super().__init__(reason)


class ValueLocations:
    """Maps positions in an array to rows and paths in the record.

    The array is a column, the elements of its lists, or a member of its objects. Columns are split as a whole, and the
    row and path are computed only for values that do not fit.
    """

    def __init__(
        self,
        path: FieldPath,
        outer: "ValueLocations | None" = None,
        offsets: "np.ndarray[tuple[int], np.dtype[np.int32]] | None" = None,
    ) -> None:
        self._path = path
        self._outer = outer
        self._offsets = offsets

    @property
    def path(self) -> FieldPath | None:
        """The path of all values, if each row has one; None if each value has its own path."""
        if self._offsets is not None:
            return None
        if self._outer is None:
            return self._path
        outer = self._outer.path
        return None if outer is None else outer + self._path

    def member(self, name: str) -> "ValueLocations":
        return ValueLocations((name,), self)

    def elements(self, offsets: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> "ValueLocations":
        """Returns the locations of the elements of the lists at these locations, by the lists' offsets."""
        return ValueLocations((), self, offsets)

    def locate(self, position: int) -> tuple[int, FieldPath]:
        """Returns the row of a value, and its path in the record."""
        if self._outer is None:
            return position, self._path
        if self._offsets is None:
            row, path = self._outer.locate(position)
            return row, path + self._path
        owner = int(np.searchsorted(self._offsets, position, side="right")) - 1
        row, path = self._outer.locate(owner)
        return row, (*path, str(position - int(self._offsets[owner])))


class _Entry(NamedTuple):
    # Not its text: a field `a.b` is another one than `b` in `a`.
    path: FieldPath
    change: str
    reason: str

    def landed(self, fields: Collection[Column]) -> dict[str, str]:
        """The entry as it lands."""
        return {"field": field_text(self.path, fields), "change": self.change, "reason": self.reason}


class Changes:
    """The entries of one batch: the values that were nulled or truncated."""

    def __init__(self) -> None:
        self._rows: list[_Positions] = []
        self._numbers: list[int] = []
        self._entries: dict[_Entry, int] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def has_nulled(self) -> bool:
        """True if a value became null."""
        return any(entry.change == NULLED for entry in self._entries)

    def note_nulled(self, locations: ValueLocations, positions: _Positions, reason: str = TYPECAST_ERROR) -> None:
        """Notes values that became null."""
        self._add_entries(locations, positions, NULLED, reason)

    def note_truncated(self, locations: ValueLocations, positions: _Positions) -> None:
        """Notes values that lost digits which their column does not hold."""
        self._add_entries(locations, positions, TRUNCATED, SIZE_LIMITATION)

    def note_nulled_each(self, locations: ValueLocations, misfits: Iterable[tuple[int, str]]) -> None:
        """Notes values that became null, given as positions with their reasons."""
        by_reason: dict[str, list[int]] = {}
        for position, reason in misfits:
            by_reason.setdefault(reason, []).append(position)
        for reason, positions in by_reason.items():
            self.note_nulled(locations, positions, reason)

    def rows_nulled(self, field: str) -> Sequence[int]:
        """Returns the rows in which the value of this field of the record became null."""
        return self._rows_with((field,), (NULLED,))

    def rows_changed(self, path: FieldPath) -> Sequence[int]:
        """Returns the rows in which the value at the path became null or lost digits."""
        return self._rows_with(path, (NULLED, TRUNCATED))

    def rows_unreadable(self, path: FieldPath) -> Sequence[int]:
        """Returns the rows in which the value at the path became null by its text, and not by a fault of ours."""
        return self._rows_with(path, (NULLED,), _OF_TEXT)

    def _rows_with(
        self, path: FieldPath, changes: Collection[str], reasons: Collection[str] = _OUR_REASONS
    ) -> Sequence[int]:
        wanted = {
            number
            for entry, number in self._entries.items()
            if entry.path == path and entry.change in changes and entry.reason in reasons
        }
        noted = zip(self._rows, self._numbers, strict=True)
        return [int(row) for rows, number in noted if number in wanted for row in rows]

    def entry_lists(self, rows: int, fields: Collection[Column] = ()) -> pa.Array:
        """Returns the list of entries of each row, in the order in which they were noted. `rows` is their number.

        Paths are written as among `fields`.
        """
        if not self._entries:
            return _list_array(bytes(4 * (rows + 1)), pa.nulls(0, CHANGES.value_type))
        noted = np.concatenate([np.asarray(some, dtype=np.int64) for some in self._rows])
        entries = np.repeat(np.asarray(self._numbers), [len(some) for some in self._rows])
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(noted, minlength=rows), out=offsets[1:])
        which = pa.array(entries[np.argsort(noted, kind="stable")])
        landed = pa.array([entry.landed(fields) for entry in self._entries], CHANGES.value_type)
        return _list_array(offsets, landed.take(which))

    def _add_entries(self, locations: ValueLocations, positions: _Positions, change: str, reason: str) -> None:
        if not len(positions):
            return
        same_path = locations.path
        if same_path is not None:
            self._add(positions, _Entry(same_path, change, reason))
            return
        for position in positions:
            row, path = locations.locate(int(position))
            self._add((row,), _Entry(path, change, reason))

    def _add(self, rows: _Positions, entry: _Entry) -> None:
        self._rows.append(rows)
        self._numbers.append(self._entries.setdefault(entry, len(self._entries)))


def field_text(path: FieldPath, fields: Collection[Column]) -> str:
    """A path in a record with dots between its steps; without any it is the time of emission, which is no field.

    A field `a.b` has quotes beside a field `a` that has parts, and so has one that is called as the time of emission.
    """
    if not path:
        return EXTRACTED_AT
    first = path[0]
    if first == EXTRACTED_AT or ("." in first and any(_has_inside(field, first) for field in fields)):
        first = f'"{first}"'
    return ".".join((first, *path[1:]))


def _has_inside(field: Column, text: str) -> bool:
    """True if the text could be a path to something in the field."""
    has_parts = field.type.kind is ValueKind.STRUCT or field.type.depth > 0
    return has_parts and text.startswith(f"{field.path[0]}.")


def true_positions(claims: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Returns the positions where the mask is true; null is not true."""
    return np.flatnonzero(pc.fill_null(claims, False).to_numpy(zero_copy_only=False))


def count_nulled(entry_lists: pa.ListArray) -> Counter[str]:
    """Returns how many values became null because they did not fit, by their path in the record."""
    entries = pc.list_flatten(entry_lists)
    is_nulled = pc.equal(pc.struct_field(entries, "change"), NULLED)
    is_ours = pc.is_in(pc.struct_field(entries, "reason"), value_set=pa.array(_OUR_REASONS))
    counts = pc.value_counts(pc.struct_field(entries, "field").filter(pc.and_(is_nulled, is_ours)))
    return Counter({str(each["values"]): each["counts"] for each in counts.to_pylist()})


def _list_array(offsets: bytes | np.ndarray[tuple[int], np.dtype[np.int32]], values: pa.Array) -> pa.Array:
    buffer = pa.py_buffer(offsets)
    return pa.Array.from_buffers(CHANGES, buffer.size // 4 - 1, [None, buffer], children=[values])
