"""What a schema says of its values, in every way that schemas have of saying it. None of it fails."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.model import IntegersAs, NumbersAs, ObjectsAs, TypeChoices
from dagster_airbyte_proto.schema.columns import ValueType
from dagster_airbyte_proto.schema.value_types import JSON, declared_properties, value_type

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}
_REAL = {"type": "number"}
_NULL = {"type": "null"}
_MOMENT = {"type": "string", "format": "date-time"}
_DAY = {"type": "string", "format": "date"}
_INSTANT = pa.timestamp("us", "UTC")
_ROOT: Mapping[str, Any] = {
    "definitions": {
        "whole": _WHOLE,
        "with space": _WHOLE,
        "a/b~c": _WHOLE,
        "loop": {"$ref": "#/definitions/loop"},
        "there": {"$ref": "#/definitions/back"},
        "back": {"$ref": "#/definitions/there"},
        "tree": {
            "type": "object",
            "properties": {"name": _TEXT, "children": {"type": "array", "items": {"$ref": "#/definitions/tree"}}},
        },
        "list": {"type": "array", "items": {"$ref": "#/definitions/list"}},
        "listed": [_TEXT, _WHOLE],
        "money": {"properties": {"amount": _REAL}},
    },
    "$defs": {"moment": _MOMENT},
}
_DECIMALS = TypeChoices(integers=IntegersAs.DECIMAL, numbers=NumbersAs.DECIMAL)
_STRUCTS = TypeChoices(objects=ObjectsAs.STRUCT)


def _read(schema: Any, choices: TypeChoices = TypeChoices()) -> pa.DataType:  # noqa: B008  # frozen
    return value_type(schema, _ROOT, choices).table_type


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"allOf": [_TEXT, {"format": "date-time"}]}, _INSTANT),
        ({"allOf": [{"type": ["null", "integer"]}, _REAL]}, pa.int64()),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": ["string", "null"]}]}, pa.string()),
        ({"allOf": [{"$ref": "#/definitions/whole"}], "description": "a count"}, pa.int64()),
        ({"allOf": [{"$ref": "#/definitions/whole"}, {"$ref": "#/definitions/whole"}]}, pa.int64()),
        ({"type": "array", "allOf": [{"items": _REAL}, {"items": _WHOLE}]}, pa.list_(pa.int64())),
        ({"$ref": "#/definitions/whole", "description": "a count"}, pa.int64()),
        ({"$ref": "#/definitions/with%20space"}, pa.int64()),
        ({"$ref": "#/definitions/a~1b~0c"}, pa.int64()),
        ({"$ref": "#/definitions/listed/1"}, pa.int64()),
        ({"$ref": "#/$defs/moment"}, _INSTANT),
    ],
)
def test_what_is_merged_or_referred_to_is_as_if_it_stood_there(schema: Any, expected: pa.DataType) -> None:
    assert _read(schema) == expected


@pytest.mark.parametrize("nullable", [
    {"type": ["null", "integer"]},
    {"type": ["integer", "null"]},
    {"type": "integer", "nullable": True},
    {"oneOf": [_NULL, _WHOLE]},
    {"anyOf": [_WHOLE, {"type": ["null"]}]},
    {"oneOf": [_WHOLE, {"const": None}]},
    {"anyOf": [{"enum": [None]}, {"$ref": "#/definitions/whole"}]},
    {"allOf": [{"type": ["null", "integer"]}, {"type": ["null", "number"]}]},
    {"enum": [1, 2, None]},
    {"type": "integer", "default": None},
])  # fmt: skip
def test_each_spelling_of_nullable_is_the_type_alone(nullable: Any) -> None:
    assert _read(nullable) == pa.int64()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"oneOf": [_WHOLE, _REAL]}, pa.float64()),
        ({"anyOf": [_WHOLE, {"type": "string", "airbyte_type": "big_integer"}]}, pa.decimal128(38, 0)),
        ({"anyOf": [_MOMENT, _TEXT]}, pa.string()),
        ({"oneOf": [_MOMENT, _DAY, _NULL]}, pa.string()),
        ({"oneOf": [_MOMENT, _MOMENT]}, _INSTANT),
        ({"type": "string", "anyOf": [{"format": "date"}, {"format": "date"}]}, pa.date32()),
        ({"type": "string", "oneOf": [{"const": "a"}, {"const": "b"}]}, pa.string()),
        ({"oneOf": [{"type": "array", "items": _WHOLE}, _NULL]}, pa.list_(pa.int64())),
    ],
)
def test_a_union_of_what_can_be_one_type_is_that_type(schema: Any, expected: pa.DataType) -> None:
    assert _read(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"enum": ["a", "b"]}, pa.string()),
        ({"enum": [1, 2.5]}, pa.float64()),
        ({"const": True}, pa.bool_()),
        ({"items": _WHOLE}, pa.list_(pa.int64())),
        ({"format": "date-time"}, _INSTANT),
        ({"airbyte_type": "timestamp_without_timezone"}, pa.timestamp("us")),
        ({"airbyte_type": "integer"}, pa.int64()),
        ({"contentEncoding": "base64"}, pa.binary()),
        ({"type": "int"}, pa.int64()),
    ],
)
def test_a_missing_type_is_what_the_rest_plainly_means(schema: Any, expected: pa.DataType) -> None:
    assert _read(schema) == expected


@pytest.mark.parametrize(
    ("schema", "item"),
    [
        ({"type": "array", "items": [_WHOLE]}, pa.int64()),
        ({"type": "array", "items": [_WHOLE, {"type": ["null", "integer"]}]}, pa.int64()),
        ({"type": "array", "items": [_WHOLE, _TEXT]}, pa.string()),
        ({"type": "array", "items": [_WHOLE], "additionalItems": _REAL}, pa.float64()),
        ({"type": "array", "prefixItems": [_WHOLE], "items": _REAL}, pa.float64()),
        ({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": _DAY}}},
         pa.list_(pa.list_(pa.date32()))),
        ({"type": "array", "items": {"$ref": "#/definitions/tree"}}, pa.string()),
    ],
)  # fmt: skip
def test_an_array_is_of_what_its_items_are(schema: Any, item: pa.DataType) -> None:
    assert _read(schema) == pa.list_(item)


@pytest.mark.parametrize("schema", [
    {}, True, False, None, 7, "integer", [],
    {"type": []}, {"type": 7}, {"type": {}}, {"type": [{}]}, {"type": "file"}, _NULL, {"type": ["string", "integer"]},
    {"enum": "abc"}, {"enum": []}, {"enum": ["a", 1]}, {"const": {"a": 1}}, {"const": None},
    {"oneOf": 7}, {"oneOf": []}, {"oneOf": [_NULL]}, {"anyOf": [_TEXT, {}]}, {"anyOf": [_TEXT, True]},
    {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]}, {"allOf": [_TEXT, _WHOLE]}, {"allOf": 7, "type": "object"},
    {"type": "array"}, {"type": "array", "items": {}}, {"type": "array", "items": True}, {"type": "array", "items": []},
    {"additionalProperties": True}, {"type": "object", "additionalProperties": _TEXT},
    {"patternProperties": {"^x": _TEXT}}, {"type": "object", "properties": 7}, {"properties": {}},
    {"$ref": "#/definitions/loop"}, {"$ref": "#/definitions/there"}, {"$ref": "#/definitions/missing"},
    {"$ref": "#/definitions/listed/9"}, {"$ref": f"#/definitions/listed/{'9' * 5000}"}, {"$ref": "#anchor"},
    {"$ref": "https://example.com/schema.json"}, {"$ref": 7},
    {"$ref": "#"},
])  # fmt: skip
def test_what_a_schema_leaves_open_is_json(schema: Any) -> None:
    assert value_type(schema, _ROOT) == JSON
    assert value_type({"allOf": [schema]} if schema is not None else schema, _ROOT, _STRUCTS) == JSON


def test_an_anchor_is_not_the_whole_document() -> None:
    root = {"type": "object", "properties": {"id": _WHOLE, "place": {"$ref": "#place"}}}
    for reference in ("#place", "#properties/id"):
        assert value_type({"$ref": reference}, root, _STRUCTS) == JSON
    assert value_type({"$ref": "#/properties/id"}, root, _STRUCTS).table_type == pa.int64()


@pytest.mark.parametrize("choices", [TypeChoices(), _STRUCTS])
def test_a_schema_that_has_no_end_is_read_to_one(choices: TypeChoices) -> None:
    assert value_type({"$ref": "#/definitions/list"}, _ROOT, choices) == ValueType(JSON.kind, 1)
    deep: Any = _TEXT
    for _ in range(500):
        deep = {"type": "array", "items": {"allOf": [deep]}}
    assert value_type(deep, _ROOT, choices).kind is JSON.kind
    doubling = {f"d{n}": {"oneOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 4} for n in range(30)}
    root = {"definitions": doubling}
    assert value_type({"$ref": "#/definitions/d0"}, root, choices) == JSON
    wide = {f"d{n}": {"properties": {f"p{m}": {"$ref": f"#/definitions/d{n + 1}"} for m in range(9)}} for n in range(9)}
    value_type({"$ref": "#/definitions/d0"}, {"definitions": wide}, choices)


def test_properties_are_those_of_all_parts_and_of_every_alternative() -> None:
    schema = {
        "allOf": [{"$ref": "#/definitions/money"}, {"properties": {"amount": _WHOLE, "at": _DAY}}],
        "properties": {"id": _WHOLE},
        "oneOf": [{"properties": {"x": _WHOLE, "id": {}}}, {"properties": {"x": _TEXT}}, {"required": ["id"]}],
    }
    found = declared_properties(schema, _ROOT)
    types = {name: str(value_type(each, _ROOT).table_type) for name, each in found.items()}
    assert types == {"id": "int64", "amount": "int64", "at": "date32[day]", "x": "string"}


@pytest.mark.parametrize(
    ("step", "kind"),
    [(0.01, pa.decimal128(38, 9)), (1e-9, pa.decimal128(38, 9)), (1e-38, pa.float64()), (1, pa.float64()),
     (0.25, pa.float64()), ("0.01", pa.float64()), ([], pa.float64())],
)  # fmt: skip
def test_numbers_of_so_many_digits_are_decimals(step: object, kind: pa.DataType) -> None:
    assert _read({"type": ["null", "number"], "multipleOf": step}) == kind


def test_numbers_are_decimals_where_that_is_chosen() -> None:
    assert _read(_WHOLE, _DECIMALS) == pa.decimal128(38, 0)
    assert _read(_REAL, _DECIMALS) == pa.decimal128(38, 9)
    assert _read({"oneOf": [_WHOLE, _REAL]}, _DECIMALS) == pa.decimal128(38, 9)
    assert _read({"type": "array", "items": _WHOLE}, _DECIMALS) == pa.list_(pa.decimal128(38, 0))
    assert _read({"$ref": "WellKnownTypes.json#/definitions/Integer"}, _DECIMALS) == pa.decimal128(38, 0)


def test_objects_are_structs_of_their_properties_where_that_is_chosen() -> None:
    address = {"type": ["null", "object"], "properties": {"city": _TEXT, "at": _MOMENT, "free": {"type": "object"}}}
    inner = pa.struct([("city", pa.string()), ("at", _INSTANT), ("free", pa.string())])
    assert _read(address, _STRUCTS) == inner
    assert _read({"anyOf": [address, _NULL], "additionalProperties": True}, _STRUCTS) == inner
    assert _read({"type": "array", "items": address}, _STRUCTS) == pa.list_(inner)
    assert _read({"properties": {"a": {"properties": {"b": _WHOLE}}}}, _STRUCTS) == pa.struct(
        [("a", pa.struct([("b", pa.int64())]))]
    )


@pytest.mark.parametrize("more", [
    {"additionalProperties": _TEXT},
    {"patternProperties": {"^x-": _TEXT}},
    {"oneOf": [{"properties": {"a": _WHOLE}}, {"properties": {"b": _WHOLE}}]},
])  # fmt: skip
def test_an_object_with_members_that_have_no_name_stays_json(more: Mapping[str, Any]) -> None:
    assert _read({"type": "object", "properties": {"id": _WHOLE}, **more}, _STRUCTS) == pa.string()


def test_members_that_differ_in_case_alone_are_told_apart() -> None:
    found = value_type({"properties": {"Foo": _TEXT, "foo": _WHOLE}}, _ROOT, _STRUCTS)
    assert [member.source for member in found.members] == ["Foo", "foo"]
    assert len({member.name.casefold() for member in found.members}) == 2


_SCHEMAS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "integer", "null", "object", "array", "#"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "type", "properties", "items", "oneOf", "anyOf", "allOf", "$ref", "enum", "const", "format", "airbyte_type",
            "additionalProperties", "patternProperties", "prefixItems", "a", "b",
        ]),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(_SCHEMAS, st.sampled_from([TypeChoices(), _DECIMALS, _STRUCTS]))
def test_no_schema_fails(schema: Any, choices: TypeChoices) -> None:
    root = schema if isinstance(schema, Mapping) else {"properties": schema}
    for each in declared_properties(root, root).values():
        assert isinstance(value_type(each, root, choices).table_type, pa.DataType)
