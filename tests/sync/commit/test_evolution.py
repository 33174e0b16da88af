"""A stream that changes from sync to sync, under each policy: its table, and the report of the sync."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

EMAIL = {"email": {"type": "string"}}


def users(place: Shop, records: int, values: Any = None, properties: Any = None, **more: Any) -> StreamReport:
    """One sync of the stream with so many records. The new ones have these `values`."""
    stream = {"records": records, "values": values or {}, "properties": properties or {}, **more}
    return place.sync_of({"streams": {"users": stream}, "state_every": 5}).streams["users"]


def policy(place: Shop, name: str, **options: Any) -> None:
    place.modes = {"*": {**place.modes["*"], "schema_policy": name, **options}}


def rows(place: Shop, *columns: str) -> list[tuple[Any, ...]]:
    found = place.tables.rows(TableName("shop", "users")).select(["id", *columns]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def told(report: StreamReport) -> list[tuple[str, str]]:
    return [(change.kind.value, change.column) for change in report.schema_changes]


def names(place: Shop) -> list[str]:
    return [name for name in place.tables.rows(TableName("shop", "users")).column_names if not name.startswith("_")]


def recorded(place: Shop) -> list[tuple[str, str, str, str]]:
    """Oldest first."""
    noted = place.store.stream_changes("shop")[::-1]
    return [(each.change.kind.value, each.change.column, each.change.before, each.change.after) for each in noted]


def test_a_column_comes_goes_and_comes_back(shop: OpenShop) -> None:
    place = shop()
    assert told(users(place, 2)) == []
    assert told(users(place, 4, {"email": "a"}, EMAIL)) == [("column_added", "email")]
    assert told(users(place, 5, {"email": "a"}, EMAIL)) == []
    assert told(users(place, 6)) == [("column_lost", "email")]
    assert told(users(place, 7)) == []
    assert told(users(place, 8, {"email": "b"}, EMAIL)) == [("column_back", "email")]
    emails = [None, None, "a", "a", "a", None, None, "b"]
    assert rows(place, "email") == list(enumerate(emails))
    assert recorded(place) == [
        ("column_added", "email", "", "string"),
        ("column_lost", "email", "string", ""),
        ("column_back", "email", "", "string"),
    ]
    [newest, *_] = place.store.stream_changes("shop")
    assert (newest.stream, newest.run_id) == (StreamId.of("users"), place.store.loads("shop")[0].load.run_id)


@pytest.mark.everyday("append_dedup")
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_freeze_refuses_before_anything_lands(mode: str, shop: OpenShop) -> None:
    place = shop(write=mode)
    policy(place, "freeze")
    assert users(place, 3).status is SyncStatus.COMPLETE
    for attempt in range(2):
        refused = users(place, 6, {"email": "a"}, EMAIL)
        assert (refused.status, refused.committed, refused.rejected) == (SyncStatus.FAILED, 0, 3)
        assert "the table has no column email (string in the stream)" in str(refused.error)
        assert told(refused) == ([("column_refused", "email")] if attempt == 0 else [])
    assert (place.column("users"), place.positions()) == ([0, 1, 2], {"users": 3})
    assert place.loose_files() == []
    assert users(place, 6).committed == 3
    policy(place, "evolve")
    assert told(users(place, 7, {"email": "a"}, EMAIL)) == [("column_added", "email")]


def test_a_lost_column_is_no_change_of_a_frozen_table(shop: OpenShop) -> None:
    place = shop()
    policy(place, "freeze")
    users(place, 1, {"email": "a"}, EMAIL)
    assert told(users(place, 2)) == [("column_lost", "email")]
    assert rows(place, "email") == [(0, "a"), (1, None)]


@pytest.mark.everyday("append")
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_discard_column_lands_the_rows_without_and_counts_what_is_left_out(mode: str, shop: OpenShop) -> None:
    place = shop(write=mode)
    users(place, 2)
    policy(place, "discard_column")
    report = users(place, 5, {"email": "a"}, EMAIL)
    assert (report.committed, dict(report.ignored_fields)) == (3, {"email": 3})
    assert told(report) == [("column_withheld", "email")]
    assert told(users(place, 6, {"email": "a"}, EMAIL)) == []
    assert (place.column("users"), names(place)) == (list(range(6)), ["id", "key", "name", "updated_at"])
    policy(place, "evolve")
    assert told(users(place, 7, {"email": "a"}, EMAIL)) == [("column_added", "email")]
    assert rows(place, "email")[5:] == [(5, None), (6, "a")]


def test_discard_row_rejects_the_rows_that_have_a_value_there(shop: OpenShop) -> None:
    place = shop()
    users(place, 2)
    policy(place, "discard_row")
    report = users(place, 4, {"email": None}, EMAIL)
    assert (report.committed, report.rejected) == (2, 0)
    report = users(place, 7, {"email": "a", "age": 1}, {**EMAIL, "age": {"type": "integer"}})
    assert (report.committed, dict(report.rejections)) == (
        0,
        {"it has a value in email, a column that the table does not have": 3},
    )
    assert report.status is SyncStatus.COMPLETE
    assert (place.column("users"), place.positions()) == ([0, 1, 2, 3], {"users": 7})


def test_a_deletion_is_no_row_to_reject(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    keyed = {"keys": 2, "deleted_every": 8}
    users(place, 4, **keyed)
    policy(place, "discard_row")
    report = users(place, 8, {"email": "a"}, EMAIL, **keyed)
    assert (report.committed, report.rejected, dict(report.ignored_fields)) == (1, 3, {"email": 1})
    assert place.column("users") == [2]


def test_a_changed_type_is_refused_or_left_out_value_by_value(shop: OpenShop) -> None:
    place = shop()
    number, word = {"size": {"type": "integer"}}, {"size": {"type": "string"}}
    users(place, 2, {"size": 7}, number)
    refused = users(place, 4, {"size": "tall"}, word)
    assert "column size is bigint in the table and string in the stream" in str(refused.error)
    assert told(refused) == [("column_refused", "size")]
    policy(place, "discard_column")
    report = users(place, 4, {"size": "tall"}, word)
    assert (report.committed, report.changed, dict(report.ignored_fields)) == (2, 2, {})
    assert rows(place, "size") == [(0, 7), (1, 7), (2, None), (3, None)]
    [changes] = {json.dumps(meta["changes"]) for key, meta in rows(place, "_airbyte_meta") if key > 1}
    assert json.loads(changes) == [{"field": "size", "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR"}]
    policy(place, "discard_row")
    report = users(place, 5, {"size": "tall"}, word)
    assert list(report.rejections.values()) == [1]
    assert told(users(place, 6, {"size": 8}, number)) == [("column_back", "size")]
    assert rows(place, "size")[4:] == [(5, 8)]


def _entries(place: Shop) -> list[tuple[str, str]]:
    """The change and field of each entry of the newest row."""
    return [(each["change"], each["field"]) for each in rows(place, "_airbyte_meta")[-1][1]["changes"]]


def test_a_column_with_the_name_that_elements_of_lists_have_is_named_in_entries(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"*": {**place.modes["*"], "types": {"objects": "struct"}}}

    def fields(kind: str) -> dict[str, Any]:
        inside = {"type": "object", "properties": {"element": {"type": kind}}}
        return {"element": {"type": kind}, "list": {"type": "array", "items": {"type": "array", "items": inside}}}

    users(place, 1, {"element": "a", "list": [[{"element": "a"}]]}, fields("string"))
    policy(place, "discard_column")
    report = users(place, 2, {"element": 1, "list": [[{"element": 1}]]}, fields("integer"))
    assert _entries(place) == [("NULLED", "element"), ("NULLED", "list.element")]
    assert report.nulled == {"element": 1, "list": 1}


def test_a_renamed_column_has_the_sources_name_in_entries(shop: OpenShop) -> None:
    place = shop()
    # `key` is renamed to what the source calls another field: an entry of the one is not counted for the other.
    place.modes = {"*": {**place.modes["*"], "rename_columns": {"key": "size", "size": "height"}}}
    users(place, 1, {"size": "tall"}, {"size": {"type": "string"}})
    policy(place, "discard_column")
    report = users(place, 2, {"size": 7}, {"size": {"type": "integer"}})
    assert _entries(place) == [("NULLED", "size")]
    assert report.nulled == {"height": 1}


def test_members_of_objects_are_columns_too(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"*": {**place.modes["*"], "types": {"objects": "struct"}}}

    def homes(**members: str) -> dict[str, Any]:
        typed = {name: {"type": kind} for name, kind in members.items()}
        home = {"type": "object", "properties": typed}
        return {"home": home, "homes": {"type": "array", "items": home}}

    old, new = {"city": "Ulm"}, {"zip": "89073", "city": "Ulm"}
    users(place, 2, {"home": old, "homes": [old]}, homes(city="string"))
    wider = {"home": new, "homes": [old, new, None]}, homes(zip="string", city="string")
    policy(place, "discard_row")
    assert list(users(place, 3, *wider).rejections.values()) == [1]
    policy(place, "discard_column")
    report = users(place, 4, *wider)
    assert dict(report.ignored_fields) == {"home.zip": 1, "homes.element.zip": 1}
    assert rows(place, "home", "homes")[-1] == (3, old, [old, old, None])
    report = users(place, 5, {"home": {"city": 7}, "homes": [{"city": 7}]}, homes(city="integer"))
    assert (report.committed, report.changed) == (1, 1)
    assert rows(place, "home", "homes")[-1] == (4, {"city": None}, [{"city": None}])
    policy(place, "evolve")
    report = users(place, 6, *wider)
    assert {("column_added", "home.zip"), ("column_added", "homes.element.zip")} <= set(told(report))
    assert rows(place, "home")[0] == (0, {"city": "Ulm", "zip": None})
    assert rows(place, "home")[-1] == (5, {"city": "Ulm", "zip": "89073"})
    assert told(users(place, 7, {"home": old}, homes(city="string"))) == [
        ("column_lost", "home.zip"),
        ("column_lost", "homes.element.zip"),
    ]


@pytest.mark.parametrize("name", ["freeze", "discard_column", "discard_row"])
def test_a_new_table_has_all_columns_under_each_policy(name: str, shop: OpenShop) -> None:
    place = shop()
    policy(place, name)
    assert users(place, 2, {"email": "a"}, EMAIL).status is SyncStatus.COMPLETE
    assert "email" in place.tables.rows(TableName("shop", "users")).column_names


@pytest.mark.parametrize("name", ["discard_column", "discard_row"])
def test_a_key_that_the_table_lacks_is_never_left_out(name: str, shop: OpenShop) -> None:
    place = shop(write="append")
    place.modes = {"*": {"write": "append", "primary_key": ["id"]}}
    users(place, 2)
    place.modes = {"*": {"write": "append_dedup", "primary_key": ["email"], "schema_policy": name}}
    refused = users(place, 4, {"email": "a"}, EMAIL)
    assert (refused.committed, refused.status) == (0, SyncStatus.FAILED)
    assert "no column email" in str(refused.error)


def test_a_changed_key_is_reported_and_existing_rows_stay(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    users(place, 4)
    report = users(place, 8, keys=2)
    assert told(report) == [("key_changed", "")]
    assert recorded(place) == [("key_changed", "", "id", "key")]
    assert place.column("users") == [2, 3, 6, 7]


def test_a_stream_that_is_gone_keeps_its_table_and_is_known_again(shop: OpenShop) -> None:
    place = shop()
    place.sync_of({"streams": {"users": {"records": 2}, "Users": {"records": 3}}})
    report = place.sync_of({"streams": {"Users": {"records": 3}}})
    assert any("users: the source no longer offers the stream" in warning for warning in report.warnings)
    assert place.sync().warnings == ()
    report = place.sync_of({"streams": {"Users": {"records": 4}, "users": {"records": 5}}})
    assert told(report.streams["users"]) == [("stream_back", "")]
    assert (report.streams["users"].table, report.streams["users"].committed) == ("shop.users", 3)
    assert report.streams["Users"].table != "shop.users"
    assert [what for what, *_ in recorded(place)] == ["stream_gone", "stream_back"]


def test_names_of_columns_stay_with_their_fields(shop: OpenShop) -> None:
    place = shop()
    low, up = {"value": {"type": "string"}}, {"Value": {"type": "string"}}
    users(place, 1, {"value": "low"}, low)
    # The new one stands before the old one, and would have its name.
    users(place, 2, {"Value": "up", "value": "low"}, {**up, **low})
    assert rows(place, "value") == [(0, "low"), (1, "low")]
    [other] = [name for name in names(place) if name.startswith("Value_")]
    assert rows(place, other) == [(0, None), (1, "up")]
    # One of them is gone: the other is not taken for it.
    users(place, 3, {"Value": "up"}, up)
    assert rows(place, "value", other)[2] == (2, None, "up")


def test_a_field_that_changes_only_in_case_keeps_its_column(shop: OpenShop) -> None:
    place = shop()
    users(place, 1, {"value": 1}, {"value": {"type": "integer"}})
    users(place, 2, {"Value": 2}, {"Value": {"type": "integer"}})
    assert rows(place, "value") == [(0, 1), (1, 2)]


@pytest.mark.everyday("evolve-append_dedup", "freeze-append", "discard_column-append_dedup")
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("name", ["evolve", "freeze", "discard_column"])
def test_a_renamed_field_takes_its_old_values_along(name: str, mode: str, shop: OpenShop) -> None:
    place = shop(write=mode)
    policy(place, name)
    users(place, 2, {"mail": "a"}, {"mail": {"type": "string"}})
    policy(place, name, formerly={"email": "mail"})
    report = users(place, 4, {"email": "b"}, EMAIL)
    assert told(report) == [("column_renamed", "email")]
    assert rows(place, "email") == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert "mail" not in names(place)
    # Once more, with the hint still there, and with a new field under the old name.
    assert told(users(place, 5, {"email": "c"}, EMAIL)) == []
    if name == "evolve":
        both = {**EMAIL, "mail": {"type": "string"}}
        assert told(users(place, 6, {"email": "c", "mail": "new"}, both)) == [("column_added", "mail")]
        assert rows(place, "email", "mail")[4:] == [(4, "c", None), (5, "c", "new")]
        assert rows(place, "mail")[0] == (0, None)


def test_a_renamed_key_still_tells_rows_apart(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    place.modes = {"*": {"write": "append_dedup", "primary_key": ["code"]}}
    users(place, 2, {"code": "x"}, {"code": {"type": "string"}})
    place.modes = {"*": {"write": "append_dedup", "primary_key": ["sku"], "formerly": {"sku": "code"}}}
    users(place, 4, {"sku": "x"}, {"sku": {"type": "string"}})
    assert rows(place, "sku") == [(3, "x")]


def test_an_impossible_rename_hint_is_refused(shop: OpenShop) -> None:
    place = shop()
    users(place, 1, {"mail": "a"}, {"mail": {"type": "string"}})
    policy(place, "evolve", formerly={"e_mail": "mail"})
    with pytest.raises(ConfigError, match="has no field e_mail\nDo you mean email"):
        users(place, 2, {"email": "a"}, EMAIL)
    policy(place, "evolve", formerly={"email": "mail"})
    with pytest.raises(ConfigError, match="the source still sends mail beside email"):
        users(place, 2, {}, {**EMAIL, "mail": {"type": "string"}})
    policy(place, "evolve", formerly={})
    users(place, 2, {"email": "a"}, EMAIL)
    policy(place, "evolve", formerly={"email": "mail"})
    assert "column email is beside mail" in str(users(place, 3, {"email": "a"}, EMAIL).error)


def test_a_run_that_dies_after_a_table_change_leaves_the_change_to_be_reported(shop: OpenShop) -> None:
    place = shop()
    users(place, 2)
    before = place.store.stream_profiles("shop")
    users(place, 4, {"email": "a"}, EMAIL)
    # The state of the store after a run that was killed between the two.
    lease = place.store.acquire("shop", run_id="r", holder="test", seconds=5)
    place.store.save_stream_profiles(lease, before)
    place.store.release(lease)
    assert told(users(place, 5, {"email": "a"}, EMAIL)) == [("column_added", "email")]
