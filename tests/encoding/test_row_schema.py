"""Rows held against the JSON Schema of a destination: paths of faults, removed rows, and the times of Airbyte."""

import json
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.encoding.json_types import checkable
from dagster_airbyte_proto.encoding.row_schema import RemovedRows, RowSchema
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
