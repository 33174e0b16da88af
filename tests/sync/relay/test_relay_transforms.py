"""Transforms in a relay: the destination gets what they leave."""

import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
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


@pytest.mark.everyday("singer")
@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_a_value_that_does_not_fit_is_null_where_fields_are_chosen(quick_folder: Path, target: str) -> None:
    shop = RelayedShop(quick_folder, target=target)
    shop.modes = {"users": {"write": "append", "select": ["id", "age"]}}
    rows = [{"id": 1, "age": "not a number"}, {"id": 2, "age": 3}]
    properties = {"id": {"type": "integer"}, "age": {"type": ["null", "integer"]}}
    report = shop.sync_of({"streams": {"users": {"rows": rows, "properties": properties}}})
    assert report.streams["users"].nulled == {"age": 1}
    assert shop.received("users") == [{"id": 1, "age": None}, {"id": 2, "age": 3}]


_ENRICHMENT = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_enrichment"]


def enriched(folder: Path, target: str, **config: Any) -> RelayedShop:
    """A relay whose rows get a city, and a whole number in the place of their `rank`, which they send back."""
    shop = RelayedShop(folder, target=target, write="append_dedup" if target != "syncmaven" else "append")
    shop.options["transforms"] = [
        {
            "connector": {"protocol": "syncmaven", "launch": {"kind": "local", "command": _ENRICHMENT}},
            "config": {"notes": str(folder / "notes"), "replies": 1, **config},
            "columns": {"city": "string", "rank": "bigint"},
            "on_error": "reject",
        }
    ]
    return shop


def ranked(*ranks: float) -> dict[str, Any]:
    values = {"big": 2**53 + 1, "text": 'é "quoted"\n', "nested": {"x": [1, {"y": None}]}, "none": None}
    rows = [{"id": number, "rank": rank, **values} for number, rank in enumerate(ranks, 1)]
    properties = {
        "id": {"type": "integer"},
        "rank": {"type": "number"},
        "big": {"type": "integer"},
        "text": {"type": "string"},
        "nested": {"type": "object"},
        "none": {"type": ["null", "string"]},
    }
    stream = {"rows": rows, "properties": properties, "primary_key": [["id"]]}
    return {"streams": {"users": stream}, "state_every": 2}


@pytest.mark.everyday("airbyte")
@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_a_destination_gets_enriched_rows_with_every_value(quick_folder: Path, target: str) -> None:
    shop = enriched(quick_folder, target)
    offered = ranked(1, 2, 3.5, 4, 5)
    report = shop.sync_of(offered)
    assert report.status is SyncStatus.COMPLETE, report
    users = report.streams["users"]
    assert users.rejections == {"its rank does not fit bigint": 1}
    assert (users.emitted, users.committed, users.rejected, users.dropped) == (5, 4, 1, 0)
    sent = [row for row in offered["streams"]["users"]["rows"] if row["id"] != 3]
    assert shop.received("users") == [{**row, "city": f"city {row['id']}"} for row in sent]
    assert shop.positions() == {"users": 5}
    # What the enrichment kept has moved with the rows.
    assert [kept.asset.stream for kept in shop.store.kept_sizes("shop")] == [StreamId.of("users")]
    assert shop.sync().streams["users"].emitted == 0


def test_a_row_that_deletes_its_key_passes_what_needs_more_than_a_key(quick_folder: Path) -> None:
    shop = enriched(quick_folder, "airbyte")
    shop.options["transforms"].insert(0, {"validate": [{"assert_not_null": "rank"}]})
    shop.modes = {"users": {"write": "append_dedup", "filter": "rank > 0"}}
    offered = ranked(1, 2)
    stream = offered["streams"]["users"]
    deleted = {"id": 1, "_ab_cdc_deleted_at": "2026-11-27T07:00:00Z"}
    stream["rows"].append(deleted)
    stream["properties"]["_ab_cdc_deleted_at"] = {"type": ["null", "string"]}
    users = shop.sync_of(offered).streams["users"]
    assert (users.status, users.committed, users.rejections) == (SyncStatus.COMPLETE, 3, {})
    assert shop.ids("users") == [1, 2, 1]
    removed = shop.received("users")[-1]
    assert {name: value for name, value in removed.items() if value is not None} == deleted
    assert (quick_folder / "notes").read_text().split() == ["1", "2"]
    shop.modes = {"users": {"write": "append_dedup", "select": ["id", "rank"]}}
    with pytest.raises(ConfigError, match="_ab_cdc_deleted_at is the mark of deleted rows, and write: append_dedup"):
        shop.sync_of(offered)


@pytest.mark.everyday("chosen0-singer", "chosen1-airbyte", "chosen2-airbyte")
@pytest.mark.parametrize("target", ["airbyte", "singer"])
@pytest.mark.parametrize(
    "chosen", [{"select": ["id", "name"]}, {"transforms": [{"validate": [{"assert_not_null": "name"}]}]}, {}]
)
def test_a_mark_of_a_deleted_row_that_a_tap_does_not_declare_goes_with_it(
    quick_folder: Path, chosen: dict[str, Any], target: str
) -> None:
    shop = RelayedShop(quick_folder, protocol="singer", target=target, write="append_dedup", max_bytes=1 << 20)
    shop.modes = {"users": {"write": "append_dedup", "select": chosen.get("select")}}
    shop.options["transforms"] = chosen.get("transforms", [])
    shop.to["shows_catalog"] = True
    properties = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}
    rows: list[dict[str, Any]] = [{"id": 1, "name": "ann"}, {"id": 2, "name": "_sdc_deleted_at"}]
    for more in (
        [],
        [{"id": 1, "_sdc_deleted_at": "2026-11-27T07:00:00Z"}, {"id": 3, "name": "cid"}],
        [{"id": 4, "name": "dan"}],
    ):
        rows += more
        offered = {"streams": {"users": {"rows": list(rows), "properties": properties}}}
        assert shop.sync_of(offered).status is SyncStatus.COMPLETE
    received = shop.received("users")[:4]
    assert received[2:] == (
        [{"id": 1, "name": None, "_sdc_deleted_at": "2026-11-27T07:00:00Z"}, {**rows[3], "_sdc_deleted_at": None}]
        if chosen
        else rows[2:4]
    )
    assert received[:2] == rows[:2]
    if target == "singer":
        declared = [each["schema"]["properties"] for each in shop.messages("SCHEMA")]
    else:
        configured = shop.messages("CONFIGURED_STREAM")
        declared = [each["stream"]["stream"]["json_schema"]["properties"] for each in configured]
    assert ["_sdc_deleted_at" in each for each in declared] == [False, True, False]


def test_a_column_that_is_made_to_be_the_mark_is_the_mark(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, protocol="singer", write="append_dedup", max_bytes=1 << 20)
    shop.modes = {"users": {"write": "append_dedup", "rename_columns": {"gone": "_sdc_deleted_at"}}}
    properties = {"id": {"type": "integer"}, "gone": {"type": ["null", "string"]}}
    rows = [{"id": 1, "gone": None}, {"id": 2, "gone": "2026-11-27"}, {"id": 3, "_sdc_deleted_at": "2026-11-28"}]
    shop.sync_of({"streams": {"users": {"rows": rows, "properties": properties}}})
    assert [row["_sdc_deleted_at"] for row in shop.received("users")] == [None, "2026-11-27", None]


def test_rows_of_one_key_cannot_become_several(quick_folder: Path) -> None:
    shop = enriched(quick_folder, "airbyte", replies=2)
    users = shop.sync_of(ranked(1, 2)).streams["users"]
    assert users.status is SyncStatus.FAILED
    assert "the destination has one row for each key" in str(users.error)
    assert shop.ids("users") == []


@pytest.mark.parametrize("select", [None, ["id", "name", "score"]])
def test_a_syncmaven_destination_gets_no_nulls(quick_folder: Path, select: list[str] | None) -> None:
    pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
    shop = RelayedShop(quick_folder, target="syncmaven", max_bytes=1 << 20)
    shop.modes = {"contacts": {"write": "append", **({"select": select} if select else {})}}
    rows = [{"id": 1, "name": None, "score": None}, {"id": 2, "name": "null", "score": 0.5}]
    properties = {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "score": {"type": ["null", "number"]},
    }
    report = shop.sync_of({"streams": {"contacts": {"rows": rows, "properties": properties}}}).streams["contacts"]
    assert (report.committed, report.rejections) == (2, {})
    assert shop.plain_rows() == [{"id": 1}, rows[1]]


def test_rows_before_those_that_an_enrichment_fails_for_are_delivered_once(quick_folder: Path) -> None:
    shop = enriched(quick_folder, "airbyte", dies_at=4, once=str(quick_folder / "once"))
    report = shop.sync_of(ranked(1, 2, 3, 4, 5))
    users = report.streams["users"]
    assert (report.status, users.committed) == (SyncStatus.FAILED, 2), users
    assert "the connector failed" in (users.error or "")
    assert (shop.ids("users"), shop.positions()) == ([1, 2], {"users": 2})
    assert shop.sync().status is SyncStatus.COMPLETE
    assert (shop.ids("users"), shop.positions()) == ([1, 2, 3, 4, 5], {"users": 5})
    assert [int(line) for line in (quick_folder / "notes").read_text().split()] == [1, 2, 3, 4, 3, 4, 5]
