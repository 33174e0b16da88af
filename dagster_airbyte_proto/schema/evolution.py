"""What becomes of a table whose stream has changed: the one place that decides it, but for generations that replace
all rows of a table (`replacing.py`). It touches nothing.

Columns are in Iceberg's own JSON for a schema (see `loads/column_ids.py`). Whatever the policy:

- A table loses no column, and none of its columns gets narrower. What the stream lacks is null from now on.
- A new table takes all columns.
- The columns that are ours (`Terms.own`) are added and widened.
- What tells rows apart, or parts them (`Terms.required`), is never left out: where the table cannot take it, the stream
  is refused.
- A refused stream changes nothing.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import SchemaRefused
from dagster_airbyte_proto.model import FieldPath, SchemaPolicy
from dagster_airbyte_proto.schema.names import folded

Columns = dict[str, Any]
"""`{"type": "struct", "fields": [{"id", "name", "required", "type", "doc"?}, ...]}`"""

Type = str | Columns

_DISCARDING = frozenset((SchemaPolicy.DISCARD_COLUMN, SchemaPolicy.DISCARD_ROW))
_WIDER = {("int", "long"), ("float", "double")}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_AS_SAID = {("int", "bigint"), ("float", "double")}
_ELSEWHERE = "give the stream another table by `rename` in the connection file"
_NEEDED = f"No policy can do without these. Drop the table and sync with --refresh, or {_ELSEWHERE}."
_REFRESH = (
    f"Sync with --refresh: the stream's rows and columns then take the place of the table's. Or {_ELSEWHERE}, or let "
    "go of the values with schema_policy: discard_column."
)
_REMEDIES = {
    SchemaPolicy.EVOLVE: f"Drop the table and sync with --refresh, {_ELSEWHERE}, or let go of the values with "
    "schema_policy: discard_column.",
    SchemaPolicy.FREEZE: "Its schema_policy is freeze. Set evolve to have columns added and widened, discard_column or "
    f"discard_row to land without them; or {_ELSEWHERE}.",
    SchemaPolicy.DISCARD_COLUMN: _NEEDED,
    SchemaPolicy.DISCARD_ROW: _NEEDED,
}


class What(StrEnum):
    """What happened to a stream, in the words of the store and of reports."""

    COLUMN_ADDED = "column_added"
    COLUMN_WIDENED = "column_widened"
    COLUMN_RETYPED = "column_retyped"
    COLUMN_RENAMED = "column_renamed"
    COLUMN_LOST = "column_lost"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_BACK = "column_back"
    COLUMN_WITHHELD = "column_withheld"
    COLUMN_REFUSED = "column_refused"
    KEY_CHANGED = "key_changed"
    CURSOR_CHANGED = "cursor_changed"
    TABLE_CHANGED = "table_changed"
    STREAM_GONE = "stream_gone"
    STREAM_BACK = "stream_back"


class Change(msgspec.Struct, frozen=True):
    """One thing that changed. `column` is empty where it is the stream's; nested fields have their names with dots."""

    what: What
    column: str = ""
    before: str = ""
    after: str = ""


class Misfit(NamedTuple):
    """What a stream has and its table does not take. `in_table` is empty where the table has no such column.

    `formerly` is what the column was called: the table has both names, and rows under each.
    """

    path: FieldPath
    in_table: str
    in_stream: str
    formerly: str = ""

    @property
    def column(self) -> str:
        return ".".join(self.path)

    def __str__(self) -> str:
        if self.formerly:
            return f"column {self.column} stands beside {self.formerly}, which it was called formerly"
        if not self.in_table:
            return f"the table has no column {self.column} ({self.in_stream} in the stream)"
        return f"column {self.column} is {self.in_table} in the table and {self.in_stream} in the stream"


class Terms(NamedTuple):
    """What is decided by. All names are of columns; `formerly` has the old name of each that was renamed. With
    `refresh_helps` a refresh of the stream may change what the stream is refused for."""

    policy: SchemaPolicy = SchemaPolicy.EVOLVE
    own: Collection[str] = ()
    required: Collection[str] = ()
    formerly: Mapping[str, str] = {}
    refresh_helps: bool = False


class Verdict(NamedTuple):
    """`columns` and `last_id` are the table's from now on, once `renames` (old name, new name) and `changes` are made.

    The stream's `withheld` do not get in. Where anything is `refused`, the table stays as it is and nothing lands.
    """

    columns: Columns
    last_id: int
    renames: tuple[tuple[str, str], ...] = ()
    changes: tuple[Change, ...] = ()
    withheld: tuple[Misfit, ...] = ()
    refused: tuple[Misfit, ...] = ()

    def refuse(self, doing: str, terms: Terms) -> None:
        """Raises SchemaRefused with every misfit and the ways out, if there is any."""
        if not self.refused:
            return
        found = "; ".join(map(str, self.refused))
        misfits = tuple((misfit.column, misfit.in_table, misfit.in_stream) for misfit in self.refused)
        remedy = _REMEDIES[terms.policy]
        if terms.refresh_helps and terms.policy is SchemaPolicy.EVOLVE:
            remedy = _REFRESH
        if any(misfit.formerly for misfit in self.refused):
            remedy = (
                "Bring the two together by hand and drop the old one, or take `formerly` out of the stream's options."
            )
        raise SchemaRefused(doing, found, remedy=remedy, misfits=misfits)


def decided(existing: Columns, wanted: Columns, last_id: int, terms: Terms = Terms()) -> Verdict:  # noqa: B008 - a tuple
    """What a table of `existing` columns, which has given ids out up to `last_id`, is to be for a stream's `wanted`.

    Whoever asks again once it is so gets no change, and the same withheld.
    """
    if not existing["fields"]:
        terms = terms._replace(policy=SchemaPolicy.EVOLVE)
    renamed_columns, renames, refused = renamed(existing, wanted, terms.formerly)
    weighing = _Weighing(Numbering(last_id), terms)
    columns = weighing.struct(renamed_columns, wanted, ())
    withheld = tuple(misfit for misfit in weighing.misfits if weighing.may_withhold(misfit))
    refused += [*weighing.refused, *(misfit for misfit in weighing.misfits if not weighing.may_withhold(misfit))]
    if refused:
        return Verdict(existing, last_id, refused=tuple(refused))
    changes = [Change(What.COLUMN_RENAMED, new, old, new) for old, new in renames]
    if existing["fields"]:
        changes += weighing.changes
    return Verdict(columns, weighing.numbering.last_id, tuple(renames), tuple(changes), withheld)


def flat(columns: Columns) -> dict[str, str]:
    """Each column and nested field by its dotted name, with its type. What a struct or a list of them holds stands in
    entries of its own, so that a change inside is told as that of a field."""
    return dict(_flat(columns, ""))


def said(kind: Type) -> str:
    """A type as a user writes it in SQL, near enough to recognise it."""
    if isinstance(kind, str):
        return {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}.get(kind, kind)
    if kind["type"] == "struct":
        return "struct<" + ", ".join(f"{field['name']}: {said(field['type'])}" for field in kind["fields"]) + ">"
    if kind["type"] == "list":
        return f"array<{said(kind['element'])}>"
    return f"map<{said(kind['key'])}, {said(kind['value'])}>"


class Numbering:
    """Gives ids to what is new in a table that has given them out up to `last_id`."""

    def __init__(self, last_id: int) -> None:
        self.last_id = last_id

    def field(self, field: Columns) -> Columns:
        return {**field, "id": self._next(), "type": self._type(field["type"])}

    def _type(self, kind: Type) -> Type:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return {**kind, "fields": [self.field(field) for field in kind["fields"]]}
        parts = ("element",) if kind["type"] == "list" else ("key", "value")
        ids = {f"{part}-id": self._next() for part in parts}
        return {**kind, **ids, **{part: self._type(kind[part]) for part in parts}}

    def _next(self) -> int:
        self.last_id += 1
        return self.last_id


class _Weighing:
    """One comparison: what it finds on its way through the columns."""

    def __init__(self, numbering: Numbering, terms: Terms) -> None:
        self.numbering = numbering
        self._terms = terms
        self._own = set(map(folded, terms.own))
        self._required = set(map(folded, terms.required))
        self.changes: list[Change] = []
        self.misfits: list[Misfit] = []
        self.refused: list[Misfit] = []

    def struct(self, old: Columns, new: Columns, path: FieldPath) -> Columns:
        """`old` with what it lacks of `new`, as far as the policy lets it."""
        found = mates(old["fields"], new["fields"])
        fields = [self._field(field, found.get(number), path) for number, field in enumerate(old["fields"])]
        mated = {id(field) for field in found.values()}
        for field in new["fields"]:
            if id(field) not in mated:
                fields += self._added(field, (*path, field["name"]))
        return {**old, "fields": fields}

    def may_withhold(self, misfit: Misfit) -> bool:
        top = folded(misfit.path[0])
        return self._terms.policy in _DISCARDING and top not in self._required and top not in self._own

    def _may_change(self, path: FieldPath) -> bool:
        return self._terms.policy is SchemaPolicy.EVOLVE or folded(path[0]) in self._own

    def _added(self, field: Columns, path: FieldPath) -> list[Columns]:
        if not self._may_change(path):
            self.misfits.append(Misfit(path, "", said(field["type"])))
            return []
        self.changes.append(Change(What.COLUMN_ADDED, ".".join(path), "", said(field["type"])))
        return [self.numbering.field(field)]

    def _field(self, old: Columns, new: Columns | None, path: FieldPath) -> Columns:
        here = (*path, old["name"])
        if old["required"] and (new is None or not self._may_change(here)):
            # A null may come at any time.
            self.refused.append(Misfit(here, f"{said(old['type'])} not null", said(new["type"]) if new else "nothing"))
            return old
        if new is None:
            return old
        if old["required"]:
            self.changes.append(_widened(here, f"{said(old['type'])} not null", said(old["type"])))
        return {**old, "required": False, "type": self._type(old["type"], new["type"], here)}

    def _type(self, old: Type, new: Type, path: FieldPath) -> Type:
        if old == new or widens(new, old):
            return old
        if widens(old, new) and self._may_change(path):
            self.changes.append(_widened(path, said(old), said(new)))
            return new
        if isinstance(old, str) or isinstance(new, str) or old["type"] != new["type"]:
            self.misfits.append(Misfit(path, said(old), said(new)))
            return old
        if old["type"] == "struct":
            return self.struct(old, new, path)
        if old["type"] == "list":
            return {**old, "element": self._type(old["element"], new["element"], (*path, "element"))}
        if said(old["key"]) != said(new["key"]):
            self.misfits.append(Misfit((*path, "key"), said(old["key"]), said(new["key"])))
            return old
        return {**old, "value": self._type(old["value"], new["value"], (*path, "value"))}


def renamed(
    existing: Columns, wanted: Columns, formerly: Mapping[str, str]
) -> tuple[Columns, list[tuple[str, str]], list[Misfit]]:
    """The columns under their new names. One that was made already, or that the stream does not bear out, is none."""
    renames: list[tuple[str, str]] = []
    refused: list[Misfit] = []
    names = {folded(field["name"]): field for field in existing["fields"]}
    in_stream = {folded(field["name"]) for field in wanted["fields"]}
    for new, old in formerly.items():
        if folded(new) not in in_stream or folded(old) in in_stream - {folded(new)}:
            continue
        before, beside = names.get(folded(old)), names.get(folded(new))
        if before is None:
            continue
        if beside is not None and beside is not before:
            refused.append(Misfit((new,), said(beside["type"]), said(before["type"]), formerly=before["name"]))
        elif before["name"] != new:
            renames.append((before["name"], new))
    new_names = dict(renames)
    fields = [{**field, "name": new_names.get(field["name"], field["name"])} for field in existing["fields"]]
    return {**existing, "fields": fields}, renames, refused


def mates(old: list[Columns], new: list[Columns]) -> dict[int, Columns]:
    """By its place in `old`, the field of `new` that is the same: of that name, else of one that differs in case."""
    exact = {field["name"]: field for field in new}
    found = {number: exact.pop(field["name"]) for number, field in enumerate(old) if field["name"] in exact}
    left = {folded(name): field for name, field in exact.items()}
    for number, field in enumerate(old):
        if number not in found and (mate := left.pop(folded(field["name"]), None)) is not None:
            found[number] = mate
    return found


def _widened(path: FieldPath, before: str, after: str) -> Change:
    return Change(What.COLUMN_WIDENED, ".".join(path), before, after)


def widens(narrow: Type, wide: Type) -> bool:
    """Whether all values of a type can be had in the other, and Iceberg makes the one of the other."""
    if not (isinstance(narrow, str) and isinstance(wide, str)):
        return False
    small, big = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    if small and big:
        return small[2] == big[2] and int(small[1]) < int(big[1])
    return (narrow, wide) in _WIDER


def widens_as_said(narrow: str, wide: str) -> bool:
    """The same of types as `said`."""
    if narrow.startswith("array<") and wide.startswith("array<"):
        return widens_as_said(narrow[6:-1], wide[6:-1])
    return (narrow, wide) in _AS_SAID or widens(narrow, wide) or narrow == f"{wide} not null"


def _flat(columns: Columns, prefix: str) -> Iterator[tuple[str, str]]:
    for field in columns["fields"]:
        yield from _flat_type(field["type"], prefix + field["name"])


def _flat_type(kind: Type, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, str):
        yield name, said(kind)
    elif kind["type"] == "struct":
        yield name, "struct"
        yield from _flat(kind, f"{name}.")
    elif kind["type"] == "list" and isinstance(kind["element"], dict):
        yield name, "array"
        yield from _flat_type(kind["element"], f"{name}.element")
    else:
        yield name, said(kind)
