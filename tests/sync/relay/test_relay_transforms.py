"""Transforms in a relay: the destination gets what they leave."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.relay.relayed_shop import RelayedShop


@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_a_destination_gets_the_rows_that_keep_the_rules(quick_folder: Path, target: str) -> None:
    shop = RelayedShop(quick_folder, target=target, write="append_dedup")
    shop.options["transforms"] = [{"validate": [{"assert_range": {"id": {"min": 2}}}]}]
    values = {"nested": {"x": [1, {"y": None}]}}
    report = shop.sync_of({"streams": {"users": {"records": 5, "values": values, "properties": {"nested": {}}}}})
    assert report.status is SyncStatus.COMPLETE, report
    assert report.streams["users"].rejections == {"id is not at least 2": 2}
    assert shop.ids("users") == [2, 3, 4]
    assert all(row["nested"] == values["nested"] for row in shop.received("users"))
    assert shop.positions() == {"users": 5}


@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_a_value_that_does_not_fit_is_null_where_fields_are_chosen(quick_folder: Path, target: str) -> None:
    shop = RelayedShop(quick_folder, target=target)
    shop.modes = {"users": {"write": "append", "select": ["id", "age"]}}
    rows = [{"id": 1, "age": "not a number"}, {"id": 2, "age": 3}]
    properties = {"id": {"type": "integer"}, "age": {"type": ["null", "integer"]}}
    report = shop.sync_of({"streams": {"users": {"rows": rows, "properties": properties}}})
    assert report.streams["users"].nulled == {"age": 1}
    assert shop.received("users") == [{"id": 1, "age": None}, {"id": 2, "age": 3}]
