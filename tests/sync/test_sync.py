"""The tables and states after a sync, in every mode and with every kind of state, once and again."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.maintenance.reset import reset_state
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

SCOPES = ("stream", "global", "legacy")


def two(users: int, orders: int, **whole: Any) -> dict[str, Any]:
    streams = {"users": {"records": users}, "orders": {"records": orders}}
    return {"streams": streams, "state_every": 5, "interleave": True, **whole}


def counts(report: SyncReport) -> dict[str, tuple[int, int]]:
    return {name: (told.emitted, told.committed) for name, told in report.streams.items()}


def expect(shop: Shop, users: int, orders: int) -> None:
    assert shop.column("users") == list(range(users))
    assert shop.column("orders") == list(range(orders))
    assert shop.loose_files() == []


@pytest.mark.everyday(
    "stream-False-1073741824", "stream-True-1", "global-False-1", "global-True-1073741824", "legacy-True-1"
)
@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("scope", SCOPES)
def test_appended_rows_are_there_once_and_the_next_sync_goes_on(
    scope: str, late: bool, max_bytes: int, shop: OpenShop
) -> None:
    place = shop(max_bytes=max_bytes)
    first = place.sync_of(two(23, 12, state=scope, late_states=late))
    assert first.status is SyncStatus.COMPLETE
    assert counts(first) == {"users": (23, 23), "orders": (12, 12)}
    assert first.warnings == ()
    second = place.sync()
    assert counts(second) == {"users": (0, 0), "orders": (0, 0)}
    expect(place, 23, 12)
    third = place.sync_of(two(30, 12, state=scope, late_states=late))
    assert counts(third) == {"users": (7, 7), "orders": (0, 0)}
    expect(place, 30, 12)
    assert place.positions() == {"users": 30, "orders": 12}


def test_what_the_report_tells_is_what_the_tables_and_the_store_hold(shop: OpenShop) -> None:
    place = shop()
    report = place.sync_of(two(23, 12))
    users = report.streams["users"]
    assert (users.table, users.table_rows, users.state, users.error) == ("shop.users", 23, {"next": 23}, None)
    assert users.bytes > 23 * 50
    assert (report.lines.record, report.connector.exit_code, report.error) == (35, 0, None)
    assert report.lines.state == 4 + 1 + 2 + 1
    assert report.loads == len(place.store.loads("shop"))
    assert len(place.tables.rows(TableName("shop", "users"))) == 23


def test_without_any_state_rows_land_when_the_stream_is_complete(shop: OpenShop) -> None:
    place = shop()
    report = place.sync_of(two(23, 12, state="none"))
    assert report.status is SyncStatus.COMPLETE
    expect(place, 23, 12)
    assert place.store.states("shop") == []


def test_without_any_state_a_sync_that_breaks_lands_nothing(shop: OpenShop) -> None:
    place = shop()
    report = place.sync_of(two(23, 12, state="none", failure={"kind": "exit", "after": 20}))
    assert report.status is SyncStatus.FAILED
    assert all(told.committed == 0 for told in report.streams.values())
    place.sync_of(two(23, 12, state="none"))
    expect(place, 23, 12)


def test_a_full_refresh_replaces_what_was_there(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh")
    assert counts(place.sync_of(two(23, 12))) == {"users": (23, 23), "orders": (12, 12)}
    report = place.sync_of(two(9, 12))
    expect(place, 9, 12)
    assert (report.streams["users"].deleted, report.streams["users"].generation) == (23, 2)
    assert place.store.states("shop") == []


def test_an_overwrite_that_came_out_empty_empties_its_table(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh")
    place.sync_of(two(23, 12))
    report = place.sync_of(two(0, 12))
    assert report.status is SyncStatus.COMPLETE
    assert report.streams["users"].deleted == 23
    expect(place, 0, 12)


def test_an_overwrite_that_fails_leaves_the_old_rows(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh")
    place.sync_of(two(23, 12))
    report = place.sync_of(two(40, 12, failure={"kind": "exit", "after": 30}))
    assert report.streams["users"].status is SyncStatus.FAILED
    expect(place, 23, 12)


def test_a_full_refresh_that_appends_adds_each_run_whole(shop: OpenShop) -> None:
    place = shop(write="append", read="full_refresh")
    place.sync_of(two(7, 3))
    place.sync_of(two(7, 3, failure={"kind": "exit", "after": 9}))
    place.sync_of(two(7, 3))
    assert place.column("users") == sorted([*range(7), *range(7)])


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_of_one_key_the_latest_row_stays_within_a_load_and_over_syncs(max_bytes: int, shop: OpenShop) -> None:
    place = shop(write="append_dedup", max_bytes=max_bytes)
    keyed = {"streams": {"users": {"records": 23, "keys": 4}}, "state_every": 5}
    report = place.sync_of(keyed)
    assert counts(report) == {"users": (23, 23)}
    assert place.column("users") == [19, 20, 21, 22]
    keyed["streams"]["users"]["records"] = 25  # type: ignore[index]  # of the dict above
    assert counts(place.sync_of(keyed)) == {"users": (2, 2)}
    assert place.column("users") == [21, 22, 23, 24]
    assert place.column("users", "key") == [0, 1, 2, 3]


def test_an_empty_stream_makes_its_table(shop: OpenShop) -> None:
    place = shop()
    assert place.sync_of(two(0, 12)).status is SyncStatus.COMPLETE
    assert {"id", "name", "_airbyte_raw_id"} <= set(place.tables.rows(TableName("shop", "users")).column_names)


def test_the_same_name_in_two_namespaces_is_two_tables_also_when_one_is_synced_alone(shop: OpenShop) -> None:
    place = shop()
    # The scenario has one stream a name, so the second one is offered by hand.
    schema = {"properties": {"id": {"type": "integer"}}}
    users = {"name": "users", "json_schema": schema, "supported_sync_modes": ["full_refresh"]}
    catalog = {"type": "CATALOG", "catalog": {"streams": [{**users, "namespace": "a"}, {**users, "namespace": "b"}]}}
    place.modes = {"*": {"read": "full_refresh", "write": "overwrite"}}
    records = [
        {"stream": "users", "data": {"id": number}, "emitted_at": 1, "namespace": namespace}
        for number, namespace in ((1, "a"), (2, "b"), (3, "b"))
    ]
    lines = [json.dumps({"type": "RECORD", "record": record}) for record in records]
    answers = {"discover": {"lines": [json.dumps(catalog)]}, "read": {"lines": lines}}
    report = place.sync_of({"streams": {}, "answers": answers})
    assert report.status is SyncStatus.COMPLETE
    tables = {name: told.table for name, told in report.streams.items()}
    assert len(set(tables.values())) == 2
    assert counts(report) == {"a.users": (1, 1), "b.users": (2, 2)}
    answers["read"]["lines"] = lines[1:]
    alone = place.sync_of({"streams": {}, "answers": answers}, SyncRequest(only=["b.users"]))
    assert {name: told.table for name, told in alone.streams.items()} == {"b.users": tables["b.users"]}


def test_a_stream_that_comes_back_to_a_position_that_moved_on_without_it_is_refused_until_it_is_read_anew(
    shop: OpenShop,
) -> None:
    place = shop(write="append_dedup")
    both = place.modes
    place.sync_of(two(23, 12, state="global"))
    place.modes = {"users": both["*"]}
    place.sync_of(two(30, 20, state="global"))
    assert place.positions() == {"users": 30, "orders": 12}
    place.modes = both
    place.offer(two(30, 20, state="global"))
    found = "the position that it shares with other streams moved on without it"
    with pytest.raises(ConfigError, match=found) as refused:
        place.sync()
    assert "(stream orders)" in str(refused.value)
    _reset(place, "users")  # Where orders stand is the same.
    assert found in str(place.sync().streams["orders"].error)
    with pytest.raises(ConfigError, match=found):
        place.sync()
    _reset(place, "orders")
    assert place.sync().status is SyncStatus.COMPLETE
    expect(place, 30, 20)
    assert place.positions() == {"users": 30, "orders": 20}


def _reset(place: Shop, stream: str) -> None:
    with acquire_lease(place.store, "shop", "by-hand", 60) as renewal:
        reset_state(place.store, renewal.lease, StreamId.of(stream), who="me")


def test_records_of_streams_that_were_not_requested_are_skipped_with_a_warning(shop: OpenShop) -> None:
    place = shop()
    stray = '{"type":"RECORD","record":{"stream":"strays","data":{"id":1},"emitted_at":1}}'
    report = place.sync_of(two(3, 2, lines=[stray, stray]))
    assert report.status is SyncStatus.COMPLETE
    assert any("2 records" in warning and "strays" in warning for warning in report.warnings)


def test_a_source_that_counts_other_records_than_we_gives_a_warning(shop: OpenShop) -> None:
    place = shop()
    report = place.sync_of(two(23, 12, miscount=1))
    assert report.status is SyncStatus.COMPLETE
    assert any("users" in warning for warning in report.warnings)
    expect(place, 23, 12)


def test_the_count_of_a_stream_that_is_read_whole_is_compared_too(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh")
    record = '{"type":"RECORD","record":{"stream":"users","data":{"id":7},"emitted_at":1}}'
    done = {"stream_descriptor": {"name": "users"}, "stream_state": {"__ab_no_cursor_state_message": True}}

    def counted(records: float) -> SyncReport:
        state = {"type": "STREAM", "stream": done, "sourceStats": {"recordCount": records}}
        lines = [record, json.dumps({"type": "STATE", "state": state})]
        return place.sync_of({"streams": {"users": {"records": 3}}, "lines": lines})

    report, found = counted(2.0), "the source counted 2 records, and 1 were received"
    assert (report.status, report.warnings) == (SyncStatus.COMPLETE, (f"stream users: {found}",))
    assert report.streams["users"].miscounts == (found,)
    assert counted(1.0).warnings == ()
    assert place.store.states("shop") == []


def test_values_that_did_not_fit_are_counted_and_told_by_column(shop: OpenShop) -> None:
    bad = '{"type":"RECORD","record":{"stream":"users","data":{"id":"many"},"emitted_at":1}}'
    report = shop().sync_of({"streams": {"users": {"records": 3}}, "lines": [bad]})
    users = report.streams["users"]
    assert (users.committed, users.changed, users.nulled) == (4, 1, {"id": 1})
    assert report.warnings[-1] == "users: 1 value of id did not fit BIGINT, now NULL"
    assert report.as_json()["streams"]["users"]["nulled"] == {"id": 1}


def test_names_in_snake_case_are_those_of_tables_and_columns_and_stay(shop: OpenShop) -> None:
    place = shop()
    place.more["destination"] = {"names": "snake"}
    for records in (3, 5):
        properties = {"createdAt": {"type": "string"}, "HTTP Status": {"type": "integer"}}
        events = {"records": records, "properties": properties, "values": {"createdAt": "now", "HTTP Status": 200}}
        report = place.sync_of({"streams": {"userEvents": events}})
        assert report.streams["userEvents"].table == "shop.user_events"
    rows = place.tables.rows(TableName("shop", "user_events")).to_pylist()
    assert [(row["id"], row["created_at"], row["http_status"]) for row in rows] == [(at, "now", 200) for at in range(5)]
