"""Syncs of a tap, where a connector that speaks Singer needs something else than Airbyte's do."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.opened_connector import opened_source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.testing import fake_tap
from tests.sync.shop import REFRESH, SECRET, Shop

OpenShop = Callable[..., Shop]

_MORE = {"size": {"type": "integer"}}


@pytest.fixture
def tap(shop: OpenShop) -> OpenShop:
    """The shop of a test, whose connector is a tap."""

    def opened(**written: Any) -> Shop:
        made = shop(**written)
        made.protocol = "singer"
        return made

    return opened


def _of(records: int, **more: Any) -> dict[str, Any]:
    return {"streams": {"users": {"records": records, **more}}}


def _engine_and_connection(shop: Shop) -> tuple[Engine, Connection]:
    return Engine(Settings.load(shop.home, shop.home / "settings.yaml")), Connection.from_file(shop.connection_file)


@pytest.mark.parametrize("kind", ["sdk", "python", "old"])
def test_each_row_of_a_tap_is_there_once(tap: OpenShop, kind: str) -> None:
    shop = tap()
    report = shop.sync_of({**_of(25), "tap": kind})
    assert (report.status, report.loads) == (SyncStatus.COMPLETE, 3)
    assert shop.column("users") == list(range(25))
    shop.sync_of({**_of(32), "tap": kind})
    assert shop.column("users") == list(range(32))
    assert shop.positions() == {"users": 32}


def test_what_a_tap_says_of_its_config_is_held_against_it(tap: OpenShop) -> None:
    shop = tap()
    shop.config |= {"count": "many"}
    shop.offer(_of(1))
    engine, connection = _engine_and_connection(shop)
    with engine, opened_source(engine, connection) as source, pytest.raises(ConfigError) as refused:
        source.check()
    assert "count: must be a whole number or nothing; found text" in str(refused.value)


def test_values_that_a_tap_declares_secret_are_masked(tap: OpenShop) -> None:
    shop = tap()
    report = shop.sync_of({**_of(1), "log": [f"logging in with {SECRET}"]})
    assert "logging in with ***" in shop.log(report)


def test_a_tap_that_tells_nothing_of_its_config_takes_any(tap: OpenShop) -> None:
    shop = tap()
    shop.config |= {"anything": {"at": "all"}}
    report = shop.sync_of({**_of(1), "tap": "python"})
    assert report.status is SyncStatus.COMPLETE
    # A sync says so in its log alone.
    assert re.search("INFO .* was not checked: the connector does not describe its config", shop.log(report))


@pytest.mark.parametrize("kind", ["sdk", "python"])
def test_a_check_that_fails_says_so_with_the_last_words(tap: OpenShop, kind: str) -> None:
    shop = tap()
    verb = "test" if kind == "sdk" else "discover"
    shop.offer({**_of(1), "tap": kind, "log": ["no such host"], "answers": {verb: {"exit_code": 1}}})
    engine, connection = _engine_and_connection(shop)
    with engine, opened_source(engine, connection) as source:
        verdict = source.check()
    assert (verdict.succeeded, verdict.message.unmasked) == (False, "no such host")


def test_a_tap_that_dies_after_its_last_state_keeps_what_that_covers(tap: OpenShop) -> None:
    shop = tap()
    report = shop.sync_of({**_of(25), "failure": {"kind": "exit", "after": 17}})
    assert report.status is SyncStatus.FAILED
    assert "the connector exited with code 1" in str(report.streams["users"].error)
    assert shop.column("users") == list(range(10))
    assert shop.positions() == {"users": 10}
    assert shop.sync_of(_of(25)).status is SyncStatus.COMPLETE
    assert shop.column("users") == list(range(25))


def test_rows_wait_for_a_state_that_can_be_gone_on_from(tap: OpenShop) -> None:
    shop = tap()
    unsorted = _of(25, unsorted=True)
    report = shop.sync_of({**unsorted, "failure": {"kind": "exit", "after": 23}})
    assert (report.status, shop.column("users"), shop.positions()) == (SyncStatus.FAILED, [], {})
    report = shop.sync_of(unsorted)
    assert (report.status, report.loads) == (SyncStatus.COMPLETE, 1)
    assert shop.column("users") == list(range(25))


def test_an_empty_first_state_erases_nothing(tap: OpenShop) -> None:
    shop = tap()
    shop.sync_of(_of(12))
    report = shop.sync_of({**_of(15), "first_state": {}, "failure": {"kind": "exit", "after": 1}})
    assert report.status is SyncStatus.FAILED
    assert shop.positions() == {"users": 12}


def test_a_sync_of_some_streams_keeps_the_bookmarks_of_the_others(tap: OpenShop) -> None:
    shop = tap()
    streams = {"users": {"records": 5}, "orders": {"records": 8}}
    shop.sync_of({"streams": streams})
    report = shop.sync_of({"streams": {**streams, "users": {"records": 9}}}, SyncRequest(only=["users"]))
    assert (report.status, shop.positions()) == (SyncStatus.COMPLETE, {"users": 9, "orders": 8})
    assert report.streams["users"].state == {"next": 9}
    shop.sync_of({"streams": streams}, REFRESH._replace(only=["orders"]))
    assert shop.positions() == {"users": 9, "orders": 8}
    assert shop.column("orders") == list(range(8))


def test_what_is_read_whole_starts_from_nothing_whatever_was_going_on(tap: OpenShop) -> None:
    """A tap that gets the stream that it was at skips those that come before it."""
    shop = tap()
    shop.modes = {"users": {"read": "full_refresh"}, "orders": {"read": "incremental", "write": "append"}}
    scenario = {"streams": {"users": {"records": 5}, "orders": {"records": 30}}, "currently_syncing": True}
    report = shop.sync_of({**scenario, "failure": {"kind": "exit", "after": 28}})
    assert (report.status, shop.column("users")) == (SyncStatus.FAILED, [])
    assert shop.sync_of(scenario).status is SyncStatus.COMPLETE
    assert (shop.column("users"), shop.column("orders")) == (list(range(5)), list(range(30)))


def test_a_column_declared_before_the_first_row_is_there(tap: OpenShop) -> None:
    shop = tap()
    never = {"properties": {"blob": {}}, "unsupported": ["blob"]}
    told = {"values": {"size": 7}, "declared": {**_MORE, "any": {}, "blob": {}}, **never}
    report = shop.sync_of({"streams": {"users": {"records": 3, **told}}})
    assert report.streams["users"].ignored_fields == {}
    assert shop.column("users", "size") == [7, 7, 7]
    assert ("any" in shop.rows("users")[0], "blob" in shop.rows("users")[0]) == (True, False)
    again = shop.sync_of({"streams": {"users": {"records": 4, **told}}})
    assert again.streams["users"].schema_changes == ()
    silent = shop.sync_of({"streams": {"users": {"records": 4, "no_schema": True, **never}}})
    assert silent.streams["users"].schema_changes == ()


def test_cached_schemas_that_cannot_be_used_are_received_again(tap: OpenShop) -> None:
    shop = tap()
    scenario = _of(3, values={"size": 7}, declared=_MORE)
    shop.sync_of(scenario)
    (file,) = shop.home.glob("catalogs/cached/told-*.json")
    kept = file.read_bytes()
    file.write_text(json.dumps({**json.loads(kept), "message": [{"stream": "users"}]}))
    report = shop.sync_of(scenario)
    assert report.status is SyncStatus.COMPLETE
    assert "in earlier syncs cannot be used" in shop.log(report)
    assert file.read_bytes() == kept


def test_a_column_declared_between_rows_is_there_from_then_on(tap: OpenShop) -> None:
    shop = tap(max_bytes=1 << 20)
    rows = [{"id": n, "updated_at": "2024-01-01T00:00:00Z", **({"size": n} if n > 4 else {})} for n in range(12)]
    schema = {"id": {"type": "integer"}, "updated_at": {"type": "string", "format": "date-time"}}
    stream = {"rows": rows, "properties": schema, "declared_at": [[5, _MORE]]}
    report = shop.sync_of({"streams": {"users": stream}})
    assert (report.status, report.loads) == (SyncStatus.COMPLETE, 1)
    assert report.streams["users"].ignored_fields == {}
    found = {row["id"]: row["size"] for row in shop.rows("users")}
    assert found == {n: n if n > 4 else None for n in range(12)}
    assert [change.column for change in report.streams["users"].schema_changes] == ["size"]


@pytest.mark.everyday("append_dedup")
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_field_that_changes_in_case_alone_between_rows_keeps_its_column(mode: str, tap: OpenShop) -> None:
    shop = tap(write=mode)
    rows = [{"id": n, "updated_at": "2024-01-01T00:00:00Z", "size" if n < 5 else "Size": n} for n in range(12)]
    schema = {"id": {"type": "integer"}, "updated_at": {"type": "string", "format": "date-time"}, **_MORE}
    stream = {"rows": rows, "properties": schema, "declared_at": [[5, {"size": None, "Size": {"type": "integer"}}]]}
    for _ in range(2):
        report = shop.sync_of({"streams": {"users": stream}})
        told = report.streams["users"]
        assert (told.error, told.ignored_fields, told.schema_changes) == (None, {}, ())
        assert shop.column("users", "size") == list(range(12))
    assert [name for name in shop.rows("users")[0] if "ize" in name] == ["size"]


def test_a_column_of_another_type_between_rows_ends_the_stream(tap: OpenShop) -> None:
    shop = tap()
    report = shop.sync_of(_of(25, declared_at=[[12, {"name": {"type": "integer"}}]]))
    told = report.streams["users"]
    assert report.status is SyncStatus.FAILED
    assert "column name was string, is int64" in str(told.error)
    assert shop.column("users") == list(range(10))


def test_records_come_to_their_stream_by_its_other_name(tap: OpenShop) -> None:
    shop = tap()
    shop.config |= {"stream_maps": {"users": {"__alias__": "persons"}}}
    report = shop.sync_of(_of(12, message_name="persons"))
    assert (report.status, report.warnings) == (SyncStatus.COMPLETE, ())
    assert (shop.column("users"), shop.positions()) == (list(range(12)), {"users": 12})


def test_records_that_may_be_of_two_streams_fail_both(tap: OpenShop) -> None:
    shop = tap()
    twin = {"records": 3, "message_name": "twin", "incremental": True}
    report = shop.sync_of(
        {"streams": {"a-twin": {**twin, "catalog_name": "twin"}, "b-twin": {**twin, "catalog_name": "twin"}}}
    )
    assert report.status is SyncStatus.FAILED
    assert "which may be any of a-twin and b-twin" in str(report.streams["a-twin"].error)
    assert shop.positions() == {}


def test_a_stream_that_tells_no_schema_has_the_catalogs(tap: OpenShop) -> None:
    shop = tap()
    shop.sync_of(_of(3, no_schema=True, extracted=None))
    assert shop.column("users") == [0, 1, 2]
    assert [row["_airbyte_meta"]["changes"] for row in shop.rows("users")] == [[], [], []]


def test_a_stream_without_a_schema_lands_as_json_text(tap: OpenShop) -> None:
    """Once a schema comes, the rows after it have columns, beside the text that has landed."""
    shop = tap(max_bytes=1 << 20)
    rows = [{"id": n, "size": [n]} for n in range(4)]
    told = {"id": {"type": "integer"}, "size": {}}
    users = {"rows": rows}
    report = shop.sync_of({"streams": {"users": {**users, "declared_at": [[2, told], [3, told]]}}})
    assert (report.status, report.streams["users"].ignored_fields) == (SyncStatus.COMPLETE, {})
    found = [(row["_airbyte_data"], row["id"], row["size"]) for row in shop.rows("users")]
    whole = ['{"id":0,"size":[0]}', '{"id":1,"size":[1]}']
    assert found == [(whole[0], None, None), (whole[1], None, None), (None, 2, "[2]"), (None, 3, "[3]")]
    rows.append({"id": 4, "size": None})
    again = shop.sync_of({"streams": {"users": {**users, "declared": told}}})
    assert again.status is SyncStatus.COMPLETE
    assert shop.rows("users")[-1]["id"] == 4


def test_what_landed_whole_with_a_key_gets_its_columns_in_the_next_sync(tap: OpenShop) -> None:
    shop = tap(write="append_dedup")
    rows = [{"id": n // 2, "size": n} for n in range(4)]
    scenario = {"streams": {"users": {"rows": rows, "declared_at": [[3, {"id": {"type": "integer"}, **_MORE}]]}}}
    report = shop.sync_of(scenario)
    assert "its key was _airbyte_key__airbyte_data_id, is id" in str(report.streams["users"].error)
    assert shop.sync_of(scenario).status is SyncStatus.COMPLETE
    assert sorted((row["id"], row["size"]) for row in shop.rows("users")) == [(0, 1), (1, 3)]


def test_what_is_not_selected_is_not_sent_and_has_no_column(tap: OpenShop) -> None:
    shop = tap()
    shop.modes = {"users": {"select": ["id", "name", "updated_at"]}}
    shop.sync_of(_of(3))
    assert shop.column("users", "key") == []
    assert shop.column("users", "name") == ["users 0", "users 1", "users 2"]


def test_versions_are_logged(tap: OpenShop) -> None:
    shop = tap(read="full_refresh", write="overwrite")
    scenario = _of(3, version=17, method="FULL_TABLE")
    report = shop.sync_of(scenario)
    assert "stream users: version 17 is the current one" in shop.log(report)
    shop.more = {"destination": {"sdc_columns": True}}
    shop.sync_of(scenario)
    assert shop.column("users") == [0, 1, 2]
    assert shop.store.states("shop") == []
    for row in shop.rows("users"):
        assert row["_sdc_table_version"] == 17
        assert row["_sdc_extracted_at"] < row["_sdc_batched_at"] <= row["_sdc_received_at"]
        assert row["_sdc_sync_started_at"] <= row["_sdc_sequence"]
        assert row["_sdc_deleted_at"] is None


@pytest.mark.parametrize("kept", [True, False])
def test_a_new_version_of_a_stream_that_keeps_its_rows_is_a_warning(tap: OpenShop, kept: bool) -> None:
    shop = tap() if kept else tap(read="full_refresh", write="overwrite")
    method = {} if kept else {"method": "FULL_TABLE"}
    assert shop.sync_of(_of(3, version=17, **method)).warnings == ()
    assert shop.sync_of(_of(4, version=17, **method)).warnings == ()
    report = shop.sync_of(_of(5, version=18, **method))
    assert [each.startswith("stream users: its source began version 18") for each in report.warnings] == [True] * kept
    assert shop.sync_of(_of(5, version=19, **method), REFRESH).warnings == ()
    assert shop.column("users") == list(range(5))


def test_a_stream_whose_version_was_whole_lands_though_the_tap_fails_in_the_next(tap: OpenShop) -> None:
    shop = tap(read="full_refresh", write="overwrite")
    streams = {name: {"records": 5, "version": 17, "method": "FULL_TABLE"} for name in ("users", "orders")}
    shop.sync_of({"streams": {name: {**each, "records": 2} for name, each in streams.items()}})
    report = shop.sync_of({"streams": streams, "failure": {"kind": "exit", "after": 8}})
    assert report.status is SyncStatus.PARTIAL
    assert (shop.column("users"), shop.column("orders")) == ([0, 1, 2, 3, 4], [0, 1])


@pytest.mark.parametrize(
    ("write", "left", "is_told"),
    [("append_dedup", [0, 2], True), ("soft_delete", [0, 1, 2], True), ("append_dedup", [0, 2], False)],
)
def test_what_a_tap_says_was_deleted_goes_or_is_marked(
    tap: OpenShop, write: str, left: list[int], is_told: bool
) -> None:
    """Also where it does not tell of the field, and the table is to have the column."""
    shop = tap(write=write)
    deleted = {"_sdc_deleted_at": {"type": ["null", "string"], "format": "date-time"}} if is_told else {}
    shop.more = {"destination": {"sdc_columns": not is_told}}
    rows = [{"id": 0}, {"id": 1}, {"id": 2}, {"id": 1, "_sdc_deleted_at": "2026-01-01T00:00:00Z"}]
    users = {"rows": rows, "properties": {"id": {"type": "integer"}}, "primary_key": [["id"]], "declared": deleted}
    report = shop.sync_of({"streams": {"users": users}})
    assert (shop.column("users"), report.streams["users"].deleted) == (left, 1)


def test_streams_have_their_bookmarks_in_the_state(tap: OpenShop) -> None:
    shop = tap()
    shop.sync_of(_of(3))
    [kept] = shop.store.states("shop")
    assert kept.state.stream is None
    assert shop.positions() == {str(StreamId.of("users")): 3}


def test_a_tap_without_discovery_is_run_once_for_its_catalog(tap: OpenShop) -> None:
    shop = tap()
    shop.offer({**_of(5), "tap": "bare"})
    report = shop.sync()
    assert (report.status, shop.column("users")) == (SyncStatus.COMPLETE, list(range(5)))
    shop.offer({**_of(8), "tap": "bare"})
    report = shop.sync()
    assert (report.streams["users"].emitted, shop.column("users")) == (3, list(range(8)))


@pytest.mark.parametrize("is_new", [True, False])
def test_a_tap_that_sends_all_its_streams_moves_no_bookmark_of_one_that_was_not_requested(
    tap: OpenShop, is_new: bool
) -> None:
    shop = tap()
    bare = {"tap": "bare"}
    if not is_new:
        shop.sync_of({"streams": {"users": {"records": 2}, "orders": {"records": 3}}, **bare})
    scenario = {"streams": {"users": {"records": 5}, "orders": {"records": 8}}, **bare}
    report = shop.sync_of(scenario, SyncRequest(only=["users"]))
    assert report.status is SyncStatus.COMPLETE
    assert any("stream orders, which was not requested: ignored" in warning for warning in report.warnings)
    assert shop.positions() == ({"users": 5} if is_new else {"users": 5, "orders": 3})
    assert shop.sync().status is SyncStatus.COMPLETE
    assert (shop.column("users"), shop.column("orders")) == (list(range(5)), list(range(8)))


def test_a_bookmark_that_the_catalog_does_not_name_is_noted_once_and_is_a_cursor_when_the_user_says_so(
    tap: OpenShop,
) -> None:
    shop = tap(read="full_refresh", write="overwrite")
    report = shop.sync_of(_of(5, incremental=False, bookmarked=["updated_at"]))
    note = "the tap bookmarks updated_at, and its catalog names no replication key"
    assert shop.log(report).count(note) == 1
    assert note not in shop.log(shop.sync())
    shop.modes = {"*": {"cursor": "updated_at"}}
    report = shop.sync_of(_of(6, incremental=False, bookmarked=["updated_at"]), REFRESH)
    assert (report.streams["users"].emitted, note in shop.log(report)) == (6, False)
    report = shop.sync_of(_of(8, incremental=False, bookmarked=["updated_at"]))
    assert (report.streams["users"].emitted, shop.column("users")) == (2, list(range(8)))


def test_a_catalog_file_of_the_connection_takes_the_place_of_the_taps_own(tap: OpenShop, tmp_path: Path) -> None:
    shop = tap()
    (tmp_path / "catalog.json").write_text(json.dumps({"streams": [fake_tap.catalog_entry("users", {})]}))
    shop.connector_options = {"catalog_file": str(tmp_path / "catalog.json")}
    offered = {**_of(5), "tap": "python", "answers": {"discover": {"exit_code": 1}}}
    assert shop.sync_of(offered).status is SyncStatus.COMPLETE
    assert shop.column("users") == list(range(5))
    (tmp_path / "catalog.json").write_text("{}")
    with pytest.raises(ConfigError, match="reading the catalog file"):
        shop.sync()
