"""Copy-on-write upserts leave the same rows as deletes do, and no delete file in the table."""

import json
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, Shaping, WriteMode
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query, start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.writer import TableWriter
from tests.conformance.table_rows import (
    SCHEMA,
    Bench,
    NewTable,
    Row,
    before_commit,
    names,
    part,
    part_of,
    staged,
    table_name,
)
from tests.conformance.table_slices import MONDAY, TUESDAY, in_slice, sliced
from tests.conformance.table_writer import TableWriterConformance
from tests.staging.conftest import landed, plan, record
from tests.tables.changes_by_others import compacted_before_commit, rolled_back_before_commit

pytestmark = pytest.mark.spark


class _Copying(IcebergTables):
    """Makes every part a copy-on-write one."""

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        return super().commit(load_id, msgspec.structs.replace(part, merge=MergeMode.COPY_ON_WRITE))


@pytest.fixture(scope="module")
def copying(spark: SparkSession, spark_settings: SparkSettings) -> Bench:
    def read(target: TableTarget) -> list[Row]:
        assert query(spark, f"select * from {target.qualified}.delete_files").rows == []
        return [row.asDict(recursive=True) for row in spark.table(target.qualified).collect()]

    other = spark_settings._replace(catalog="pond")
    return Bench(_Copying(spark, spark_settings), _Copying(start_session(other), other), read)


class TestCopies(NewTable):
    """The conformance of modes that write by key. The other modes do not depend on copy-on-write."""

    @pytest.fixture
    def bench(self, copying: Bench) -> Bench:
        return copying

    test_replaced = TableWriterConformance.test_a_replace_takes_out_upserted_rows_and_their_deletes
    test_upserted = TableWriterConformance.test_an_upsert_replaces_rows_of_the_same_key
    test_nulls = TableWriterConformance.test_an_upsert_by_two_keys_one_of_them_null
    test_cases = TableWriterConformance.test_keys_are_found_whatever_the_case_of_their_names
    test_duplicates = TableWriterConformance.test_position_deletes_take_out_duplicates_of_the_same_load
    test_deletions = TableWriterConformance.test_deletions_leave_nothing_of_their_keys_and_unknown_ones_do_no_harm


def _upsert(target: TableTarget, number: int, name: str) -> StagedRows:
    return part(target, WriteMode.APPEND_DEDUP, [{"id": number, "name": name}])


def _commit(writer: TableWriter, load_id: str, load: StagedRows) -> None:
    writer.commit(load_id, load)


def _paths(spark: SparkSession, target: TableTarget) -> set[str]:
    return {str(path) for [path] in query(spark, f"select file_path from {target.qualified}.files").rows}


def test_whatever_comes_in_between_a_load_is_there_once(spark: SparkSession, copying: Bench) -> None:
    target = copying.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    both = [{"id": number, "name": "old"} for number in (1, 2)]
    copying.writer.commit("l1", part(target, WriteMode.APPEND_DEDUP, both))
    load = _upsert(target, 1, "a")
    before_commit(lambda: _commit(copying.other, "l3", load))
    assert copying.writer.commit("l3", load).was_there
    before_commit(lambda: _commit(copying.other, "l4", _upsert(target, 1, "b")))
    assert not copying.writer.commit("l5", _upsert(target, 1, "c")).was_there
    assert names(copying.read(target)) == [(1, "c"), (2, "old")]

    # The copies of a refused attempt are gone.
    copies = {str(file) for file in Path(target.location, "data").glob("[0-9][0-9][0-9][0-9][0-9]-*.parquet")}
    logged = query(spark, f"select distinct file_path from {target.qualified}.all_files").rows
    assert copies and copies <= {path for [path] in logged}


def test_a_compaction_or_a_rollback_in_between_has_it_done_again(spark: SparkSession, copying: Bench) -> None:
    target = copying.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    first = copying.writer.commit("l1", _upsert(target, 1, "old"))
    copying.writer.commit("l2", _upsert(target, 2, "old"))
    compacted_before_commit(spark, target)
    assert not copying.writer.commit("l3", _upsert(target, 1, "a")).was_there
    assert names(copying.read(target)) == [(1, "a"), (2, "old")]
    rolled_back_before_commit(spark, target, first.snapshot_id)
    assert not copying.writer.commit("l4", _upsert(target, 1, "b")).was_there
    assert names(copying.read(target)) == [(1, "b")]


def test_files_without_a_row_of_the_keys_stay_and_deletes_from_before_go(
    spark: SparkSession, iceberg: IcebergTables, copying: Bench
) -> None:
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    kept = staged(target, [{"id": 5, "name": "kept"}, {"id": 9, "name": "kept"}])
    iceberg.commit("l1", part_of(target, WriteMode.APPEND, kept))
    for number, name in ((1, "old"), (1, "older"), (2, "two")):
        iceberg.commit(f"m{number} {name}", _upsert(target, number, name))
    with pytest.raises(AssertionError):
        copying.read(target)
    # The file's bounds contain the new key, but its rows do not.
    copying.writer.commit("l2", _upsert(target, 7, "new"))
    rows = [(1, "older"), (2, "two"), (5, "kept"), (7, "new"), (9, "kept")]
    assert names(copying.read(target)) == rows
    assert kept.path in _paths(spark, target)
    copying.writer.commit("l3", _upsert(target, 9, "newer"))
    assert names(copying.read(target)) == [*rows[:-1], (9, "newer")]
    assert kept.path not in _paths(spark, target)
    iceberg.commit("l4", _upsert(target, 5, "by deletes"))
    copying.writer.commit("l5", part(target, WriteMode.OVERWRITE_DEDUP, [{"id": 5, "name": "all"}]))
    assert names(copying.read(target)) == [(5, "all")]


def test_copies_lie_in_their_slice_and_partition(spark: SparkSession, copying: Bench) -> None:
    slices = copying.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",), slice_column=SLICE_COLUMN))
    for name in (MONDAY, TUESDAY):
        copying.writer.commit(f"l {name}", in_slice(slices, WriteMode.APPEND_DEDUP, name, [(1, "old"), (2, "old")]))
    copying.writer.commit("l3", in_slice(slices, WriteMode.APPEND_DEDUP, MONDAY, [(1, "new")]))
    assert sliced(copying.read(slices))[:2] == [(MONDAY, 1, "new"), (MONDAY, 2, "old")]
    assert sliced(copying.read(slices))[2:] == [(TUESDAY, 1, "old"), (TUESDAY, 2, "old")]

    properties = {"id": {"type": "integer"}, "country": {"type": "string"}, "n": {"type": "integer"}}
    planned = plan(properties, name=table_name().name, write=WriteMode.APPEND_DEDUP, key=[("id",)], cursor=("n",))
    planned = msgspec.structs.replace(
        planned, shaping=Shaping(partition_by=("country",)), merge=MergeMode.COPY_ON_WRITE
    )
    rows = [(1, "AT", 1), (2, "DE", 2), (1, "AT", 3), (1, "DE", 4), (3, "AT", 5), (2, "DE", 6)]
    lines = [record(json.dumps(dict(zip(properties, row, strict=True)))) for row in rows]
    landed(copying.writer, planned, [lines[:3], lines[3:]])
    table = f"lake.shop.{planned.table.name}"
    asked = f"select id, country, _partition.country from {table} order by id"
    assert query(spark, asked).rows == [[1, "DE", "DE"], [2, "DE", "DE"], [3, "AT", "AT"]]
    assert query(spark, f"select * from {table}.delete_files").rows == []
