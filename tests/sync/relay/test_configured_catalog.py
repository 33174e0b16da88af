"""The configured catalog, and the statuses, that an Airbyte destination gets beside the rows of a relay or a push."""

from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.relay.relayed_shop import RelayedShop


@pytest.mark.everyday("modes0-cursor0-singer", "modes1-cursor1-airbyte")
@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
@pytest.mark.parametrize(
    ("modes", "cursor"),
    [({}, ["updated_at"]), ({"rename_columns": {"updated_at": "at", "id": "n"}}, ["at"])],
)
def test_a_relayed_stream_has_its_cursor_and_key(
    quick_folder: Path, protocol: str, modes: dict[str, Any], cursor: list[str]
) -> None:
    shop = RelayedShop(quick_folder, protocol=protocol, max_bytes=1 << 20)
    shop.to["shows_catalog"] = True
    shop.modes = {"users": {"write": "append_dedup", **modes}}
    report = shop.sync_of({"streams": {"users": {"records": 2}}})
    assert report.status is SyncStatus.COMPLETE, report
    [message] = shop.messages("CONFIGURED_STREAM")
    configured = message["stream"]
    assert configured["cursor_field"] == cursor
    assert configured["primary_key"] == [["n" if modes else "id"]]


@pytest.mark.parametrize(("push", "cursor"), [({"changes": "cursor", "cursor": "score"}, ["score"]), ({}, [])])
def test_a_pushed_stream_has_its_cursor_and_key(quick_folder: Path, push: dict[str, Any], cursor: list[str]) -> None:
    table = PushedTable(quick_folder)
    table.push |= push
    table.config["shows_catalog"] = True
    table.fill([person(1)])
    assert table.contacts().status == "complete"
    [message] = [each for each in table.messages() if each["type"] == "CONFIGURED_STREAM"]
    assert (message["stream"]["cursor_field"], message["stream"]["primary_key"]) == (cursor, [["id"]])


def test_a_replacement_goes_to_one_process_where_a_tap_gains_a_field_between_rows(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="overwrite", read="full_refresh", protocol="singer", max_bytes=1 << 20)
    shop.to["shows_catalog"] = True
    stream = {"records": 6, "declared_at": [[3, {"city": {"type": "string"}}]], "values": {"city": "Rome"}}
    assert shop.sync_of({"streams": {"users": stream}}).status is SyncStatus.COMPLETE
    [configured] = shop.messages("CONFIGURED_STREAM")
    assert {"name", "city"} <= configured["stream"]["stream"]["json_schema"]["properties"].keys()
    assert shop.shown_ids("users") == list(range(6))


def test_each_process_learns_that_its_rows_are_complete(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.options["checkpoint_rows"] = 10
    table.fill([person(number) for number in range(23)])
    assert table.contacts().acknowledged == 23
    statuses = [each["trace"]["stream_status"]["status"] for each in table.messages() if each["type"] == "TRACE"]
    assert statuses == ["COMPLETE"] * 3
