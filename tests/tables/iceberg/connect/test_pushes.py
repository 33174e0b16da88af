"""Pushes of tables of a Connect server, and frames of it that an enrichment makes."""

from pathlib import Path

import pytest

from dagster_airbyte_proto import enrich
from tests.support.connect_server import Connect, ConnectServer
from tests.sync.enrichment.test_row_enrichment import connection_of
from tests.sync.push.pushed_table import person
from tests.tables.iceberg.connect.remote_connections import RemotePushedTable

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_functions_of_connect")]


@pytest.mark.parametrize("table_format", ["iceberg", pytest.param("delta", marks=pytest.mark.nightly)])
def test_a_mirror_gets_what_is_new_changed_and_gone(
    tmp_path: Path, connect: Connect, connect_server: ConnectServer, table_format: str
) -> None:
    table = RemotePushedTable(tmp_path, connect_server, connect, table_format, "mirror")
    table.push["changes"] = "snapshots"
    table.fill([person(number) for number in range(1, 8)])
    assert table.pushed()["acknowledged"] == 7
    assert table.pushed()["sent"] == 0
    table.change(
        "insert into {table} values (8, 'new')",
        "delete from {table} where id = 2",
        "update {table} set name = 'changed' where id = 3",
    )
    report = table.pushed()
    assert (report["planned"]["added"], report["planned"]["changed"], report["planned"]["removed"]) == (1, 1, 1)
    kept = {number: f"person {number}" for number in (1, 4, 5, 6, 7)}
    assert table.names() == {**kept, 3: "changed", 8: "new"}
    if table_format == "iceberg":
        assert len(table.tags()) == 1
    assert table.pushed()["sent"] == 0


@pytest.mark.nightly
def test_a_frame_is_enriched_by_processes_beside_the_server(connect: Connect, tmp_path: Path) -> None:
    frame = connect().range(1, 41, numPartitions=3).selectExpr("id", "concat('n', id) AS name")
    made = enrich(frame, connection_of({}), options={"prefix": "a "}, schema="id bigint, city string", home=tmp_path)
    rows = sorted((row.id, row.city) for row in made.collect())
    expected = [number for number in range(1, 41) for _ in range((1, 2, 0)[(number - 1) % 3])]
    assert rows == [(number, f"a city {number}") for number in expected]
