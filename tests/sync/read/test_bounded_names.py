"""Odd and endless names of a connector: the report shows them, and stays short."""

import json
from typing import Any

from dagster_airbyte_proto.loads.bounded_counts import MAX_NAMES, OTHER_FIELDS
from tests.sync.conftest import OpenShop


def _record(stream: str, data: dict[str, Any]) -> str:
    return json.dumps({"type": "RECORD", "record": {"stream": stream, "emitted_at": 1_700_000_000_000, "data": data}})


def test_the_report_of_many_undeclared_names_is_short(shop: OpenShop) -> None:
    place = shop()
    rows = [{"id": row, **{f"field {row} {number}": 1 for number in range(100)}} for row in range(30)]
    lines = [_record("users", row) for row in rows] + [_record(f"stream {number}", {}) for number in range(3000)]
    report = place.sync_of({"streams": {"users": {"records": 1}}, "lines": lines})
    users = report.streams["users"]
    assert len(users.ignored_fields) == MAX_NAMES + 1
    assert sum(users.ignored_fields.values()) == 3000
    assert users.ignored_fields[OTHER_FIELDS] == 3000 - MAX_NAMES
    assert users.committed == 31
    assert len(json.dumps(report.as_json())) < 30_000


def test_a_name_that_is_no_unicode_is_counted_as_any_other(shop: OpenShop) -> None:
    place = shop()
    half = _record("users", {"id": 0, "x\ud800": 5})
    report = place.sync_of({"streams": {"users": {"records": 0}, "orders": {"records": 3}}, "lines": [half]})
    assert report.streams["users"].ignored_fields == {"x\\ud800": 1}
    assert {name: each.committed for name, each in report.streams.items()} == {"users": 1, "orders": 3}


def test_records_that_no_stream_can_take_are_in_the_report(shop: OpenShop) -> None:
    place = shop()
    nameless = json.dumps({"type": "RECORD", "record": {"emitted_at": 1_700_000_000_000, "data": {"id": 5}}})
    report = place.sync_of({"streams": {"users": {"records": 3}}, "lines": [nameless, nameless]})
    assert report.warnings == ("2 records could not be read, and are in no table: see the log",)
    assert report.streams["users"].committed == 3
