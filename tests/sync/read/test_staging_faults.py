"""An exception of our own code while rows are staged fails their stream alone, and the next sync repairs it."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto import points
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.columns import ValueKind
from dagster_airbyte_proto.staging.rows import coercion
from dagster_airbyte_proto.staging.values import times
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.read.test_failing_streams import expect_all, two
from tests.sync.shop import Shop

_ODD_NAMES = ['a"b', "a\\b", "a\nb", "a\tb"]


class Fault(Exception):
    """Nobody foresees it. Its message is one of a library that quotes a value."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    points.arm(None)


def _sync_with_fault(place: Shop, scenario: dict[str, Any], at_file: int) -> SyncReport:
    """Syncs, and raises where the file of this number is closed."""
    closed = 0

    def hook(point: str) -> None:
        nonlocal closed
        closed += point == "stage.file_closed"
        if point == "stage.file_closed" and closed == at_file:
            raise Fault("a value that is private")

    points.arm(hook)
    try:
        return place.sync_of(scenario)
    finally:
        points.arm(None)


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
@pytest.mark.parametrize("at_file", [1, 2])
def test_the_other_stream_lands_and_moves(at_file: int, max_bytes: int, shop: OpenShop) -> None:
    place = shop(max_bytes=max_bytes)
    report = _sync_with_fault(place, two({"records": 23}, {"records": 12}), at_file)
    failed = {name for name, stream in report.streams.items() if stream.status is SyncStatus.FAILED}
    assert (report.status, len(failed)) == (SyncStatus.PARTIAL, 1)
    [name] = failed
    error = report.streams[name].error or ""
    assert all(text in error for text in (name, "Fault in points.py", "Please report it"))
    assert "private" not in error
    [other] = {"users", "orders"} - failed
    assert place.column(other) == list(range(report.streams[other].emitted))
    assert place.positions()[other] == report.streams[other].emitted
    assert place.column(name) == list(range(place.positions().get(name, 0))), "no row without its state"
    expect_all(place)


@pytest.mark.everyday("global-2-1", "legacy-1-1073741824")
@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
@pytest.mark.parametrize("at_file", [1, 2])
@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_no_row_lands_without_the_state_that_it_shares(
    scope: str, at_file: int, max_bytes: int, shop: OpenShop
) -> None:
    place = shop(max_bytes=max_bytes)
    report = _sync_with_fault(place, two({"records": 23}, {"records": 12}, state=scope), at_file)
    assert report.status is SyncStatus.FAILED
    for stream in ("users", "orders"):
        assert place.column(stream) == list(range(place.positions().get(stream, 0))), stream
    expect_all(place, scope)


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_a_table_that_was_to_be_replaced_keeps_its_rows(max_bytes: int, shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh", max_bytes=max_bytes)
    assert place.sync_of(two({"records": 3}, {"records": 4})).status is SyncStatus.COMPLETE
    report = _sync_with_fault(place, two({"records": 23}, {"records": 12}), at_file=1)
    assert report.status is SyncStatus.PARTIAL
    rows = {stream: place.column(stream) for stream in ("users", "orders")}
    assert rows in (
        {"users": list(range(3)), "orders": list(range(12))},
        {"users": list(range(23)), "orders": list(range(4))},
    )


def test_names_and_zeros_of_any_spelling_land(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"*": {"read": "incremental", "write": "append", "types": {"objects": "struct"}}}
    inside: dict[str, Any] = {"type": "object", "properties": {name: {"type": "object"} for name in _ODD_NAMES}}
    properties = {"big": {"type": "integer", "airbyte_type": "big_integer"}, "o": inside, **inside["properties"]}
    record = {"type": "RECORD", "record": {"stream": "users", "emitted_at": 1, "data": {"big": 7, "id": 90}}}
    line = json.dumps(record).replace("7", "0e39")
    values = {"o": {name: {"n": 1} for name in _ODD_NAMES}, **{name: {"n": 2} for name in _ODD_NAMES}}
    users = {"records": 3, "properties": properties, "values": values}
    assert place.sync_of({"streams": {"users": users}, "lines": [line]}).status is SyncStatus.COMPLETE
    rows = {row["id"]: row for row in place.tables.rows(TableName("shop", "users")).to_pylist()}
    assert rows[90]["big"] == Decimal(0)
    assert rows[0]["o"] == dict.fromkeys(_ODD_NAMES, '{"n":1}')
    assert [value for value in rows[0].values() if value == '{"n":2}'] == ['{"n":2}'] * len(_ODD_NAMES)
    assert all(row["_airbyte_meta"]["changes"] == [] for row in rows.values())


def test_a_value_that_our_own_code_fails_on_is_null_with_an_entry_and_all_else_lands(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(text: pa.Array) -> times.Coerced:
        if "1999-12-31" in text.to_pylist():
            raise Fault
        return times.dates(text)

    monkeypatch.setitem(coercion._COERCIONS, ValueKind.DATE, failing)
    days = ["1999-12-30", "1999-12-31", "2000-01-01"]
    records = [{"stream": "users", "emitted_at": 1, "data": {"id": 90 + at, "day": day}} for at, day in enumerate(days)]
    lines = [json.dumps({"type": "RECORD", "record": record}) for record in records]
    users = {"records": 3, "properties": {"day": {"type": "string", "format": "date"}}}
    place = shop()
    report = place.sync_of({"streams": {"users": users}, "lines": lines})
    assert (report.status, report.streams["users"].committed) == (SyncStatus.COMPLETE, 6)
    rows = {row["id"]: row for row in place.tables.rows(TableName("shop", "users")).to_pylist()}
    assert [str(rows[90 + at]["day"]) for at in range(3)] == ["1999-12-30", "None", "2000-01-01"]
    entry = {"field": "day", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"}
    assert [rows[90 + at]["_airbyte_meta"]["changes"] for at in range(3)] == [[], [entry], []]
