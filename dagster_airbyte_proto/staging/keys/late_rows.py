"""Rows that come in a later load than newer ones of their key: found before the load is written down.

What a table says of itself costs nothing: how great cursor and time of emission are at the most. A row that is above
that cannot be late, and in an ordinary sync all are. Only for the others is the table asked for its rows of their
keys. The boundary row that a source sends again has the greatest cursor and was emitted later: it is not late.

No other load of the connection comes in between the question and the commit: loads are cut when the one before is in,
and announced by the holder of the lease alone.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.loads.load import Newest
from dagster_airbyte_proto.loads.table import REPLACING, Sought, Standing
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, Columns, Kind
from dagster_airbyte_proto.staging.keys.ranking import (
    EMITTED,
    Rows,
    key_names,
    losing_rows,
    order_names,
    others,
    ranked,
)
from dagster_airbyte_proto.tables.writer import KnowsItsRows, TableWriter

_LONGEST_TEXT = 500


class _Greatest(NamedTuple):
    """The greatest cursor (of several values where it has no single type) and, apart from it, time of emission."""

    cursor: Mapping[str, pa.Scalar]
    emitted: pa.Scalar

    def or_greater(self, other: "_Greatest") -> "_Greatest":
        return _Greatest(
            max(self.cursor, other.cursor, key=lambda cursor: [_comparable(value) for value in cursor.values()]),
            max(self.emitted, other.emitted, key=_comparable),
        )


class Judged(NamedTuple):
    """The numbers of the rows that are late, and what the table will say of itself once the others are in."""

    late: Rows
    newest: Newest | None


_NONE_LATE: Rows = np.empty(0, np.int64)


class LateRowLookup:
    """What a stream's table has that a cut of the stream must yield to."""

    def __init__(
        self,
        tables: Callable[[], TableWriter] | None,
        planned: PlannedStream,
        columns: Columns,
        branch: str | None = None,
    ) -> None:
        self._tables = tables
        self._planned = planned
        self._columns = columns
        self._branch = branch

    def on(self, branch: str) -> "LateRowLookup":
        """Those that lie on a branch of the table."""
        return LateRowLookup(self._tables, self._planned, self._columns, branch)

    def find(self, rows: pa.Table, losing: Rows) -> Judged:
        """Of a cut's rows, ranked and in order of arrival; those that are `losing` to others of them count no more."""
        if self._tables is None or self._planned.slice is not None:
            # A partition replaces its slice of the table, and knows nothing of the others.
            return Judged(_NONE_LATE, None)
        own = _greatest(rows)
        if self._planned.write in REPLACING and self._branch is None:
            return Judged(_NONE_LATE, self._noted(own, Standing(has_rows=False)))
        tables = self._tables()
        cursor = self._columns.order_column
        if not isinstance(tables, KnowsItsRows) or (cursor is not None and cursor.type.kind is Kind.STRUCT):
            return Judged(_NONE_LATE, None)
        standing = tables.standing(self._planned.table, self._branch)
        if not standing.has_rows:
            return Judged(_NONE_LATE, self._noted(own, standing))
        there = self._there(tables, standing, rows)
        latest = others(losing, rows.num_rows)
        suspects = latest if there is None else latest[_is_below(rows, there)[latest]]
        late = self._late(tables, rows, suspects) if len(suspects) else _NONE_LATE
        return Judged(late, None if there is None else self._noted(there.or_greater(own), standing))

    def _there(self, tables: KnowsItsRows, standing: Standing, rows: pa.Table) -> _Greatest | None:
        """What the table has. None where one would have to read all of it to tell."""
        names, newest = order_names(rows), standing.newest
        if newest is not None and newest.cursor == self._columns.cursor and len(newest.values) == len(names):
            with suppress(pa.ArrowInvalid):  # It was of another type then.
                cursor = {name: _value(text, rows, name) for name, text in zip(names, newest.values, strict=True)}
                return _Greatest(cursor, _value(newest.emitted_at, rows, EMITTED))
        if len(names) > 1:
            return None
        column = self._columns.order_column
        wanted = {**({names[0]: column.name} if names and column else {}), EMITTED: EXTRACTED_AT}
        found = tables.greatest(self._planned.table, list(wanted.values()), self._branch)
        try:
            greatest = {name: found[column][0].cast(rows.schema.field(name).type) for name, column in wanted.items()}
        except pa.ArrowInvalid:  # The table's column is a wider one.
            return None
        return _Greatest({name: greatest[name] for name in names}, greatest[EMITTED])

    def _late(self, tables: KnowsItsRows, rows: pa.Table, suspects: Rows) -> Rows:
        """Of these rows those that are older than what the table has of their keys."""
        asked, keys = rows.take(pa.array(suspects)), self._columns.keys
        cursor = self._columns.order_column
        columns = tuple(dict.fromkeys([*keys, *([cursor.name] if cursor else []), EXTRACTED_AT]))
        sought = Sought(asked.select(key_names(self._columns)).rename_columns(list(keys)), columns, self._since(asked))
        rivals = ranked(tables.rows_of(self._planned.table, sought, self._branch), self._columns)
        # The table's column may be a wider one.
        both = pa.concat_tables([rivals, asked], promote_options="permissive")
        losing = losing_rows(both, key_names(self._columns))
        late: Rows = suspects[losing[losing >= rivals.num_rows] - rivals.num_rows]
        return late

    def _since(self, asked: pa.Table) -> tuple[str, pa.Scalar] | None:
        """A column, and a value below which none of the table's rows can be newer than any of these."""
        names, column = order_names(asked), self._columns.order_column
        if not names:
            return EXTRACTED_AT, pc.min(asked[EMITTED])
        if column is None or len(names) > 1 or asked[names[0]].null_count:
            return None
        return column.name, pc.min(asked[names[0]])

    def _noted(self, greatest: _Greatest, standing: Standing) -> Newest | None:
        """None where it is not said in a few words."""
        try:
            values = tuple(_text(scalar) for scalar in greatest.cursor.values())
            emitted_at = _text(greatest.emitted)
        except pa.ArrowInvalid:
            return None
        if emitted_at is None or any(len(text or "") > _LONGEST_TEXT for text in values):
            return None
        return Newest(self._columns.cursor, values, emitted_at, standing.version)


def _greatest(rows: pa.Table) -> _Greatest:
    cursor, names, left = {}, order_names(rows), rows
    for name in names:
        cursor[name] = pc.max(left[name])
        if len(names) > 1 and cursor[name].is_valid:
            left = left.filter(pc.equal(left[name], cursor[name]))
    return _Greatest(cursor, pc.max(rows[EMITTED]))


def _is_below(rows: pa.Table, greatest: _Greatest) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which rows may be older than one that the table has: null is less than any value."""
    below = np.zeros(rows.num_rows, dtype=bool)
    equal = np.ones(rows.num_rows, dtype=bool)
    for name, value in (*greatest.cursor.items(), (EMITTED, greatest.emitted)):
        column = rows[name]
        if value.is_valid:
            below |= equal & _claims(pc.less(column, value), of_null=True)
            equal &= _claims(pc.equal(column, value), of_null=False)
        else:
            equal &= _claims(column.is_null(), of_null=False)
    return below


def _claims(column: pa.ChunkedArray, *, of_null: bool) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.asarray(pc.fill_null(column, of_null).to_numpy(), dtype=bool)


def _comparable(scalar: pa.Scalar) -> tuple[bool, Any]:
    """Null is less than any value."""
    return (scalar.is_valid, scalar.as_py() if scalar.is_valid else 0)


def _text(scalar: pa.Scalar) -> str | None:
    text = scalar.cast(pa.string()).as_py()
    return None if text is None else str(text)


def _value(text: str | None, rows: pa.Table, name: str) -> pa.Scalar:
    return pa.scalar(text, pa.string()).cast(rows.schema.field(name).type)
