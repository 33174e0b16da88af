"""What becomes of a table whose stream has changed: any two schemas, under each policy."""

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
from dagster_airbyte_proto.schema.evolution import Change, Columns, Misfit, Terms, Type, Verdict, What, decided, flat
from dagster_airbyte_proto.schema.names import folded

EVOLVE, FREEZE, DISCARD_COLUMN, DISCARD_ROW = SchemaPolicy
PLAIN = ("int", "long", "float", "double", "string", "date", "decimal(9, 2)", "decimal(38, 2)", "decimal(9, 3)")
WIDTHS = [("int", "long"), ("float", "double"), ("decimal(9, 2)", "decimal(38, 2)")]


def fields(types: "st.SearchStrategy[Any]", least: int = 1) -> "st.SearchStrategy[dict[str, Any]]":
    named = st.tuples(st.sampled_from(["a", "A", "b", "c", "ß"]), types, st.sampled_from([False, False, False, True]))
    unique = st.lists(named, min_size=least, max_size=4, unique_by=lambda each: folded(each[0]))
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
TERMS = st.builds(
    Terms,
    st.sampled_from(SchemaPolicy),
    own=st.sampled_from([(), ("c",)]),
    required=st.sampled_from([(), ("a",)]),
    formerly=st.sampled_from([{}, {"a": "b"}, {"d": "c"}]),
)


def numbered(kind: Any, ids: Iterator[int]) -> Any:
    """Each `id` given out in order."""
    if isinstance(kind, list):
        return [numbered(each, ids) for each in kind]
    if not isinstance(kind, dict):
        return kind
    return {
        key: next(ids) if key == "id" or key.endswith("-id") else numbered(value, ids) for key, value in kind.items()
    }


def ids_of(kind: Any) -> list[int]:
    if isinstance(kind, list):
        return [number for each in kind for number in ids_of(each)]
    if not isinstance(kind, dict):
        return []
    own = [value for key, value in kind.items() if key == "id" or key.endswith("-id")]
    return own + [number for value in kind.values() for number in ids_of(value)]


def optional(schema: Any) -> Any:
    """As a stream's columns are."""
    if isinstance(schema, list):
        return [optional(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: False if key == "required" else optional(value) for key, value in schema.items()}


def is_kept(old: Type, new: Type) -> bool:
    """Whether nothing of `old` is missing in `new`, ids included, and nothing of it got narrower."""
    if isinstance(old, str) or isinstance(new, str):
        return old == new or (old, new) in WIDTHS
    if old["type"] == "struct":
        by_id = {field["id"]: field for field in new["fields"]}
        return all(
            field["id"] in by_id and is_kept(field["type"], by_id[field["id"]]["type"]) for field in old["fields"]
        )
    parts = ("element",) if old["type"] == "list" else ("key", "value")
    return all(old[f"{part}-id"] == new[f"{part}-id"] and is_kept(old[part], new[part]) for part in parts)


@given(SCHEMAS, SCHEMAS, TERMS)
def test_no_policy_loses_a_column_of_the_table(existing: Columns, wanted: Columns, terms: Terms) -> None:
    ids = itertools.count(1)
    existing = numbered(existing, ids)
    last_id = next(ids) - 1
    wanted = optional(wanted)
    verdict = decided(existing, wanted, last_id, terms)
    assert is_kept(existing, verdict.columns)
    assert len(set(ids_of(verdict.columns))) == len(ids_of(verdict.columns))
    assert max(ids_of(verdict.columns)) <= verdict.last_id
    if verdict.refused:
        assert verdict == Verdict(existing, last_id, refused=verdict.refused)
    else:
        again = decided(verdict.columns, wanted, verdict.last_id, terms)
        assert again == Verdict(verdict.columns, verdict.last_id, withheld=verdict.withheld)
    if terms.policy in (EVOLVE, FREEZE):
        assert verdict.withheld == ()
    if terms.policy is not EVOLVE and not terms.own and not terms.formerly:
        assert verdict.columns == existing


@given(SCHEMAS, SCHEMAS, TERMS)
def test_everything_of_the_stream_lands_or_is_told_of(existing: Columns, wanted: Columns, terms: Terms) -> None:
    wanted = optional(wanted)
    verdict = decided(numbered(existing, itertools.count(1)), wanted, 99, terms)
    told = {folded(misfit.column) for misfit in (*verdict.withheld, *verdict.refused)}
    has = {folded(name) for name in flat(verdict.columns)}
    for name in map(folded, flat(wanted)):
        above = {name[:end] for end in range(len(name) + 1) if name[end : end + 1] in ("", ".")}
        assert name in has or above & told or verdict.refused


@given(SCHEMAS, TERMS)
def test_a_new_table_takes_everything(wanted: Columns, terms: Terms) -> None:
    wanted = optional(wanted)
    verdict = decided({"type": "struct", "fields": []}, wanted, 0, terms)
    assert flat(verdict.columns) == flat(wanted)
    assert (verdict.changes, verdict.withheld, verdict.refused) == ((), (), ())


def table(**types: pa.DataType) -> Columns:
    return columns_of(pa.schema(list(types.items())))


BEFORE = table(id=pa.int64(), note=pa.string(), old=pa.int64())
AFTER = table(id=pa.int64(), note=pa.int64(), email=pa.string())


@pytest.mark.parametrize(
    ("policy", "changes", "withheld", "refused"),
    [
        (EVOLVE, [], [], ["note"]),
        (FREEZE, [], [], ["note", "email"]),
        (DISCARD_COLUMN, [], ["note", "email"], []),
        (DISCARD_ROW, [], ["note", "email"], []),
    ],
)
def test_each_policy_has_its_verdict(
    policy: SchemaPolicy, changes: list[str], withheld: list[str], refused: list[str]
) -> None:
    verdict = decided(BEFORE, AFTER, 3, Terms(policy))
    assert [change.column for change in verdict.changes] == changes
    assert [misfit.column for misfit in verdict.withheld] == withheld
    assert [misfit.column for misfit in verdict.refused] == refused


def test_evolve_adds_and_widens_also_inside() -> None:
    old = table(a=pa.list_(pa.struct([("x", pa.int32())])), n=pa.int32())
    new = table(N=pa.int64(), b=pa.list_(pa.int64()), a=pa.list_(pa.struct([("y", pa.int64()), ("X", pa.int64())])))
    verdict = decided(old, new, 4)
    assert verdict.changes == (
        Change(What.COLUMN_WIDENED, "a.element.x", "int", "bigint"),
        Change(What.COLUMN_ADDED, "a.element.y", "", "bigint"),
        Change(What.COLUMN_WIDENED, "n", "int", "bigint"),
        Change(What.COLUMN_ADDED, "b", "", "array<bigint>"),
    )
    first, second, third = verdict.columns["fields"]
    assert [(field["name"], field["id"]) for field in first["type"]["element"]["fields"]] == [("x", 3), ("y", 5)]
    assert (second["name"], second["type"], third["id"], third["type"]["element-id"]) == ("n", "long", 6, 7)
    assert verdict.last_id == 7


@pytest.mark.parametrize(
    ("old", "new", "told"),
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
def test_types_that_do_not_widen_are_refused(old: pa.DataType, new: pa.DataType, told: list[tuple[str, ...]]) -> None:
    found = decided(table(c=old), table(c=new), 9).refused
    assert [(misfit.column, misfit.in_table, misfit.in_stream) for misfit in found] == told


def test_a_required_column_that_the_stream_lacks_is_refused_by_all() -> None:
    old = table(a=pa.int64(), b=pa.int64())
    old["fields"][0]["required"] = True
    for policy in SchemaPolicy:
        assert [each.column for each in decided(old, table(b=pa.int64()), 2, Terms(policy)).refused] == ["a"]


def test_what_tells_rows_apart_is_never_left_out() -> None:
    terms = Terms(DISCARD_COLUMN, required=("id", "key"))
    refused = decided(table(id=pa.int64()), table(ID=pa.string(), key=pa.int64(), x=pa.int64()), 1, terms).refused
    assert [each.column for each in refused] == ["id", "key"]


def test_our_own_columns_are_added_whatever_the_policy() -> None:
    wanted = table(id=pa.int64(), _airbyte_meta=pa.string(), email=pa.string())
    verdict = decided(table(id=pa.int64()), wanted, 1, Terms(DISCARD_ROW, own=("_airbyte_meta",)))
    assert [field["name"] for field in verdict.columns["fields"]] == ["id", "_airbyte_meta"]
    assert verdict.withheld == (Misfit(("email",), "", "string"),)


def test_a_rename_keeps_the_id_and_is_made_once() -> None:
    terms = Terms(FREEZE, formerly={"email": "mail"})
    old, new = table(id=pa.int64(), mail=pa.string()), table(id=pa.int64(), email=pa.string())
    verdict = decided(old, new, 2, terms)
    assert verdict.renames == (("mail", "email"),)
    assert [(field["name"], field["id"]) for field in verdict.columns["fields"]] == [("id", 1), ("email", 2)]
    assert decided(verdict.columns, new, 2, terms) == Verdict(verdict.columns, 2)


def test_a_rename_of_what_stands_beside_the_new_name_is_refused() -> None:
    both = table(mail=pa.string(), email=pa.string())
    terms = Terms(formerly={"email": "mail"})
    with pytest.raises(SchemaRefused, match="column email stands beside mail") as refused:
        decided(both, table(email=pa.string()), 2, terms).refuse("preparing table shop.users", terms)
    assert "by hand" in refused.value.remedy


@pytest.mark.parametrize(("policy", "way_out"), [(EVOLVE, "--refresh"), (FREEZE, "Set evolve")])
def test_the_error_names_column_and_types_and_the_ways_out(policy: SchemaPolicy, way_out: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        decided(BEFORE, AFTER, 3, Terms(policy)).refuse("preparing table shop.users", Terms(policy))
    assert "column note is string in the table and bigint in the stream" in str(refused.value)
    assert way_out in refused.value.remedy
    assert ("note", "string", "bigint") in refused.value.misfits
