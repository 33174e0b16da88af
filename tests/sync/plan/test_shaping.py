"""Shaping from the connection file to the table: the columns there, the counts, the values that never leave."""

import hashlib
import hmac
from typing import Any

import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

_KEY = "correct-horse-battery-staple"


def _offer(place: Shop, records: int = 12, **more: Any) -> None:
    values = {"email": "ann@example.org", "address": {"city": "X", "street": "Y"}}
    properties = {"email": {"type": "string"}, "address": {"type": "object", "properties": {"city": {}, "street": {}}}}
    users = {"records": records, "values": values, "properties": properties, **more}
    place.offer({"streams": {"users": users}, "state_every": 5})


def _rows(place: Shop) -> list[dict[str, Any]]:
    rows = place.tables.rows(TableName("shop", "users")).to_pylist()
    return [{name: value for name, value in row.items() if not name.startswith("_airbyte")} for row in rows]


def _sha(value: str) -> str:
    return hmac.new(_KEY.encode(), value.encode(), hashlib.sha256).hexdigest()


def test_a_table_is_shaped_as_the_connection_says(shop: OpenShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_HASH_KEY", _KEY)
    place = shop()
    place.more = {"hash_key": "${env:SHOP_HASH_KEY}"}
    place.modes = {
        "users": {
            "write": "append",
            "select": ["id", "email", ["address", "city"]],
            "rename_columns": {"email": "mail_hash"},
            "hash": ["email"],
            "filter": "id >= 4 and key != 11 and updated_at is not null",
        }
    }
    _offer(place)
    report = place.sync()
    told = report.streams["users"]
    assert report.status is SyncStatus.COMPLETE
    assert _rows(place) == [
        {"id": number, "mail_hash": _sha("ann@example.org"), "address": '{"city":"X"}'} for number in range(4, 11)
    ]
    assert (told.emitted, told.committed, told.rejected, told.filtered, told.ignored_fields) == (12, 7, 5, 5, {})
    assert told.rejections == {"left out by the filter": 5}
    assert place.positions() == {"users": 12}
    assert _KEY not in place.log(report) + str(report)
    assert b"ann@example.org" not in b"".join(file.read_bytes() for file in place.home.rglob("*.parquet"))


def test_a_key_that_is_hashed_finds_its_rows_again(shop: OpenShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_HASH_KEY", _KEY)
    place = shop(write="append_dedup")
    place.more = {"hash_key": "${env:SHOP_HASH_KEY}"}
    place.modes = {"users": {"write": "append_dedup", "hash": ["key"], "rename_columns": {"key": "who"}}}
    for records in (12, 20):
        _offer(place, records, keys=7)
        assert place.sync().status is SyncStatus.COMPLETE
    assert {row["who"]: row["id"] for row in _rows(place)} == {
        _sha(str(number % 7)): number for number in range(13, 20)
    }
    assert len(_rows(place)) == 7


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        (None, None, "hash_key: is missing, and columns are to be hashed"),
        ("${env:SHOP_HASH_KEY}", None, "the environment variable SHOP_HASH_KEY is not set"),
        ("${env:SHOP_HASH_KEY}", "short", "hash_key: must have at least 16 characters"),
        ("in plain sight, in a file", None, "hash_key: must come from the environment"),
    ],
)
def test_nothing_is_hashed_without_a_good_key(
    key: str | None, value: str | None, found: str, shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("SHOP_HASH_KEY", value)
    place = shop()
    place.more = {} if key is None else {"hash_key": key}
    place.modes = {"users": {"hash": ["email"]}}
    _offer(place)
    with pytest.raises(ConfigError, match=found) as refused:
        place.sync()
    assert "short" not in refused.value.found.replace("a short key", "")


def test_columns_that_a_table_needs_are_reported_before_anything_is_read(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"users": {"write": "append_dedup", "select": ["email"]}}
    _offer(place)
    with pytest.raises(ConfigError, match="id is part of the primary key"):
        place.sync()


_ORDERS = {"id": {"type": "integer"}, "at": {"type": "integer"}, "open": {"type": ["null", "boolean"]}}


def _order(number: int, at: int, is_open: bool | None) -> dict[str, Any]:
    return {"id": number, "at": at, "open": is_open}


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_a_row_that_no_longer_passes_the_filter_leaves_the_table(max_bytes: int, shop: OpenShop) -> None:
    place = shop(max_bytes=max_bytes)
    place.modes = {"orders": {"write": "append_dedup", "filter": "open = true", "exclude": ["open"]}}
    rows = [_order(1, 1, True), _order(2, 1, False), _order(3, 1, True)]
    news = [[_order(1, 2, None)], [_order(2, 2, True), _order(3, 2, False), _order(3, 3, True)], [_order(2, 3, False)]]
    left = []
    for new in ([], *news):
        rows += new
        stream = {"rows": rows, "properties": _ORDERS, "primary_key": [["id"]], "cursor": ["at"]}
        told = place.sync_of({"streams": {"orders": stream}, "state_every": 1}).streams["orders"]
        assert (told.status, told.filtered) == (SyncStatus.COMPLETE, told.rejected)
        found = place.tables.rows(TableName("shop", "orders")).to_pylist()
        left.append(sorted((row["id"], row["at"]) for row in found))
    assert left == [[(1, 1), (3, 1)], [(3, 1)], [(2, 2), (3, 3)], [(3, 3)]]
    assert place.loose_files() == []


def test_a_partitioned_table_has_each_row_once_wherever_it_moves(shop: OpenShop) -> None:
    place = shop(max_bytes=1)
    place.modes = {"users": {"write": "append_dedup", "partition_by": ["hour(updated_at)", "truncate(5, id)"]}}
    for records in (12, 23):
        _offer(place, records, keys=7)
        assert place.sync().status is SyncStatus.COMPLETE
    assert sorted(row["id"] for row in _rows(place)) == list(range(16, 23))
    assert place.loose_files() == []


@pytest.mark.parametrize("tables", [FOLDER_FORMAT, "parquet"], ids=["folder", "parquet"])
def test_every_format_has_files_in_order(tables: str, shop: OpenShop) -> None:
    place = shop(settings={"catalog": {"format": tables}})
    place.modes = {"users": {"write": "append", "sort_by": ["id desc"], "rename_columns": {"id": "number"}}}
    _offer(place)
    assert place.sync().status is SyncStatus.COMPLETE
    files = [pq.ParquetFile(file).read() for file in (place.home / "warehouse").rglob("data/*/*.parquet")]
    found = [file.column("number").to_pylist() for file in files]
    assert all(numbers == sorted(numbers, reverse=True) for numbers in found)
    assert sorted(number for numbers in found for number in numbers) == list(range(12))


def test_only_iceberg_clusters(shop: OpenShop) -> None:
    place = shop(settings={"catalog": {"format": "parquet"}})
    place.modes = {"users": {"write": "append", "cluster": ["id", "updated_at"]}}
    _offer(place)
    with pytest.raises(ConfigError, match="tables of the format parquet have no cluster") as refused:
        place.sync()
    assert "format: iceberg" in refused.value.remedy


def test_a_format_without_partitions_refuses_them(shop: OpenShop) -> None:
    place = shop(settings={"catalog": {"format": "parquet"}})
    place.modes = {"users": {"write": "append", "partition_by": ["hour(updated_at)"]}}
    _offer(place)
    with pytest.raises(ConfigError, match="tables of the format parquet have no partition_by"):
        place.sync()
