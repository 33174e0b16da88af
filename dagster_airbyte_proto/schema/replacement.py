"""Decides the schema of a table whose rows are all replaced by a new generation. Pure: it changes no table.

Under `evolve`:

- The table gets the stream's columns and no others. A column that the stream lacks is dropped.
- A type may become any other, because no older row is left that has to fit. A column of another type is a new column
  under the same name, with a new id. A column that stays or is widened keeps its id.
- A column by which the table was ever partitioned or sorted (`ReplacedTable.layout_columns`) stays: the table's
  partition specs and sort orders refer to it by id. It is null if the stream lacks it, and the stream is refused if its
  type is another.

Under any other policy the decision is the same as without a replacement (`evolution.py`).
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import FieldPath, SchemaPolicy
from dagster_airbyte_proto.schema.evolution import (
    ChangeKind,
    ColumnMismatch,
    EvolutionDecision,
    EvolutionRules,
    FieldIds,
    IcebergSchema,
    IcebergType,
    SchemaChange,
    evolution_decision,
    matching_fields,
    sql_type,
    widens_to,
    with_renames,
)
from dagster_airbyte_proto.schema.names import case_folded

_IDS = frozenset(("id", "element-id", "key-id", "value-id"))


class ReplacedTable(NamedTuple):
    """A table whose rows are to be replaced.

    `known_schemas` are all schemas of the table by id: the one that readers see, and those of generations.
    `resumed_schema_id` is the schema with which the generation began, if this run resumes one, or its stream has gained
    columns since.
    """

    columns: IcebergSchema
    last_id: int
    known_schemas: Mapping[int, IcebergSchema] = {}
    resumed_schema_id: int | None = None
    layout_columns: Collection[str] = ()


class Replacement(NamedTuple):
    """A decision, and the id of its schema if the table has that schema already."""

    decision: EvolutionDecision
    schema_id: int | None = None


def replacement_schema(table: ReplacedTable, wanted: IcebergSchema, rules: EvolutionRules) -> Replacement:
    """Returns the schema of a table that is replaced by a stream of the `wanted` columns.

    The same question gives the same answer, ids included. This also holds for a generation that is resumed, even if
    others have changed the table in the meantime.
    """
    decision = _replaced(table, table.columns, wanted, rules)
    base = table.columns
    if table.resumed_schema_id is not None and table.resumed_schema_id in table.known_schemas:
        base = table.known_schemas[table.resumed_schema_id]
        decision = _replaced(table, base, wanted, rules)._replace(changes=decision.changes)
    if decision.refused:
        return Replacement(decision)
    taken = field_ids(base)
    for number in sorted(table.known_schemas, reverse=True):
        if _is_same(table.known_schemas[number]["fields"], decision.columns["fields"], taken):
            return Replacement(decision._replace(columns=table.known_schemas[number], last_id=table.last_id), number)
    return Replacement(decision)


def field_ids(kind: Any) -> set[int]:
    """Returns all field ids in a type, a schema, or a list of fields."""
    if isinstance(kind, list):
        return set().union(*map(field_ids, kind))
    if not isinstance(kind, dict):
        return set()
    return {int(kind[name]) for name in _IDS & kind.keys()}.union(*map(field_ids, kind.values()))


def _replaced(
    table: ReplacedTable, existing: IcebergSchema, wanted: IcebergSchema, rules: EvolutionRules
) -> EvolutionDecision:
    if rules.policy is not SchemaPolicy.EVOLVE or not existing["fields"]:
        return evolution_decision(existing, wanted, table.last_id, rules)
    renamed_columns, renames, _ = with_renames(existing, wanted, rules.formerly)
    new_names = dict(renames)
    merge = _IdMerge(FieldIds(table.last_id), [new_names.get(column, column) for column in table.layout_columns])
    columns = merge.struct(renamed_columns, wanted, ())
    if merge.refused:
        return EvolutionDecision(existing, table.last_id, refused=tuple(merge.refused))
    changes = [SchemaChange(ChangeKind.COLUMN_RENAMED, new, old, new) for old, new in renames]
    return EvolutionDecision(columns, merge.ids.last_id, tuple(renames), (*changes, *merge.changes))


class _IdMerge:
    """Merges the ids of an old schema into a new one. Collects the changes and the refusals on the way."""

    def __init__(self, ids: FieldIds, layout: Collection[str]) -> None:
        self.ids = ids
        self._layout = set(map(case_folded, layout))
        self.changes: list[SchemaChange] = []
        self.refused: list[ColumnMismatch] = []

    def struct(self, old: IcebergSchema, new: IcebergSchema, path: FieldPath) -> IcebergSchema:
        """Returns `new` with the ids of the fields that `old` has too, in the order of `old`."""
        found = matching_fields(old["fields"], new["fields"])
        fields: list[IcebergSchema] = []
        for number, field in enumerate(old["fields"]):
            fields += self._field(field, found.get(number), (*path, field["name"]))
        matched = {id(field) for field in found.values()}
        for field in new["fields"]:
            if id(field) not in matched:
                self._note(ChangeKind.COLUMN_ADDED, (*path, field["name"]), "", sql_type(field["type"]))
                fields.append(self.ids.field(field))
        return {**old, "fields": fields}

    def _field(self, old: IcebergSchema, new: IcebergSchema | None, path: FieldPath) -> list[IcebergSchema]:
        is_layout = case_folded(path[0]) in self._layout
        if new is None:
            if is_layout:
                return [{**old, "required": False}]
            self._note(ChangeKind.COLUMN_DROPPED, path, sql_type(old["type"]), "")
            return []
        if (kind := self._kept_type(old["type"], new["type"], path)) is not None:
            if old["required"]:
                self._note(ChangeKind.COLUMN_WIDENED, path, f"{sql_type(old['type'])} not null", sql_type(old["type"]))
            return [{**old, "required": False, "type": kind}]
        if is_layout:
            self.refused.append(ColumnMismatch(path, sql_type(old["type"]), sql_type(new["type"])))
            return [old]
        self._note(ChangeKind.COLUMN_RETYPED, path, sql_type(old["type"]), sql_type(new["type"]))
        return [self.ids.field({**new, "name": old["name"]})]

    def _kept_type(self, old: IcebergType, new: IcebergType, path: FieldPath) -> IcebergType | None:
        """Returns the type of a column that keeps its id. None if it has to be another column."""
        if isinstance(old, str) or isinstance(new, str):
            if old != new and widens_to(old, new):
                self._note(ChangeKind.COLUMN_WIDENED, path, sql_type(old), sql_type(new))
            return new if old == new or widens_to(old, new) else None
        if old["type"] != new["type"]:
            return None
        if old["type"] == "struct":
            return self.struct(old, new, path)
        part = "element" if old["type"] == "list" else "value"
        if part == "value" and sql_type(old["key"]) != sql_type(new["key"]):
            return None
        kind = self._kept_type(old[part], new[part], (*path, part))
        return None if kind is None else {**old, part: kind, f"{part}-required": False}

    def _note(self, kind: ChangeKind, path: FieldPath, before: str, after: str) -> None:
        self.changes.append(SchemaChange(kind, ".".join(path), before, after))


def _is_same(known: Any, columns: Any, taken: Collection[int]) -> bool:
    """Says if two schemas are the same but for the ids of new fields, which are not among the `taken` ids.

    A schema that the table knows may have keys that ours lacks: formats add notes of their own.
    """
    if isinstance(columns, list):
        return len(known) == len(columns) and all(
            _is_same(mine, other, taken) for mine, other in zip(known, columns, strict=True)
        )
    if not (isinstance(columns, dict) and isinstance(known, dict)):
        return bool(known == columns)
    return columns.keys() <= known.keys() and all(
        (known[name] == value or not {known[name], value} & set(taken))
        if name in _IDS
        else _is_same(known[name], value, taken)
        for name, value in columns.items()
    )
