"""A generation that replaces a table may bring other columns: readers see old rows with old columns, or new rows with
new columns."""

from typing import Any

import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.sync.conftest import OpenShop
from tests.sync.shop import EVERYTHING, REFRESH, Shop

OLD = {"size": {"type": "integer"}, "note": {"type": "string"}}
NEW = {"size": {"type": "string"}, "email": {"type": "string"}}
CHANGED = [("column_retyped", "size"), ("column_dropped", "note"), ("column_added", "email")]
_BREAKS = {"kind": "exit", "after": 37}


def old(records: int, **more: Any) -> dict[str, Any]:
    stream = {"records": records, "keys": 1000, "values": {"size": 7, "note": "n"}, "properties": OLD, **more}
    return {"streams": {"users": stream}, "state_every": 5}


def new(records: int, failure: Any = None, **more: Any) -> dict[str, Any]:
    stream = {"records": records, "keys": 1000, "values": {"size": "tall", "email": "a"}, "properties": NEW}
    scenario = {"streams": {"users": {**stream, **more}}, "state_every": 5}
    return scenario | ({"failure": failure} if failure else {})


def told(place: Shop, scenario: dict[str, Any], wanted: Any = EVERYTHING) -> StreamReport:
    return place.sync_of(scenario, wanted).streams["users"]


def changes(report: StreamReport) -> list[tuple[str, str]]:
    return sorted((change.kind.value, change.column) for change in report.schema_changes)


def read(place: Shop) -> tuple[list[str], set[tuple[Any, ...]], int]:
    """The columns of the stream, the values of those that change, and the number of rows."""
    rows = place.tables.rows(TableName("shop", "users"))
    names = [name for name in rows.column_names if not name.startswith("_")]
    values = rows.select([name for name in names if name in (*OLD, *NEW)]).to_pylist()
    return names, {tuple(row.values()) for row in values}, rows.num_rows


def expect_old(place: Shop, records: int) -> None:
    assert read(place) == (["id", "key", "name", "updated_at", "size", "note"], {(7, "n")}, records)
    assert place.store.stream_changes("shop") == []


def expect_new(place: Shop, records: int) -> None:
    assert read(place) == (["id", "key", "name", "updated_at", "size", "email"], {("tall", "a")}, records)
    noted = place.store.stream_changes("shop")
    assert sorted((each.change.kind.value, each.change.column) for each in noted) == sorted(CHANGED)
    assert (place.branches(), place.store.open_generations("shop"), place.loose_files()) == ([], [], [])


@pytest.mark.everyday("append_dedup")
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_a_refresh_changes_the_columns_with_the_rows(write: str, shop: OpenShop) -> None:
    place = shop(write=write)
    told(place, old(10))
    refused = told(place, new(20))
    assert refused.status is SyncStatus.FAILED
    assert "Sync with --refresh" in str(refused.error)
    report = told(place, new(20), REFRESH)
    assert (report.status, changes(report), report.deleted) == (SyncStatus.COMPLETE, sorted(CHANGED), 10)
    assert read(place)[1:] == ({("tall", "a")}, 20)
    assert changes(told(place, new(23))) == []
    assert read(place)[1:] == ({("tall", "a")}, 23)
    assert told(place, new(24), REFRESH).schema_changes == ()


@pytest.mark.everyday("False-overwrite_dedup", "True-overwrite")
@pytest.mark.parametrize("write", ["overwrite", "overwrite_dedup"])
@pytest.mark.parametrize("is_resumable", [False, True])
def test_a_full_refresh_in_one_load_or_several_changes_columns_with_the_rows(
    write: str, is_resumable: bool, shop: OpenShop
) -> None:
    place = shop(write=write, read="full_refresh")
    told(place, old(10, resumable=is_resumable))
    report = told(place, new(20, resumable=is_resumable))
    assert (len(report.load_ids) > 1, changes(report)) == (is_resumable, sorted(CHANGED))
    expect_new(place, 20)
    assert told(place, new(0)).committed == 0
    assert read(place) == (["id", "key", "name", "updated_at", "size", "email"], set(), 0)


def test_plain_parquet_shows_new_columns_and_rows_at_once(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh", settings={"catalog": {"format": "parquet"}})
    current = place.home / "warehouse" / "shop" / "users" / "current"
    told(place, old(10))
    told(place, new(60, _BREAKS))
    found = pq.read_table(current)
    assert (found.num_rows, set(found["size"].to_pylist()), "note" in found.column_names) == (10, {7}, True)
    assert changes(told(place, new(20))) == sorted(CHANGED)
    found = pq.read_table(current)
    assert (found.num_rows, set(found["size"].to_pylist()), "note" in found.column_names) == (20, {"tall"}, False)
    assert place.store.open_generations("shop") == []


def test_a_failed_generation_leaves_columns_and_rows_and_is_resumed_in_its_own_columns(
    shop: OpenShop,
) -> None:
    place = shop(write="overwrite_dedup", read="full_refresh")
    told(place, old(10))
    failed = told(place, new(60, _BREAKS, resumable=True))
    assert (failed.status, failed.schema_changes) == (SyncStatus.FAILED, ())
    expect_old(place, 10)
    failed = told(place, new(60, {"kind": "exit", "after": 12}, resumable=True))
    expect_old(place, 10)
    report = told(place, new(60, resumable=True))
    assert (report.emitted, report.generation, changes(report)) == (15, 2, sorted(CHANGED))
    expect_new(place, 60)


def test_an_abandoned_refresh_leaves_the_table_as_it_was(shop: OpenShop) -> None:
    place = shop()
    told(place, old(10))
    told(place, new(60, _BREAKS), REFRESH)
    expect_old(place, 10)
    assert told(place, old(12)).schema_changes == ()
    expect_old(place, 12)
    assert place.branches() == []


@pytest.mark.parametrize("policy", ["freeze", "discard_column"])
def test_other_policies_hold_for_a_refresh_too(policy: str, shop: OpenShop) -> None:
    place = shop()
    told(place, old(10))
    place.modes["*"]["schema_policy"] = policy
    report = told(place, new(20), REFRESH)
    if policy == "freeze":
        assert report.status is SyncStatus.FAILED
        assert read(place)[1:] == ({(7, "n")}, 10)
    else:
        assert (report.status, report.changed, dict(report.ignored_fields)) == (SyncStatus.COMPLETE, 20, {"email": 20})
        assert read(place) == (["id", "key", "name", "updated_at", "size", "note"], {(None, None)}, 20)


def test_a_key_of_another_type_and_a_renamed_column(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    told(place, old(10))
    place.modes["*"] |= {"formerly": {"label": "note"}, "primary_key": ["label", "size"]}
    stream = {"values": {"size": "tall", "label": "n"}, "properties": {**NEW, "label": {"type": "string"}}}
    report = told(place, new(20, **stream), REFRESH)
    assert [change for change in changes(report) if "renamed" in change[0]] == [("column_renamed", "label")]
    # The key is one and the same in each row.
    assert read(place)[2] == 1
    told(place, new(25, **stream))
    assert (place.column("users"), place.column("users", "label")) == ([24], ["n"])


def keyed(column: str, day: str, kind: Any) -> dict[str, Any]:
    """One row by a key and a cursor, both texts but for the column of that kind."""
    properties = {"key": {"type": "string"}, "updated_at": {"type": "string"}, column: {"type": kind}}
    rows = [{"key": "k1", "updated_at": day}]
    stream = {"rows": rows, "properties": properties, "primary_key": [["key"]], "cursor": ["updated_at"]}
    return {"streams": {"users": stream}}


@pytest.mark.parametrize("column", ["key", "updated_at"])
def test_a_key_or_cursor_that_turns_from_text_into_json_is_refused_until_a_refresh(column: str, shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.modes["*"]["read"] = "full_refresh"
    told(place, keyed(column, "2024-01-01", "string"))
    refused = told(place, keyed(column, "2024-06-01", ["string", "integer"]))
    assert f"column {column} is string in the table and JSON text in the stream" in str(refused.error)
    assert place.column("users", "updated_at") == ["2024-01-01"]
    assert changes(refused) == [("column_refused", column)]
    # A refresh that breaks has replaced no row: the next sync is refused as before.
    broken = {**keyed(column, "2024-06-01", ["string", "integer"]), "failure": {"kind": "exit", "after": 1}}
    assert told(place, broken, REFRESH).status is SyncStatus.FAILED
    refused = told(place, keyed(column, "2024-06-01", ["string", "integer"]))
    assert f"column {column} is string in the table and JSON text in the stream" in str(refused.error)
    report = told(place, keyed(column, "2024-06-01", ["string", "integer"]), REFRESH)
    assert (report.status, changes(report)) == (SyncStatus.COMPLETE, [("column_retyped", column)])
    assert told(place, keyed(column, "2024-07-01", ["string", "integer"])).committed == 1
    assert [text.strip('"') for text in place.column("users", "updated_at")] == ["2024-07-01"]


@pytest.mark.parametrize(("write", "values"), [("append", ["red", '"red"']), ("overwrite", ['"red"'])])
def test_a_column_that_turns_from_text_into_json_is_reported(write: str, values: list[str], shop: OpenShop) -> None:
    place = shop(write=write)
    place.modes["*"]["read"] = "full_refresh"

    def colored(kind: Any) -> dict[str, Any]:
        properties = {"id": {"type": "integer"}, "color": {"type": kind}}
        return {"streams": {"users": {"rows": [{"id": 1, "color": "red"}], "properties": properties}}}

    told(place, colored("string"))
    broken = told(place, {**colored(["string", "integer"]), "failure": {"kind": "exit", "after": 1}})
    found = [*changes(broken), *changes(told(place, colored(["string", "integer"])))]
    assert found == [("column_form_changed", "color")]
    assert sorted({*place.column("users", "color")}, reverse=True) == values
    assert changes(told(place, colored(["string", "integer"]))) == []


def test_after_a_refresh_of_which_nobody_knows_a_key_may_have_either_form(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.modes["*"]["read"] = "full_refresh"
    told(place, keyed("key", "2024-01-01", "string"))
    place.offer(keyed("key", "2024-06-01", ["string", "integer"]))
    settings = Settings.load(place.home, place.home / "settings.yaml")
    faults = CallFaults({("commit", 1): CallFault.AFTER})
    with Engine(settings, tables=with_faults(place.tables, faults)) as engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file), REFRESH)
    assert report.status is SyncStatus.UNKNOWN
    refused = told(place, keyed("key", "2024-07-01", "string"))
    assert "column key is string or JSON text in the table and string in the stream" in str(refused.error)
    assert told(place, keyed("key", "2024-07-01", "string"), REFRESH).status is SyncStatus.COMPLETE
    assert told(place, keyed("key", "2024-08-01", "string")).status is SyncStatus.COMPLETE
    assert place.column("users", "key") == ["k1"]


@pytest.mark.everyday("wanted0-evolve", "wanted1-freeze")
@pytest.mark.parametrize("policy", ["evolve", "freeze"])
@pytest.mark.parametrize("wanted", [EVERYTHING, SyncRequest(slice=Slice("2024-06"))])
def test_a_key_may_change_its_form_where_all_rows_are_replaced(
    shop: OpenShop, wanted: SyncRequest, policy: str
) -> None:
    place = shop(write="overwrite_dedup")
    place.modes["*"] |= {"read": "full_refresh", "schema_policy": policy}
    for kind in ("string", ["string", "integer"]):
        stream = {"rows": [{"key": "k1"}], "properties": {"key": {"type": kind}}, "primary_key": [["key"]]}
        assert told(place, {"streams": {"users": stream}}, wanted).status is SyncStatus.COMPLETE
    assert place.column("users", "key") == ['"k1"']
