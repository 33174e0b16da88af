"""A table takes a stream that has changed: any two schemas, under each policy."""

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import SchemaRefused
from dagster_airbyte_proto.loads.column_ids import columns_of
from dagster_airbyte_proto.model import SchemaPolicy
from dagster_airbyte_proto.schema.evolution import (
    ChangeKind,
    ColumnMismatch,
    EvolutionDecision,
    EvolutionRules,
    IcebergSchema,
    IcebergType,
    SchemaChange,
    column_types,
    evolution_decision,
)
from dagster_airbyte_proto.schema.names import case_folded

EVOLVE, FREEZE, DISCARD_COLUMN, DISCARD_ROW = SchemaPolicy
PLAIN = ("int", "long", "float", "double", "string", "date", "decimal(9, 2)", "decimal(38, 2)", "decimal(9, 3)")
WIDTHS = [("int", "long"), ("float", "double"), ("decimal(9, 2)", "decimal(38, 2)")]


def fields(types: "st.SearchStrategy[Any]", least: int = 1) -> "st.SearchStrategy[dict[str, Any]]":
    named = st.tuples(st.sampled_from(["a", "A", "b", "c", "ß"]), types, st.sampled_from([False, False, False, True]))
    unique = st.lists(named, min_size=least, max_size=4, unique_by=lambda each: case_folded(each[0]))
    return unique.map(
        lambda some: {
            "type": "struct",
            "fields": [
                {"id": 0, "name": name, "required": is_required, "type": kind} for name, kind, is_required in some
            ],
        }
    )


def lists(types: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    return types.map(lambda kind: {"type": "list", "element-id": 0, "element": kind, "element-required": False})


def maps(types: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    return types.map(
        lambda kind: {
            "type": "map",
            "key-id": 0,
            "key": "string",
            "value-id": 0,
            "value": kind,
            "value-required": False,
        }
    )


TYPES = st.recursive(st.sampled_from(PLAIN), lambda inner: fields(inner) | lists(inner) | maps(inner), max_leaves=4)
SCHEMAS = fields(TYPES)
RULES = st.builds(
    EvolutionRules,
    st.sampled_from(SchemaPolicy),
    own_columns=st.sampled_from([(), ("c",)]),
    required_columns=st.sampled_from([(), ("a",)]),
    formerly=st.sampled_from([{}, {"a": "b"}, {"d": "c"}]),
)


def numbered(kind: Any, ids: Iterator[int]) -> Any:
    """The type with each `id` assigned in order."""
    if isinstance(kind, list):
        return [numbered(each, ids) for each in kind]
    if not isinstance(kind, dict):
        return kind
    return {
        key: next(ids) if key == "id" or key.endswith("-id") else numbered(value, ids) for key, value in kind.items()
    }


def all_ids(kind: Any) -> list[int]:
    if isinstance(kind, list):
        return [number for each in kind for number in all_ids(each)]
    if not isinstance(kind, dict):
        return []
    own = [value for key, value in kind.items() if key == "id" or key.endswith("-id")]
    return own + [number for value in kind.values() for number in all_ids(value)]


def optional(schema: Any) -> Any:
    """The schema with every field optional, as a stream's columns are."""
    if isinstance(schema, list):
        return [optional(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: False if key == "required" else optional(value) for key, value in schema.items()}


def is_kept(old: IcebergType, new: IcebergType) -> bool:
    """True if `new` has everything of `old`, ids included, and nothing got narrower."""
    if isinstance(old, str) or isinstance(new, str):
        return old == new or (old, new) in WIDTHS
    if old["type"] == "struct":
        by_id = {field["id"]: field for field in new["fields"]}
        return all(
            field["id"] in by_id and is_kept(field["type"], by_id[field["id"]]["type"]) for field in old["fields"]
        )
    parts = ("element",) if old["type"] == "list" else ("key", "value")
    return all(old[f"{part}-id"] == new[f"{part}-id"] and is_kept(old[part], new[part]) for part in parts)


@given(SCHEMAS, SCHEMAS, RULES)
def test_no_policy_loses_a_column_of_the_table(
    existing: IcebergSchema, wanted: IcebergSchema, rules: EvolutionRules
) -> None:
    ids = itertools.count(1)
    existing = numbered(existing, ids)
    last_id = next(ids) - 1
    wanted = optional(wanted)
    decision = evolution_decision(existing, wanted, last_id, rules)
    assert is_kept(existing, decision.columns)
    assert len(set(all_ids(decision.columns))) == len(all_ids(decision.columns))
    assert max(all_ids(decision.columns)) <= decision.last_id
    if decision.refused:
        assert decision == EvolutionDecision(existing, last_id, refused=decision.refused)
    else:
        again = evolution_decision(decision.columns, wanted, decision.last_id, rules)
        assert again == EvolutionDecision(decision.columns, decision.last_id, excluded=decision.excluded)
    if rules.policy in (EVOLVE, FREEZE):
        assert decision.excluded == ()
    if rules.policy is not EVOLVE and not rules.own_columns and not rules.formerly:
        assert decision.columns == existing


@given(SCHEMAS, SCHEMAS, RULES)
def test_every_column_of_the_stream_lands_or_is_reported(
    existing: IcebergSchema, wanted: IcebergSchema, rules: EvolutionRules
) -> None:
    wanted = optional(wanted)
    decision = evolution_decision(numbered(existing, itertools.count(1)), wanted, 99, rules)
    expected = {case_folded(misfit.column) for misfit in (*decision.excluded, *decision.refused)}
    has = {case_folded(name) for name in column_types(decision.columns)}
    for name in map(case_folded, column_types(wanted)):
        above = {name[:end] for end in range(len(name) + 1) if name[end : end + 1] in ("", ".")}
        assert name in has or above & expected or decision.refused


@given(SCHEMAS, RULES)
def test_a_new_table_takes_everything(wanted: IcebergSchema, rules: EvolutionRules) -> None:
    wanted = optional(wanted)
    decision = evolution_decision({"type": "struct", "fields": []}, wanted, 0, rules)
    assert column_types(decision.columns) == column_types(wanted)
    assert (decision.changes, decision.excluded, decision.refused) == ((), (), ())


def table(**types: pa.DataType) -> IcebergSchema:
    return columns_of(pa.schema(list(types.items())))


BEFORE = table(id=pa.int64(), note=pa.string(), old=pa.int64())
AFTER = table(id=pa.int64(), note=pa.int64(), email=pa.string())


@pytest.mark.parametrize(
    ("policy", "changes", "excluded", "refused"),
    [
        (EVOLVE, [], [], ["note"]),
        (FREEZE, [], [], ["note", "email"]),
        (DISCARD_COLUMN, [], ["note", "email"], []),
        (DISCARD_ROW, [], ["note", "email"], []),
    ],
)
def test_each_policy_decides_differently(
    policy: SchemaPolicy, changes: list[str], excluded: list[str], refused: list[str]
) -> None:
    decision = evolution_decision(BEFORE, AFTER, 3, EvolutionRules(policy))
    assert [change.column for change in decision.changes] == changes
    assert [misfit.column for misfit in decision.excluded] == excluded
    assert [misfit.column for misfit in decision.refused] == refused


def test_evolve_adds_and_widens_also_inside() -> None:
    old = table(a=pa.list_(pa.struct([("x", pa.int32())])), n=pa.int32())
    new = table(N=pa.int64(), b=pa.list_(pa.int64()), a=pa.list_(pa.struct([("y", pa.int64()), ("X", pa.int64())])))
    decision = evolution_decision(old, new, 4)
    assert decision.changes == (
        SchemaChange(ChangeKind.COLUMN_WIDENED, "a.element.x", "int", "bigint"),
        SchemaChange(ChangeKind.COLUMN_ADDED, "a.element.y", "", "bigint"),
        SchemaChange(ChangeKind.COLUMN_WIDENED, "n", "int", "bigint"),
        SchemaChange(ChangeKind.COLUMN_ADDED, "b", "", "array<bigint>"),
    )
    first, second, third = decision.columns["fields"]
    assert [(field["name"], field["id"]) for field in first["type"]["element"]["fields"]] == [("x", 3), ("y", 5)]
    assert (second["name"], second["type"], third["id"], third["type"]["element-id"]) == ("n", "long", 6, 7)
    assert decision.last_id == 7


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (pa.int64(), pa.string(), [("c", "bigint", "string")]),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), [("c", "timestamp_ntz", "timestamp")]),
        (pa.date32(), pa.timestamp("us", "UTC"), [("c", "date", "timestamp")]),
        (pa.list_(pa.int64()), pa.string(), [("c", "array<bigint>", "string")]),
        (pa.list_(pa.int64()), pa.list_(pa.bool_()), [("c.element", "bigint", "boolean")]),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), [("c", "decimal(9, 2)", "decimal(9, 3)")]),
        (pa.map_(pa.int64(), pa.string()), pa.map_(pa.string(), pa.string()), [("c.key", "bigint", "string")]),
        (pa.decimal128(9, 2), pa.decimal128(38, 2), []),
        (pa.int64(), pa.int32(), []),
        (pa.float32(), pa.float64(), []),
        (pa.int64(), pa.float64(), [("c", "bigint", "double")]),
    ],
)
def test_types_that_do_not_widen_are_refused(
    old: pa.DataType, new: pa.DataType, expected: list[tuple[str, ...]]
) -> None:
    found = evolution_decision(table(c=old), table(c=new), 9).refused
    assert [(misfit.column, misfit.in_table, misfit.in_stream) for misfit in found] == expected


def test_a_required_column_that_the_stream_lacks_is_refused_by_all() -> None:
    old = table(a=pa.int64(), b=pa.int64())
    old["fields"][0]["required"] = True
    for policy in SchemaPolicy:
        assert [
            each.column for each in evolution_decision(old, table(b=pa.int64()), 2, EvolutionRules(policy)).refused
        ] == ["a"]


def test_a_required_column_is_never_left_out() -> None:
    rules = EvolutionRules(DISCARD_COLUMN, required_columns=("id", "key"))
    refused = evolution_decision(
        table(id=pa.int64()), table(ID=pa.string(), key=pa.int64(), x=pa.int64()), 1, rules
    ).refused
    assert [each.column for each in refused] == ["id", "key"]


def test_our_own_columns_are_added_whatever_the_policy() -> None:
    wanted = table(id=pa.int64(), _airbyte_meta=pa.string(), email=pa.string())
    decision = evolution_decision(
        table(id=pa.int64()), wanted, 1, EvolutionRules(DISCARD_ROW, own_columns=("_airbyte_meta",))
    )
    assert [field["name"] for field in decision.columns["fields"]] == ["id", "_airbyte_meta"]
    assert decision.excluded == (ColumnMismatch(("email",), "", "string"),)


def test_a_rename_keeps_the_id_and_is_made_once() -> None:
    rules = EvolutionRules(FREEZE, formerly={"email": "mail"})
    old, new = table(id=pa.int64(), mail=pa.string()), table(id=pa.int64(), email=pa.string())
    decision = evolution_decision(old, new, 2, rules)
    assert decision.renames == (("mail", "email"),)
    assert [(field["name"], field["id"]) for field in decision.columns["fields"]] == [("id", 1), ("email", 2)]
    assert evolution_decision(decision.columns, new, 2, rules) == EvolutionDecision(decision.columns, 2)


def test_a_rename_is_refused_if_the_table_has_both_names() -> None:
    both = table(mail=pa.string(), email=pa.string())
    rules = EvolutionRules(formerly={"email": "mail"})
    with pytest.raises(SchemaRefused, match="column email is beside mail") as refused:
        evolution_decision(both, table(email=pa.string()), 2, rules).check_accepted("preparing table shop.users", rules)
    assert "by hand" in refused.value.remedy


@pytest.mark.parametrize(("policy", "way_out"), [(EVOLVE, "--refresh"), (FREEZE, "Set evolve")])
def test_the_error_names_columns_types_and_a_remedy(policy: SchemaPolicy, way_out: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        evolution_decision(BEFORE, AFTER, 3, EvolutionRules(policy)).check_accepted(
            "preparing table shop.users", EvolutionRules(policy)
        )
    assert "column note is string in the table and bigint in the stream" in str(refused.value)
    assert way_out in refused.value.remedy
    assert ("note", "string", "bigint") in refused.value.mismatches
