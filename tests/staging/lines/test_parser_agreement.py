"""Both parsers of a segment agree, whatever they read."""

import datetime as dt
import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.model import PlannedStream, Shaping, WriteMode
from dagster_airbyte_proto.schema.columns import SDC
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.rows.metadata import RowOrigin
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch, SegmentParser
from tests.staging.conftest import SHAPE, parse, plan, record
from tests.staging.lines.sample_values import (
    BIG,
    BINARY,
    BOOLEAN,
    DATE,
    DEEP,
    GRID,
    INSTANT,
    INSTANTS,
    INTEGER,
    INTEGERS,
    LANDED,
    LOCAL,
    NULLED,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    TIME,
    UNION,
    UTC,
)

_KINDS = {
    "integer": INTEGER, "number": NUMBER, "string": STRING, "boolean": BOOLEAN, "big": BIG, "date": DATE,
    "time": TIME, "instant": INSTANT, "local": LOCAL, "binary": BINARY, "integers": INTEGERS,
    "instants": INSTANTS, "grid": GRID,
}  # fmt: skip
_READ_BY_ARROW = {name: schema for name, schema in _KINDS.items() if name != "big"}
_WITH_JSON = {**_KINDS, "object": OBJECT, "union": UNION, "objects": OBJECTS}
_TEXTS = st.one_of(
    st.sampled_from(
        [text for _, text, _ in LANDED if text != DEEP] + [text for _, text, _ in NULLED if len(text) < 99]
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
    st.datetimes(timezones=st.just(UTC) | st.none()).map(lambda moment: json.dumps(moment.isoformat())),
)
_FITTING = {
    "integer": st.integers(-(1 << 63), (1 << 63) - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    "string": st.text(max_size=8),
    "boolean": st.booleans(),
    "big": st.integers(-(10**38) + 1, 10**38 - 1),
    "date": st.dates().map(str),
    "time": st.times().map(str),
    "instant": st.datetimes(timezones=st.just(UTC) | st.none()).map(lambda moment: moment.isoformat()),
    "local": st.datetimes().map(lambda moment: moment.isoformat()),
    "integers": st.lists(st.integers(-5, 5) | st.none(), max_size=3),
    "grid": st.lists(st.lists(st.integers(-5, 5), max_size=2), max_size=3),
    "object": st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=3),
    "union": st.integers() | st.text(max_size=3),
    "objects": st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2) | st.none(), max_size=2),
}


def _agree(kinds: Mapping[str, Any], lines: list[bytes]) -> None:
    """A line that is no JSON makes the segment be parsed by record. Without it, it is parsed by columns if possible."""
    planned = plan(kinds)
    fast, slow = parse(planned, *lines), parse(planned, *lines, b"no JSON\n")
    assert slow.rejected.pop("the line is no JSON object") == 1 + fast.rejected.pop("the line is no JSON object", 0)
    without = ["_airbyte_raw_id"]
    assert fast.batch.drop_columns(without).to_pylist() == slow.batch.drop_columns(without).to_pylist()
    assert fast._replace(batch=slow.batch) == slow


def test_what_fits_is_never_parsed_by_record() -> None:
    """Else the tests of agreement below would compare `parse_by_record` with itself."""
    planned = plan(_WITH_JSON)
    parser = SegmentParser(planned, table_columns(planned), SHAPE, RowOrigin(7, b"123456789"))
    first = {"integer": 1, "number": 1.5, "string": "a", "instant": "2020-01-01T00:00:00Z", "date": "2020-01-01"}
    rows = [first, {"local": "2020-01-01 00:00", "integers": [1], "object": {"a": 1}, "objects": [{}], "new": 1}]
    for row in rows:
        parser.parse(record(json.dumps(row)), 1, 0)
    parser.parse(record("{}", rest=',"emitted_at":1,"namespace":null,"meta":{"changes":[]}'), 1, 0)
    assert parser.segments_by_record == 0


@settings(max_examples=150)
@given(st.sampled_from([_READ_BY_ARROW, _KINDS, _WITH_JSON]), st.data())
def test_both_parsers_agree_on_what_fits(kinds: Mapping[str, Any], data: st.DataObject) -> None:
    row = st.fixed_dictionaries({}, optional={kind: st.none() | _FITTING[kind] for kind in kinds if kind in _FITTING})
    _agree(kinds, [record(json.dumps(each)) for each in data.draw(st.lists(row, min_size=1, max_size=4))])


@settings(max_examples=150)
@given(st.sampled_from([_READ_BY_ARROW, _KINDS, _WITH_JSON]), st.data())
def test_both_parsers_agree_on_anything(kinds: Mapping[str, Any], data: st.DataObject) -> None:
    row = st.dictionaries(st.sampled_from(sorted(kinds)), _TEXTS, max_size=4)
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    _agree(kinds, [record("{" + ",".join(f'"{name}":{text}' for name, text in each.items()) + "}") for each in rows])


@st.composite
def _number_texts(draw: st.DrawFn) -> str:
    """A number as JSON has it, in any spelling."""
    digits = draw(
        st.sampled_from(["0", "1", "9", "12", "9007199254740993", "9223372036854775807", "9" * 29, "9" * 38, "1" * 60])
    )
    point = draw(st.sampled_from(["", ".0", ".5", ".000000000", ".1234567890123456789", ".9999999999", ".000"]))
    exponent = draw(
        st.sampled_from(["", "e0", "E+2", "e-1", "e38", "e-38", "e309", "e-325", "e99999999999", "E-99999999999"])
    )
    return draw(st.sampled_from(["", "-"])) + digits + point + exponent


_NUMBER_KINDS = {
    "integer": INTEGER, "number": NUMBER, "big": BIG, "decimal": {"type": "number", "multipleOf": 0.01},
    "numbers": {"type": "array", "items": NUMBER},
}  # fmt: skip
_NEIGHBOURS = st.sampled_from(["NaN", "true", '"1"', '"\\u0031"', '"\\ud800"', "[]", "null"])


@settings(max_examples=300)
@given(st.sampled_from(sorted(_NUMBER_KINDS)), st.lists(_number_texts() | _NEIGHBOURS, min_size=1, max_size=4))
def test_a_number_lands_the_same_on_both_parsers_and_beside_any_neighbour(kind: str, texts: list[str]) -> None:
    """Compared by their spelling: 0.0 and -0.0 are equal otherwise."""
    planned = plan({kind: _NUMBER_KINDS[kind]})
    lines = [record(f'{{"{kind}":{f"[{text}]" if kind == "numbers" else text}}}') for text in texts]
    _agree(planned.stream.json_schema["properties"], lines)

    def landed(*given: bytes) -> list[str]:
        batch = parse(planned, *given).batch
        values = zip(batch.column(kind).to_pylist(), batch.column("_airbyte_meta").to_pylist(), strict=True)
        return [repr((value, meta["changes"])) for value, meta in values]

    assert landed(*lines) == landed(*lines, b"no JSON\n") == [one for line in lines for one in landed(line)]


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", ""]), _TEXTS, max_size=3), min_size=1, max_size=3))
def test_both_parsers_agree_on_records_that_land_whole(rows: list[dict[str, str]]) -> None:
    lines = [record("{" + ", ".join(f'"{name}": {text}' for name, text in each.items()) + "}") for each in rows]
    _agree({}, [*lines, record("null"), record("7")])


def test_a_record_of_which_no_field_is_declared_lands_as_it_came() -> None:
    parser = _parser(plan({}))
    texts = ['{"id": 1,  "price": 12.3400, "tags": [1, {"a": null}]}', "{}"]
    parsed = parser.parse(b"".join(map(record, texts)), 2, 0)
    assert parsed.batch.column("_airbyte_data").to_pylist() == texts
    assert (parsed.ignored, parsed.changed, parser.segments_by_record) == ({}, 0, 0)
    assert parser.parse(record("[]"), 1, 0).rejected == {"the record has no data": 1}


def test_columns_of_other_loaders_say_the_same_on_both_parsers() -> None:
    planned = msgspec.structs.replace(plan({"id": {"type": "integer"}}), sdc_columns=True)
    shape = SHAPE._replace(version=("version",))
    wholly = [record('{"id":1}'), *(record(f'{{"id":{n}}}').replace(b"}}", b'},"version":17}') for n in (2, 3))]
    for lines in (wholly, [*wholly, b"no JSON\n"]):
        parser = SegmentParser(planned, table_columns(planned), shape, RowOrigin(7, b"123456789", began_at=5_000_999))
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
    assert parser.segments_by_record == 1


def test_a_columnar_parser_that_keeps_failing_is_tried_less_and_less_often_and_not_given_up() -> None:
    parser = _parser(plan({"id": {"type": "integer"}}))
    for _ in range(20):
        assert parser.parse(b"no JSON\n", 1, 0).rejected == {"the line is no JSON object": 1}
    segments_by_record = parser.segments_by_record
    for _ in range(20):
        assert parser.parse(record('{"id":1}'), 1, 0).batch.num_rows == 1
    assert parser.segments_by_record < segments_by_record + 20


def _rows(parsed: ParsedBatch) -> list[dict[str, Any]]:
    """But for what is drawn for each row. In which order a row's changes are told means nothing."""
    rows: list[dict[str, Any]] = parsed.batch.drop_columns(["_airbyte_raw_id"]).to_pylist()
    for row in rows:
        row["_airbyte_meta"]["changes"].sort(key=itemgetter("field"))
    return rows


def _parser(planned: PlannedStream) -> SegmentParser:
    return SegmentParser(planned, table_columns(planned), SHAPE, RowOrigin(7, b"123456789"))
