"""Rewound tables: what readers see, and that no paused writer lands an undone load again."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName, WriteMode
from dagster_airbyte_proto.tables.care import PastRewind, TableRewinder
from dagster_airbyte_proto.tables.formats import rewinder_of
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.conformance.table_rows import SCHEMA, Reader, before_commit, names, part, table_name

pytestmark = pytest.mark.spark


@pytest.fixture
def rewinder(iceberg: IcebergTables) -> TableRewinder:
    return rewinder_of(iceberg)


def one(target: TableTarget, identity: int, write: WriteMode = WriteMode.APPEND, name: str = "a") -> StagedRows:
    return part(target, write, [{"id": identity, "name": name}])


def land(iceberg: IcebergTables, target: TableTarget, count: int) -> list[str]:
    """Commits loads l1, l2 and so on with a row each. Returns their snapshots."""
    return [iceberg.commit(f"l{i}", one(target, i)).snapshot_id for i in range(1, count + 1)]


def rewind(rewinder: TableRewinder, name: TableName, snapshot_id: str | None, *, version: int) -> bool:
    return rewinder.rewind(name, snapshot_id, seen=rewinder.past(name), version=version)


def test_the_rows_of_a_snapshot_are_back(
    iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    first, second, _ = land(iceberg, target, 3)
    assert rewind(rewinder, target.name, first, version=7)
    assert names(iceberg_rows(target)) == [(1, "a")]
    assert rewind(rewinder, target.name, second, version=8)
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "a")]
    iceberg.commit("l4", one(target, 4))
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "a"), (4, "a")]


def test_replaced_and_upserted_rows_come_back(
    iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    [first] = land(iceberg, target, 1)
    second = iceberg.commit("u2", one(target, 1, WriteMode.OVERWRITE, "b")).snapshot_id
    iceberg.commit("u3", one(target, 5, WriteMode.OVERWRITE))
    assert rewind(rewinder, target.name, second, version=1)
    assert names(iceberg_rows(target)) == [(1, "b")]
    assert rewind(rewinder, target.name, first, version=2)
    assert names(iceberg_rows(target)) == [(1, "a")]


def test_it_is_done_once_however_often_it_is_asked_for(
    spark: SparkSession, iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget
) -> None:
    first, second = land(iceberg, target, 2)
    assert not rewind(rewinder, target.name, second, version=1)
    assert rewind(rewinder, target.name, first, version=1)
    assert not rewind(rewinder, target.name, first, version=1)
    [[snapshots]] = query(spark, f"select count(*) from {target.qualified}.snapshots").rows
    assert not rewind(rewinder, target.name, first, version=2)
    assert query(spark, f"select count(*) from {target.qualified}.snapshots").rows == [[snapshots]]


def test_a_table_is_taken_back_to_nothing_and_forth_again(
    iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    assert not rewind(rewinder, target.name, None, version=0)
    _, second = land(iceberg, target, 2)
    assert rewind(rewinder, target.name, None, version=1)
    assert iceberg_rows(target) == []
    assert not rewind(rewinder, target.name, None, version=1)
    assert iceberg.commit("l1", one(target, 1)).was_there
    assert rewind(rewinder, target.name, second, version=2)
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "a")]


def test_a_load_that_was_undone_does_not_land_again(
    iceberg: IcebergTables, elsewhere: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    first, *_ = land(iceberg, target, 4)
    rewind(rewinder, target.name, first, version=1)
    for load_id in ("l2", "l3", "l4"):
        assert elsewhere.commit(load_id, one(target, 9)).was_there
    assert names(iceberg_rows(target)) == [(1, "a")]


@pytest.mark.parametrize("write", [WriteMode.APPEND, WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP])
def test_a_writer_that_looked_before_the_load_and_wakes_after_it_was_undone_is_refused(
    iceberg: IcebergTables,
    elsewhere: IcebergTables,
    rewinder: TableRewinder,
    target: TableTarget,
    iceberg_rows: Reader,
    write: WriteMode,
) -> None:
    """The table is at the same snapshot when the paused writer reads it and when it commits."""
    [first] = land(iceberg, target, 1)
    staged = part(target, write, [{"id": 2, "name": "b"}], keys=("id",) if write is WriteMode.APPEND_DEDUP else ())

    def landed_and_undone() -> None:
        assert not elsewhere.commit("l2", staged).was_there
        assert rewind(rewinder, target.name, first, version=1)

    before_commit(landed_and_undone)
    assert iceberg.commit("l2", staged).was_there
    assert names(iceberg_rows(target)) == [(1, "a")]


def test_what_was_undone_goes_on_being_known_after_going_forth_and_back(
    iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    first, second = land(iceberg, target, 2)
    rewind(rewinder, target.name, first, version=1)
    iceberg.commit("l3", one(target, 3))
    rewind(rewinder, target.name, second, version=2)
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "a")]
    assert iceberg.commit("l3", one(target, 3)).was_there
    rewind(rewinder, target.name, first, version=3)
    assert iceberg.commit("l2", one(target, 2)).was_there
    assert names(iceberg_rows(target)) == [(1, "a")]


def test_the_past_tells_the_snapshots_and_where_it_was_taken_back(
    iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget
) -> None:
    first, second = land(iceberg, target, 2)
    rewind(rewinder, target.name, first, version=5)
    past = rewinder.past(target.name)
    assert past.snapshots[:2] == (first, second)
    assert past.rewinds == (PastRewind(5, past.snapshots[-1], first),)
    rewind(rewinder, target.name, second, version=5)  # As of a table without states, whose version stays.
    again = rewinder.past(target.name)
    assert again.rewinds == (*past.rewinds, PastRewind(5, again.snapshots[-1], second))


def test_a_compacted_table_still_stands_at_its_snapshot(
    spark: SparkSession, iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    first, second = land(iceberg, target, 2)
    query(
        spark,
        f"call lake.system.rewrite_data_files(table => '{target.name}', options => map('min-input-files', '2'))",
    )
    assert not rewind(rewinder, target.name, second, version=1)
    assert rewind(rewinder, target.name, first, version=1)
    assert names(iceberg_rows(target)) == [(1, "a")]


def test_a_column_that_came_later_is_empty_in_what_is_back(
    iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    [first] = land(iceberg, target, 1)
    wider = iceberg.prepare(TableSpec(target.name, SCHEMA.append(pa.field("later", pa.string()))))
    iceberg.commit("l2", part(wider, WriteMode.APPEND, [{"id": 2, "name": "b", "later": "x"}]))
    rewind(rewinder, target.name, first, version=1)
    assert [(row["id"], row["later"]) for row in iceberg_rows(wider)] == [(1, None)]


def test_a_snapshot_or_table_that_is_not_there_is_told(
    iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    land(iceberg, target, 1)
    with pytest.raises(TableError, match=r"taking table .* back to snapshot 42"):
        rewind(rewinder, target.name, "42", version=1)
    assert names(iceberg_rows(target)) == [(1, "a")]
    with pytest.raises(TableError, match=r"nowhere\.nothing"):
        rewinder.past(TableName("nowhere", "nothing"))


def test_what_came_in_since_the_table_was_seen_is_not_undone(
    spark: SparkSession, iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    first, _ = land(iceberg, target, 2)
    seen = rewinder.past(target.name)
    iceberg.commit("l3", one(target, 3))
    for snapshot_id in (first, None):
        with pytest.raises(TableError, match="has changed since"):
            rewinder.rewind(target.name, snapshot_id, seen=seen, version=1)
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "a"), (3, "a")]
    assert query(spark, f"select name from {target.qualified}.refs").rows == [["main"]]
    assert rewinder.past(target.name).rewinds == ()


def test_what_a_dead_rewinding_left_is_no_obstacle(
    spark: SparkSession, iceberg: IcebergTables, rewinder: TableRewinder, target: TableTarget, iceberg_rows: Reader
) -> None:
    first, second = land(iceberg, target, 2)
    query(spark, f"alter table {target.qualified} create branch `airbyte-proto-rewinding` as of version {second}")
    assert rewind(rewinder, target.name, first, version=1)
    assert names(iceberg_rows(target)) == [(1, "a")]
    assert query(spark, f"select name from {target.qualified}.refs").rows == [["main"]]


def test_a_writer_of_a_slice_that_sleeps_over_the_rollback_is_refused_as_well(
    iceberg: IcebergTables, elsewhere: IcebergTables, rewinder: TableRewinder, iceberg_rows: Reader
) -> None:
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA, slice_column=SLICE_COLUMN))
    parts = [
        msgspec.structs.replace(one(target, number, WriteMode.OVERWRITE), slice=key)
        for number, key in ((1, "monday"), (2, "tuesday"), (3, "monday"))
    ]
    first = [iceberg.commit(f"l{i}", each).snapshot_id for i, each in enumerate(parts[:2])][-1]

    def landed_and_undone() -> None:
        assert not elsewhere.commit("l2", parts[2]).was_there
        assert rewind(rewinder, target.name, first, version=1)

    before_commit(landed_and_undone)
    assert iceberg.commit("l2", parts[2]).was_there
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "a")]


def test_folder_tables_keep_no_snapshots(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only Iceberg"):
        rewinder_of(FolderTables(tmp_path))
