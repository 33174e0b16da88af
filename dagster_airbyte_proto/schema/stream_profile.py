"""The profile of a stream after its last sync, which the state store keeps, and the changes since.

A profile is stored once the stream's table is ready for it. If a run dies before that, the next run finds the same
changes again, whatever has happened to the table in between. So no change is missed, and none is recorded twice.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from dagster_airbyte_proto.model import ColumnName, FieldPath, TableName
from dagster_airbyte_proto.schema.evolution import ChangeKind, ColumnMismatch, SchemaChange, sql_type_widens_to

ColumnTypes = Mapping[str, str]
"""The types of columns and nested fields, by their dotted names."""

TypePairs = Mapping[str, tuple[str, str]]
"""Columns whose types do not match: the type in the table (empty if the table lacks the column) and in the stream."""


class StreamProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stream as its last sync left it. Stored as JSON: the names in `field(name=…)` are those of older versions.

    `preferred_table` is the name its table would have if no other table had it. `column_names` are all names that its
    fields ever had, `member_names` those of the members of its structs. `missing` are columns of the table that the
    stream filled before and no longer sends. `formerly` are the renames, new name to old, that were already carried
    out. `text_forms` are those of the key and the cursor, where rows are merged by key; NO_ROWS after a rollback that
    emptied the table. `json_columns` are all columns of JSON text; older versions stored none.
    """

    preferred_table: TableName = msgspec.field(name="wish")
    table: TableName
    column_names: tuple[ColumnName, ...] = msgspec.field(default=(), name="names")
    columns: ColumnTypes = {}
    missing: tuple[str, ...] = msgspec.field(default=(), name="lost")
    excluded: TypePairs = msgspec.field(default_factory=dict, name="withheld")
    refused: TypePairs = {}
    primary_key: tuple[FieldPath, ...] = msgspec.field(default=(), name="key")
    cursor: FieldPath = ()
    formerly: Mapping[str, str] = {}
    is_known: bool = False
    """False until its table was ready once. There is nothing to compare with before that."""
    is_gone: bool = False
    table_spec: str = ""
    """A digest of the spec for which its table was prepared last. While the digest is the same, a sync that brings no
    row for the stream need not open the table."""
    sql_name: str = ""
    location: str = ""
    text_forms: Mapping[str, str] = {}
    json_columns: tuple[str, ...] | None = None
    member_names: tuple[ColumnName, ...] = ()


def profile_changes(
    before: StreamProfile, now: StreamProfile, made: Iterable[SchemaChange] = ()
) -> tuple[SchemaChange, ...]:
    """Returns the changes to report: those `made` in the table, and the differences between the two profiles."""
    made = list(made)
    if not before.is_known:
        return (*made, *_pair_changes(before, now))
    found = [*made, *_stream_changes(before, now)]
    renamed = {new: old for new, old in now.formerly.items() if before.formerly.get(new) != old}
    for new, old in renamed.items():
        if old in before.columns and new in now.columns and new not in before.columns:
            found.append(SchemaChange(ChangeKind.COLUMN_RENAMED, new, old, new))
    if before.table == now.table:
        found += _column_changes(before, now, renamed)
    found += _pair_changes(before, now)
    return tuple(_each_once(found))


def retyped_columns(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[ColumnMismatch, ...]:
    """Returns the columns that held plain text before and hold JSON text now, or the reverse.

    Both are strings in a table. But JSON text has quotes: `"k1"` is another key than `k1`, and sorts elsewhere. To a
    table without rows any form fits.
    """
    return tuple(
        ColumnMismatch((column,), before[column], form)
        for column, form in now.items()
        if before.get(column, form) not in (form, NO_ROWS)
    )


def form_changes(
    before: StreamProfile, now: StreamProfile, renamed: Mapping[str, str] | None = None
) -> tuple[SchemaChange, ...]:
    """Returns the columns of text, beside the key and the cursor, that hold JSON text now and did not, or the reverse.

    Their type in the table is the same, and no row is refused: values of a union come as `"red"`, and those of a text
    came as `red`. `renamed` has the old names by the new ones.
    """
    found: list[SchemaChange] = []
    if before.json_columns is None or now.json_columns is None:
        return ()
    for column, kind in now.columns.items():
        old = (renamed or {}).get(column, column)
        was, became = (_FORMS[had] for had in (old in before.json_columns, column in now.json_columns))
        if was != became and before.columns.get(old) == kind and column not in now.text_forms:
            found.append(SchemaChange(ChangeKind.COLUMN_FORM_CHANGED, column, was, became))
    return tuple(found)


def has_text_form(text: str) -> bool:
    """True for a form of the texts of a key or a cursor, also where it may be one of several."""
    return set(text.split(_OR)) <= _TEXT_FORMS


def either_form(form: str, other: str) -> str:
    """The form of texts that may have the one or the other."""
    forms = dict.fromkeys([*form.split(_OR), *other.split(_OR)])
    return _OR.join([each for each in forms if each != NO_ROWS] or [NO_ROWS])


def joined_forms(profile: StreamProfile, other: StreamProfile) -> StreamProfile:
    """The profile, where the texts of key and cursor may also have the forms of the other one."""
    forms = {
        column: either_form(form, other.text_forms.get(column, form)) for column, form in profile.text_forms.items()
    }
    return msgspec.structs.replace(profile, text_forms=forms)


def without_rows(profile: StreamProfile) -> StreamProfile:
    """The profile of a table that has become empty: no text in it has a form."""
    return msgspec.structs.replace(profile, text_forms=dict.fromkeys(profile.text_forms, NO_ROWS))


def with_form(profile: StreamProfile, column: str, form: str) -> StreamProfile:
    """The profile with another form of a column beside key and cursor."""
    others = {*(profile.json_columns or ())} - {column}
    return msgspec.structs.replace(
        profile, json_columns=tuple(sorted(others | {column} if form == _FORMS[True] else others))
    )


def missing_columns(
    before: StreamProfile, table: TableName, unmatched: Collection[str], formerly: Mapping[str, str]
) -> tuple[str, ...]:
    """Returns the columns of the table that were filled before and are `unmatched` by the stream now."""
    had = {*before.missing, *before.columns} if before.table == table else set()
    return tuple(sorted(had & set(unmatched) - set(formerly.values())))


def change_text(change: SchemaChange) -> str:
    """Describes a change in a sentence."""
    if change.after == NO_ROWS:
        return f"column {change.column} was {change.before}, and has no rows any more: it may be anything"
    return _TEXTS[change.kind].format(column=change.column, before=change.before, after=change.after)


_TEXTS = {
    ChangeKind.COLUMN_ADDED: "column {column} is new ({after})",
    ChangeKind.COLUMN_WIDENED: "column {column} was {before}, is {after}",
    ChangeKind.COLUMN_RETYPED: "column {column} was {before}, is {after}: a new column under the same name",
    ChangeKind.COLUMN_FORM_CHANGED: "column {column} had {before}, has {after} from now on",
    ChangeKind.COLUMN_RENAMED: "column {before} was renamed to {after}, old rows included",
    ChangeKind.COLUMN_LOST: "column {column} ({before}) is gone from the stream: it is null from now on",
    ChangeKind.COLUMN_DROPPED: "column {column} ({before}) is gone from the stream, and from the table",
    ChangeKind.COLUMN_RETURNED: "column {column} ({after}) is back in the stream",
    ChangeKind.COLUMN_EXCLUDED: "column {column} is left out: {before} in the table, {after} in the stream",
    ChangeKind.COLUMN_REFUSED: "column {column} is refused: {before} in the table, {after} in the stream",
    ChangeKind.KEY_CHANGED: "the key was {before}, is {after}: rows already in the table are not deduplicated again",
    ChangeKind.CURSOR_CHANGED: "the cursor was {before}, is {after}: rows already in the table stay as they are",
    ChangeKind.TABLE_CHANGED: "the table was {before}, is {after}",
    ChangeKind.STREAM_GONE: "the source no longer offers the stream: its table stays",
    ChangeKind.STREAM_RETURNED: "the source offers the stream again",
}
_FORMS = {False: "plain text", True: "JSON text"}
NO_ROWS = "no rows"
_TEXT_FORMS = frozenset(("string", "JSON text", NO_ROWS))
_OR = " or "
NO_COLUMN = "no column"


def _stream_changes(before: StreamProfile, now: StreamProfile) -> Iterator[SchemaChange]:
    if before.is_gone:
        yield SchemaChange(ChangeKind.STREAM_RETURNED)
    if before.table != now.table:
        yield SchemaChange(ChangeKind.TABLE_CHANGED, "", str(before.table), str(now.table))
    if before.primary_key != now.primary_key:
        yield SchemaChange(ChangeKind.KEY_CHANGED, "", paths_text(before.primary_key), paths_text(now.primary_key))
    if before.cursor != now.cursor:
        yield SchemaChange(ChangeKind.CURSOR_CHANGED, "", paths_text((before.cursor,)), paths_text((now.cursor,)))


def _column_changes(before: StreamProfile, now: StreamProfile, renamed: Mapping[str, str]) -> Iterator[SchemaChange]:
    for column, kind in now.columns.items():
        old = before.columns.get(renamed.get(column, column))
        if old is None:
            yield SchemaChange(
                ChangeKind.COLUMN_RETURNED if column in before.missing else ChangeKind.COLUMN_ADDED, column, "", kind
            )
        elif old != kind:
            yield SchemaChange(
                ChangeKind.COLUMN_WIDENED if sql_type_widens_to(old, kind) else ChangeKind.COLUMN_RETYPED,
                column,
                old,
                kind,
            )
    for changed in retyped_columns(before.text_forms, now.text_forms):
        yield SchemaChange(ChangeKind.COLUMN_RETYPED, changed.column, changed.in_table, changed.in_stream)
    yield from form_changes(before, now, renamed)
    for column, kind in before.columns.items():
        if column not in now.columns and column not in renamed.values() and column not in now.excluded:
            yield SchemaChange(
                ChangeKind.COLUMN_LOST if column in now.missing else ChangeKind.COLUMN_DROPPED, column, kind, ""
            )


def _pair_changes(before: StreamProfile, now: StreamProfile) -> Iterator[SchemaChange]:
    for kind, old, new in (
        (ChangeKind.COLUMN_EXCLUDED, before.excluded, now.excluded),
        (ChangeKind.COLUMN_REFUSED, before.refused, now.refused),
    ):
        for column, pair in new.items():
            if old.get(column) != pair:
                yield SchemaChange(kind, column, pair[0] or NO_COLUMN, pair[1])


def _each_once(changes: Iterable[SchemaChange]) -> Iterator[SchemaChange]:
    """Drops the differences that repeat a change made in the table.

    An added column and a new one are the same change.
    """
    seen: set[tuple[str, str]] = set()
    for change in changes:
        kind = "added" if change.kind in (ChangeKind.COLUMN_ADDED, ChangeKind.COLUMN_RETURNED) else change.kind.value
        if (kind, change.column) not in seen:
            seen.add((kind, change.column))
            yield change


def paths_text(paths: Iterable[FieldPath]) -> str:
    """Keys or a cursor in words, such as `id, address.city`."""
    return ", ".join(".".join(path) for path in paths if path) or "none"
