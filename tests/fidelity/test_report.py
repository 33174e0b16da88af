"""The report finds what is wrong: a report that is always content says nothing."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.schema.json_schema import table_columns
from tests.fidelity.report import compare
from tests.fidelity.sent import Sent

_AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "free": {},
    }
}
_PLANNED = PlannedStream(
    Stream(StreamId.of("users"), _SCHEMA),
    TableName("shop", "users"),
    ReadMode.FULL_REFRESH,
    WriteMode.APPEND,
    (("id",),),
)
_SENT = [
    Sent({"id": 1, "at": "2024-01-01T01:00:00+01:00", "tags": ["a"], "free": {"x": 1}, "more": 1}, _AT),
    Sent({"id": 2, "at": "2024-01-01", "tags": ["b", None]}, _AT),
]
_MISFIT = {"field": "at", "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR"}


def _rows() -> list[dict[str, Any]]:
    one = {"id": 1, "at": _AT, "tags": ["a"], "free": '{"x": 1.0}', "_airbyte_raw_id": "1", "_airbyte_meta": _meta()}
    two = {"id": 2, "tags": ["b", None], "_airbyte_raw_id": "2", "_airbyte_meta": _meta(_MISFIT)}
    return [{**row, "_airbyte_extracted_at": _AT, "_airbyte_generation_id": 1} for row in (one, two)]


def _meta(*changes: dict[str, str]) -> dict[str, Any]:
    return {"sync_id": 1, "changes": list(changes)}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, table_columns(_PLANNED).schema)


def test_what_is_equal_or_accounted_for_is_told_apart_and_nothing_is_wrong() -> None:
    report = compare(_PLANNED, _SENT, _table(_rows()))
    assert report.wrong == []
    assert (report.equal, dict(report.accounted)) == (10, {"DESTINATION_TYPECAST_ERROR": 1})
    assert report.ignored == {"more": 1}


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda rows: rows[0].update(id=3), "row 0, id: it is another value"),
        (lambda rows: rows[0].update(free='{"x": true}'), "row 0, free: it is another value"),
        (lambda rows: rows[0].update(at=None), "row 0, at: it is null"),
        (lambda rows: rows[1].update(free="{}"), "row 1, free: nothing was sent"),
        (lambda rows: rows[1].update(tags=["b"]), "row 1, tags: it is not whole"),
        (lambda rows: rows[1].update(tags=["b", "c"]), "row 1, tags.1: nothing was sent"),
        (lambda rows: rows[1].update(_airbyte_meta=_meta()), "row 1, at: it is NULLED, and no entry says so"),
        (lambda rows: rows[0].update(_airbyte_meta=_meta(_MISFIT)), "row 0, at: NULLED says its entry, and it is not"),
        (lambda rows: rows.pop(), "2 rows were to land, and 1 did"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(spoil: Callable[[list[dict[str, Any]]], Any], found: str) -> None:
    rows = _rows()
    spoil(rows)
    assert found in compare(_PLANNED, _SENT, _table(rows)).wrong
