"""Arrow batches as record lines: each value as JSON has it, beside a parser's and an encoder's word."""

import json
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.encoding.json_text import json_texts
from dagster_airbyte_proto.encoding.json_types import json_schema
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.encoding.sendable import half_letters, python_rows, readable_row, unsendable_rows
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.destination import JsonDialect
from tests.encoding.hazards import HAZARDS

FRAME = RecordFrame('{"stream":"a","data":', "}")
WHOLE = pa.RecordBatch.from_pydict({name: hazard.column for name, hazard in HAZARDS.items()})


def _rows(batch: pa.RecordBatch, **options: Any) -> list[dict[str, Any]]:
    lines = bytes(record_lines(batch, FRAME, **options)).split(b"\n")
    assert lines.pop() == b""
    return [msgspec.json.decode(line)["data"] for line in lines]


@pytest.mark.parametrize("name", HAZARDS)
def test_a_value_is_written_as_json_has_it(name: str) -> None:
    hazard = HAZARDS[name]
    texts = json_texts(hazard.column).to_pylist()
    assert [text or "null" for text in texts] == list(hazard.texts)
    for text in texts:
        json.loads(text or "null", parse_constant=pytest.fail)


def test_lines_have_a_row_each_in_their_order() -> None:
    rows = _rows(WHOLE)
    assert len(rows) == WHOLE.num_rows
    assert [row["whole"] for row in rows] == HAZARDS["whole"].column.to_pylist()
    assert list(rows[0]) == list(HAZARDS)


@pytest.mark.parametrize(("start", "count"), [(0, 5), (1, 3), (4, 1), (2, 2)])
def test_a_slice_is_the_same_as_its_rows(start: int, count: int) -> None:
    assert _rows(WHOLE.slice(start, count)) == _rows(WHOLE)[start : start + count]


def test_nulls_may_be_left_out() -> None:
    rows = _rows(WHOLE, omits_nulls=True)
    assert rows == [_without_nulls(row) for row in _rows(WHOLE)]
    nothing = pa.RecordBatch.from_pydict({"a": pa.nulls(3, pa.int64()), "b": pa.nulls(3, pa.string())})
    assert _rows(nothing, omits_nulls=True) == [{}, {}, {}]


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in row.items() if value is not None}
    # Members of a struct are left out likewise; the keys of a map are data.
    for name in ("structs",):
        if name in found:
            found[name] = {member: value for member, value in found[name].items() if value is not None}
    if "nested" in found:
        found["nested"] = [each and {k: v for k, v in each.items() if v is not None} for each in found["nested"]]
    return found


def test_no_rows_are_no_lines() -> None:
    assert bytes(record_lines(WHOLE.slice(0, 0), FRAME)) == b""


def test_many_rows_agree_with_an_encoder() -> None:
    count = 2000
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(count)),
            "text": pa.array(
                [f'row {number} "{chr(number % 0x250 + 1)}\\' if number % 7 else None for number in range(count)]
            ),
            "score": pa.array([number / 7 for number in range(count)]),
        }
    )
    assert _rows(batch) == msgspec.json.decode(msgspec.json.encode(batch.to_pylist()))


def test_rows_that_json_cannot_carry_are_found_with_their_path() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([1, 2, 3, 4]),
            "score": pa.array([1.0, float("nan"), None, float("-inf")]),
            "deep": pa.array([[{"x": 1.0}], [], [{"x": 2.0}, {"x": float("inf")}], None]),
        }
    )
    assert unsendable_rows(batch) == {
        1: "score is nan, which JSON does not have",
        2: "deep.1.x is inf, which JSON does not have",
        3: "score is -inf, which JSON does not have",
    }
    assert unsendable_rows(WHOLE) == {}


def test_broken_text_and_odd_years_are_found() -> None:
    offsets = pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00")
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ok\xff\xfe")])
    assert unsendable_rows(pa.RecordBatch.from_arrays([broken], ["s"])) == {1: "s holds bytes that are no text (UTF-8)"}
    far = pa.array([0, 2**60], pa.timestamp("us"))
    assert unsendable_rows(pa.RecordBatch.from_arrays([far], ["at"])) == {
        1: "at is a date outside of the years 1 to 9999"
    }
    assert json.loads(readable_row(pa.RecordBatch.from_pydict({"b": [b"\xff"]}))) == {"b": "/w=="}
    assert "\ufffd" in readable_row(pa.RecordBatch.from_arrays([broken.slice(1)], ["s"]))


def test_the_schema_says_no_less_than_the_data() -> None:
    airbyte = json_schema(WHOLE.schema, JsonDialect.AIRBYTE, ("whole",))["properties"]
    singer = json_schema(WHOLE.schema, JsonDialect.PLAIN)["properties"]
    assert airbyte["whole"] == {"type": ["integer"]}
    assert airbyte["instants"]["airbyte_type"] == "timestamp_with_timezone"
    assert airbyte["local_times"]["airbyte_type"] == "timestamp_without_timezone"
    assert singer["decimals"] == {"type": ["null", "number"], "multipleOf": 1e-09}
    assert singer["lists"] == {"type": ["null", "array"], "items": {"type": ["null", "integer"]}}
    assert singer["maps"]["additionalProperties"] == {"type": ["null", "integer"]}
    with pytest.raises(ConfigError, match="which JSON has not"):
        json_schema(pa.schema([("span", pa.duration("s"))]), JsonDialect.PLAIN)


@pytest.mark.parametrize("keys", [pa.binary(), pa.struct([("a", pa.int32())]), pa.list_(pa.string())])
def test_a_map_whose_keys_are_no_text_is_refused_before_a_row_is_sent(keys: pa.DataType) -> None:
    schema = pa.schema([("tags", pa.list_(pa.map_(keys, pa.int32())))])
    with pytest.raises(ConfigError, match="field tags is a map with keys of type"):
        json_schema(schema, JsonDialect.AIRBYTE)


def test_values_that_python_cannot_hold_are_words_among_rows_for_people() -> None:
    days = pa.array([0, 4_000_000], pa.int32()).cast(pa.date32())
    first, second = python_rows(pa.RecordBatch.from_pydict({"id": pa.array([1, 2]), "born": days}))
    assert first == {"id": 1, "born": date(1970, 1, 1)}
    assert (second["id"], type(second["born"])) == (2, str)


@pytest.mark.parametrize(
    ("text", "is_half"),
    [
        (r'{"a":"\ud83d\ude00 \u00e9 \\ud83d \\\\ \" \/ é"}', False),
        (r'["\\\ud83d\uDE00"]', False),
        (r'{"a":"\ud83d"}', True),
        (r'{"\uDE00":1}', True),
        (r'["\ud83d\ud83d\ude00"]', True),
        (r'["\ud83d \ude00"]', True),
        (r'["\ude00\ud83d"]', True),
        (r'["\\\ud83d"]', True),
        ("null", False),
    ],
)
def test_half_of_a_letter_is_found_in_texts_of_json(text: str, is_half: bool) -> None:
    assert half_letters(pa.array([None, text, '{"a":1}'])) == ([1] if is_half else [])
    assert half_letters(pa.array(["", text], pa.large_string())[1:]) == ([0] if is_half else [])
