"""Records are held to types, required properties and formats, and their content is never shown."""

import pytest

from dagster_airbyte_proto.certification.reads.schema_fit import SchemaFit, outline

_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "day": {"type": "string", "format": "date"},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "either": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
        "place": {"type": "object", "properties": {"zip": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1},
        {"id": 1.0, "name": None, "unknown": [1]},
        {"id": 1, "day": "0058-01-01 BC", "at": "2024-02-29T12:00:00.123456+05:30"},
        {"id": 1 << 70, "at": "2024-02-29 12:00:00", "tags": [], "either": True, "place": {"zip": "1"}},
    ],
)
def test_a_record_that_fits(record: dict[str, object]) -> None:
    assert list(SchemaFit(_SCHEMA).misfits(record)) == []


@pytest.mark.parametrize(
    ("record", "misfit"),
    [
        ({"id": "x1"}, ("id", "the schema says integer", '"a9"')),
        ({"name": "a"}, ("the record", "'id' is a required property", "an object")),
        ({"id": 1, "name": 5}, ("name", "the schema says null or string", "9")),
        ({"id": 1, "day": "2024-02-29T00:00:00"}, ("day", "the schema says date", '"9999-99-99a99:99:99"')),
        ({"id": 1, "at": "Zoë"}, ("at", "the schema says date-time", '"aaa"')),
        ({"id": 1, "tags": ["a", 2]}, ("tags.*", "the schema says string", "9")),
        ({"id": 1, "either": 3}, ("either", "it fits none of the schema's choices", "9")),
        ({"id": 1, "place": {"zip": None}}, ("place.zip", "the schema says string", "null")),
    ],
)
def test_a_value_that_does_not_fit_is_found_each_time(record: dict[str, object], misfit: tuple[str, str, str]) -> None:
    fit = SchemaFit(_SCHEMA)
    for _ in range(2):  # its shape is known the second time
        assert [tuple(each) for each in fit.misfits(record)] == [misfit]


def test_a_long_text_is_cut() -> None:
    assert outline("secret 42 " * 100) == '"aaaaaa 99 aaaaaa 99 aaaaaa 99 aaaaaa 99 …"'


def test_a_pattern_of_a_schema_does_not_take_for_ever() -> None:
    for rule in ({"pattern": "^(a+)+$"}, {"pattern": r"^(a+)+\1$"}):
        schema = {"properties": {"name": {"anyOf": [{"type": "integer"}, {"type": "string", **rule}]}}}
        assert not [*SchemaFit(schema).misfits({"name": "a" * 40})]
    named = {"patternProperties": {"^(a+)+$": {"type": "integer"}}}
    assert not [*SchemaFit({**named, "additionalProperties": False}).misfits({"a" * 40 + "b": 1})]
    assert [each.field for each in SchemaFit(named).misfits({"a" * 40: "x", "a" * 40 + "b": "y"})] == ["a" * 40]
