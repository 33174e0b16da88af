"""Tables that a sync compacts at its end, and those that it leaves as they are."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.load import TableTotals
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import CompactAfter
from dagster_airbyte_proto.sync.commit.auto_compact import DueTable, due_table
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.tables.care import TableFacts
from dagster_airbyte_proto.tables.formats import care_of
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance.test_rollback import Lake

MIB = 1 << 20
AFTER = CompactAfter(delete_files=6, small_files=100)
NEVER = CompactAfter(delete_files=0, small_files=0)
USERS = TableName("shop", "users")


@pytest.mark.parametrize(
    ("totals", "is_due_at_all"),
    [
        (TableTotals(10, 5, MIB), False),
        (TableTotals(10, 6, MIB), True),
        (TableTotals(10, 0, MIB, 0.29), False),
        (TableTotals(10, 0, MIB, 0.3), True),
        (TableTotals(99, 0, 99 * MIB), False),
        (TableTotals(101, 0, 101 * MIB), True),
        (TableTotals(500, 0, 500 * 128 * MIB), False),
        (TableTotals(600, 0, 500 * 128 * MIB), True),
    ],
)
def test_the_files_of_a_table_decide_whether_it_is_due(totals: TableTotals, is_due_at_all: bool) -> None:
    assert (due_table(USERS, totals, AFTER, has_slices=False) is not None) is is_due_at_all
    assert due_table(USERS, totals, NEVER, has_slices=False) is None


def test_the_files_of_slices_do_not_pile_up() -> None:
    assert due_table(USERS, TableTotals(400, 0, MIB), AFTER, has_slices=True) is None
    assert due_table(USERS, TableTotals(400, 6, MIB), AFTER, has_slices=True) == DueTable(USERS, keeps_deletes=False)


def test_a_table_that_is_due_for_its_small_files_alone_keeps_its_deletes() -> None:
    for_small_files = [TableTotals(400, 5, MIB), TableTotals(400, 0, MIB, 0.29)]
    for_deletes = [TableTotals(400, 6, MIB), TableTotals(400, 0, MIB, 0.3), TableTotals(10, 6, MIB)]
    keeping = DueTable(USERS, keeps_deletes=True)
    assert [due_table(USERS, each, AFTER, has_slices=False) for each in for_small_files] == [keeping] * 2
    applying = DueTable(USERS, keeps_deletes=False)
    assert [due_table(USERS, each, AFTER, has_slices=False) for each in for_deletes] == [applying] * 3
    # Nothing else would ever apply them.
    small_files_alone = CompactAfter(delete_files=0, small_files=100)
    assert due_table(USERS, for_small_files[0], small_files_alone, has_slices=False) == applying


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark, spark_settings)


def facts(lake: Lake) -> TableFacts:
    return care_of(lake.tables).facts(TableName(lake.name, "users"))


def upserted(lake: Lake, records: int, after: CompactAfter = AFTER) -> SyncReport:
    lake.engine.settings = lake.engine.settings.model_copy(update={"compact_after": after})
    by_key = {"write": "append_dedup", "merge": "equality_deletes"}
    return lake.sync({"users": {"records": records}}, {"users": by_key})


@pytest.mark.spark
def test_a_table_with_many_small_files_is_not_rid_of_its_few_deletes_after_each_sync(lake: Lake) -> None:
    upserted(lake, 10, NEVER)
    assert upserted(lake, 15, CompactAfter(delete_files=6, small_files=1)).compacted == ()
    assert (facts(lake).files, facts(lake).delete_files) == (3, 2)


@pytest.mark.spark
def test_a_table_of_many_delete_files_is_compacted_and_one_of_few_is_not(lake: Lake) -> None:
    assert upserted(lake, 30, NEVER).compacted == ()
    assert facts(lake).delete_files == 5
    assert upserted(lake, 35).compacted == (f"{lake.name}.users",)
    assert (facts(lake).delete_files, facts(lake).files) == (0, 1)
    assert upserted(lake, 40).compacted == ()
    assert facts(lake).delete_files == 1
    assert lake.ids("users") == list(range(40))


@pytest.mark.spark
def test_a_table_that_cannot_be_compacted_is_a_warning(lake: Lake, spark: SparkSession) -> None:
    upserted(lake, 30, NEVER)
    [[lost], *_] = query(spark, f"select file_path from lake.{lake.name}.users.files where content = 0").rows
    Path(lost.removeprefix("file:")).unlink()
    report = upserted(lake, 35)
    assert report.compacted == ()
    [warning] = report.warnings
    assert f"table {lake.name}.users could not be compacted" in warning
    assert report.streams["users"].committed == 5
