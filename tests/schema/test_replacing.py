"""What becomes of a table's columns when all its rows are replaced: any two schemas, under each policy."""

from typing import Any

from hypothesis import given

from dagster_airbyte_proto.loads.column_ids import optional
from dagster_airbyte_proto.model import SchemaPolicy
from dagster_airbyte_proto.schema.evolution import Columns, Terms, What, decided
from dagster_airbyte_proto.schema.names import folded
from dagster_airbyte_proto.schema.replacing import Before, ids_of, replacement
from tests.schema.test_evolution import SCHEMAS, TERMS, WIDTHS

NOTHING: Columns = {"type": "struct", "fields": []}


def columns(**types: str) -> Columns:
    fields = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(types.items(), 1)
    ]
    return {"type": "struct", "fields": fields}


def made(wanted: Columns) -> tuple[Columns, int]:
    """A new table, and the last id that it gave out."""
    verdict = decided(NOTHING, wanted, 0)
    return verdict.columns, verdict.last_id


def bare(kind: Any) -> Any:
    """A type without what is no type: ids, the order of fields, and which of them may be null."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return {folded(field["name"]): bare(field["type"]) for field in kind["fields"]}
    return [bare(kind.get(part)) for part in ("element", "key", "value")]


@given(SCHEMAS, SCHEMAS)
def test_the_table_gets_the_streams_columns_and_no_others(old: Columns, new: Columns) -> None:
    existing, last_id = made(old)
    verdict, number = replacement(Before(existing, last_id), new, Terms())
    assert (bare(verdict.columns), number, verdict.refused) == (bare(new), None, ())
    assert max(ids_of(verdict.columns)) <= verdict.last_id
    # What has an old id is of the old type, or a wider one.
    fresh = ids_of(verdict.columns) - ids_of(existing)
    assert all(each > last_id for each in fresh)
    before = {field["id"]: field["type"] for field in existing["fields"]}
    for field in verdict.columns["fields"]:
        narrow = before.get(field["id"])
        if isinstance(narrow, str):
            assert narrow == field["type"] or (narrow, field["type"]) in WIDTHS


@given(SCHEMAS, SCHEMAS)
def test_whoever_asks_again_finds_the_same_columns(old: Columns, new: Columns) -> None:
    existing, last_id = made(old)
    new = optional(new)
    first = replacement(Before(existing, last_id), new, Terms()).verdict
    known = {0: existing} if first.columns == existing else {0: existing, 7: first.columns}
    again = replacement(Before(existing, first.last_id, known), new, Terms())
    assert again.verdict.columns == first.columns
    assert again.number == max(known)
    # Also when the generation was begun, and others have changed the table since.
    third, last_id = made(new)
    begun = Before(third, first.last_id + last_id, {**known, 8: third}, begun=max(known))
    moved = replacement(begun, new, Terms())
    assert (moved.verdict.columns, moved.verdict.refused) == (first.columns, ())


@given(SCHEMAS, SCHEMAS, TERMS)
def test_other_policies_hold_as_ever(old: Columns, new: Columns, terms: Terms) -> None:
    existing, last_id = made(old)
    if terms.policy is not SchemaPolicy.EVOLVE:
        assert replacement(Before(existing, last_id), new, terms).verdict == decided(existing, new, last_id, terms)


def test_what_the_table_is_laid_out_by_stays() -> None:
    before = Before(columns(day="date", size="long", note="string"), 3, fixed=("DAY", "note"))
    verdict = replacement(before, columns(size="string", day="date"), Terms()).verdict
    assert [(field["id"], field["name"], field["type"]) for field in verdict.columns["fields"]] == [
        (1, "day", "date"),
        (4, "size", "string"),
        (3, "note", "string"),
    ]
    assert [(change.what, change.column) for change in verdict.changes] == [(What.COLUMN_RETYPED, "size")]
    refused = replacement(before, columns(day="string"), Terms()).verdict
    assert [str(misfit) for misfit in refused.refused] == ["column day is date in the table and string in the stream"]


def test_a_renamed_column_keeps_its_id_and_one_of_its_new_name_gives_way() -> None:
    terms = Terms(formerly={"mail": "email"})
    verdict = replacement(Before(columns(email="string"), 1), columns(mail="string"), terms).verdict
    assert (verdict.columns["fields"][0]["id"], verdict.renames) == (1, (("email", "mail"),))
    beside = replacement(Before(columns(email="string", mail="string"), 2), columns(mail="string"), terms).verdict
    assert ([field["id"] for field in beside.columns["fields"]], beside.refused) == ([2], ())
