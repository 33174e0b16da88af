"""A relay: the records of a source reach a destination, and a state moves when its records are acknowledged."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.stored_config import ConfigOwner
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import UNCOVERED, SyncStatus
from dagster_airbyte_proto.sync.run_options import RunOptions
from tests.sync.relay.relayed_shop import RelayedShop
from tests.sync.shop import REFRESH

_PROTOCOLS = [(source, target) for source in ("airbyte", "singer") for target in ("airbyte", "singer")]
_STREAMS = {"streams": {"users": {"records": 25}, "orders": {"records": 7}}}
_MORE = {"streams": {"users": {"records": 31}, "orders": {"records": 7}}}
_RETRY = SyncRequest(retries_unknown=True)


@pytest.mark.everyday("append-airbyte-singer", "append_dedup-singer-airbyte")
@pytest.mark.parametrize(("protocol", "target"), _PROTOCOLS)
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_each_record_arrives_and_its_state_moves(quick_folder: Path, protocol: str, target: str, write: str) -> None:
    shop = RelayedShop(quick_folder, protocol=protocol, target=target, write=write)
    report = shop.sync_of(_STREAMS)
    assert report.status is SyncStatus.COMPLETE, report
    assert shop.ids("users") == list(range(25))
    assert shop.ids("orders") == list(range(7))
    assert shop.positions() == {"users": 25, "orders": 7}
    assert report.streams["users"].committed == 25
    assert shop.sync_of(_MORE).status is SyncStatus.COMPLETE
    assert shop.ids("users") == list(range(31))
    assert shop.positions() == {"users": 31, "orders": 7}


def test_a_shared_state_moves_once_all_its_streams_are_acknowledged(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder)
    assert shop.sync_of({**_STREAMS, "state": "global"}).status is SyncStatus.COMPLETE
    assert shop.positions() == {"users": 25, "orders": 7}
    assert (shop.ids("users"), shop.ids("orders")) == (list(range(25)), list(range(7)))


def test_source_and_destination_are_asked_for_their_catalogs_once(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder)
    written = []
    for _ in range(2):
        assert shop.sync_of(_STREAMS).status is SyncStatus.COMPLETE
        cached = (shop.home / "catalogs" / "cached").glob("catalog-*")
        written.append({file.name: file.stat().st_mtime_ns for file in cached})
    assert (len(written[0]), written[1]) == (2, written[0])


@pytest.mark.everyday("airbyte-singer", "singer-airbyte")
@pytest.mark.parametrize(("protocol", "target"), _PROTOCOLS)
def test_chosen_fields_are_sent_alone_renamed_and_hashed(quick_folder: Path, protocol: str, target: str) -> None:
    shop = RelayedShop(quick_folder, protocol=protocol, target=target, write="append_dedup")
    shop.modes = {
        "users": {
            "write": "append_dedup",
            "exclude": ["key"],
            "rename_columns": {"id": "number"},
            "hash": ["name"],
            "filter": "id < 3",
            "rename": "people",
        }
    }
    shop.options["hash_key"] = "${env:RELAY_KEY}"
    values = {"tags": ["a", "b"], "nested": {"x": [1, {"y": None}]}, "many": [{"z": 1}]}
    properties = {
        "tags": {"type": "array", "items": {"type": "string"}},
        "nested": {"type": "object"},
        "many": {"type": "array", "items": {"type": "object"}},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELAY_KEY", "a key that is long enough")
        report = shop.sync_of({"streams": {"users": {"records": 5, "values": values, "properties": properties}}})
    assert report.status is SyncStatus.COMPLETE, report
    rows = shop.received("people")
    assert [row["number"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert {name: row[name] for name in values} == values
        assert len(row["name"]) == 64
        assert "key" not in row


@pytest.mark.everyday("airbyte")
@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_a_full_refresh_replaces_what_the_destination_has(quick_folder: Path, target: str) -> None:
    shop = RelayedShop(quick_folder, target=target, write="overwrite", read="full_refresh")
    for round_number in (1, 2):
        assert shop.sync_of(_STREAMS).status is SyncStatus.COMPLETE
        assert shop.ids("users") == list(range(25)) * round_number
    if target == "singer":
        versions = [each["version"] for each in shop.messages("ACTIVATE_VERSION") if each["stream"] == "users"]
        assert versions == sorted(set(versions))
        assert len(versions) == 2


def test_an_empty_full_refresh_empties_the_destination(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, target="singer", write="overwrite", read="full_refresh")
    shop.sync_of(_STREAMS)
    assert shop.sync_of({"streams": {"users": {"records": 0}, "orders": {"records": 7}}}).status is SyncStatus.COMPLETE
    assert len([each for each in shop.messages("ACTIVATE_VERSION") if each["stream"] == "users"]) == 2


def test_a_refresh_reads_all_again_and_replaces(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, target="singer", write="append_dedup")
    shop.sync_of(_STREAMS)
    assert shop.sync_of(_STREAMS, REFRESH).status is SyncStatus.COMPLETE
    assert shop.ids("orders") == list(range(7)) * 2
    assert len(shop.messages("ACTIVATE_VERSION")) == 2
    assert shop.sync_of(_MORE).status is SyncStatus.COMPLETE
    assert shop.ids("users")[-6:] == list(range(25, 31))


def test_a_stream_that_the_destination_refuses_does_not_stop_the_others(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    shop.to |= {"fails": "config_error", "once": str(quick_folder / "once"), "fails_stream": "users"}
    report = shop.sync_of(_STREAMS)
    assert report.streams["users"].status is SyncStatus.FAILED
    assert "it cannot go on" in str(report.streams["users"].error)
    assert report.streams["orders"].status is SyncStatus.COMPLETE
    assert shop.positions() == {"orders": 7}
    del shop.to["fails"]
    assert shop.sync_of(_STREAMS).status is SyncStatus.COMPLETE
    assert set(shop.ids("users")) == set(range(25))


def test_a_relay_that_is_cancelled_in_a_delivery_reads_its_rows_again(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup")
    hung = quick_folder / "hung"
    shop.to |= {"hangs_after": 7, "once": str(hung)}
    cancel = threading.Event()

    def cancel_once_it_hangs() -> None:
        while not hung.exists() and not cancel.wait(0.05):
            pass
        cancel.set()

    watch = threading.Thread(target=cancel_once_it_hangs)
    watch.start()
    try:
        report = shop.sync_of({"streams": {"users": {"records": 25}}}, options=RunOptions(cancel))
    finally:
        cancel.set()
        watch.join()
    users = report.streams["users"]
    assert (report.status, users.status, users.rejections) == (
        SyncStatus.CANCELLED,
        SyncStatus.CANCELLED,
        {UNCOVERED: 25},
    )
    assert shop.sync().status is SyncStatus.COMPLETE
    assert set(shop.ids("users")) == set(range(25))


def test_a_stream_without_an_object_at_the_destination_is_refused_before_the_start(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    shop.to["operations"] = [{"object_name": "users", "sync_mode": "append_dedup", "matching_keys": [["id"]]}]
    report = shop.sync_of(_STREAMS)
    assert report.streams["users"].status is SyncStatus.COMPLETE
    assert "the destination has no object orders; it has users" in str(report.streams["orders"].error)
    assert set(shop.ids("users")) == set(range(25)) and not shop.ids("orders")
    by_email = {"sync_mode": "append_dedup", "matching_keys": [["email"]]}
    shop.to["operations"] = [{"object_name": name, **by_email} for name in ("users", "orders")]
    with pytest.raises(ConfigError, match="finds its rows by email, and the stream has id"):
        shop.sync_of(_STREAMS)


@pytest.mark.parametrize(("target", "program"), [("airbyte", "fake_source"), ("singer", "fake_tap")])
def test_a_connector_that_reads_is_refused_as_the_destination(quick_folder: Path, target: str, program: str) -> None:
    shop = RelayedShop(quick_folder, target=target)
    command = [sys.executable, "-m", f"dagster_airbyte_proto.testing.{program}"]
    shop.connector_of_destination = {"launch": {"kind": "local", "command": command}}
    shop.to = {"scenario": {"streams": {"users": {"records": 3}}}}
    with pytest.raises(ConfigError, match=r"its connector is a (source|tap)"):
        shop.sync_of(_STREAMS)


class TestUnknownRows:
    """A destination that died with rows in hand, in a mode in which a row that comes twice is there twice."""

    @staticmethod
    def _broken(folder: Path) -> RelayedShop:
        shop = RelayedShop(folder, max_bytes=1 << 20)
        shop.to |= {"dies_after": 13, "once": str(folder / "once")}
        shop.modes = {"users": {"write": "append"}}
        report = shop.sync_of(_STREAMS)
        users = report.streams["users"]
        assert (users.status, users.unknown) == (SyncStatus.UNKNOWN, 25)
        assert "--retry-unknown" in str(report.error)
        return shop

    def test_the_next_sync_asks_a_person(self, quick_folder: Path) -> None:
        shop = self._broken(quick_folder)
        had = shop.ids("users")
        with pytest.raises(CommitUnknown, match="--retry-unknown"):
            shop.sync()
        assert shop.ids("users") == had

    def test_they_are_sent_again_on_request_and_none_that_is_acknowledged(self, quick_folder: Path) -> None:
        shop = self._broken(quick_folder)
        [delivery] = shop.store.deliveries("shop").values()
        acknowledged, had = delivery.acknowledged, len(shop.ids("users"))
        assert acknowledged >= 5
        assert shop.sync(_RETRY).status is SyncStatus.COMPLETE
        assert shop.ids("users")[had:] == list(range(acknowledged, 25))
        assert shop.positions() == {"users": 25}

    def test_a_person_ends_them_as_landed(self, quick_folder: Path) -> None:
        shop = self._broken(quick_folder)
        had = shop.ids("users")
        assert shop.resolve(as_landed=True) == "done"
        assert shop.sync().status is SyncStatus.COMPLETE
        assert shop.ids("users") == had
        assert shop.positions() == {"users": 25}

    def test_a_person_ends_them_as_lost(self, quick_folder: Path) -> None:
        shop = self._broken(quick_folder)
        had = len(shop.ids("users"))
        assert shop.resolve(as_landed=False) == "dropped"
        assert shop.sync().status is SyncStatus.COMPLETE
        assert shop.ids("users")[had:] == list(range(25))


def test_rows_that_the_destination_counts_as_rejected_are_told(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, max_bytes=1 << 20)
    shop.to["rejects"] = True
    rows = [{"id": number, "bad": number % 4 == 0} for number in range(12)]
    stream = {"rows": rows, "properties": {"id": {"type": "integer"}, "bad": {"type": "boolean"}}}
    report = shop.sync_of({"streams": {"users": stream}})
    users = report.streams["users"]
    assert (users.committed, users.rejected) == (9, 3)
    assert shop.ids("users") == [number for number in range(12) if number % 4]


@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_a_config_that_the_destination_rewrites_is_kept_beside_that_of_the_source(
    quick_folder: Path, target: str
) -> None:
    shop = RelayedShop(quick_folder, target=target, write="append_dedup", max_bytes=1 << 20)
    shop.to["rotates"] = 1
    new_config = {"scenario": str(quick_folder / "scenario.json"), "password": "new"}
    assert shop.sync_of({**_STREAMS, "new_config": new_config}).status is SyncStatus.COMPLETE
    source, destination = (shop.store.stored_config("shop", owner) for owner in ConfigOwner)
    assert source is not None and source.config["password"] == "new"
    assert destination is not None and destination.config["rotates"] == 3  # A process for each stream.


@pytest.mark.parametrize("target", ["airbyte", "singer"])
def test_a_config_is_kept_also_of_a_destination_that_dies(quick_folder: Path, target: str) -> None:
    shop = RelayedShop(quick_folder, target=target, write="append_dedup", max_bytes=1 << 20)
    shop.to |= {"rotates": 1, "dies_after": 3}
    assert shop.sync_of(_STREAMS).streams["users"].status is SyncStatus.FAILED
    kept = shop.store.stored_config("shop", ConfigOwner.DESTINATION)
    assert kept is not None and kept.config["rotates"] > 1


@pytest.mark.parametrize(
    ("protocol", "target"), [("airbyte", "syncmaven"), ("singer", "syncmaven"), ("singer", "airbyte")]
)
def test_records_that_do_not_fit_the_rows_of_the_destination_are_refused(
    quick_folder: Path, protocol: str, target: str
) -> None:
    pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
    shop = RelayedShop(quick_folder, protocol=protocol, target=target, write="append_dedup", max_bytes=1 << 20)
    if target == "airbyte":
        fields = {"name": {"type": "string", "maxLength": 40}, "score": {"type": "number"}}
        schema = {"type": "object", "properties": fields, "required": ["name"]}
        shop.to["operations"] = [{"object_name": "contacts", "sync_mode": "append_dedup", "json_schema": schema}]
    shop.modes = {"contacts": {"write": "append_dedup", "primary_key": ["id"]}}
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b" * 41}, {"id": 3, "name": "c", "score": "high"}]
    properties: dict[str, Any] = {name: {} for name in ("id", "name", "score")}
    report = shop.sync_of({"streams": {"contacts": {"rows": rows, "properties": properties}}}).streams["contacts"]
    assert (report.status, report.emitted, report.committed, report.rejected) == (SyncStatus.COMPLETE, 3, 1, 2)
    assert set(report.rejections) == {
        "name: its value is longer than 40 characters",
        'score: its value is not of type "number"',
    }


def test_a_record_that_removes_its_row_is_its_key(quick_folder: Path) -> None:
    pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    schema = {"properties": {"id": {"type": "integer"}}, "required": ["name"], "additionalProperties": False}
    shop.to["operations"] = [{"object_name": "users", "sync_mode": "append_dedup", "json_schema": schema}]
    removed = {"_ab_cdc_deleted_at": "2026-11-27T07:00:00Z"}
    rows = [{"id": 1, **removed}, {"id": 2, "_ab_cdc_deleted_at": None}, {"id": "3", **removed}]
    properties: dict[str, Any] = {"id": {}, "_ab_cdc_deleted_at": {"type": ["null", "string"]}}
    report = shop.sync_of({"streams": {"users": {"rows": rows, "properties": properties}}}).streams["users"]
    assert set(report.rejections) == {
        'the row: "name" is a required property',
        'id: its value is not of type "integer"',
    }
    assert shop.ids("users") == [1]


@pytest.mark.everyday("airbyte")
@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_a_partition_is_sent_by_key_as_often_as_it_is_read(quick_folder: Path, protocol: str) -> None:
    shop = RelayedShop(quick_folder, protocol=protocol, write="append_dedup", max_bytes=1 << 20)
    for day, records in (("2026-11-01", 3), ("2026-11-02", 5), ("2026-11-01", 4)):
        shop.config["day"] = "{{ partition.key }}"
        report = shop.sync_of({"streams": {"users": {"records": records}}}, SyncRequest(slice=Slice(day)))
        assert (report.status, report.streams["users"].committed) == (SyncStatus.COMPLETE, records), report
    assert shop.ids("users") == [*range(3), *range(5), *range(4)]
    assert shop.messages("ACTIVATE_VERSION") == []
    for write in ("append", "overwrite"):
        shop.modes = {"users": {"write": write}}
        with pytest.raises(ConfigError, match="a destination has no partitions that could be replaced"):
            shop.sync_of({"streams": {"users": {"records": 3}}}, SyncRequest(slice=Slice("2026-11-03")))


def test_a_partition_that_a_destination_broke_goes_on_where_it_stands(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    shop.to |= {"dies_after": 13, "once": str(quick_folder / "once")}
    request, offer = SyncRequest(slice=Slice("2026-11-01")), {"streams": {"users": {"records": 25}}}
    assert shop.sync_of(offer, request).streams["users"].status is SyncStatus.FAILED
    assert shop.sync_of(offer, request).status is SyncStatus.COMPLETE
    assert set(shop.ids("users")) == set(range(25))


def test_a_stream_has_its_options_at_the_destination(quick_folder: Path) -> None:
    pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
    shop = RelayedShop(quick_folder, target="syncmaven", max_bytes=1 << 20)
    scenario = {"streams": {"contacts": {"records": 3, "values": {"key": None}}}}
    shop.modes = {"contacts": {"write": "append_dedup", "select": ["id", "name"], "options": {"lists": "vip"}}}
    with pytest.raises(ConfigError, match="its options: lists: is not a known key"):
        shop.sync_of(scenario)
    shop.modes["contacts"]["options"] = {"list": "vip"}
    assert shop.sync_of(scenario).status is SyncStatus.COMPLETE
    [start] = shop.messages("start-stream")
    assert start["payload"]["streamOptions"] == {"list": "vip"}


def test_a_tap_that_gains_a_field_between_rows_declares_it_before_it_is_sent(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, protocol="singer", target="singer", max_bytes=1 << 20)
    stream = {"records": 6, "declared_at": [[3, {"city": {"type": "string"}}]], "values": {"city": "Rome"}}
    assert shop.sync_of({"streams": {"users": stream}}).status is SyncStatus.COMPLETE
    assert shop.ids("users") == list(range(6))
    schemas = [each["schema"]["properties"] for each in shop.messages("SCHEMA")]
    assert [sorted(each.keys() & {"city", "name", "_airbyte_data"}) for each in schemas] == [["name"], ["city", "name"]]


def test_another_destination_is_not_given_the_state_of_the_first(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder)
    shop.sync_of(_STREAMS)
    shop.target = "singer"
    report = shop.sync_of(_MORE)
    assert report.streams["users"].status is SyncStatus.FAILED
    assert "--refresh" in str(report.streams["users"].error)


_CONNECTOR = {"protocol": "airbyte", "launch": {"kind": "local", "command": "true"}}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"destination": {"namespace": "x"}}, "destination: only for one that syncs into tables"),
        ({"push": {"a": {"from": "t", "key": ["id"]}}}, "to: only for one that reads its connector"),
        ({"to": {"connector": _CONNECTOR, "config": {}, "config_file": "x.json"}}, "give config or config_file"),
        ({"streams": {"a": {"options": {"b": 1}}}}, "streams.a.options: only for a relay"),
    ],
)
def test_a_file_that_means_no_relay_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Connection(**{"name": "shop", "connector": _CONNECTOR, "to": {"connector": _CONNECTOR}, **more})


@pytest.mark.parametrize("option", [{"write": "soft_delete"}, {"partition_by": ["id"]}, {"merge": "copy_on_write"}])
def test_a_stream_option_that_only_tables_have_is_refused(quick_folder: Path, option: dict[str, Any]) -> None:
    shop = RelayedShop(quick_folder)
    shop.modes = {"users": option}
    with pytest.raises(ConfigError, match="only for tables"):
        shop.sync_of(_STREAMS)
