"""What becomes of each kind of value, and that both parsers say the same."""

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto.model import PlannedStream, Shaping, StreamId, WriteMode
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.rows.metadata import RowOrigin
from dagster_airbyte_proto.staging.rows.segment_parser import BAD_KEY, NO_KEY, ParsedBatch, SegmentParser
from tests.staging.conftest import EMITTED_AT, SHAPE, parse, plan, record
from tests.staging.lines.sample_values import (
    DEEP,
    GRID,
    INSTANT,
    INSTANTS,
    INTEGER,
    INTEGERS,
    LANDED,
    LOCAL,
    NULLED,
    OBJECT,
    STRING,
    TYPECAST,
    UTC,
)


def _planned(schema: Mapping[str, Any]) -> PlannedStream:
    return plan({"id": INTEGER, "v": schema})


def _changes(parsed: ParsedBatch, row: int = 0) -> Any:
    return parsed.batch.column("_airbyte_meta")[row].as_py()["changes"]


def _nulled(field: str, reason: str = TYPECAST) -> dict[str, str]:
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
        (INTEGERS, '[1, "x", 3]', [1, None, 3], "v.1"),
        (INSTANTS, '["2008-08-20", null]', [None, None], "v.0"),
        (GRID, "[[1], null, [2, NaN]]", [[1.0], None, [2.0, None]], "v.2.1"),
        (GRID, "[[1], 5]", [[1.0], None], "v.1"),
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
        ("2008-08-20T10:00:00.123456789Z", dt.datetime(2008, 8, 20, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("1908-08-20T10:00:00.1234567+00:00", dt.datetime(1908, 8, 20, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("9999-08-20T10:00:00.1234567", dt.datetime(9999, 8, 20, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("2008-08-20T10:00:00.12345678901234Z", dt.datetime(2008, 8, 20, 10, 0, 0, 123_456, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("other", ["2008-08-20T10:00:00.1Z", "2008-08-20"])
def test_a_time_with_more_digits_than_its_table_is_cut_and_noted(text: str, value: dt.datetime, other: str) -> None:
    for schema in (INSTANT, LOCAL):
        parsed = parse(
            _planned(schema), record(f'{{"v":"{other}"}}'), record('{"v":null}'), record(f'{{"v":"{text}"}}')
        )
        landed = value if schema is INSTANT else value.replace(tzinfo=None)
        assert parsed.batch.column("v").to_pylist()[1:] == [None, landed]
        assert (_changes(parsed, 1), _changes(parsed, 2)) == ([], [_truncated("v")])


def test_a_time_cut_inside_an_array_is_named_by_its_path() -> None:
    times = '["2008-08-20T10:00:00.1Z", null, "2008-08-20T10:00:00.1234567Z"]'
    parsed = parse(_planned({"type": "array", "items": INSTANT}), record('{"v":[]}'), record(f'{{"v":{times}}}'))
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
    parsed = parse(_planned(STRING), record('{"id":1}'), line, record('{"id":2}'))
    assert parsed.batch.column("id").to_pylist() == [1, 2]
    assert parsed.rejected == {reason: 1}


def test_two_documents_on_one_line_are_not_two_rows() -> None:
    line = record('{"id":1}')
    parsed = parse(_planned(STRING), line.rstrip(b"\n") + line)
    assert (parsed.batch.num_rows, parsed.rejected) == (0, {"the line is no JSON object": 1})


@pytest.mark.parametrize("schema", [INTEGER, OBJECT])
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
    parsed = parse(_planned(OBJECT), record('{"id":1}'), line)
    rows = parsed.batch.drop_columns(["_airbyte_raw_id"]).to_pylist()
    assert rows[0] == rows[1]
    assert rows[0]["_airbyte_extracted_at"] == dt.datetime.fromtimestamp(EMITTED_AT / 1000, UTC)


@pytest.mark.parametrize("rest", ["", ',"emitted_at":null', ',"emitted_at":"noon"', ',"emitted_at":1e300'])
def test_a_record_that_does_not_say_when_gets_now_and_a_note(rest: str) -> None:
    parsed = parse(_planned(STRING), record('{"id":1}', rest=rest))
    now = dt.datetime.fromtimestamp(EMITTED_AT / 1000 + 5, UTC)
    assert parsed.batch.column("_airbyte_extracted_at").to_pylist() == [now]
    assert _changes(parsed) == [_nulled("_airbyte_extracted_at")]


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
    parsed = parse(_planned(INTEGER), *(record(f'{{"id":1,"v":{text}}}') for text in values), record('{"id":2}'))
    assert parsed.batch.column("v").to_pylist() == [*values.values(), None]
    assert [row for row in range(len(values) + 1) if _changes(parsed, row)] == [2, 3]


@pytest.mark.parametrize("schema", [INTEGER, OBJECT], ids=["without JSON columns", "with one"])
@pytest.mark.parametrize("bad", ["", '"x"'])
def test_the_sources_own_changes_come_first(schema: Mapping[str, Any], bad: str) -> None:
    theirs = {"field": "v", "change": "TRUNCATED", "reason": "SOURCE_RETRIEVAL_ERROR"}
    rest = f',"emitted_at":1,"meta":{{"changes":[{json.dumps(theirs)}]}}'
    parsed = parse(_planned(schema), record('{"id":0}'), record(f'{{"id":{bad or 1}}}', rest=rest))
    assert _changes(parsed, 1) == [theirs, *([_nulled("id")] if bad else [])]
    assert parsed.changed == 1


def test_rows_have_distinct_names_that_are_uuids() -> None:
    parsed = parse(_planned(INTEGER), *[record('{"id":1}')] * 70_000)
    names = parsed.batch.column("_airbyte_raw_id").to_pylist()
    assert len(set(names)) == 70_000
    assert {uuid.UUID(name).version for name in names[::10_000]} == {8}
    assert str(uuid.UUID(names[-1])) == names[-1]


def test_metadata_says_which_sync_and_generation() -> None:
    batch = parse(_planned(INTEGER), record('{"id":1}')).batch
    assert batch.column("_airbyte_meta").to_pylist() == [{"sync_id": 7, "changes": []}]
    assert batch.column("_airbyte_generation_id").to_pylist() == [3]


@pytest.mark.parametrize("schema", [INTEGER, OBJECT], ids=["without JSON columns", "with one"])
def test_fields_that_the_schema_lacks_are_counted_by_name(schema: Mapping[str, Any]) -> None:
    parsed = parse(_planned(schema), record('{"id":1}'), record('{"id":2,"new":{"x":1},"é":null}'), record('{"new":1}'))
    assert parsed.ignored == {"new": 2, "é": 1}
    assert parsed.batch.column("id").to_pylist() == [1, 2, None]


def test_a_line_that_came_in_no_run_does_not_end_the_look_out_for_such_fields() -> None:
    planned = _planned(INTEGER)
    parser = SegmentParser(planned, table_columns(planned), SHAPE, RowOrigin(7, b"123456789"))
    alone, rare = record('{"id":1}'), record('{"id":1,"new":1}')
    in_run, rare_in_run = (
        line.replace(b'"type":"RECORD",', b"").replace(b'"stream":"users",', b"") for line in (alone, rare)
    )
    for lines in ([in_run] * 2, [in_run, alone]):
        assert parser.parse(b"".join(lines), len(lines), 0).ignored == {}
    many = [in_run] * 20_000
    many[625] = rare_in_run  # Where a sample of the segment would not look.
    assert parser.parse(b"".join(many), len(many), 0).ignored == {"new": 1}


@pytest.mark.parametrize("schema", [INTEGER, OBJECT], ids=["without JSON columns", "with one"])
@pytest.mark.parametrize("odd", [False, True], ids=["columnar", "by record"])
def test_a_stream_without_namespace_takes_no_rows_that_have_one(schema: Mapping[str, Any], odd: bool) -> None:
    lines = [record('{"id":0}'), record('{"id":1}', rest=',"namespace":"b","emitted_at":1')]
    parsed = parse(_planned(schema), *lines, *([record('{"id":"odd"}')] if odd else []))
    assert parsed.batch.column("id").to_pylist() == [0, None][: 1 + odd]
    assert parsed.foreign == {StreamId("b", "users"): 1}


def test_fields_of_long_lines_are_counted_once() -> None:
    text = "x" * 100_000
    lines = [record(f'{{"id":{number},"v":{{"t":"{text}"}},"new":1}}') for number in range(3)]
    assert parse(_planned(OBJECT), *lines).ignored == {"new": 3}


def test_a_field_nested_ten_thousand_deep_that_the_schema_lacks_is_counted_too() -> None:
    parsed = parse(_planned(INTEGER), record('{"id":1}'), record(f'{{"id":2,"deep":{DEEP}}}'))
    assert (parsed.ignored, parsed.batch.column("id").to_pylist()) == ({"deep": 1}, [1, 2])


def test_fields_that_the_schema_lacks_are_counted_when_parsed_by_record_too() -> None:
    assert parse(_planned(INTEGER), record('{"id":1.5,"new":1}')).ignored == {"new": 1}


def test_a_new_member_of_the_envelope_does_not_end_columnar_parsing() -> None:
    parsed = parse(_planned(INTEGER), record('{"id":1}'), record('{"id":2}', rest=',"emitted_at":1,"file":{"a":1}'))
    assert (parsed.batch.column("id").to_pylist(), parsed.ignored) == ([1, 2], {})


@pytest.mark.parametrize("odd", ["", '"odd"'], ids=["columnar", "by record"])
def test_rows_of_another_namespace_do_not_land(odd: str) -> None:
    ours = plan({"id": INTEGER}, namespace="a")
    lines = [record(f'{{"id":{odd or 0}}}', rest=',"namespace":"a","emitted_at":1')]
    lines += [record('{"id":1}', rest=f',"namespace":{given},"emitted_at":1') for given in ('"b"', '"a"', "null")]
    parsed = parse(ours, *lines)
    assert parsed.batch.column("id").to_pylist() == [None if odd else 0, 1]
    assert parsed.rejected == {"the record is of another namespace": 2}
    assert parsed.foreign == {StreamId("b", "users"): 1, StreamId(None, "users"): 1}


def test_a_row_of_another_namespace_shifts_no_error_to_the_next_rows() -> None:
    big = {"type": "integer", "airbyte_type": "big_integer"}
    planned = plan({"id": big}, namespace="a", write=WriteMode.APPEND_DEDUP, key=[("id",)])
    given = (("1", "b"), ('"bad"', "a"), ("3", "a"), ("4", "a"))
    lines = [record(f'{{"id":{key}}}', rest=f',"emitted_at":1,"namespace":"{name}"') for key, name in given]
    parsed = parse(planned, *lines)
    assert parsed.batch.column("id").to_pylist() == [3, 4]
    assert parsed.rejected == {"the record is of another namespace": 1, BAD_KEY: 1}


def test_rows_that_cannot_be_told_by_their_key_are_rejected() -> None:
    lines = [record(data) for data in ('{"a":1}', '{"b":null}', '{"a":"x"}', '{"a":"x","b":"y"}', '{"b":"y"}')]
    properties = {"a": INTEGER, "b": STRING}
    for write in (WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP):
        parsed = parse(plan(properties, write=write, key=[("a",), ("b",)]), *lines)
        assert parsed.batch.column("a").to_pylist() == [1, None]
        assert (parsed.rejected, parsed.changed) == ({NO_KEY: 1, BAD_KEY: 2}, 0)
    parsed = parse(plan(properties, key=[("a",), ("b",)]), *lines)
    assert (parsed.batch.num_rows, parsed.rejected, parsed.changed) == (5, {}, 2)


def test_a_key_inside_an_object_is_a_column_of_its_own() -> None:
    properties = {"o": {"type": "object", "properties": {"id": INTEGER}}}
    planned = plan(properties, write=WriteMode.APPEND_DEDUP, key=[("o", "id")])
    parsed = parse(planned, record('{"o":{"id": 5}}'), record('{"o":{"id":"x"}}'), record('{"o":[]}'))
    assert parsed.batch.column("_airbyte_key_o_id").to_pylist() == [5]
    assert parsed.rejected == {NO_KEY: 1, BAD_KEY: 1}


@pytest.mark.parametrize(
    ("kind", "kept", "lossy"),
    [
        ({"type": "number"}, "9007199254740991", ("9007199254740992", "9007199254740993", "-1e20")),
        ({"type": "number", "multipleOf": 0.01}, "0.123456789", ("0.1234567891", "0.1234567892")),
        (
            INSTANT,
            '"2024-01-01T00:00:00.000001Z"',
            ('"2024-01-01T00:00:00.0000002Z"', '"2024-01-01T00:00:00.0000001Z"'),
        ),
    ],
)
def test_a_key_that_loses_digits_is_rejected_as_it_would_equal_others(
    kind: Mapping[str, Any], kept: str, lossy: tuple[str, ...]
) -> None:
    planned = plan({"id": kind}, write=WriteMode.APPEND_DEDUP, key=[("id",)])
    parsed = parse(planned, *(record(f'{{"id":{value}}}') for value in (kept, *lossy)))
    assert (parsed.batch.num_rows, parsed.rejected) == (1, {BAD_KEY: len(lossy)})
    hashed = msgspec.structs.replace(planned, shaping=Shaping(hashed=(("id",),)))
    assert parse(hashed, *(record(f'{{"id":{value}}}') for value in lossy)).rejected == {BAD_KEY: len(lossy)}


def test_a_key_is_not_taken_for_the_time_of_its_message() -> None:
    planned = plan({"emitted_at": STRING}, write=WriteMode.APPEND_DEDUP, key=[("emitted_at",)])
    parsed = parse(planned, record('{"emitted_at":"x"}', rest=""))
    assert (parsed.batch.column("emitted_at").to_pylist(), parsed.rejected) == (["x"], {})


def test_a_value_beside_a_key_that_is_no_json_rejects_no_row() -> None:
    properties = {"tenant": INTEGER, "o": {"type": "object", "properties": {"id": INTEGER}}}
    planned = plan(properties, write=WriteMode.APPEND_DEDUP, key=[("tenant",), ("o", "id")])
    objects = ['{"id":1,"x":NaN}', '{"id":2}', '{"id":"bad","x":NaN}', '{"id":NaN}', '{"x":Infinity}', "NaN"]
    parsed = parse(planned, *(record(f'{{"tenant":1,"o":{each}}}') for each in objects))
    assert parsed.batch.column("_airbyte_key_o_id").to_pylist() == [1, 2, None]
    assert parsed.batch.column("o").to_pylist() == [None, '{"id":2}', None]
    assert (_changes(parsed), parsed.rejected) == ([_nulled("o")], {BAD_KEY: 3})


def test_a_record_without_fields_keeps_its_key_beside_a_value_that_is_no_json() -> None:
    planned = plan({}, write=WriteMode.APPEND_DEDUP, key=[("id",)])
    lines = ('{"id":1,"v":NaN}', '{"id":2,"v":1}', '{"id":3,"v":{"w":[Infinity]}}', '{"v":NaN}')
    parsed = parse(planned, *map(record, lines))
    assert parsed.batch.column("_airbyte_data").to_pylist() == [None, '{"id":2,"v":1}', None]
    assert parsed.batch.column("_airbyte_key__airbyte_data_id").to_pylist() == ["1", "2", "3"]
    assert parsed.rejected == {NO_KEY: 1}


def test_any_value_but_null_says_that_a_row_was_deleted() -> None:
    properties = {"id": INTEGER, "_ab_cdc_deleted_at": INSTANT}
    marks = ("null", '"2024-01-01T00:00:00Z"', '"today"', "17", "[]")
    lines = [record(f'{{"id":{n},"_ab_cdc_deleted_at":{mark}}}') for n, mark in enumerate(marks)]
    deletions = parse(plan(properties), record('{"id":9}'), *lines).deletions
    assert deletions is not None
    assert deletions.to_pylist() == [False, False, True, True, True, True]
    keyed = parse(plan(properties, write=WriteMode.APPEND_DEDUP, key=[("id",)]), record("{}"), *lines).deletions
    assert keyed is not None
    assert keyed.to_pylist() == [False, True, True, True, True]
    assert parse(plan(properties), record('{"id":9}')).deletions is None
    assert parse(plan({"id": INTEGER}), lines[1]).deletions is None
