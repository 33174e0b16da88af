"""Objects that land as structs, and numbers that land as decimals: by choice, with both parsers."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import IntegersAs, NumbersAs, ObjectsAs, PlannedStream, Shaping, TypeChoices, WriteMode
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.rows.metadata import RowOrigin
from dagster_airbyte_proto.staging.rows.segment_parser import BAD_KEY, ParsedBatch, SegmentParser
from tests.staging.conftest import SHAPE, parse, plan, record

_STRUCTS = TypeChoices(objects=ObjectsAs.STRUCT)
_ALL = TypeChoices(ObjectsAs.STRUCT, IntegersAs.DECIMAL, NumbersAs.DECIMAL)
_WHOLE = {"type": "integer"}
_MOMENT = {"type": "string", "format": "date-time"}
_PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "at": _MOMENT, "floors": {"type": "array", "items": _WHOLE}},
}
_PROPERTIES: Mapping[str, Any] = {
    "id": _WHOLE,
    "place": _PLACE,
    "places": {"type": "array", "items": {"type": "object", "properties": {"in": _PLACE, "n": _WHOLE}}},
}
_WITH_JSON: Mapping[str, Any] = {
    **_PROPERTIES,
    "mixed": {"type": "object", "properties": {"any": {}, "tags": {"type": "array", "items": {}}, "n": _WHOLE}},
}
_TYPECAST = "DESTINATION_TYPECAST_ERROR"
_SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"


def _plan(properties: Mapping[str, Any] = _PROPERTIES, choices: TypeChoices = _STRUCTS, **more: Any) -> PlannedStream:
    return msgspec.structs.replace(plan(properties, **more), types=choices)


def _row(parsed: ParsedBatch, row: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = parsed.batch.slice(row, 1).to_pylist()[0]
    return found


def _noted(parsed: ParsedBatch, row: int = 0) -> list[tuple[str, str]]:
    return [(entry["field"], entry["reason"]) for entry in _row(parsed, row)["_airbyte_meta"]["changes"]]


def _agreed(planned: PlannedStream, *lines: bytes) -> ParsedBatch:
    """The result of the lines, which must be the same for both parsers."""
    fast, slow = parse(planned, *lines), parse(planned, *lines, b"no JSON\n")
    assert slow.rejected.pop("the line is no JSON object") == 1
    without = ["_airbyte_raw_id"]
    assert fast.batch.drop_columns(without).to_pylist() == slow.batch.drop_columns(without).to_pylist()
    assert fast._replace(batch=slow.batch) == slow
    return fast


def test_an_object_lands_member_by_member_also_in_lists() -> None:
    data = {
        "id": 1,
        "place": {"city": "Zürich", "at": "2020-01-01T00:00:00+01:00", "floors": [1, None]},
        "places": [{"in": {"city": "x"}, "n": 5}, None, {}],
    }
    row = _row(_agreed(_plan(), record(json.dumps(data))))
    at = dt.datetime(2019, 12, 31, 23, tzinfo=dt.UTC)
    assert row["place"] == {"city": "Zürich", "at": at, "floors": [1, None]}
    assert row["places"] == [
        {"in": {"city": "x", "at": None, "floors": None}, "n": 5},
        None,
        {"in": None, "n": None},
    ]
    assert row["_airbyte_meta"]["changes"] == []


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\x00b", "a\x7fb", ""])
def test_a_name_of_any_characters_is_found(name: str) -> None:
    leaf = {"type": "object", "properties": {name: {"type": "object"}, "n": {"type": "integer"}}}
    value = {name: {"n": 1}, "n": 5}
    parsed = _agreed(_plan({name: leaf, "id": {"type": "object"}}), record(json.dumps({name: value, "id": {}})))
    found, *_ = _row(parsed).values()
    assert (list(found.values()), _noted(parsed), parsed.ignored) == ([json.dumps({"n": 1}), 5], [], {})


def test_a_clean_struct_is_never_parsed_by_record() -> None:
    planned = _plan()
    parser = SegmentParser(planned, table_columns(planned), SHAPE, RowOrigin(7, b"123456789"))
    for place in ('{"city":"a","at":"2020-01-01T00:00:00Z","floors":[1]}', "{}", "null"):
        parser.parse(record(f'{{"id":1,"place":{place}}}'), 1, 0)
    assert parser.segments_by_record == 0


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('{"place":{"city":"a","at":"nope"}}', "place.at", _TYPECAST),
        ('{"place":{"floors":[1,"x"]}}', "place.floors.1", _TYPECAST),
        ('{"place":{"floors":[1,9223372036854775808]}}', "place.floors.1", _SIZE),
        ('{"place":{"floors":5}}', "place.floors", _TYPECAST),
        ('{"place":[]}', "place", _TYPECAST),
        ('{"place":"text"}', "place", _TYPECAST),
        ('{"places":{"n":1}}', "places", _TYPECAST),
        ('{"places":[{"n":1},5]}', "places.1", _TYPECAST),
        ('{"places":[{"n":1},{"n":1.5}]}', "places.1.n", _TYPECAST),
        ('{"places":[{},{"in":{"at":"0000-01-01T00:00:00Z"}}]}', "places.1.in.at", _SIZE),
    ],
)
def test_a_misfit_deep_inside_nulls_that_leaf_and_is_named_by_its_path(text: str, path: str, reason: str) -> None:
    good = '{"id":7,"place":{"city":"good","floors":[1,2]},"places":[{"in":{"city":"b"},"n":3}]}'
    for properties in (_PROPERTIES, _WITH_JSON):
        parsed = _agreed(_plan(properties), record(good), record(text), record(good))
        assert (_noted(parsed, 0), _noted(parsed, 1), _noted(parsed, 2)) == ([], [(path, reason)], [])
        assert _row(parsed)["place"] == _row(parsed, 2)["place"] == {"city": "good", "at": None, "floors": [1, 2]}
        assert parsed.changed == 1


def test_the_rest_of_an_object_with_a_misfit_is_kept() -> None:
    text = '{"places":[{"in":{"city":5,"at":"x","floors":[1,"y",3]},"n":4}]}'
    parsed = _agreed(_plan(), record(text))
    assert _row(parsed)["places"] == [{"in": {"city": "5", "at": None, "floors": [1, None, 3]}, "n": 4}]
    assert _noted(parsed) == [("places.0.in.floors.1", _TYPECAST), ("places.0.in.at", _TYPECAST)]


def test_json_inside_a_struct_keeps_its_text() -> None:
    text = '{"mixed":{"any":{"b": 1,  "a":[NULL]},"tags":[1, "a",{}],"n":1}}'.replace("NULL", "null")
    parsed = _agreed(_plan(_WITH_JSON), record(text))
    assert _row(parsed)["mixed"] == {"any": '{"b": 1,  "a":[null]}', "tags": '[1, "a",{}]', "n": 1}


@pytest.mark.parametrize("properties", [_PROPERTIES, _WITH_JSON])
def test_members_that_are_not_declared_are_counted_by_their_path(properties: Mapping[str, Any]) -> None:
    lines = [
        record('{"id":1,"place":{"city":"a"}}'),
        record('{"id":2,"place":{"zip":1,"zap":{}},"more":1}'),
        record('{"id":3,"place":{"zip":2},"places":[{"x":1},{"x":2,"in":{"y":1}},7]}'),
    ]
    parsed = _agreed(_plan(properties), *lines)
    assert parsed.ignored == {"place.zip": 2, "place.zap": 1, "more": 1, "places.x": 1, "places.in.y": 1}
    assert parsed.batch.column("id").to_pylist() == [1, 2, 3]


def test_a_key_with_a_dot_in_its_name_is_not_taken_for_a_member() -> None:
    properties = {"a.b": _WHOLE, "a": {"type": "object", "properties": {"b": _WHOLE}}}
    lines = [record('{"a.b":1,"a":{"b":"x"}}'), record('{"a.b":"x","a":{"b":2}}'), record('{"a.b":3,"a":"x"}')]
    dotted = parse(_plan(properties, write=WriteMode.APPEND_DEDUP, key=[("a.b",)]), *lines)
    assert dotted.batch.column("a.b").to_pylist() == [1, 3]
    assert (_noted(dotted), dotted.rejected) == ([("a.b", _TYPECAST)], {BAD_KEY: 1})
    member = parse(_plan(properties, write=WriteMode.APPEND_DEDUP, key=[("a", "b")]), *lines)
    assert member.batch.column("a.b").to_pylist() == [None]
    assert member.rejected == {BAD_KEY: 2}


def test_a_key_and_a_cursor_may_lie_in_a_struct() -> None:
    key = {"type": "object", "properties": {"id": _WHOLE, "free": {"type": "object"}}}
    planned = _plan({"k": key}, key=[("k", "id"), ("k", "free", "n")], cursor=("k", "id"), write=WriteMode.APPEND_DEDUP)
    parsed = _agreed(
        planned, record('{"k":{"id":5,"free":{"n":"a"}}}'), record('{"k":null}'), record('{"k":{"id":"x"}}')
    )
    assert parsed.batch.column("_airbyte_key_k_id").to_pylist() == [5]
    assert parsed.batch.column("_airbyte_key_k_free_n").to_pylist() == ['"a"']
    assert parsed.rejected == {"every part of the key is null": 1, "a part of the key does not fit its column": 1}


_DECIMALS: Mapping[str, Any] = {
    "i": _WHOLE,
    "d": {"type": "number"},
    "l": {"type": "array", "items": {"type": "number"}},
}


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("i", "9" * 38, Decimal("9" * 38)),
        ("i", "-" + "9" * 38, Decimal("-" + "9" * 38)),
        ("i", "1e3", Decimal(1000)),
        ("d", "0.1", Decimal("0.1")),
        ("d", "-0.000000001", Decimal("-1E-9")),
        ("d", "9" * 29 + "." + "9" * 9, Decimal("9" * 29 + "." + "9" * 9)),
        ("d", "1e28", Decimal(10) ** 28),
        ("d", "5", Decimal(5)),
        ("l", "[1, 2.5, null]", [Decimal(1), Decimal("2.5"), None]),
    ],
)
def test_a_decimal_lands_digit_by_digit(field: str, text: str, value: Any) -> None:
    parsed = _agreed(_plan(_DECIMALS, _ALL), record(f'{{"{field}":{text}}}'), record('{"i":1,"d":1.5}'))
    assert (_row(parsed)[field], _noted(parsed)) == (value, [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.30000000000000004", Decimal("0.3")),
        ("0.29999999999999998", Decimal("0.3")),
        ("1e-20", Decimal(0)),
        ("1e-999999999", Decimal(0)),
    ],
)
def test_digits_that_a_decimal_lacks_are_rounded_and_noted(text: str, value: Decimal) -> None:
    parsed = _agreed(_plan(_DECIMALS, _ALL), record(f'{{"d":{text}}}'), record('{"d":1.5}'))
    assert _row(parsed)["d"] == value
    change = {"field": "d", "change": "TRUNCATED", "reason": _SIZE}
    assert _row(parsed)["_airbyte_meta"]["changes"] == [change]


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("i", "1" + "0" * 38, _SIZE),
        ("i", "1.5", _TYPECAST),
        ("i", '"x"', _TYPECAST),
        ("d", "1" + "0" * 29, _SIZE),
        ("d", "9" * 29 + "." + "9" * 10, _SIZE),
        ("d", "1e999999999", _SIZE),
        ("d", "NaN", _TYPECAST),
        ("d", '"1.5"', _TYPECAST),
    ],
)
def test_a_number_that_a_decimal_has_no_room_for_is_null(field: str, text: str, reason: str) -> None:
    parsed = _agreed(_plan(_DECIMALS, _ALL), record('{"i":1,"d":1.5}'), record(f'{{"{field}":{text}}}'))
    assert (_row(parsed, 1)[field], _noted(parsed, 1)) == (None, [(field, reason)])
    assert (_row(parsed)["i"], _row(parsed)["d"]) == (Decimal(1), Decimal("1.5"))


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.sampled_from(["a", "2020-01-01T00:00:00Z"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["city", "at", "floors", "in", "n", "any", "tags", "other"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    st.sampled_from([_PROPERTIES, _WITH_JSON]),
    st.sampled_from([_STRUCTS, _ALL]),
    st.lists(st.dictionaries(st.sampled_from([*_WITH_JSON]), _ANY, max_size=4), min_size=1, max_size=5),
)
def test_both_parsers_agree_on_structs(
    properties: Mapping[str, Any], choices: TypeChoices, rows: list[dict[str, Any]]
) -> None:
    _agreed(_plan(properties, choices), *[record(json.dumps(row)) for row in rows])


def _chosen(*lines: bytes, **shaping: Any) -> ParsedBatch:
    return _agreed(msgspec.structs.replace(_plan(), shaping=Shaping(**shaping)), *lines)


def test_members_of_a_struct_are_chosen_also_in_lists_and_the_others_are_not_unknown() -> None:
    place = {"city": "x", "at": "no time at all", "floors": [1], "owner": "unknown"}
    line = record(json.dumps({"id": 1, "place": place, "places": [{"in": place, "n": 2}, None, {"n": 3}]}))
    chosen = _chosen(line, select=(("place", "city"), ("place", "floors"), ("places", "in", "floors")))
    row = _row(chosen)
    assert row["place"] == {"city": "x", "floors": [1]}
    assert row["places"] == [{"in": {"floors": [1]}}, None, {"in": None}]
    # What is not read is not looked at, so nothing of it is noted; what nobody declared is counted.
    assert (_noted(chosen), set(chosen.ignored)) == ([], {"place.owner", "places.in.owner"})

    others = _chosen(line, exclude=(("place", "city"), ("place", "at"), ("places", "in")))
    row = _row(others)
    assert (row["id"], row["place"], row["places"]) == (1, {"floors": [1]}, [{"n": 2}, None, {"n": 3}])
    assert set(others.ignored) == {"place.owner"}


@pytest.mark.parametrize(
    ("shaping", "key", "found"),
    [
        ({"exclude": (("place", "city"), ("place", "at"), ("place", "floors"))}, (), "nothing of place is left"),
        ({"select": (("places", "in", "cty"),)}, (), r"no field places\.in\.cty; did you mean city"),
        ({"select": (("mixed", "any", "x"),)}, (), "mixed.any has no members to choose from"),
        ({"exclude": (("place", "city"),)}, [("place", "city")], "place.city is"),
    ],
)
def test_what_cannot_be_chosen_of_a_struct_is_refused(
    shaping: dict[str, Any], key: Sequence[tuple[str, ...]], found: str
) -> None:
    any_at_all = {"type": "object", "properties": {"x": {}}}
    mixed = {"type": "object", "properties": {"any": {"oneOf": [any_at_all, _WHOLE], **any_at_all}, "n": _WHOLE}}
    write = WriteMode.APPEND_DEDUP if key else WriteMode.APPEND
    planned = _plan({**_PROPERTIES, "mixed": mixed}, write=write, key=key)
    with pytest.raises(ConfigError, match=found):
        table_columns(msgspec.structs.replace(planned, shaping=Shaping(**shaping)))
