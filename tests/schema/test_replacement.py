"""A table gets other columns when all its rows are replaced: any two schemas, under each policy."""

from typing import Any

from hypothesis import given

from dagster_airbyte_proto.loads.column_ids import all_optional
from dagster_airbyte_proto.model import SchemaPolicy
from dagster_airbyte_proto.schema.evolution import ChangeKind, EvolutionRules, IcebergSchema, evolution_decision
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.schema.replacement import ReplacedTable, field_ids, replacement_schema
from tests.schema.test_evolution import RULES, SCHEMAS, WIDTHS

EMPTY: IcebergSchema = {"type": "struct", "fields": []}


def columns(**types: str) -> IcebergSchema:
    fields = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(types.items(), 1)
    ]
    return {"type": "struct", "fields": fields}


def made(wanted: IcebergSchema) -> tuple[IcebergSchema, int]:
    """A new table, and the last id that it gave out."""
    decision = evolution_decision(EMPTY, wanted, 0)
    return decision.columns, decision.last_id


def bare(kind: Any) -> Any:
    """A type without its ids, the order of fields, and which of them may be null."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return {case_folded(field["name"]): bare(field["type"]) for field in kind["fields"]}
    return [bare(kind.get(part)) for part in ("element", "key", "value")]


@given(SCHEMAS, SCHEMAS)
def test_the_table_gets_the_streams_columns_and_no_others(old: IcebergSchema, new: IcebergSchema) -> None:
    existing, last_id = made(old)
    decision, number = replacement_schema(ReplacedTable(existing, last_id), new, EvolutionRules())
    assert (bare(decision.columns), number, decision.refused) == (bare(new), None, ())
    assert max(field_ids(decision.columns)) <= decision.last_id
    # A column with an old id has the old type, or a wider one.
    fresh = field_ids(decision.columns) - field_ids(existing)
    assert all(each > last_id for each in fresh)
    before = {field["id"]: field["type"] for field in existing["fields"]}
    for field in decision.columns["fields"]:
        narrow = before.get(field["id"])
        if isinstance(narrow, str):
            assert narrow == field["type"] or (narrow, field["type"]) in WIDTHS


@given(SCHEMAS, SCHEMAS)
def test_the_same_question_gives_the_same_columns(old: IcebergSchema, new: IcebergSchema) -> None:
    existing, last_id = made(old)
    new = all_optional(new)
    first = replacement_schema(ReplacedTable(existing, last_id), new, EvolutionRules()).decision
    known = {0: existing} if first.columns == existing else {0: existing, 7: first.columns}
    again = replacement_schema(ReplacedTable(existing, first.last_id, known), new, EvolutionRules())
    assert again.decision.columns == first.columns
    assert again.schema_id == max(known)
    # This also holds if the generation is resumed, and others have changed the table since it began.
    third, last_id = made(new)
    begun = ReplacedTable(third, first.last_id + last_id, {**known, 8: third}, resumed_schema_id=max(known))
    moved = replacement_schema(begun, new, EvolutionRules())
    assert (moved.decision.columns, moved.decision.refused) == (first.columns, ())


@given(SCHEMAS, SCHEMAS, RULES)
def test_other_policies_decide_as_without_a_replacement(
    old: IcebergSchema, new: IcebergSchema, rules: EvolutionRules
) -> None:
    existing, last_id = made(old)
    if rules.policy is not SchemaPolicy.EVOLVE:
        assert replacement_schema(ReplacedTable(existing, last_id), new, rules).decision == evolution_decision(
            existing, new, last_id, rules
        )


def test_a_column_of_the_tables_layout_stays() -> None:
    before = ReplacedTable(columns(day="date", size="long", note="string"), 3, layout_columns=("DAY", "note"))
    decision = replacement_schema(before, columns(size="string", day="date"), EvolutionRules()).decision
    assert [(field["id"], field["name"], field["type"]) for field in decision.columns["fields"]] == [
        (1, "day", "date"),
        (4, "size", "string"),
        (3, "note", "string"),
    ]
    assert [(change.kind, change.column) for change in decision.changes] == [(ChangeKind.COLUMN_RETYPED, "size")]
    refused = replacement_schema(before, columns(day="string"), EvolutionRules()).decision
    assert [str(misfit) for misfit in refused.refused] == ["column day is date in the table and string in the stream"]


def test_a_renamed_column_keeps_its_id_and_replaces_one_of_its_new_name() -> None:
    rules = EvolutionRules(formerly={"mail": "email"})
    decision = replacement_schema(ReplacedTable(columns(email="string"), 1), columns(mail="string"), rules).decision
    assert (decision.columns["fields"][0]["id"], decision.renames) == (1, (("email", "mail"),))
    beside = replacement_schema(
        ReplacedTable(columns(email="string", mail="string"), 2), columns(mail="string"), rules
    ).decision
    assert ([field["id"] for field in beside.columns["fields"]], beside.refused) == ([2], ())
