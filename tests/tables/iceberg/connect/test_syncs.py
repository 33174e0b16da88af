"""Syncs into the tables of a Connect server, each in a process of its own, as users have it."""

from pathlib import Path

import pytest

from tests.support.connect_server import Connect, ConnectServer
from tests.tables.iceberg.connect.remote_connections import RemoteShop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_functions_of_connect")]


def _ids(connect: Connect, shop: RemoteShop, stream: str = "users") -> list[int]:
    rows = connect().sql(f"select id from lake.{shop.namespace}.{stream}").collect()
    return sorted(row["id"] for row in rows)


def _load_ids(connect: Connect, shop: RemoteShop) -> list[str]:
    log = f"select summary['airbyte-proto.load-id'] as id from lake.{shop.namespace}.users.snapshots"
    return [row["id"] for row in connect().sql(log).collect() if row["id"]]


def test_rows_land_once_and_later_ones_replace_those_of_their_keys(
    tmp_path: Path, connect: Connect, connect_server: ConnectServer
) -> None:
    # Each MERGE leaves delete files, and the sync that made them compacts the table.
    shop = RemoteShop(tmp_path, connect_server, write="append_dedup", compact_after={"delete_files": 1})
    for records in (12, 17):
        # Ten keys: the newest record of each stays.
        shop.offer({"streams": {"users": {"records": records, "keys": 10}}, "state_every": 5})
        report = shop.synced()
        assert report["streams"]["users"]["table"] == f"lake.{shop.namespace}.users"
        assert _ids(connect, shop) == list(range(records - 10, records))
    loads = _load_ids(connect, shop)
    assert len(loads) == len(set(loads)) >= 2
    assert report["compacted"] == [f"{shop.namespace}.users"]
    assert connect().sql(f"select * from lake.{shop.namespace}.users.delete_files").count() == 0
    assert shop.synced()["streams"]["users"]["emitted"] == 0


@pytest.mark.nightly
def test_the_command_line_queries_the_server(tmp_path: Path, connect_server: ConnectServer) -> None:
    shop = RemoteShop(tmp_path, connect_server, write="append")
    shop.offer({"streams": {"users": {"records": 3}}})
    shop.synced()
    place = f"lake.{shop.namespace}"
    odd = "date'2026-11-01' as day, 1.5BD as price, array(1, null) as l, map('a', timestamp'2026-11-01 12:00:00Z') as m"
    answer = shop.query(f"select id, {odd}, parse_json('[1]') as json from {place}.users order by id limit 1")
    assert answer == {
        "columns": ["id", "day", "price", "l", "m", "json"],
        "rows": [[0, "2026-11-01", "1.5", [1, None], {"a": "2026-11-01T12:00:00+00:00"}, "[1]"]],
    }
    assert shop.query(f"create table {place}.made (id int) using iceberg") == {"columns": [], "rows": []}
    assert shop.query(f"select * from {place}.made") == {"columns": ["id"], "rows": []}
