"""When a record was emitted, where the protocol has it as text that need not be there; and that both parsers agree."""

import datetime as dt
import json
from typing import Any

import pytest

from dagster_airbyte_proto.protocols.singer.source import SingerSource
from tests.staging.conftest import EMITTED_AT, parse, plan

_SHAPE = SingerSource().record_wire
_PLANNED = plan({"id": {"type": "integer"}})
_NOW = dt.datetime.fromtimestamp(EMITTED_AT / 1000, dt.UTC) + dt.timedelta(seconds=5)
# Only `parse_by_record` takes this for a whole number.
_ODD = b'{"type":"RECORD","stream":"users","record":{"id":NaN},"time_extracted":"2024-01-01T00:00:00Z"}\n'


def _line(number: int, **more: Any) -> bytes:
    return json.dumps({"type": "RECORD", "stream": "users", "record": {"id": number}, **more}).encode() + b"\n"


@pytest.mark.parametrize("parser", ["columnar", "by record"])
@pytest.mark.parametrize(
    ("told", "emitted_at", "changes"),
    [
        ({"time_extracted": "2024-01-02T03:04:05.678901Z"}, dt.datetime(2024, 1, 2, 3, 4, 5, 678901, dt.UTC), []),
        (
            {"time_extracted": "2024-01-02T03:04:05.678901+05:30"},
            dt.datetime(2024, 1, 1, 21, 34, 5, 678901, dt.UTC),
            [],
        ),
        ({}, _NOW, []),
        ({"time_extracted": None}, _NOW, []),
        ({"time_extracted": "soon"}, _NOW, ["_airbyte_extracted_at"]),
        ({"time_extracted": ""}, _NOW, ["_airbyte_extracted_at"]),
        ({"version": 1763848950123}, _NOW, []),
    ],
)
def test_a_time_that_is_told_counts_and_else_that_of_the_reading(
    parser: str, told: dict[str, Any], emitted_at: dt.datetime, changes: list[str]
) -> None:
    lines = [
        _line(1, time_extracted="2024-01-01T00:00:00Z"),
        _line(2, **told),
        *([_ODD] if parser == "by record" else []),
    ]
    rows = parse(_PLANNED, *lines, shape=_SHAPE).batch.to_pylist()
    assert [row["id"] for row in rows[:2]] == [1, 2]
    assert rows[0]["_airbyte_extracted_at"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert rows[1]["_airbyte_extracted_at"] == emitted_at
    assert [entry["field"] for entry in rows[1]["_airbyte_meta"]["changes"]] == changes


def test_a_stream_that_tells_no_time_at_all_has_that_of_the_reading() -> None:
    rows = parse(_PLANNED, _line(1), _line(2), shape=_SHAPE).batch.to_pylist()
    assert [row["_airbyte_extracted_at"] for row in rows] == [_NOW, _NOW]


def test_a_field_that_the_schema_lacks_is_seen_beside_a_version() -> None:
    lines = [_line(number, version=7) for number in range(3)]
    odd = (
        json.dumps({"type": "RECORD", "stream": "users", "record": {"id": 3, "new": 1}, "version": 7}).encode() + b"\n"
    )
    parsed = parse(_PLANNED, *lines, odd, shape=_SHAPE)
    assert (parsed.ignored, parsed.batch.num_rows) == ({"new": 1}, 4)
