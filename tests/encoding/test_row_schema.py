"""Rows held against the JSON Schema of a destination: paths of faults, removed rows, and the times of Airbyte."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.encoding.json_types import checkable
from dagster_airbyte_proto.encoding.record_lines import record_objects
from dagster_airbyte_proto.encoding.row_schema import UNREADABLE_ROW, RemovedRows, RowSchema
from dagster_airbyte_proto.errors import ConfigError

pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "definitions": {"number": {"type": "integer"}},
    "properties": {
        "id": {"$ref": "#/definitions/number"},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "email"],
    "additionalProperties": False,
}
_REMOVED = RemovedRows("_removed_at", ("id",))


def _faults(schema: RowSchema, *rows: dict[str, Any]) -> dict[int, str]:
    return schema.faults(pa.array([json.dumps(row) for row in rows], pa.large_string()))


def test_a_fault_has_its_path_and_not_its_value() -> None:
    good = {"id": 1, "email": "ada@example.com", "tags": ["a"]}
    faults = _faults(
        RowSchema(_SCHEMA, "contacts"),
        good,
        {**good, "email": "secret"},
        {**good, "tags": ["a", 7]},
        {"id": 2},
        {**good, "name": "Ada"},
    )
    assert faults == {
        1: 'email: its value is not a "email"',
        2: 'tags.1: its value is not of type "string"',
        3: 'the row: "email" is a required property',
        4: "the row: Additional properties are not allowed ('name' was unexpected)",
    }


def test_of_a_removed_row_only_its_key_is_checked() -> None:
    schema = RowSchema(_SCHEMA, "contacts", _REMOVED)
    removed = {"id": 1, "_removed_at": "2026-11-27T07:00:00Z"}
    there = {"id": 1, "email": "ada@example.com", "_removed_at": None}
    assert _faults(schema, removed, there, {**removed, "id": "one"}, {**there, "email": None}) == {
        2: 'id: its value is not of type "integer"',
        3: 'email: its value is not of type "string"',
    }


def test_a_removed_row_of_a_schema_without_fields_is_taken() -> None:
    schema = RowSchema({"required": ["id"], "minProperties": 9}, "contacts", _REMOVED)
    assert _faults(schema, {"id": 1, "_removed_at": "now"}, {"id": 1}).keys() == {1}


def test_a_row_that_not_every_reader_takes_is_refused_and_no_other() -> None:
    deep = "[" * 10_000 + "]" * 10_000
    rows = ['{"id":1}', '{"id":2,"a":"\\ud83d"}', f'{{"id":3,"a":{deep}}}', '{"id":4,"a":1e999}', '{"id":"5"}']
    faults = RowSchema({"properties": {"id": {"type": "integer"}}}, "contacts").faults(pa.array(rows))
    assert faults == {**dict.fromkeys((1, 2, 3), UNREADABLE_ROW), 4: 'id: its value is not of type "integer"'}


@pytest.mark.parametrize(
    "schema", [{"type": "junk"}, {"properties": {"id": {"$ref": "https://example.com/id.json"}}}, {"required": 7}]
)
def test_a_schema_that_is_none_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="it is no valid JSON Schema"):
        RowSchema(schema, "contacts")


_TIMES = ("2026-11-27T07:00:00.000000", "2026-11-27T07:00:00.000000Z")


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ({"type": "string", "format": "date-time"}, _TIMES[1:]),
        ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}, _TIMES[1:]),
        ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}, _TIMES),
        ({"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}, _TIMES),
        ({"$ref": "WellKnownTypes.json#/definitions/TimestampWithTimezone"}, _TIMES[1:]),
        ({"$ref": "WellKnownTypes.json#/definitions/TimestampWithoutTimezone"}, _TIMES),
        ({"$ref": "WellKnownTypes.json#/definitions/Integer"}, ()),
    ],
)
def test_times_without_a_zone_have_no_format(words: dict[str, Any], taken: tuple[str, ...]) -> None:
    schema = RowSchema(checkable({"properties": {"airbyte_type": words}}), "contacts")
    faults = _faults(schema, *({"airbyte_type": each} for each in _TIMES))
    assert [each for place, each in enumerate(_TIMES) if place not in faults] == list(taken)


_KINDS = ["string", "integer", "number", "boolean", "null", "object"]
_TYPES = st.sampled_from(_KINDS) | st.lists(st.sampled_from(_KINDS), min_size=1, unique=True)
_MEMBERS = st.fixed_dictionaries({}, optional={"type": _TYPES, "title": st.just("a"), "maxLength": st.just(1)})
_COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, None]),
    (pa.float64(), [1.0, 0.5]),
    (pa.decimal128(9, 2), [Decimal("1.50"), None]),
    (pa.string(), ["a", "ab"]),
    (pa.string(), [None, None]),
    (pa.bool_(), [True, False]),
    (pa.timestamp("us", "UTC"), [0, None]),
    (pa.date32(), [0, 1]),
    (pa.binary(), [b"a", b""]),
    (pa.null(), [None, None]),
    (pa.struct([("x", pa.int64())]), [{"x": 1}, None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", None]),
]


@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans())
def test_what_columns_prove_is_true_of_each_row(data: st.DataObject, omits_nulls: bool) -> None:
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
    columns = [pa.array(values, kind) for kind, values in (data.draw(st.sampled_from(_COLUMNS)) for _ in names)]
    rows = pa.RecordBatch.from_arrays(columns, names=names)
    schema = data.draw(
        st.fixed_dictionaries(
            {"properties": st.dictionaries(st.sampled_from("abc"), _MEMBERS)},
            optional={
                "type": st.just("object") | _TYPES,
                "required": st.lists(st.sampled_from("abc"), unique=True),
                "additionalProperties": st.booleans() | st.just({"type": "string"}),
                "minProperties": st.just(2),
            },
        )
    )
    checked = RowSchema(schema, "contacts")
    if checked.fits_all(rows, omits_nulls=omits_nulls):
        assert checked.faults(record_objects(rows, omits_nulls=omits_nulls)) == {}


def test_columns_prove_a_schema_of_types() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "email": ["a", "b"], "city": ["x", None]})
    schema = {
        "type": "object",
        "properties": {"id": {"type": "number"}, "email": {"type": "string"}, "city": {"type": "string"}},
        "required": ["id", "email"],
        "additionalProperties": False,
    }
    hidden_null = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    email = pa.RecordBatch.from_arrays([hidden_null], names=["email"])
    assert RowSchema({**schema, "required": []}, "people").fits_all(rows.select(["email"]), omits_nulls=False)
    assert not RowSchema({**schema, "required": []}, "people").fits_all(email, omits_nulls=False)
    assert RowSchema(schema, "people").fits_all(rows, omits_nulls=True)
    assert not RowSchema(schema, "people").fits_all(rows, omits_nulls=False)
    assert not RowSchema(schema, "people").fits_all(rows.drop_columns(["email"]), omits_nulls=True)
    assert not RowSchema(schema, "people").fits_all(rows.append_column("x", rows.column(0)), omits_nulls=True)
    assert not RowSchema({"properties": {"email": {"format": "email"}}}, "people").fits_all(rows, omits_nulls=True)
