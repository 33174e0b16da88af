"""Generations on branches, beside the expiry of snapshots."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, WriteMode
from dagster_airbyte_proto.tables.formats import rewinder_of
from dagster_airbyte_proto.tables.iceberg.care.iceberg_care import IcebergCare
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from tests.conformance.table_branches import BRANCH, branch_part
from tests.conformance.table_rows import SCHEMA, Reader, names, part, position_deletes, staged, table_name
from tests.tables.changes_by_others import refresh_until_gone

pytestmark = pytest.mark.spark


@pytest.fixture
def care(iceberg: IcebergTables) -> IcebergCare:
    return IcebergCare(iceberg)


def test_a_generation_that_lies_aside_loses_no_snapshot_and_no_file(
    spark: SparkSession, iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    iceberg.commit("l0", part(target, WriteMode.APPEND, [{"id": 0, "name": "old"}]))
    iceberg.commit("l1", branch_part(target, WriteMode.OVERWRITE_DEDUP, [(1, "a"), (2, "a")]))
    iceberg.commit("l2", branch_part(target, WriteMode.OVERWRITE_DEDUP, [(2, "b")], after="l1"))
    iceberg.commit("l3", part(target, WriteMode.APPEND, [{"id": 9, "name": "old"}]))
    all_snapshots = {row.snapshot_id for row in spark.table(f"{target.qualified}.snapshots").collect()}
    care.expire(target.name, {change.snapshot_id for change in care.history(target.name).changes})
    spark.catalog.refreshTable(target.qualified)
    left = {row.snapshot_id for row in spark.table(f"{target.qualified}.snapshots").collect()}
    assert len(all_snapshots) - len(left) == 1
    assert care.compact(target.name).attempts == 1
    iceberg.commit("l4", branch_part(target, WriteMode.OVERWRITE_DEDUP, [(3, "c")], after="l2", publishes=True))
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("merge", [MergeMode.POSITIONS, MergeMode.EQUALITY_DELETES])
def test_a_generation_lands_where_the_history_is_cut_off(
    merge: MergeMode, iceberg: IcebergTables, care: IcebergCare, iceberg_rows: Reader
) -> None:
    """In a table of format 3, where Iceberg looks back along the history for other deletion vectors."""
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA, ("id",), merge=MergeMode.POSITIONS))

    def expire_all() -> None:
        care.expire(target.name, {change.snapshot_id for change in care.history(target.name).changes})

    for number in range(2):
        iceberg.commit(f"l{number}", part(target, WriteMode.APPEND, [{"id": number, "name": "old"}]))
    expire_all()
    first = branch_part(target, WriteMode.OVERWRITE_DEDUP, [(1, "a"), (2, "a")])
    iceberg.commit("l2", msgspec.structs.replace(first, merge=merge))
    expire_all()
    rows = staged(target, [{"id": 2, "name": "twice"}, {"id": 2, "name": "b"}])
    last = branch_part(target, WriteMode.OVERWRITE_DEDUP, [(2, "b")], after="l2", publishes=True)
    files = (rows, *last.files[1:], position_deletes(target, rows, 0))
    iceberg.commit("l3", msgspec.structs.replace(last, files=files, merge=merge))
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "b")]


def test_a_dropped_branch_leaves_no_snapshot_and_no_file(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    iceberg.commit("l0", part(target, WriteMode.APPEND, [{"id": 0, "name": "old"}]))
    load = branch_part(target, WriteMode.OVERWRITE, [(1, "a")])
    iceberg.commit("l1", load)
    iceberg.drop_branch(target.name, BRANCH)
    spark.catalog.refreshTable(target.qualified)
    assert spark.table(f"{target.qualified}.snapshots").count() == 1
    assert not any(Path(file.path).exists() for file in load.files)
    assert names(iceberg_rows(target)) == [(0, "old")]


def test_a_dropped_branch_leaves_the_snapshots_to_which_the_table_may_go_forward(
    iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    """The branch began at a snapshot that a rollback has undone since: no other branch has it any more."""
    rewinder = rewinder_of(iceberg)
    first, second = (
        iceberg.commit(f"l{number}", part(target, WriteMode.APPEND, [{"id": number, "name": "old"}])).snapshot_id
        for number in (1, 2)
    )
    load = branch_part(target, WriteMode.OVERWRITE, [(3, "a")])
    iceberg.commit("l3", load)
    assert rewinder.rewind(target.name, first, seen=rewinder.past(target.name), version=1)
    iceberg.drop_branch(target.name, BRANCH)
    assert not any(Path(file.path).exists() for file in load.files)
    assert rewinder.rewind(target.name, second, seen=rewinder.past(target.name), version=2)
    assert names(iceberg_rows(target)) == [(1, "old"), (2, "old")]


def test_a_load_that_landed_is_not_refused_where_the_log_cannot_be_read_once_more(
    iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is refused after its effect, as over a connection to a database that breaks. Then the catalog goes."""
    iceberg.commit("l1", branch_part(target, WriteMode.OVERWRITE, [(1, "a")]))
    table = iceberg._table(target.name)
    swap = table.swap_metadata

    def swap_twice(base: Any, new: Any) -> None:
        swap(base, new)
        swap(base, new)

    with monkeypatch.context() as patched:
        patched.setattr(table, "swap_metadata", swap_twice)
        patched.setattr(table, "refresh", refresh_until_gone(table, 1))
        last = branch_part(target, WriteMode.OVERWRITE, [(2, "b")], after="l1", publishes=True)
        assert iceberg.commit("l2", last).was_there
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "b")]
