"""Queries on their way to the table: its columns, its keys, its metadata, and what changes between syncs."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH, Shop

_COLUMNS = {"id": {"type": "integer"}, "at": {"type": "integer"}, "name": {"type": ["null", "string"]}}


def _sql(query: str) -> dict[str, Any]:
    return {"transforms": [{"sql": query}]}


def _rows(place: Shop, stream: str = "users") -> list[dict[str, Any]]:
    rows = place.tables.rows(TableName("shop", stream)).to_pylist()
    return [{name: value for name, value in row.items() if not name.startswith("_airbyte")} for row in rows]


def _users(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    stream = {"rows": list(rows), "properties": _COLUMNS, "primary_key": [["id"]], "cursor": ["at"], **more}
    return {"streams": {"users": stream}, "state_every": 2}


def _user(id_: int, at: int, name: Any) -> dict[str, Any]:
    return {"id": id_, "at": at, "name": name}


def test_the_table_has_the_columns_of_the_last_transform(shop: OpenShop) -> None:
    place = shop()
    place.more = {
        "transforms": [
            {"sql": "SELECT id AS number, upper(name) AS loud, at FROM input WHERE id <> 2"},
            {"sql": "SELECT number, loud, length(loud) AS long, at / 2.0 AS half FROM input"},
            {"validate": [{"assert_range": {"long": {"max": 3}}}]},
        ]
    }
    told = place.sync_of(_users(_user(1, 1, "ann"), _user(2, 2, "bob"), _user(3, 3, "elias"), _user(4, 4, None)))
    users = told.streams["users"]
    assert users.status is SyncStatus.COMPLETE, users
    assert _rows(place) == [
        {"number": 1, "loud": "ANN", "long": 3, "half": 0.5},
        {"number": 4, "loud": None, "long": None, "half": 2.0},
    ]
    assert users.rejections == {"dropped by a transform": 1, "long is not at most 3": 1}
    assert (users.emitted, users.committed, users.dropped) == (4, 2, 1)


def test_a_row_that_no_longer_passes_leaves_a_table_with_keys(shop: OpenShop) -> None:
    place = shop(write="append_dedup", max_bytes=1)
    place.more = _sql("SELECT id, at AS moment, name FROM input WHERE name IS NOT NULL")
    rows = [_user(1, 1, "a"), _user(2, 1, "b"), _user(3, 1, None)]
    left = []
    for new in ([], [_user(1, 2, None), _user(3, 2, "c")], [_user(1, 3, "d"), _user(2, 3, None)]):
        rows += new
        told = place.sync_of(_users(*rows)).streams["users"]
        assert (told.status, told.dropped) == (SyncStatus.COMPLETE, told.rejected)
        left.append(sorted((row["id"], row["moment"]) for row in _rows(place)))
    assert left == [[(1, 1), (2, 1)], [(2, 1), (3, 2)], [(1, 3), (3, 2)]]
    assert place.loose_files() == []


def test_a_mark_of_a_deleted_row_lands_though_the_query_leaves_it_out(shop: OpenShop) -> None:
    place = shop(write="soft_delete", max_bytes=1)
    place.more = _sql("SELECT *, upper(name) AS loud FROM input WHERE name IS NOT NULL")
    rows = [_user(1, 1, "a"), _user(2, 1, "b"), _user(3, 1, None)]
    deleted = {"id": 1, "at": 2, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
    properties = {**_COLUMNS, "_ab_cdc_deleted_at": {"type": ["null", "string"]}}
    for new, dropped in (([], 1), ([deleted, _user(2, 2, None)], 1)):
        rows += new
        told = place.sync_of(_users(*rows, properties=properties)).streams["users"]
        assert (told.status, told.dropped) == (SyncStatus.COMPLETE, dropped)
    [mark] = _rows(place)
    assert mark == {**deleted, "name": None, "loud": None}


def test_changes_of_values_stay_with_their_rows(shop: OpenShop) -> None:
    place = shop()
    place.more = _sql("SELECT name, at, id + 1 AS next FROM input WHERE id <> 1")
    place.sync_of(_users(_user(1, 1, "a"), {**_user(2, 2, "b"), "at": "much"}, _user(3, 3, "c")))
    found = {row["next"]: [each["field"] for each in row["_airbyte_meta"]["changes"]] for row in place.rows("users")}
    assert found == {3: ["at"], 4: []}


def test_a_new_column_of_the_source_comes_with_a_star(shop: OpenShop) -> None:
    place = shop()
    place.more = _sql("SELECT *, id * 10 AS more FROM input")
    place.sync_of(_users(_user(1, 1, "a")))
    new = {**_user(2, 2, "b"), "size": 3}
    scenario = _users(_user(1, 1, "a"), new)
    scenario["streams"]["users"]["properties"] = {**_COLUMNS, "size": {"type": "integer"}}
    told = place.sync_of(scenario).streams["users"]
    assert [(change.kind.value, change.column) for change in told.schema_changes] == [("column_added", "size")]
    assert [(row["id"], row["more"], row["size"]) for row in _rows(place)] == [(1, 10, None), (2, 20, 3)]


def test_a_column_that_a_tap_adds_between_rows_comes_too(shop: OpenShop) -> None:
    place = shop()
    place.protocol = "singer"
    place.more = _sql("SELECT *, id + 1 AS next FROM input")
    known = {"id": {"type": "integer"}, "updated_at": {"type": "string", "format": "date-time"}}
    rows = [
        {"id": number, "updated_at": "2024-01-01T00:00:00Z", **({"size": 3} if number > 3 else {})}
        for number in range(6)
    ]
    stream = {"rows": rows, "properties": known, "declared_at": [[4, {"size": {"type": "integer"}}]]}
    told = place.sync_of({"streams": {"users": stream}, "state_every": 2}).streams["users"]
    assert told.status is SyncStatus.COMPLETE, told
    assert [(row["id"], row["next"], row["size"]) for row in _rows(place)] == [
        (number, number + 1, 3 if number > 3 else None) for number in range(6)
    ]


def test_a_full_refresh_replaces_the_rows_also_under_another_query(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh")
    rows = [_user(1, 1, "a"), _user(2, 2, "b")]
    for query, expected in (
        ("SELECT id, name FROM input", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]),
        ("SELECT id, upper(name) AS name FROM input WHERE id > 1", [{"id": 2, "name": "B"}]),
        ("SELECT id FROM input WHERE id > 9", []),
    ):
        place.more = _sql(query)
        assert place.sync_of(_users(*rows)).status is SyncStatus.COMPLETE
        assert _rows(place) == expected


def test_a_refresh_applies_another_query_to_old_rows(shop: OpenShop) -> None:
    place = shop(write="append_dedup")
    rows = [_user(1, 1, "a"), _user(2, 2, "b")]
    place.more = _sql("SELECT id, at, name FROM input")
    place.sync_of(_users(*rows))
    place.more = _sql("SELECT id, at, name || '!' AS name FROM input")
    place.sync_of(_users(*rows, _user(3, 3, "c")))
    assert [row["name"] for row in _rows(place)] == ["a", "b", "c!"]
    place.sync_of(_users(*rows, _user(3, 3, "c")), REFRESH)
    assert [row["name"] for row in _rows(place)] == ["a!", "b!", "c!"]


def test_a_table_may_be_partitioned_by_a_column_of_a_transform(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"users": {"write": "append", "partition_by": ["parity"]}}
    place.more = _sql("SELECT id, id % 2 AS parity FROM input")
    told = place.sync_of(_users(*(_user(number, number, "a") for number in range(4)))).streams["users"]
    assert told.status is SyncStatus.COMPLETE, told
    assert sorted((row["id"], row["parity"]) for row in _rows(place)) == [(0, 0), (1, 1), (2, 0), (3, 1)]


def test_objects_are_json_text_for_a_query(shop: OpenShop) -> None:
    place = shop()
    place.more = _sql("SELECT id, made, made IS NOT NULL AS is_made FROM input")
    stream = {"rows": [{"id": 1, "made": {"by": [1]}}], "properties": {"id": {"type": "integer"}, "made": {}}}
    place.sync_of({"streams": {"users": stream}})
    [row] = _rows(place)
    assert (json.loads(row["made"]), row["is_made"]) == ({"by": [1]}, True)


@pytest.mark.parametrize(
    ("query", "write", "found"),
    [
        ("SELECT nam FROM input", "append", "nam"),
        ("SELECT count(*) AS n FROM input", "append", "does more than select and filter"),
        ("SELECT name, at FROM input", "append_dedup", "id is part of the primary key"),
        ("SELECT id + 0 AS id, at FROM input", "append_dedup", "id is part of the primary key"),
        ("SELECT name AS first, name AS id, at FROM input", "append_dedup", "id is part of the primary key"),
        ("SELECT id, name FROM input", "append_dedup", "at is the cursor"),
        ("SELECT id, name AS _airbyte_meta FROM input", "append", "two columns would be called _airbyte_meta"),
        ('SELECT id, name AS "ID" FROM input', "append", "two columns would be called ID"),
    ],
)
def test_a_query_that_does_not_fit_is_refused_before_the_connector_starts(
    query: str, write: str, found: str, shop: OpenShop
) -> None:
    place = shop(write=write)
    place.more = _sql(query)
    with pytest.raises(ConfigError, match=found):
        place.sync_of(_users(_user(1, 1, "a")))


def test_a_query_that_fails_for_a_row_fails_its_stream_alone(shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [{"sql": "SELECT id, at, CAST(name AS INT) AS n FROM input", "streams": ["users"]}]}
    scenario = _users(_user(1, 1, "7"), _user(2, 2, "secret"))
    scenario["streams"]["others"] = {"records": 3}
    report = place.sync_of(scenario)
    assert report.streams["others"].status is SyncStatus.COMPLETE
    told = report.streams["users"]
    assert (told.status, told.committed) == (SyncStatus.FAILED, 0)
    assert "DataFusion failed for a row of a batch" in str(told.error)
    assert "secret" not in str(told.error)
