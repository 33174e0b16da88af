"""Rows on their way: what is not read, what is hashed, cut off, called otherwise, left out."""

import datetime
import hashlib
import hmac
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.model import Shaping
from dagster_airbyte_proto.schema.columns import Pruning
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.rows.metadata import RowOrigin
from dagster_airbyte_proto.staging.rows.pruning import prune
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch, SegmentParser
from dagster_airbyte_proto.staging.rows.shaping import FILTERED, hash_values, hmac_sha256
from tests.staging.conftest import SHAPE, plan, record, records

_KEY = "a key that nobody guesses"
_USERS: dict[str, Any] = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "amount": {"type": "number"},
    "address": {"type": "object", "properties": {"city": {}, "street": {}, "more": {}}},
}
_ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "amount": 1.5, "address": {"city": "X", "street": "Y", "more": [1]}},
    {"id": 2, "name": None, "amount": -1, "address": None},
    {"id": 3, "name": "a"},
]


def _sha(value: str) -> str:
    return hmac.new(_KEY.encode(), value.encode(), hashlib.sha256).hexdigest()


def _shaped(*lines: bytes, properties: Mapping[str, Any] = _USERS, **shaping: Any) -> list[ParsedBatch]:
    """The lines parsed by columns, and by record, which a line that is no JSON brings about."""
    planned = msgspec.structs.replace(plan(properties), shaping=Shaping(**shaping))
    both = []
    for all_lines in (lines, (*lines, b"no JSON\n")):
        parser = SegmentParser(planned, table_columns(planned), SHAPE, RowOrigin(7, b"123456789"), hash_key=_KEY)
        both.append(parser.parse(b"".join(all_lines), len(all_lines), 0))
    both[1].rejected.pop("the line is no JSON object")
    return both


def _data(parsed: ParsedBatch) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith("_airbyte")}
        for row in parsed.batch.to_pylist()
    ]


def test_fields_that_are_not_selected_are_not_read_and_not_told_as_unknown() -> None:
    odd = record('{"id":4,"amount":"much","new":1}')
    for parsed in _shaped(records(_ROWS[:1]), odd, select=(("id",),)):
        assert _data(parsed) == [{"id": 1}, {"id": 4}]
        assert (parsed.changed, parsed.ignored) == (0, {"new": 1})


def test_a_stream_of_which_little_is_selected_is_parsed_by_columns() -> None:
    planned = msgspec.structs.replace(plan(_USERS), shaping=Shaping(select=(("id",),)))
    parser = SegmentParser(planned, table_columns(planned), SHAPE, RowOrigin(7, b"123456789"))
    for row in ({**_ROWS[0], "amount": "much", "new": {}}, *_ROWS):
        parser.parse(records([row]), 1, 0)
    assert parser.segments_by_record == 0


def test_the_sources_own_remarks_and_namespaces_are_still_heard() -> None:
    changes = ',"emitted_at":1,"meta":{"changes":[{"field":"id","change":"NULLED","reason":"R"}]}'
    for parsed in _shaped(record('{"id":1,"name":"a"}', rest=changes), select=(("id",),)):
        assert parsed.batch.column("_airbyte_meta")[0].as_py()["changes"][0]["reason"] == "R"
        assert parsed.changed == 1


def test_names_hashes_and_filters_go_together() -> None:
    lines = [records([row]) for row in _ROWS]
    for parsed in _shaped(
        *lines, exclude=(("address",),), renames=(("name", "who"),), hashed=(("name",), ("id",)), filter="id != 2"
    ):
        assert _data(parsed) == [
            {"id": _sha("1"), "who": _sha("a"), "amount": 1.5},
            {"id": _sha("3"), "who": _sha("a"), "amount": None},
        ]
        assert parsed.rejected == {FILTERED: 1}


def test_a_filter_that_does_not_know_leaves_out() -> None:
    for parsed in _shaped(*[records([row]) for row in _ROWS], select=(("id",),), filter="amount > 0"):
        assert (_data(parsed), parsed.rejected) == ([{"id": 1}], {FILTERED: 2})


def test_a_value_that_does_not_fit_is_null_to_a_filter_and_keeps_its_remark() -> None:
    for parsed in _shaped(record('{"id":1,"amount":"much"}'), record('{"id":2,"amount":1}'), filter="amount is null"):
        assert (_data(parsed)[0]["id"], parsed.changed, parsed.rejected) == (1, 1, {FILTERED: 1})


def test_members_of_an_object_are_cut_off() -> None:
    lines = [records([row]) for row in _ROWS]
    for parsed in _shaped(*lines, select=(("id",), ("address", "city"), ("address", "more"))):
        assert [row["address"] for row in _data(parsed)] == ['{"city":"X","more":[1]}', None, None]
    for parsed in _shaped(*lines, exclude=(("address", "street"),)):
        assert json.loads(_data(parsed)[0]["address"]) == {"city": "X", "more": [1]}


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array(["a", None, "a", "ü"]), ["a", None, "a", "ü"]),
        (pa.array([5, -5, None]), ["5", "-5", None]),
        (pa.array([True, None]), ["true", None]),
        (pa.array([1.5, 2.0]), ["1.5", "2"]),
        (pa.array([Decimal(10**30)], pa.decimal128(38, 0)), ["1" + "0" * 30]),
        (pa.array([datetime.date(2020, 1, 2)]), ["2020-01-02"]),
        (pa.array([1_500_000], pa.timestamp("us", "UTC")), ["1970-01-01T00:00:01.500000Z"]),
        (pa.array([1_500_000], pa.timestamp("us")), ["1970-01-01T00:00:01.500000"]),
        (pa.array([b"a"]), ["a"]),
        (pa.nulls(2, pa.string()), [None, None]),
        (pa.array([], pa.int64()), []),
    ],
)
def test_a_hash_is_the_hmac_of_the_values_text(values: pa.Array, texts: list[str | None]) -> None:
    assert hash_values(values, hmac_sha256(_KEY)).to_pylist() == [
        None if text is None else _sha(text) for text in texts
    ]


def test_a_lists_elements_are_hashed_each() -> None:
    values = pa.array([["a", None], None, [], ["b"]])
    assert hash_values(values, hmac_sha256(_KEY)).to_pylist() == [[_sha("a"), None], None, [], [_sha("b")]]


@given(st.text(min_size=1, max_size=200), st.binary(max_size=200))
def test_the_quicker_hmac_is_pythons(key: str, value: bytes) -> None:
    assert hmac_sha256(key)(value) == hmac.new(key.encode(), value, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("text", "pruning", "expected"),
    [
        ('{"a" : 1e2, "b":{ "c":1 }}', Pruning(drop=(("x",),)), '{"a" : 1e2, "b":{ "c":1 }}'),
        ('{"a" : 1e2, "b":{ "c":1 }}', Pruning(drop=(("a",),)), '{"b":{ "c":1 }}'),
        ('{"b":{"c":1,"d":2}}', Pruning(drop=(("b", "c"),)), '{"b":{"d":2}}'),
        ('{"b":{"c":1,"d":2},"e":3}', Pruning(keep=(("b", "c"),)), '{"b":{"c":1}}'),
        ('{"b":{"c":1,"d":2},"e":3}', Pruning(keep=(("b",),), drop=(("b", "c"),)), '{"b":{"d":2}}'),
        ('{"b":5}', Pruning(keep=(("b", "c"),)), '{"b":null}'),
        ('{"b":5}', Pruning(drop=(("b", "c"),)), '{"b":5}'),
        ('"text"', Pruning(keep=(("b",),)), None),
        ('"text"', Pruning(drop=(("b",),)), '"text"'),
        (None, Pruning(drop=(("b",),)), None),
        ("{}", Pruning(keep=(("b",),)), "{}"),
        ('{"\\ud800":1,"b":2}', Pruning(drop=(("b",),)), '{"\\ud800":1}'),
        ('{"b":1,"b":2}', Pruning(keep=(("b",),)), '{"b":2}'),
    ],
)
def test_what_is_left_of_an_object(text: str | None, pruning: Pruning, expected: str | None) -> None:
    texts = pa.array([text, '{"z":{}}', None], pa.string())
    assert prune(texts, pruning).to_pylist()[0] == expected


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(_JSON, max_size=4), st.sampled_from([(("a",),), (("a", "b"),), (("a", "b"), ("c",))]))
def test_dropping_is_what_it_is_in_python(values: list[Any], paths: Any) -> None:
    def without(value: Any, path: tuple[str, ...]) -> Any:
        if not isinstance(value, dict) or path[0] not in value:
            return value
        if len(path) == 1:
            return {name: inner for name, inner in value.items() if name != path[0]}
        return {**value, path[0]: without(value[path[0]], path[1:])}

    expected = values
    for path in paths:
        expected = [without(value, path) for value in expected]
    texts = pa.array([json.dumps(value) for value in values], pa.string())
    found = prune(texts, Pruning(drop=paths)).to_pylist()
    assert [None if text is None else json.loads(text) for text in found] == expected
