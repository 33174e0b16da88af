"""Finds late rows: rows of a cut that are older than the table's row of the same key.

The search runs when a load is cut, before it is announced (docs/decisions/0013-late-rows.md):

1. The table's high-water mark costs nothing to read: the greatest cursor, and the greatest time of emission. A row
   above it cannot be late. In an ordinary sync that is every row: also the boundary row that a source sends again, for
   it has the greatest cursor and was emitted later.
2. Only for the other rows, the candidates, are the table's rows of their keys read and compared.

No other load of the connection can land between the search and the commit: a load is cut when the one before has
landed, and only the holder of the lease announces loads.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.loads.load import HighWaterMark
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery
from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, ValueKind
from dagster_airbyte_proto.staging.keys.dedup import NONE_LATE, LateRows, StagedKeys
from dagster_airbyte_proto.staging.keys.ranking import (
    EMITTED,
    NO_ROWS,
    RowNumbers,
    key_names,
    losing_rows,
    mark_of_json,
    order_names,
    ranking_columns,
    remaining_rows,
)
from dagster_airbyte_proto.tables.writer import SupportsKeyLookup, TableWriter

_MAX_TEXT_LENGTH = 500


class _Greatest(NamedTuple):
    """The greatest cursor and, independent of it, the greatest time of emission.

    The cursor has several values where it is of no single type.
    """

    cursor: Mapping[str, pa.Scalar]
    emitted: pa.Scalar

    def greater_of_each(self, other: "_Greatest") -> "_Greatest":
        return _Greatest(
            max(self.cursor, other.cursor, key=lambda cursor: [_comparable(value) for value in cursor.values()]),
            max(self.emitted, other.emitted, key=_comparable),
        )


class LateRowLookup:
    """Looks up which rows of a cut are older than rows that the stream's table has, or a branch of it."""

    def __init__(self, tables: Callable[[], TableWriter], keys: StagedKeys, branch: str | None = None) -> None:
        self._tables = tables
        self._planned, self._columns, self._rows, self._losing = keys
        self._branch = branch

    def find(self) -> LateRows:
        """Finds the late rows. Rows that lose to another row of the cut are left out."""
        rows = self._rows
        if self._planned.slice is not None:
            # The sync of a slice replaces that slice of the table, and does not look at the others.
            return NONE_LATE
        own_greatest = _greatest(rows)
        if self._planned.write in REPLACING and self._branch is None:
            return LateRows(NO_ROWS, self._high_water_mark(own_greatest, Freshness(has_rows=False)))
        tables = self._tables()
        cursor = self._columns.cursor_column
        if not isinstance(tables, SupportsKeyLookup) or (cursor is not None and cursor.type.kind is ValueKind.STRUCT):
            return NONE_LATE
        freshness = tables.freshness(self._planned.table, self._branch)
        if not freshness.has_rows:
            return LateRows(NO_ROWS, self._high_water_mark(own_greatest, freshness))
        greatest = self._greatest_in_table(tables, freshness, rows)
        latest = remaining_rows(self._losing, rows.num_rows)
        candidates = latest if greatest is None else latest[_is_below(rows, greatest)[latest]]
        late = self._late_among(tables, rows, candidates) if len(candidates) else NO_ROWS
        return LateRows(
            late, None if greatest is None else self._high_water_mark(greatest.greater_of_each(own_greatest), freshness)
        )

    def _greatest_in_table(self, tables: SupportsKeyLookup, freshness: Freshness, rows: pa.Table) -> _Greatest | None:
        """Returns the greatest values in the table. None if all of its rows would have to be read for them."""
        names, high_water_mark = order_names(rows), freshness.high_water_mark
        if high_water_mark is not None and high_water_mark.cursor == self._columns.cursor:
            values = high_water_mark.values
            if len(names) > 1 and len(values) != len(names):
                values = mark_of_json(values) or ()
            with suppress(pa.ArrowInvalid, ValueError):  # The column had another type at that time.
                cursor = {name: _from_text(text, rows, name) for name, text in zip(names, values, strict=True)}
                return _Greatest(cursor, _from_text(high_water_mark.emitted_at, rows, EMITTED))
        if len(names) > 1:
            return None
        column = self._columns.cursor_column
        requested = {**({names[0]: column.name} if names and column else {}), EMITTED: EXTRACTED_AT}
        found = tables.greatest_values(self._planned.table, list(requested.values()), self._branch)
        try:
            greatest = {name: found[column][0].cast(rows.schema.field(name).type) for name, column in requested.items()}
        except pa.ArrowInvalid:  # The table's column has a wider type.
            return None
        return _Greatest({name: greatest[name] for name in names}, greatest[EMITTED])

    def _late_among(self, tables: SupportsKeyLookup, rows: pa.Table, candidates: RowNumbers) -> RowNumbers:
        """Returns the candidates that are older than the table's rows of their keys."""
        candidate_rows, keys = rows.take(pa.array(candidates)), self._columns.keys
        cursor = self._columns.cursor_column
        columns = tuple(dict.fromkeys([*keys, *([cursor.name] if cursor else []), EXTRACTED_AT]))
        key_query = KeyQuery(
            candidate_rows.select(key_names(self._columns)).rename_columns(list(keys)),
            columns,
            self._lower_bound(candidate_rows),
        )
        in_table = ranking_columns(tables.rows_with_keys(self._planned.table, key_query, self._branch), self._columns)
        # The table's column may have a wider type.
        candidates_and_table = pa.concat_tables([in_table, candidate_rows], promote_options="permissive")
        losing = losing_rows(candidates_and_table, key_names(self._columns))
        late: RowNumbers = candidates[losing[losing >= in_table.num_rows] - in_table.num_rows]
        return late

    def _lower_bound(self, candidate_rows: pa.Table) -> tuple[str, pa.Scalar] | None:
        """Returns a column and a value: table rows below it cannot be newer than any of these rows."""
        names, column = order_names(candidate_rows), self._columns.cursor_column
        if not names:
            return EXTRACTED_AT, pc.min(candidate_rows[EMITTED])
        if column is None or len(names) > 1 or candidate_rows[names[0]].null_count:
            return None
        return column.name, pc.min(candidate_rows[names[0]])

    def _high_water_mark(self, greatest: _Greatest, freshness: Freshness) -> HighWaterMark | None:
        """Returns the high-water mark to store with the load. None if it cannot be written as short text."""
        try:
            values = tuple(_as_text(scalar) for scalar in greatest.cursor.values())
            emitted_at = _as_text(greatest.emitted)
        except pa.ArrowInvalid:
            return None
        if emitted_at is None or any(len(text or "") > _MAX_TEXT_LENGTH for text in values):
            return None
        return HighWaterMark(self._columns.cursor, values, emitted_at, freshness.version)


def _greatest(rows: pa.Table) -> _Greatest:
    cursor, names, left = {}, order_names(rows), rows
    for name in names:
        cursor[name] = pc.max(left[name])
        if len(names) > 1 and cursor[name].is_valid:
            left = left.filter(pc.equal(left[name], cursor[name]))
    return _Greatest(cursor, pc.max(rows[EMITTED]))


def _is_below(rows: pa.Table, greatest: _Greatest) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Returns a mask of the rows that are below the greatest values. Null is less than any value."""
    below = np.zeros(rows.num_rows, dtype=bool)
    equal = np.ones(rows.num_rows, dtype=bool)
    for name, value in (*greatest.cursor.items(), (EMITTED, greatest.emitted)):
        column = rows[name]
        if value.is_valid:
            below |= equal & _as_mask(pc.less(column, value), of_null=True)
            equal &= _as_mask(pc.equal(column, value), of_null=False)
        else:
            equal &= _as_mask(column.is_null(), of_null=False)
    return below


def _as_mask(column: pa.ChunkedArray, *, of_null: bool) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.asarray(pc.fill_null(column, of_null).to_numpy(), dtype=bool)


def _comparable(scalar: pa.Scalar) -> tuple[bool, Any]:
    """Returns a sort key of a scalar. Null is less than any value."""
    return (scalar.is_valid, scalar.as_py() if scalar.is_valid else 0)


def _as_text(scalar: pa.Scalar) -> str | None:
    text = scalar.cast(pa.string()).as_py()
    return None if text is None else str(text)


def _from_text(text: str | None, rows: pa.Table, name: str) -> pa.Scalar:
    return pa.scalar(text, pa.string()).cast(rows.schema.field(name).type)
