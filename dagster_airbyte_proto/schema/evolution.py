"""Decides how a table's schema changes for its stream. Pure: it changes no table.

`replacement.py` decides for generations that replace all rows of a table. Columns are in Iceberg's own JSON for a
schema (see `loads/column_ids.py`). The rules, whatever the policy:

- A table loses no column, and none of its columns gets narrower. A column that the stream lacks is null from now on.
- A new table takes all columns.
- The metadata columns that we add (`EvolutionRules.own_columns`) are added and widened.
- Keys, cursors and the columns that the table is partitioned or sorted by (`EvolutionRules.required_columns`) are never
  left out. If the table cannot take one, the stream is refused.
- A refused stream changes nothing.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import SchemaRefused
from dagster_airbyte_proto.model import FieldPath, SchemaPolicy
from dagster_airbyte_proto.schema.names import case_folded

IcebergSchema = dict[str, Any]
"""`{"type": "struct", "fields": [{"id", "name", "required", "type", "doc"?}, ...]}`"""

IcebergType = str | IcebergSchema

_DISCARDING = frozenset((SchemaPolicy.DISCARD_COLUMN, SchemaPolicy.DISCARD_ROW))
# The promotions of the Iceberg specification, beside wider decimals of the same scale.
_WIDER = {("int", "long"), ("float", "double")}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_WIDER_SQL = {("int", "bigint"), ("float", "double")}
_OTHER_TABLE = "give the stream another table by `rename` in the connection file"
_REQUIRED = f"Every policy needs these columns. Drop the table and sync with --refresh, or {_OTHER_TABLE}."
_REFRESH = (
    f"Sync with --refresh: the stream's rows and columns then take the place of the table's. Or {_OTHER_TABLE}, "
    "or discard the values with schema_policy: discard_column."
)
_REMEDIES = {
    SchemaPolicy.EVOLVE: f"Drop the table and sync with --refresh, {_OTHER_TABLE}, or discard the values with "
    "schema_policy: discard_column.",
    SchemaPolicy.FREEZE: "Its schema_policy is freeze. Set evolve to have columns added and widened, discard_column or "
    f"discard_row to land without them; or {_OTHER_TABLE}.",
    SchemaPolicy.DISCARD_COLUMN: _REQUIRED,
    SchemaPolicy.DISCARD_ROW: _REQUIRED,
}


class ChangeKind(StrEnum):
    """The kinds of change to a stream. The values are those in the state store and in reports."""

    COLUMN_ADDED = "column_added"
    COLUMN_WIDENED = "column_widened"
    COLUMN_RETYPED = "column_retyped"
    COLUMN_FORM_CHANGED = "column_form_changed"
    COLUMN_RENAMED = "column_renamed"
    COLUMN_LOST = "column_lost"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_RETURNED = "column_back"
    COLUMN_EXCLUDED = "column_withheld"
    COLUMN_REFUSED = "column_refused"
    KEY_CHANGED = "key_changed"
    CURSOR_CHANGED = "cursor_changed"
    TABLE_CHANGED = "table_changed"
    STREAM_GONE = "stream_gone"
    STREAM_RETURNED = "stream_back"


class SchemaChange(msgspec.Struct, frozen=True):
    """One change to a stream.

    `column` is empty for a change to the stream itself, and a dotted name for a nested field.
    """

    kind: ChangeKind = msgspec.field(name="what")
    column: str = ""
    before: str = ""
    after: str = ""


class ColumnMismatch(NamedTuple):
    """A column of a stream that its table does not take. `in_table` is empty if the table has no such column.

    `formerly` is the column's old name, if that is the problem: the table has both names, and rows under each.
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
            return f"column {self.column} is beside {self.formerly}, its old name: the table has both"
        if not self.in_table:
            return f"the table has no column {self.column} ({self.in_stream} in the stream)"
        return f"column {self.column} is {self.in_table} in the table and {self.in_stream} in the stream"


class EvolutionRules(NamedTuple):
    """The rules for one table. `formerly` maps each column that was renamed to its old name.

    With `refresh_helps`, a refresh of the stream may change the columns for which it is refused. `retyped_columns` are
    of one type in the table and the stream, and their values of another form: the stream is refused.
    """

    policy: SchemaPolicy = SchemaPolicy.EVOLVE
    own_columns: Collection[str] = ()
    required_columns: Collection[str] = ()
    formerly: Mapping[str, str] = {}
    refresh_helps: bool = False
    retyped_columns: tuple[ColumnMismatch, ...] = ()


class EvolutionDecision(NamedTuple):
    """A decision. The table has `columns` and `last_id` once `renames` (old name, new name) and `changes` are made.

    The values of `excluded` columns do not land. If anything is `refused`, the table stays as it is and nothing lands.
    """

    columns: IcebergSchema
    last_id: int
    renames: tuple[tuple[str, str], ...] = ()
    changes: tuple[SchemaChange, ...] = ()
    excluded: tuple[ColumnMismatch, ...] = ()
    refused: tuple[ColumnMismatch, ...] = ()

    def check_accepted(self, doing: str, rules: EvolutionRules) -> None:
        """Raises SchemaRefused with every mismatch and a remedy, if the stream is refused."""
        if not self.refused:
            return
        found = "; ".join(map(str, self.refused))
        mismatches = tuple((mismatch.column, mismatch.in_table, mismatch.in_stream) for mismatch in self.refused)
        remedy = _REMEDIES[rules.policy]
        if rules.refresh_helps and rules.policy is SchemaPolicy.EVOLVE:
            remedy = _REFRESH
        if any(mismatch.formerly for mismatch in self.refused):
            remedy = (
                "Merge the two columns by hand and drop the old one, or remove `formerly` from the stream's options."
            )
        raise SchemaRefused(doing, found, remedy=remedy, mismatches=mismatches)


def evolution_decision(
    existing: IcebergSchema,
    wanted: IcebergSchema,
    last_id: int,
    rules: EvolutionRules = EvolutionRules(),  # noqa: B008 - a tuple
) -> EvolutionDecision:
    """Decides how a table of `existing` columns, with field ids up to `last_id`, takes a stream's `wanted` columns.

    Once the table has the decided columns, the same question gives no changes and the same exclusions.
    """
    if not existing["fields"]:
        rules = rules._replace(policy=SchemaPolicy.EVOLVE)
    renamed_columns, renames, refused = with_renames(existing, wanted, rules.formerly)
    merge = _ColumnMerge(FieldIds(last_id), rules)
    columns = merge.struct(renamed_columns, wanted, ())
    excluded = tuple(mismatch for mismatch in merge.mismatches if merge.may_exclude(mismatch))
    refused += [*merge.refused, *(mismatch for mismatch in merge.mismatches if not merge.may_exclude(mismatch))]
    names = {case_folded(field["name"]) for field in existing["fields"]}
    refused += [mismatch for mismatch in rules.retyped_columns if case_folded(mismatch.column) in names]
    if refused:
        return EvolutionDecision(existing, last_id, refused=tuple(refused))
    changes = [SchemaChange(ChangeKind.COLUMN_RENAMED, new, old, new) for old, new in renames]
    if existing["fields"]:
        changes += merge.changes
    return EvolutionDecision(columns, merge.ids.last_id, tuple(renames), tuple(changes), excluded)


def column_types(columns: IcebergSchema) -> dict[str, str]:
    """Returns the type of each column and nested field, by its dotted name.

    The fields of structs, and of lists of structs, have entries of their own. So a change inside of a struct is
    reported as a change of that field.
    """
    return dict(_struct_types(columns, ""))


def sql_type(of_type: IcebergType) -> str:
    """Returns a type as Spark SQL writes it. It is for people to read, and precise enough to compare."""
    if isinstance(of_type, str):
        return {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}.get(of_type, of_type)
    if of_type["type"] == "struct":
        return "struct<" + ", ".join(f"{field['name']}: {sql_type(field['type'])}" for field in of_type["fields"]) + ">"
    if of_type["type"] == "list":
        return f"array<{sql_type(of_type['element'])}>"
    return f"map<{sql_type(of_type['key'])}, {sql_type(of_type['value'])}>"


class FieldIds:
    """Assigns ids to new fields of a table, which has assigned ids up to `last_id`."""

    def __init__(self, last_id: int) -> None:
        self.last_id = last_id

    def field(self, field: IcebergSchema) -> IcebergSchema:
        return {**field, "id": self._next(), "type": self._type(field["type"])}

    def _type(self, kind: IcebergType) -> IcebergType:
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


class _ColumnMerge:
    """Merges a stream's columns into a table's. Collects changes, mismatches and refusals on the way."""

    def __init__(self, ids: FieldIds, rules: EvolutionRules) -> None:
        self.ids = ids
        self._rules = rules
        self._own = set(map(case_folded, rules.own_columns))
        self._required = set(map(case_folded, rules.required_columns))
        self.changes: list[SchemaChange] = []
        self.mismatches: list[ColumnMismatch] = []
        self.refused: list[ColumnMismatch] = []

    def struct(self, old: IcebergSchema, new: IcebergSchema, path: FieldPath) -> IcebergSchema:
        """Returns `old` with the fields of `new` that it lacks, as far as the policy allows."""
        found = matching_fields(old["fields"], new["fields"])
        fields = [self._field(field, found.get(number), path) for number, field in enumerate(old["fields"])]
        matched = {id(field) for field in found.values()}
        for field in new["fields"]:
            if id(field) not in matched:
                fields += self._added(field, (*path, field["name"]))
        return {**old, "fields": fields}

    def may_exclude(self, mismatch: ColumnMismatch) -> bool:
        top = case_folded(mismatch.path[0])
        return self._rules.policy in _DISCARDING and top not in self._required and top not in self._own

    def _may_change(self, path: FieldPath) -> bool:
        return self._rules.policy is SchemaPolicy.EVOLVE or case_folded(path[0]) in self._own

    def _added(self, field: IcebergSchema, path: FieldPath) -> list[IcebergSchema]:
        if not self._may_change(path):
            self.mismatches.append(ColumnMismatch(path, "", sql_type(field["type"])))
            return []
        self.changes.append(SchemaChange(ChangeKind.COLUMN_ADDED, ".".join(path), "", sql_type(field["type"])))
        return [self.ids.field(field)]

    def _field(self, old: IcebergSchema, new: IcebergSchema | None, path: FieldPath) -> IcebergSchema:
        here = (*path, old["name"])
        if old["required"] and (new is None or not self._may_change(here)):
            # No source promises that a field is never null, so a column that cannot be null will fail sooner or later.
            self.refused.append(
                ColumnMismatch(here, f"{sql_type(old['type'])} not null", sql_type(new["type"]) if new else "nothing")
            )
            return old
        if new is None:
            return old
        if old["required"]:
            self.changes.append(_widened(here, f"{sql_type(old['type'])} not null", sql_type(old["type"])))
        return {**old, "required": False, "type": self._type(old["type"], new["type"], here)}

    def _type(self, old: IcebergType, new: IcebergType, path: FieldPath) -> IcebergType:
        if old == new or widens_to(new, old):
            return old
        if widens_to(old, new) and self._may_change(path):
            self.changes.append(_widened(path, sql_type(old), sql_type(new)))
            return new
        if isinstance(old, str) or isinstance(new, str) or old["type"] != new["type"]:
            self.mismatches.append(ColumnMismatch(path, sql_type(old), sql_type(new)))
            return old
        if old["type"] == "struct":
            return self.struct(old, new, path)
        if old["type"] == "list":
            return {**old, "element": self._type(old["element"], new["element"], (*path, "element"))}
        if sql_type(old["key"]) != sql_type(new["key"]):
            self.mismatches.append(ColumnMismatch((*path, "key"), sql_type(old["key"]), sql_type(new["key"])))
            return old
        return {**old, "value": self._type(old["value"], new["value"], (*path, "value"))}


def with_renames(
    existing: IcebergSchema, wanted: IcebergSchema, formerly: Mapping[str, str]
) -> tuple[IcebergSchema, list[tuple[str, str]], list[ColumnMismatch]]:
    """Returns the columns under their new names, the renames, and the renames that are refused.

    A rename is skipped if the table has it already, or if the stream lacks the new name or still sends the old one.
    """
    renames: list[tuple[str, str]] = []
    refused: list[ColumnMismatch] = []
    names = {case_folded(field["name"]): field for field in existing["fields"]}
    in_stream = {case_folded(field["name"]) for field in wanted["fields"]}
    for new, old in formerly.items():
        if case_folded(new) not in in_stream or case_folded(old) in in_stream - {case_folded(new)}:
            continue
        before, beside = names.get(case_folded(old)), names.get(case_folded(new))
        if before is None:
            continue
        if beside is not None and beside is not before:
            refused.append(
                ColumnMismatch((new,), sql_type(beside["type"]), sql_type(before["type"]), formerly=before["name"])
            )
        elif before["name"] != new:
            renames.append((before["name"], new))
    new_names = dict(renames)
    fields = [{**field, "name": new_names.get(field["name"], field["name"])} for field in existing["fields"]]
    return {**existing, "fields": fields}, renames, refused


def matching_fields(old: list[IcebergSchema], new: list[IcebergSchema]) -> dict[int, IcebergSchema]:
    """Maps positions in `old` to fields of `new`: by the same name first, then by a name that differs in case alone."""
    exact = {field["name"]: field for field in new}
    found = {number: exact.pop(field["name"]) for number, field in enumerate(old) if field["name"] in exact}
    left = {case_folded(name): field for name, field in exact.items()}
    for number, field in enumerate(old):
        if number not in found and (match := left.pop(case_folded(field["name"]), None)) is not None:
            found[number] = match
    return found


def _widened(path: FieldPath, before: str, after: str) -> SchemaChange:
    return SchemaChange(ChangeKind.COLUMN_WIDENED, ".".join(path), before, after)


def widens_to(narrow: IcebergType, wide: IcebergType) -> bool:
    """Says if the wide type holds all values of the narrow one, and Iceberg can promote the one to the other."""
    if not (isinstance(narrow, str) and isinstance(wide, str)):
        return False
    small, big = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    if small and big:
        return small[2] == big[2] and int(small[1]) < int(big[1])
    return (narrow, wide) in _WIDER


def sql_type_widens_to(narrow: str, wide: str) -> bool:
    """Says if one type widens to another, for types as `sql_type` writes them."""
    if narrow.startswith("array<") and wide.startswith("array<"):
        return sql_type_widens_to(narrow[6:-1], wide[6:-1])
    return (narrow, wide) in _WIDER_SQL or widens_to(narrow, wide) or narrow == f"{wide} not null"


def _struct_types(columns: IcebergSchema, prefix: str) -> Iterator[tuple[str, str]]:
    for field in columns["fields"]:
        yield from _field_types(field["type"], prefix + field["name"])


def _field_types(kind: IcebergType, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, str):
        yield name, sql_type(kind)
    elif kind["type"] == "struct":
        yield name, "struct"
        yield from _struct_types(kind, f"{name}.")
    elif kind["type"] == "list" and isinstance(kind["element"], dict):
        yield name, "array"
        yield from _field_types(kind["element"], f"{name}.element")
    else:
        yield name, sql_type(kind)
