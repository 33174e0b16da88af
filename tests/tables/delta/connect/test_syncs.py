"""Syncs into the Delta tables of a Connect server, each in a process of its own, as users have it."""

from pathlib import Path

import pytest

from tests.support.connect_server import ConnectServer
from tests.tables.iceberg.connect.remote_connections import RemoteShop

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_later_rows_replace_those_of_their_keys_and_are_queried_by_name(
    tmp_path: Path, connect_server: ConnectServer
) -> None:
    catalog = {"format": "delta", "warehouse": str(connect_server.warehouse.parent / "del ta")}
    shop = RemoteShop(tmp_path, connect_server, write="append_dedup", catalog=catalog)
    for records in (12, 17):
        # Ten keys: the newest record of each stays.
        shop.offer({"streams": {"users": {"records": records, "keys": 10}}, "state_every": 5})
        report = shop.synced()
    assert report["streams"]["users"]["table"] == f"spark_catalog.{shop.namespace}.users"
    rows = shop.query(f"select id from {shop.namespace}.users order by id")["rows"]
    assert rows == [[number] for number in range(7, 17)]
