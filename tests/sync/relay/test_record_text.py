"""A relay passes on what a source has sent, whatever its destination makes of it."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.relay.relayed_shop import RelayedShop


@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_records_arrive_as_they_were_sent(quick_folder: Path, target: str) -> None:
    values = {
        "amount": 12345678901234567890123,
        "rate": 0.1,
        "nested": {"list": [1, None, {"a": '"\\ü\n'}]},
        "time": "2024-02-30 25:00",
        "undeclared": [True, False],
    }
    properties = {"amount": {"type": "integer"}, "time": {"type": "string", "format": "date-time"}}
    shop = RelayedShop(quick_folder, target=target)
    shop.sync_of({"streams": {"users": {"records": 2, "values": values, "properties": properties}}})
    for row in shop.received("users"):
        assert {name: row[name] for name in values} == values


@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_the_text_of_a_record_is_passed_on_letter_by_letter(quick_folder: Path, target: str) -> None:
    record = '{"id": 90, "amount": 1.50e+2 ,"name":"\\u00e9\\/", "exact":0.1000000000000000055,"none" : null}'
    line = f'{{"type":"RECORD","record":{{"stream":"users","data":{record},"emitted_at":1}}}}'
    shop, lines = RelayedShop(quick_folder, target=target), quick_folder / "lines"
    shop.to["keeps_lines"] = str(lines)
    report = shop.sync_of({"streams": {"users": {"records": 2}}, "lines": [line]})
    assert (report.status, report.streams["users"].committed) == (SyncStatus.COMPLETE, 3)
    assert lines.read_text().count(record) == 1
