"""What a stream looked like when it was synced last, as the state store keeps it, and what has changed since.

A shape is kept once the stream's table is ready for it. Should a run die before that, the next one finds the same
changes once more, whatever its table has become meanwhile: so none goes unrecorded, and none is recorded twice.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from dagster_airbyte_proto.model import ColumnName, FieldPath, TableName
from dagster_airbyte_proto.schema.evolution import Change, What, widens_as_said

Types = Mapping[str, str]
"""Columns and nested fields by their dotted names, with their types."""

Pairs = Mapping[str, tuple[str, str]]
"""Columns that do not go together: their types in the table (empty where it has none) and in the stream."""


class StreamShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """`names` are all that its fields ever had. `wish` is what the table would be called if there was no other;
    `lost` are columns that the table has from before, and `formerly` is what was renamed by that hint already."""

    wish: TableName
    table: TableName
    names: tuple[ColumnName, ...] = ()
    columns: Types = {}
    lost: tuple[str, ...] = ()
    withheld: Pairs = {}
    refused: Pairs = {}
    key: tuple[FieldPath, ...] = ()
    cursor: FieldPath = ()
    formerly: Mapping[str, str] = {}
    is_known: bool = False
    """False until its table was ready for it once: there is nothing to compare with before."""
    is_gone: bool = False


def shape_changes(before: StreamShape, now: StreamShape, made: Iterable[Change] = ()) -> tuple[Change, ...]:
    """What is to be told: what was `made` in the table, and what is otherwise than before."""
    made = list(made)
    if not before.is_known:
        return (*made, *_pair_changes(before, now))
    found = [*made, *_stream_changes(before, now)]
    renamed = {new: old for new, old in now.formerly.items() if before.formerly.get(new) != old}
    for new, old in renamed.items():
        if old in before.columns and new in now.columns and new not in before.columns:
            found.append(Change(What.COLUMN_RENAMED, new, old, new))
    if before.table == now.table:
        found += _column_changes(before, now, renamed)
    found += _pair_changes(before, now)
    return tuple(_each_once(found))


def lost_columns(
    before: StreamShape, table: TableName, beside: Collection[str], formerly: Mapping[str, str]
) -> tuple[str, ...]:
    """Those of the table that were filled before, and are not now: they are `beside` what the stream has."""
    had = {*before.lost, *before.columns} if before.table == table else set()
    return tuple(sorted(had & set(beside) - set(formerly.values())))


def text(change: Change) -> str:
    """A change in a person's words."""
    return _TEXTS[change.what].format(column=change.column, before=change.before, after=change.after)


_TEXTS = {
    What.COLUMN_ADDED: "column {column} is new ({after})",
    What.COLUMN_WIDENED: "column {column} was {before}, is {after}",
    What.COLUMN_RETYPED: "column {column} was {before}, is {after}: another column under the same name",
    What.COLUMN_RENAMED: "column {before} is called {after} now, old rows included",
    What.COLUMN_LOST: "column {column} ({before}) is gone from the stream: it is null from now on",
    What.COLUMN_DROPPED: "column {column} ({before}) is gone from the stream, and from the table",
    What.COLUMN_BACK: "column {column} ({after}) is back in the stream",
    What.COLUMN_WITHHELD: "column {column} is left out: {before} in the table, {after} in the stream",
    What.COLUMN_REFUSED: "column {column} is refused: {before} in the table, {after} in the stream",
    What.KEY_CHANGED: "the key was {before}, is {after}: rows that are in the table are not told apart anew",
    What.CURSOR_CHANGED: "the cursor was {before}, is {after}: rows that are in the table stay as they are",
    What.TABLE_CHANGED: "the table was {before}, is {after}",
    What.STREAM_GONE: "the source offers the stream no more: its table stays",
    What.STREAM_BACK: "the source offers the stream again",
}
NOTHING = "no column"


def _stream_changes(before: StreamShape, now: StreamShape) -> Iterator[Change]:
    if before.is_gone:
        yield Change(What.STREAM_BACK)
    if before.table != now.table:
        yield Change(What.TABLE_CHANGED, "", str(before.table), str(now.table))
    if before.key != now.key:
        yield Change(What.KEY_CHANGED, "", _paths(before.key), _paths(now.key))
    if before.cursor != now.cursor:
        yield Change(What.CURSOR_CHANGED, "", _paths((before.cursor,)), _paths((now.cursor,)))


def _column_changes(before: StreamShape, now: StreamShape, renamed: Mapping[str, str]) -> Iterator[Change]:
    for column, kind in now.columns.items():
        old = before.columns.get(renamed.get(column, column))
        if old is None:
            yield Change(What.COLUMN_BACK if column in before.lost else What.COLUMN_ADDED, column, "", kind)
        elif old != kind:
            yield Change(What.COLUMN_WIDENED if widens_as_said(old, kind) else What.COLUMN_RETYPED, column, old, kind)
    for column, kind in before.columns.items():
        if column not in now.columns and column not in renamed.values() and column not in now.withheld:
            yield Change(What.COLUMN_LOST if column in now.lost else What.COLUMN_DROPPED, column, kind, "")


def _pair_changes(before: StreamShape, now: StreamShape) -> Iterator[Change]:
    for what, old, new in (
        (What.COLUMN_WITHHELD, before.withheld, now.withheld),
        (What.COLUMN_REFUSED, before.refused, now.refused),
    ):
        for column, pair in new.items():
            if old.get(column) != pair:
                yield Change(what, column, pair[0] or NOTHING, pair[1])


def _each_once(changes: Iterable[Change]) -> Iterator[Change]:
    """What was made in the table is told in its words: to add a column and to find it new are one."""
    seen: set[tuple[str, str]] = set()
    for change in changes:
        kind = "added" if change.what in (What.COLUMN_ADDED, What.COLUMN_BACK) else change.what.value
        if (kind, change.column) not in seen:
            seen.add((kind, change.column))
            yield change


def _paths(paths: Iterable[FieldPath]) -> str:
    return ", ".join(".".join(path) for path in paths if path) or "none"
