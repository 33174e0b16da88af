"""What becomes of each kind of value, and that both roads say the same."""

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from decimal import Decimal
from operator import itemgetter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.model import PlannedStream, Shaping, StreamId, WriteMode
from dagster_airbyte_proto.schema.columns import SDC
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.rows.batches import BAD_KEY, NO_KEY, Parsed, SegmentParser
from tests.staging.conftest import EMITTED_AT, SHAPE, parse, plan, record

_INTEGER = {"type": ["null", "integer"]}
_NUMBER = {"type": "number"}
_STRING = {"type": "string"}
_BOOLEAN = {"type": "boolean"}
_BIG = {"type": "string", "airbyte_type": "big_integer"}
_DATE = {"type": "string", "format": "date"}
_TIME = {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}
_INSTANT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
_LOCAL = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}
_BINARY = {"type": "string", "contentEncoding": "base64"}
_OBJECT = {"type": "object"}
_UNION = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_INTEGERS = {"type": "array", "items": {"type": "integer"}}
_INSTANTS = {"type": "array", "items": _INSTANT}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_GRID = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}

_UTC = dt.UTC
_TYPECAST = "DESTINATION_TYPECAST_ERROR"
_SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"
_DEEP = "[" * 10_000 + "]" * 10_000

LANDED: list[tuple[Mapping[str, Any], str, Any]] = [
    (_INTEGER, "1", 1),
    (_INTEGER, "-9223372036854775808", -(1 << 63)),
    (_INTEGER, "1.0", 1),
    (_INTEGER, "1e3", 1000),
    (_INTEGER, "-7.000", -7),
    (_INTEGER, "-0.0", 0),
    (_INTEGER, "9223372036854775807.0", (1 << 63) - 1),
    (_INTEGER, "null", None),
    (_NUMBER, "1", 1.0),
    (_NUMBER, "123456789012345678901234567890", 1.2345678901234568e29),
    (_NUMBER, "1e-999", 0.0),
    (_STRING, '"a\\u0000b"', "a\x00b"),
    (_STRING, '"\\ud83d\\ude00"', "😀"),
    (_STRING, "12.50", "12.50"),
    (_STRING, "true", "true"),
    (_STRING, '{"a": [1, 2]}', '{"a": [1, 2]}'),
    (_BOOLEAN, "false", False),
    (_BIG, "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
    (_BIG, '"-12"', Decimal(-12)),
    (_BIG, "1e37", Decimal(10) ** 37),
    (_BIG, "120e-1", Decimal(12)),
    (_BIG, "12345678901234567890123456789012345678.0", Decimal("12345678901234567890123456789012345678")),
    (_DATE, '"2008-08-20"', dt.date(2008, 8, 20)),
    (_TIME, '"23:59:59.5"', "23:59:59.5"),
    (_INSTANT, '"2008-08-20T10:00:00Z"', dt.datetime(2008, 8, 20, 10, tzinfo=_UTC)),
    (_INSTANT, '"2008-08-20t10:00:00z"', dt.datetime(2008, 8, 20, 10, tzinfo=_UTC)),
    (_INSTANT, '"2008-08-20T10:00:00"', dt.datetime(2008, 8, 20, 10, tzinfo=_UTC)),
    (_INSTANT, '"2008-08-20 10:00:00.25+02:00"', dt.datetime(2008, 8, 20, 8, 0, 0, 250_000, tzinfo=_UTC)),
    (_INSTANT, '"2008-08-20T10:00:00.1234560Z"', dt.datetime(2008, 8, 20, 10, 0, 0, 123_456, tzinfo=_UTC)),
    (_INSTANT, '"9999-08-20T10:00:00.123456000Z"', dt.datetime(9999, 8, 20, 10, 0, 0, 123_456, tzinfo=_UTC)),
    (_LOCAL, '"2008-08-20T10:00:00"', dt.datetime(2008, 8, 20, 10)),
    (_LOCAL, '"2008-08-20T10:00:00Z"', dt.datetime(2008, 8, 20, 10)),
    (_BINARY, '"aGk="', b"hi"),
    (_OBJECT, '{"b": 1,  "a":null}', '{"b": 1,  "a":null}'),
    (_OBJECT, '"text"', '"text"'),
    (_OBJECT, "true", "true"),
    (_OBJECT, "null", None),
    (_OBJECT, _DEEP, _DEEP),
    (_OBJECT, '{"a":"\\ud800"}', '{"a":"\\ud800"}'),
    (_UNION, '"x"', '"x"'),
    (_UNION, "1", "1"),
    (_INTEGERS, "[1, null, 3]", [1, None, 3]),
    (_INTEGERS, "[]", []),
    (_INSTANTS, '["2008-08-20T10:00:00Z"]', [dt.datetime(2008, 8, 20, 10, tzinfo=_UTC)]),
    (_OBJECTS, '[{"a": 1}, null]', ['{"a": 1}', None]),
    (_GRID, "[[1, 2.5], null, []]", [[1.0, 2.5], None, []]),
]

NULLED: list[tuple[Mapping[str, Any], str, str]] = [
    (_INTEGER, "9223372036854775808", _SIZE),
    (_INTEGER, "1" * 5000, _SIZE),
    (_INTEGER, "1e999999999", _SIZE),
    (_INTEGER, "9223372036854775808.0", _SIZE),
    (_INTEGER, "1.5", _TYPECAST),
    (_INTEGER, "1.00000000000000000000000001", _TYPECAST),
    (_INTEGER, '"\udcff"', _TYPECAST),
    (_INTEGER, '"1"', _TYPECAST),
    (_INTEGER, "NaN", _TYPECAST),
    (_NUMBER, "NaN", _TYPECAST),
    (_NUMBER, "-Infinity", _TYPECAST),
    (_NUMBER, "1e999", _SIZE),
    (_NUMBER, '"1"', _TYPECAST),
    (_STRING, '"\\ud800"', _TYPECAST),
    (_STRING, '"\udcff"', _TYPECAST),
    (_STRING, "NaN", _TYPECAST),
    (_BOOLEAN, "1", _TYPECAST),
    (_BOOLEAN, '"true"', _TYPECAST),
    (_BIG, "1" * 39, _SIZE),
    (_BIG, "1.5", _TYPECAST),
    (_BIG, '"\udcff"', _TYPECAST),
    (_BIG, "1e-99", _TYPECAST),
    (_BIG, "1e-999999999", _TYPECAST),
    (_BIG, "1e999999999", _SIZE),
    (_BIG, '"abc"', _TYPECAST),
    (_DATE, '"2008-08-20T10:00:00Z"', _TYPECAST),
    (_DATE, '"2008-02-30"', _TYPECAST),
    (_DATE, "20080820", _TYPECAST),
    (_TIME, '"24:00"', _TYPECAST),
    (_INSTANT, '"2008-08-20"', _TYPECAST),
    (_INSTANT, '"2008-08-20T25:00:00Z"', _TYPECAST),
    (_INSTANT, '"yesterday, at about ten"', _TYPECAST),
    (_INSTANT, "1219226400", _TYPECAST),
    (_LOCAL, '"2008-08-20T10:00:00+02:00"', _TYPECAST),
    (_BINARY, '"a"', _TYPECAST),
    (_OBJECT, "NaN", _TYPECAST),
    (_OBJECT, '{"a": NaN}', _TYPECAST),
    (_OBJECT, '{"a": "\udcff"}', _TYPECAST),
    (_INTEGERS, "1", _TYPECAST),
    (_OBJECTS, '{"a": 1}', _TYPECAST),
]


def _planned(schema: Mapping[str, Any]) -> PlannedStream:
    return plan({"id": _INTEGER, "v": schema})


def _changes(parsed: Parsed, row: int = 0) -> Any:
    return parsed.batch.column("_airbyte_meta")[row].as_py()["changes"]


def _nulled(field: str, reason: str = _TYPECAST) -> dict[str, str]:
    return {"field": field, "change": "NULLED", "reason": reason}


def _truncated(field: str) -> dict[str, str]:
    return {"field": field, "change": "TRUNCATED", "reason": "DESTINATION_FIELD_SIZE_LIMITATION"}


@pytest.mark.parametrize(("schema", "text", "value"), LANDED)
def test_what_fits_lands(schema: Mapping[str, Any], text: str, value: Any) -> None:
    parsed = parse(_planned(schema), record(f'{{"id":1,"v":{text}}}'))
    assert parsed.batch.column("v").to_pylist() == [value]
    assert (parsed.batch.column("id").to_pylist(), _changes(parsed), parsed.changed) == ([1], [], 0)


@pytest.mark.parametrize(("schema", "text", "reason"), NULLED)
def test_what_does_not_fit_is_null_and_noted_and_the_row_stays(
    schema: Mapping[str, Any], text: str, reason: str
) -> None:
    parsed = parse(_planned(schema), record(f'{{"id":1,"v":{text}}}'), record('{"id":2}'))
    assert parsed.batch.column("v").to_pylist() == [None, None]
    assert parsed.batch.column("id").to_pylist() == [1, 2]
    assert (_changes(parsed), _changes(parsed, 1)) == ([_nulled("v", reason)], [])
    assert (parsed.changed, parsed.rejected) == (1, {})


@pytest.mark.parametrize(
    ("schema", "text", "value", "path"),
    [
        (_INTEGERS, '[1, "x", 3]', [1, None, 3], "v.1"),
        (_INSTANTS, '["2008-08-20", null]', [None, None], "v.0"),
        (_GRID, "[[1], null, [2, NaN]]", [[1.0], None, [2.0, None]], "v.2.1"),
        (_GRID, "[[1], 5]", [[1.0], None], "v.1"),
    ],
)
def test_an_element_that_does_not_fit_is_named_by_its_path(
    schema: Mapping[str, Any], text: str, value: Any, path: str
) -> None:
    parsed = parse(_planned(schema), record('{"id":0,"v":[]}'), record(f'{{"id":1,"v":{text}}}'))
    assert parsed.batch.column("v").to_pylist() == [[], value]
    assert _changes(parsed, 1) == [_nulled(path)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2008-08-20T10:00:00.123456789Z", dt.datetime(2008, 8, 20, 10, 0, 0, 123_456, tzinfo=_UTC)),
        ("1908-08-20T10:00:00.1234567+00:00", dt.datetime(1908, 8, 20, 10, 0, 0, 123_456, tzinfo=_UTC)),
        ("9999-08-20T10:00:00.1234567", dt.datetime(9999, 8, 20, 10, 0, 0, 123_456, tzinfo=_UTC)),
        ("2008-08-20T10:00:00.12345678901234Z", dt.datetime(2008, 8, 20, 10, 0, 0, 123_456, tzinfo=_UTC)),
    ],
)
@pytest.mark.parametrize("other", ["2008-08-20T10:00:00.1Z", "2008-08-20"])
def test_a_time_with_more_digits_than_its_table_is_cut_and_noted(text: str, value: dt.datetime, other: str) -> None:
    for schema in (_INSTANT, _LOCAL):
        parsed = parse(
            _planned(schema), record(f'{{"v":"{other}"}}'), record('{"v":null}'), record(f'{{"v":"{text}"}}')
        )
        landed = value if schema is _INSTANT else value.replace(tzinfo=None)
        assert parsed.batch.column("v").to_pylist()[1:] == [None, landed]
        assert (_changes(parsed, 1), _changes(parsed, 2)) == ([], [_truncated("v")])


def test_a_time_cut_inside_an_array_is_named_by_its_path() -> None:
    times = '["2008-08-20T10:00:00.1Z", null, "2008-08-20T10:00:00.1234567Z"]'
    parsed = parse(_planned({"type": "array", "items": _INSTANT}), record('{"v":[]}'), record(f'{{"v":{times}}}'))
    assert _changes(parsed, 1) == [_truncated("v.2")]
    assert parsed.changed == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":"RECORD","record":{"stream":"users","data":{"id":1}\n', "the line is no JSON object"),
        (record('{"id":1}').rstrip(b"\n") + b' {"more":1}\n', "the line is no JSON object"),
        (record('{"id":01}'), "the line is no JSON object"),
        (record('{"v":"a\0b"}'), "the line is no JSON object"),
        (record("null"), "the record has no data"),
        (record("[1]"), "the record has no data"),
        (b'{"type":"RECORD","record":{"stream":"users"}}\n', "the record has no data"),
    ],
)
def test_a_line_that_is_no_record_is_rejected_with_a_reason(line: bytes, reason: str) -> None:
    parsed = parse(_planned(_STRING), record('{"id":1}'), line, record('{"id":2}'))
    assert parsed.batch.column("id").to_pylist() == [1, 2]
    assert parsed.rejected == {reason: 1}


def test_two_documents_on_one_line_are_not_two_rows() -> None:
    line = record('{"id":1}')
    parsed = parse(_planned(_STRING), line.rstrip(b"\n") + line)
    assert (parsed.batch.num_rows, parsed.rejected) == (0, {"the line is no JSON object": 1})


@pytest.mark.parametrize("schema", [_INTEGER, _OBJECT])
def test_of_equal_names_the_last_wins(schema: Mapping[str, Any]) -> None:
    parsed = parse(_planned(schema), record('{"id":1,"id":2,"v":1,"v":3}'))
    assert (parsed.batch.column("id").to_pylist(), str(parsed.batch.column("v")[0])) == ([2], "3")


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "RECORD", "record": {"stream": "users", "data": {"id": 1}, "emitted_at": 1700000000000}}\n',
        b'{"type":"RECORD","record":{"emitted_at":1700000000000,"stream":"users","data":{"id":1}}}\r\n',
        b'{"record":{"data":{"id":1},"emitted_at":1.7e12,"stream":"users"},"type":"RECORD"}\n',
        b'{"type":"RECORD","record":{"namespace":null,"stream":"users","data":{"id":1},"emitted_at":1700000000000}}\n',
        b'{"record":{"namespace":"","data":{"id":1},"emitted_at":1700000000000,"stream":"users"},"type":"RECORD"}\n',
    ],
)
def test_every_spelling_of_a_line_is_the_same_record(line: bytes) -> None:
    parsed = parse(_planned(_OBJECT), record('{"id":1}'), line)
    rows = parsed.batch.drop_columns(["_airbyte_raw_id"]).to_pylist()
    assert rows[0] == rows[1]
    assert rows[0]["_airbyte_extracted_at"] == dt.datetime.fromtimestamp(EMITTED_AT / 1000, _UTC)


@pytest.mark.parametrize("rest", ["", ',"emitted_at":null', ',"emitted_at":"noon"', ',"emitted_at":1e300'])
def test_a_record_that_does_not_say_when_gets_now_and_a_note(rest: str) -> None:
    parsed = parse(_planned(_STRING), record('{"id":1}', rest=rest))
    now = dt.datetime.fromtimestamp(EMITTED_AT / 1000 + 5, _UTC)
    assert parsed.batch.column("_airbyte_extracted_at").to_pylist() == [now]
    assert _changes(parsed) == [_nulled("emitted_at")]


def test_a_column_of_whole_numbers_takes_every_spelling_of_one() -> None:
    values = {
        "5": 5,
        "5.0": 5,
        '"n/a"': None,
        "6.5": None,
        "1e3": 1000,
        "null": None,
        "-12.00": -12,
        "1234567890123456789": 1234567890123456789,
    }
    parsed = parse(_planned(_INTEGER), *(record(f'{{"id":1,"v":{text}}}') for text in values), record('{"id":2}'))
    assert parsed.batch.column("v").to_pylist() == [*values.values(), None]
    assert [row for row in range(len(values) + 1) if _changes(parsed, row)] == [2, 3]


@pytest.mark.parametrize("schema", [_INTEGER, _OBJECT], ids=["without JSON columns", "with one"])
@pytest.mark.parametrize("bad", ["", '"x"'])
def test_the_sources_own_changes_come_first(schema: Mapping[str, Any], bad: str) -> None:
    theirs = {"field": "v", "change": "TRUNCATED", "reason": "SOURCE_RETRIEVAL_ERROR"}
    rest = f',"emitted_at":1,"meta":{{"changes":[{json.dumps(theirs)}]}}'
    parsed = parse(_planned(schema), record('{"id":0}'), record(f'{{"id":{bad or 1}}}', rest=rest))
    assert _changes(parsed, 1) == [theirs, *([_nulled("id")] if bad else [])]
    assert parsed.changed == 1


def test_rows_have_distinct_names_that_are_uuids() -> None:
    parsed = parse(_planned(_INTEGER), *[record('{"id":1}')] * 70_000)
    names = parsed.batch.column("_airbyte_raw_id").to_pylist()
    assert len(set(names)) == 70_000
    assert {uuid.UUID(name).version for name in names[::10_000]} == {8}
    assert str(uuid.UUID(names[-1])) == names[-1]


def test_metadata_says_which_sync_and_generation() -> None:
    batch = parse(_planned(_INTEGER), record('{"id":1}')).batch
    assert batch.column("_airbyte_meta").to_pylist() == [{"sync_id": 7, "changes": []}]
    assert batch.column("_airbyte_generation_id").to_pylist() == [3]


@pytest.mark.parametrize("schema", [_INTEGER, _OBJECT], ids=["without JSON columns", "with one"])
def test_fields_that_the_schema_lacks_are_counted_by_name(schema: Mapping[str, Any]) -> None:
    parsed = parse(_planned(schema), record('{"id":1}'), record('{"id":2,"new":{"x":1},"é":null}'), record('{"new":1}'))
    assert parsed.ignored == {"new": 2, "é": 1}
    assert parsed.batch.column("id").to_pylist() == [1, 2, None]


def test_a_line_that_came_in_no_run_does_not_end_the_look_out_for_such_fields() -> None:
    planned = _planned(_INTEGER)
    parser = SegmentParser(planned, table_columns(planned), SHAPE, sync_id=7, seed=b"123456789")
    alone, rare = record('{"id":1}'), record('{"id":1,"new":1}')
    in_run, rare_in_run = (
        line.replace(b'"type":"RECORD",', b"").replace(b'"stream":"users",', b"") for line in (alone, rare)
    )
    for lines in ([in_run] * 2, [in_run, alone]):
        assert parser.parse(b"".join(lines), len(lines), 0).ignored == {}
    many = [in_run] * 20_000
    many[625] = rare_in_run  # Where a sample of the segment would not look.
    assert parser.parse(b"".join(many), len(many), 0).ignored == {"new": 1}


@pytest.mark.parametrize("schema", [_INTEGER, _OBJECT], ids=["without JSON columns", "with one"])
@pytest.mark.parametrize("odd", [False, True], ids=["fast road", "slow road"])
def test_a_stream_without_namespace_takes_no_rows_that_have_one(schema: Mapping[str, Any], odd: bool) -> None:
    lines = [record('{"id":0}'), record('{"id":1}', rest=',"namespace":"b","emitted_at":1')]
    parsed = parse(_planned(schema), *lines, *([record('{"id":"odd"}')] if odd else []))
    assert parsed.batch.column("id").to_pylist() == [0, None][: 1 + odd]
    assert parsed.foreign == {StreamId("b", "users"): 1}


def test_a_field_nested_ten_thousand_deep_that_the_schema_lacks_is_counted_too() -> None:
    parsed = parse(_planned(_INTEGER), record('{"id":1}'), record(f'{{"id":2,"deep":{_DEEP}}}'))
    assert (parsed.ignored, parsed.batch.column("id").to_pylist()) == ({"deep": 1}, [1, 2])


def test_fields_that_the_schema_lacks_are_counted_on_the_slow_road_too() -> None:
    assert parse(_planned(_INTEGER), record('{"id":1.5,"new":1}')).ignored == {"new": 1}


def test_a_new_member_of_the_envelope_is_no_reason_for_the_slow_road() -> None:
    parsed = parse(_planned(_INTEGER), record('{"id":1}'), record('{"id":2}', rest=',"emitted_at":1,"file":{"a":1}'))
    assert (parsed.batch.column("id").to_pylist(), parsed.ignored) == ([1, 2], {})


@pytest.mark.parametrize("odd", ["", '"odd"'], ids=["fast road", "slow road"])
def test_rows_of_another_namespace_do_not_land(odd: str) -> None:
    ours = plan({"id": _INTEGER}, namespace="a")
    lines = [record(f'{{"id":{odd or 0}}}', rest=',"namespace":"a","emitted_at":1')]
    lines += [record('{"id":1}', rest=f',"namespace":{given},"emitted_at":1') for given in ('"b"', '"a"', "null")]
    parsed = parse(ours, *lines)
    assert parsed.batch.column("id").to_pylist() == [None if odd else 0, 1]
    assert parsed.rejected == {"the record is of another namespace": 2}
    assert parsed.foreign == {StreamId("b", "users"): 1, StreamId(None, "users"): 1}


def test_rows_that_cannot_be_told_by_their_key_are_rejected() -> None:
    lines = [record(data) for data in ('{"a":1}', '{"b":null}', '{"a":"x"}', '{"a":"x","b":"y"}', '{"b":"y"}')]
    properties = {"a": _INTEGER, "b": _STRING}
    for write in (WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP):
        parsed = parse(plan(properties, write=write, key=[("a",), ("b",)]), *lines)
        assert parsed.batch.column("a").to_pylist() == [1, None]
        assert (parsed.rejected, parsed.changed) == ({NO_KEY: 1, BAD_KEY: 2}, 0)
    parsed = parse(plan(properties, key=[("a",), ("b",)]), *lines)
    assert (parsed.batch.num_rows, parsed.rejected, parsed.changed) == (5, {}, 2)


def test_a_key_inside_an_object_is_a_column_of_its_own() -> None:
    properties = {"o": {"type": "object", "properties": {"id": _INTEGER}}}
    planned = plan(properties, write=WriteMode.APPEND_DEDUP, key=[("o", "id")])
    parsed = parse(planned, record('{"o":{"id": 5}}'), record('{"o":{"id":"x"}}'), record('{"o":[]}'))
    assert parsed.batch.column("_airbyte_key_o_id").to_pylist() == [5]
    assert parsed.rejected == {NO_KEY: 1, BAD_KEY: 1}


def test_any_value_but_null_says_that_a_row_was_deleted() -> None:
    properties = {"id": _INTEGER, "_ab_cdc_deleted_at": _INSTANT}
    marks = ("null", '"2024-01-01T00:00:00Z"', '"today"', "17", "[]")
    lines = [record(f'{{"id":{n},"_ab_cdc_deleted_at":{mark}}}') for n, mark in enumerate(marks)]
    deletions = parse(plan(properties), record('{"id":9}'), *lines).deletions
    assert deletions is not None
    assert deletions.to_pylist() == [False, False, True, True, True, True]
    keyed = parse(plan(properties, write=WriteMode.APPEND_DEDUP, key=[("id",)]), record("{}"), *lines).deletions
    assert keyed is not None
    assert keyed.to_pylist() == [False, True, True, True, True]
    assert parse(plan(properties), record('{"id":9}')).deletions is None
    assert parse(plan({"id": _INTEGER}), lines[1]).deletions is None


_KINDS = {
    "integer": _INTEGER, "number": _NUMBER, "string": _STRING, "boolean": _BOOLEAN, "big": _BIG, "date": _DATE,
    "time": _TIME, "instant": _INSTANT, "local": _LOCAL, "binary": _BINARY, "integers": _INTEGERS,
    "instants": _INSTANTS, "grid": _GRID,
}  # fmt: skip
_READ_BY_ARROW = {name: schema for name, schema in _KINDS.items() if name != "big"}
_WITH_JSON = {**_KINDS, "object": _OBJECT, "union": _UNION, "objects": _OBJECTS}
_TEXTS = st.one_of(
    st.sampled_from(
        [text for _, text, _ in LANDED if text != _DEEP] + [text for _, text, _ in NULLED if len(text) < 99]
    ),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ).map(json.dumps),
    st.datetimes(timezones=st.just(_UTC) | st.none()).map(lambda moment: json.dumps(moment.isoformat())),
)
_FITTING = {
    "integer": st.integers(-(1 << 63), (1 << 63) - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    "string": st.text(max_size=8),
    "boolean": st.booleans(),
    "big": st.integers(-(10**38) + 1, 10**38 - 1),
    "date": st.dates().map(str),
    "time": st.times().map(str),
    "instant": st.datetimes(timezones=st.just(_UTC) | st.none()).map(lambda moment: moment.isoformat()),
    "local": st.datetimes().map(lambda moment: moment.isoformat()),
    "integers": st.lists(st.integers(-5, 5) | st.none(), max_size=3),
    "grid": st.lists(st.lists(st.integers(-5, 5), max_size=2), max_size=3),
    "object": st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=3),
    "union": st.integers() | st.text(max_size=3),
    "objects": st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2) | st.none(), max_size=2),
}


def _agree(kinds: Mapping[str, Any], lines: list[bytes]) -> None:
    """A line that is no JSON sends the whole segment down the slow road; without it, it goes the fast one if it can."""
    planned = plan(kinds)
    fast, slow = parse(planned, *lines), parse(planned, *lines, b"no JSON\n")
    assert slow.rejected.pop("the line is no JSON object") == 1 + fast.rejected.pop("the line is no JSON object", 0)
    without = ["_airbyte_raw_id"]
    assert fast.batch.drop_columns(without).to_pylist() == slow.batch.drop_columns(without).to_pylist()
    assert fast._replace(batch=slow.batch) == slow


def test_what_fits_never_takes_the_slow_road() -> None:
    """Else the tests of agreement below would compare the slow road with itself."""
    planned = plan(_WITH_JSON)
    parser = SegmentParser(planned, table_columns(planned), SHAPE, sync_id=7, seed=b"123456789")
    first = {"integer": 1, "number": 1.5, "string": "a", "instant": "2020-01-01T00:00:00Z", "date": "2020-01-01"}
    rows = [first, {"local": "2020-01-01 00:00", "integers": [1], "object": {"a": 1}, "objects": [{}], "new": 1}]
    for row in rows:
        parser.parse(record(json.dumps(row)), 1, 0)
    parser.parse(record("{}", rest=',"emitted_at":1,"namespace":null,"meta":{"changes":[]}'), 1, 0)
    assert parser.redone == 0


@settings(max_examples=150)
@given(st.sampled_from([_READ_BY_ARROW, _KINDS, _WITH_JSON]), st.data())
def test_both_roads_agree_on_what_fits(kinds: Mapping[str, Any], data: st.DataObject) -> None:
    row = st.fixed_dictionaries({}, optional={kind: st.none() | _FITTING[kind] for kind in kinds if kind in _FITTING})
    _agree(kinds, [record(json.dumps(each)) for each in data.draw(st.lists(row, min_size=1, max_size=4))])


@settings(max_examples=150)
@given(st.sampled_from([_READ_BY_ARROW, _KINDS, _WITH_JSON]), st.data())
def test_both_roads_agree_on_anything(kinds: Mapping[str, Any], data: st.DataObject) -> None:
    row = st.dictionaries(st.sampled_from(sorted(kinds)), _TEXTS, max_size=4)
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    _agree(kinds, [record("{" + ",".join(f'"{name}":{text}' for name, text in each.items()) + "}") for each in rows])


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", ""]), _TEXTS, max_size=3), min_size=1, max_size=3))
def test_both_roads_agree_on_records_that_land_whole(rows: list[dict[str, str]]) -> None:
    lines = [record("{" + ", ".join(f'"{name}": {text}' for name, text in each.items()) + "}") for each in rows]
    _agree({}, [*lines, record("null"), record("7")])


def test_a_record_of_which_no_field_is_declared_lands_as_it_came() -> None:
    parser = _parser(plan({}))
    texts = ['{"id": 1,  "price": 12.3400, "tags": [1, {"a": null}]}', "{}"]
    parsed = parser.parse(b"".join(map(record, texts)), 2, 0)
    assert parsed.batch.column("_airbyte_data").to_pylist() == texts
    assert (parsed.ignored, parsed.changed, parser.redone) == ({}, 0, 0)
    assert parser.parse(record("[]"), 1, 0).rejected == {"the record has no data": 1}


def test_columns_of_other_loaders_say_the_same_on_both_roads() -> None:
    planned = msgspec.structs.replace(plan({"id": {"type": "integer"}}), sdc_columns=True)
    shape = SHAPE._replace(version=("version",))
    wholly = [record('{"id":1}'), *(record(f'{{"id":{n}}}').replace(b"}}", b'},"version":17}') for n in (2, 3))]
    for lines in (wholly, [*wholly, b"no JSON\n"]):
        parser = SegmentParser(planned, table_columns(planned), shape, sync_id=7, seed=b"123456789", began_at=5_000_999)
        batch = parser.parse(b"".join(lines), len(lines), 9_000_000, 6_000_000).batch
        row = batch.to_pydict()
        assert row["_sdc_table_version"] == [None, 17, 17]
        assert row["_sdc_extracted_at"] == row["_airbyte_extracted_at"]
        assert row["_sdc_received_at"] == [_at(6), _at(7), _at(8)]
        assert row["_sdc_batched_at"] == [_at(6)] * 3
        assert (row["_sdc_sequence"], row["_sdc_sync_started_at"]) == ([6000, 7000, 8000], [5000] * 3)
        assert row["_sdc_deleted_at"] == [None] * 3
        assert batch.schema.names[-6:] == SDC.names


def test_a_column_that_the_source_calls_so_stays_the_sources() -> None:
    fields = {"_SDC_sequence": {"type": "string"}, "_sdc_deleted_at": {"type": "boolean"}}
    columns = table_columns(msgspec.structs.replace(plan(fields), sdc_columns=True))
    assert [str(columns.schema.field(name).type) for name in fields] == ["string", "bool"]
    assert columns.sdc == tuple(name for name in SDC.names if name != "_sdc_sequence")


def _at(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def test_what_lands_whole_can_be_told_by_a_key_inside_and_pruned() -> None:
    shaping = Shaping(exclude=(("_airbyte_data", "mail"),), filter="_airbyte_data is not null")
    planned = plan({}, write=WriteMode.APPEND_DEDUP, key=[("id",)])
    parsed = _parser(msgspec.structs.replace(planned, shaping=shaping)).parse(
        record('{"id":1,"mail":"a@b"}') + record('{"mail":"c@d"}'), 2, 0
    )
    assert parsed.rejected == {"every part of the key is null": 1}
    assert [parsed.batch.column(name)[0].as_py() for name in parsed.batch.schema.names[:2]] == ['{"id":1}', "1"]


@settings(max_examples=100)
@given(st.sampled_from([_READ_BY_ARROW, _KINDS, _WITH_JSON]), st.data())
def test_a_stream_that_is_odd_time_and_again_reads_as_it_did_the_first_time(
    kinds: Mapping[str, Any], data: st.DataObject
) -> None:
    row = st.dictionaries(st.sampled_from(sorted(kinds)), _TEXTS, max_size=4)
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    lines = [record("{" + ",".join(f'"{name}":{text}' for name, text in each.items()) + "}") for each in rows]
    parser = _parser(plan(kinds))
    first, *later = [parser.parse(b"".join(lines), len(lines), 0) for _ in range(4)]
    for parsed in later:
        assert _rows(parsed) == _rows(first)
        assert parsed._replace(batch=first.batch) == first


def test_a_column_that_is_odd_time_and_again_does_not_slow_down_the_others() -> None:
    parser = _parser(plan({"id": {"type": "integer"}, "v": {"type": "integer"}, "w": {"type": "string"}}))
    lines = [record('{"id":1,"v":"many","w":"a"}'), record('{"id":2,"v":2,"w":"b"}')]
    for _ in range(9):
        parsed = parser.parse(b"".join(lines), len(lines), 0)
        assert parsed.batch.column("v").to_pylist() == [None, 2]
    assert parser.redone == 1


def test_a_road_that_was_of_no_use_is_tried_more_and_more_rarely_and_not_given_up() -> None:
    parser = _parser(plan({"id": {"type": "integer"}}))
    for _ in range(20):
        assert parser.parse(b"no JSON\n", 1, 0).rejected == {"the line is no JSON object": 1}
    redone = parser.redone
    for _ in range(20):
        assert parser.parse(record('{"id":1}'), 1, 0).batch.num_rows == 1
    assert parser.redone < redone + 20


def _rows(parsed: Parsed) -> list[dict[str, Any]]:
    """But for what is drawn for each row. In which order a row's changes are told means nothing."""
    rows: list[dict[str, Any]] = parsed.batch.drop_columns(["_airbyte_raw_id"]).to_pylist()
    for row in rows:
        row["_airbyte_meta"]["changes"].sort(key=itemgetter("field"))
    return rows


def _parser(planned: PlannedStream) -> SegmentParser:
    return SegmentParser(planned, table_columns(planned), SHAPE, sync_id=7, seed=b"123456789")
