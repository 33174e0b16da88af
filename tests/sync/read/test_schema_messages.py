"""A column that a connector adds between the rows of a stream, in each format and mode: in one load with the rows
before it, and in a later one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.writer import TableWriter
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

_KNOWN = {"id": {"type": "integer"}, "updated_at": {"type": "string", "format": "date-time"}}
_NEW = {"size": {"type": "integer"}, "made": {"type": "object"}}
_ROWS = 12
_FIRST_NEW = 7
# A state after each five rows makes a load of its own, or there is one at the end.
_LOADS = {"one load": 100, "several loads": 5}


def _scenario(every: int) -> dict[str, Any]:
    new = {"size": 3, "made": {"by": "hand"}}
    rows = [
        {"id": number, "updated_at": "2024-01-01T00:00:00Z", **(new if number >= _FIRST_NEW else {})}
        for number in range(_ROWS)
    ]
    stream = {"rows": rows, "properties": _KNOWN, "declared_at": [[_FIRST_NEW, _NEW]]}
    return {"streams": {"users": stream}, "state_every": every}


def _expect(report: StreamReport, rows: list[dict[str, Any]]) -> None:
    assert report.error is None
    assert (report.status, report.committed, report.rejected) == (SyncStatus.COMPLETE, _ROWS, 0)
    assert report.ignored_fields == {}
    found = {row["id"]: (row["size"], row["made"] and json.loads(row["made"])) for row in rows}
    assert found == {number: (3, {"by": "hand"}) if number >= _FIRST_NEW else (None, None) for number in range(_ROWS)}
    assert len(rows) == _ROWS


@pytest.fixture
def open_tap(shop: OpenShop) -> Callable[..., Shop]:
    def opened(mode: str, every: int, **more: Any) -> Shop:
        place = shop(write=mode, read="full_refresh" if mode.startswith("overwrite") else "incremental", **more)
        place.protocol = "singer"
        place.offer(_scenario(every))
        return place

    return opened


@pytest.mark.everyday(
    "append-several loads", "append_dedup-one load", "overwrite-one load", "overwrite_dedup-several loads"
)
@pytest.mark.parametrize("every", _LOADS.values(), ids=_LOADS)
@pytest.mark.parametrize("mode", ["append", "append_dedup", "overwrite", "overwrite_dedup"])
def test_in_folder_tables(mode: str, every: int, open_tap: Callable[..., Shop]) -> None:
    place = open_tap(mode, every)
    for _ in range(2):
        report = place.sync()
        if report.streams["users"].emitted == _ROWS:
            _expect(report.streams["users"], place.rows("users"))
    assert place.loose_files() == []
    assert [each.change.column for each in place.store.stream_changes("shop")] in (["size", "made"], ["made", "size"])


@pytest.mark.parametrize("every", _LOADS.values(), ids=_LOADS)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_in_plain_parquet(mode: str, every: int, open_tap: Callable[..., Shop]) -> None:
    place = open_tap(mode, every, settings={"catalog": {"format": "parquet"}})
    report = place.sync()
    current = place.home / "warehouse" / "shop" / "users" / "current"
    assert sorted(pq.read_table(current).column("id").to_pylist()) == list(range(_ROWS))
    assert report.streams["users"].ignored_fields == {}
    assert report.status is SyncStatus.COMPLETE


def test_a_generation_with_a_load_on_its_branch_gets_more_columns(open_tap: Callable[..., Shop]) -> None:
    place = open_tap("overwrite", 100)
    place.sync_of({"streams": {"users": {"records": 3}}})
    values = {"color": "red", "size": 3}
    stream = {"records": 9000, "pad": 4000, "noise": True, "properties": {"color": {"type": "string"}}}
    report = place.sync_of({"streams": {"users": {**stream, "values": values, "declared_at": [[8900, _NEW]]}}})
    assert (report.status, len(report.streams["users"].load_ids) > 1) == (SyncStatus.COMPLETE, True)
    rows = place.rows("users")
    assert {row["id"]: row["size"] for row in rows} == {number: 3 if number >= 8900 else None for number in range(9000)}
    assert (len(rows), {row["color"] for row in rows}) == (9000, {"red"})
    assert (place.branches(), place.loose_files()) == ([], [])


def test_a_cursor_that_turns_into_json_text_between_rows_fails_its_stream(open_tap: Callable[..., Shop]) -> None:
    place = open_tap("append_dedup", 100)
    rows = [{"id": 0, "updated_at": "2024-01-01"}, {"id": 1, "updated_at": "2024-01-02"}]
    properties = {"id": {"type": "integer"}, "updated_at": {"type": "string"}}
    changed = {"updated_at": {"type": ["string", "integer"]}}
    stream = {"rows": rows, "properties": properties, "declared_at": [[1, changed]]}
    report = place.sync_of({"streams": {"users": stream}})
    assert "column updated_at was string, is JSON text" in str(report.streams["users"].error)
    assert place.rows("users") == []


def test_a_row_from_before_its_cursor_was_declared_is_older_than_any_other(open_tap: Callable[..., Shop]) -> None:
    place = open_tap("append_dedup", 100)
    rows = [{"id": 0, "n": 0}, {"id": 0, "n": 1, "updated_at": "b"}, {"id": 0, "n": 2, "updated_at": "a"}]
    properties = {"id": {"type": "integer"}, "n": {"type": "integer"}}
    stream = {"rows": rows, "properties": properties, "declared_at": [[1, {"updated_at": {"type": "string"}}]]}
    report = place.sync_of({"streams": {"users": stream}})
    assert (report.status, report.streams["users"].rejected) == (SyncStatus.COMPLETE, 0), report.streams["users"].error
    assert [row["n"] for row in place.rows("users")] == [1]


@pytest.mark.parametrize("table_format", ["folder", "parquet"])
@pytest.mark.parametrize("mode", ["overwrite", "overwrite_dedup"])
def test_in_a_table_that_had_other_columns(mode: str, table_format: str, open_tap: Callable[..., Shop]) -> None:
    if table_format == "parquet" and mode.endswith("dedup"):
        pytest.skip("plain Parquet has no such mode")
    more = {"settings": {"catalog": {"format": "parquet"}}} if table_format == "parquet" else {}
    place = open_tap(mode, 100, **more)
    rows = [{"id": 90, "updated_at": "2023-01-01T00:00:00Z", "gone": 1}]
    old = {"rows": rows, "properties": {**_KNOWN, "gone": {"type": "integer"}}}
    assert place.sync_of({"streams": {"users": old}}).status is SyncStatus.COMPLETE
    scenario = _scenario(100)
    scenario["streams"]["users"]["properties"] = {**_KNOWN, "color": {"type": "string"}}
    for row in scenario["streams"]["users"]["rows"]:
        row["color"] = "red"
    report = place.sync_of(scenario)
    assert (report.status, report.streams["users"].committed) == (SyncStatus.COMPLETE, _ROWS)
    current = place.home / "warehouse" / "shop" / "users" / "current"
    landed = place.rows("users") if table_format == "folder" else pq.read_table(current).to_pylist()
    _expect(report.streams["users"], landed)
    assert {row["color"] for row in landed} == {"red"}
    assert "gone" not in landed[0]


@pytest.mark.everyday("iceberg-append_dedup", "delta-overwrite")
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["append_dedup", "overwrite"])
@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_in_tables_of_spark(
    table_format: str, mode: str, open_tap: Callable[..., Shop], spark: Any, spark_settings: SparkSettings
) -> None:
    every = _LOADS["several loads"]
    place = open_tap(mode, every)
    name = TableName(f"described_{mode}", "users")
    place.more = {"destination": {"namespace": name.namespace}}
    place.offer(_scenario(every))
    tables = _tables(table_format, spark, spark_settings)
    if mode == "overwrite":  # Then the generation has other columns than the table, and gains one more.
        old = {"rows": [{"id": 90, "gone": 1}], "properties": {"id": {"type": "integer"}, "gone": {"type": "integer"}}}
        place.offer({"streams": {"users": old}})
        with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
            sync_connection(engine, Connection.from_file(place.connection_file))
        place.offer(_scenario(every))
    reports: list[SyncReport] = []
    for _ in range(2):
        with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
            reports.append(sync_connection(engine, Connection.from_file(place.connection_file)))
    qualified = reports[0].streams["users"].table
    rows = [row.asDict() for row in spark.sql(f"SELECT id, size, made FROM {qualified}").collect()]
    _expect(reports[0].streams["users"], rows)
    assert reports[1].status is SyncStatus.COMPLETE


def _tables(table_format: str, spark: Any, settings: SparkSettings) -> TableWriter:
    from dagster_airbyte_proto.tables.delta.tables import DeltaTables
    from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables

    if table_format == "iceberg":
        return IcebergTables(spark, settings)
    warehouse = str(Path(settings.warehouse).with_name("del ta"))
    return DeltaTables(spark, settings._replace(catalog="spark_catalog", format="delta", warehouse=warehouse))
