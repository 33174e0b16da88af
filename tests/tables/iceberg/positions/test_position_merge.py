"""Upserts by position leave the same rows as deletes by key do, in tables of format 3 and of format 2."""

import json

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, Shaping, WriteMode
from dagster_airbyte_proto.tables.iceberg.care.compaction import Compaction
from dagster_airbyte_proto.tables.iceberg.positions import position_merge
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query, start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_branches import BranchConformance
from tests.conformance.table_rows import (
    SCHEMA,
    Bench,
    NewTable,
    Row,
    before_commit,
    names,
    part,
    put,
    table_name,
)
from tests.conformance.table_slices import MONDAY, TUESDAY, in_slice, sliced
from tests.conformance.table_writer import TableWriterConformance
from tests.staging.conftest import landed, plan, record
from tests.tables.changes_by_others import compacted_before_commit, rolled_back_before_commit
from tests.tables.partitioned_rows import land, parted, row

pytestmark = pytest.mark.spark


class _ByPosition(IcebergTables):
    """Makes every part one that deletes by position, and new tables of the format version `version`."""

    version = 3

    def prepare(self, spec: TableSpec) -> TableTarget:
        return super().prepare(spec._replace(merge=MergeMode.POSITIONS if self.version == 3 else None))

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        return super().commit(load_id, msgspec.structs.replace(part, merge=MergeMode.POSITIONS))


class _InFormat2(_ByPosition):
    version = 2


def _kinds(spark: SparkSession, target: TableTarget) -> set[tuple[int, str]]:
    asked = f"select distinct content, lower(file_format) from {target.qualified}.delete_files"
    return {(int(content), str(kind)) for content, kind in query(spark, asked).rows}


_VECTORS, _POSITION_FILES = (1, "puffin"), (1, "parquet")


@pytest.fixture(scope="module", params=[_ByPosition, _InFormat2], ids=["3", "2"])
def bench(request: pytest.FixtureRequest, spark: SparkSession, spark_settings: SparkSettings) -> Bench:
    return _bench(request.param, spark, spark_settings)


def _bench(kind: type[_ByPosition], spark: SparkSession, spark_settings: SparkSettings) -> Bench:
    def read(target: TableTarget) -> list[Row]:
        assert _kinds(spark, target) <= {_VECTORS if kind.version == 3 else _POSITION_FILES}
        return [row.asDict(recursive=True) for row in spark.table(target.qualified).collect()]

    other = spark_settings._replace(catalog="pond")
    return Bench(kind(spark, spark_settings), kind(start_session(other), other), read)


@pytest.mark.everyday("test_upserted[3]")
class TestPositions(NewTable):
    """The conformance of modes that write by key. The other modes do not depend on the merge mode."""

    test_replaced = TableWriterConformance.test_a_replace_takes_out_upserted_rows_and_their_deletes
    test_upserted = TableWriterConformance.test_an_upsert_replaces_rows_of_the_same_key
    test_nulls = TableWriterConformance.test_an_upsert_by_two_keys_one_of_them_null
    test_duplicates = TableWriterConformance.test_position_deletes_take_out_duplicates_of_the_same_load
    test_deletions = TableWriterConformance.test_deletions_leave_nothing_of_their_keys_and_unknown_ones_do_no_harm


@pytest.mark.nightly
class TestPositionsOnBranches(NewTable, BranchConformance):
    """The conformance of branches: there too, a load finds the rows that it replaces by position."""

    @pytest.fixture
    def bench(self, spark: SparkSession, spark_settings: SparkSettings) -> Bench:
        return _bench(_ByPosition, spark, spark_settings)


def _upsert(target: TableTarget, name: str, *ids: int) -> StagedRows:
    return part(target, WriteMode.APPEND_DEDUP, [{"id": each, "name": name} for each in ids])


def _commit(bench: Bench, load_id: str, load: StagedRows, *, by_other: bool = False) -> None:
    (bench.other if by_other else bench.writer).commit(load_id, load)


def _deleted(spark: SparkSession, target: TableTarget) -> list[int]:
    """The number of rows that each delete file of the table names."""
    asked = f"select record_count from {target.qualified}.delete_files order by 1"
    return [int(count) for [count] in query(spark, asked).rows]


@pytest.mark.everyday("3")
def test_older_vectors_are_part_of_the_new_one(spark: SparkSession, bench: Bench) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    _commit(bench, "l0", _upsert(target, "a", *range(8)))
    for number, ids in enumerate([(0, 1, 2), (1, 2, 3), (0, 1, 2), (9,)]):
        _commit(bench, f"l{number + 1}", _upsert(target, f"b{number}", *ids))
    expected = [(0, "b2"), (1, "b2"), (2, "b2"), (3, "b1"), *((each, "a") for each in (4, 5, 6, 7)), (9, "b3")]
    assert names(bench.read(target)) == expected
    # A vector for each of three data files. In format 2 a file for each load, without rows that were deleted before.
    assert _deleted(spark, target) == ([2, 3, 4] if _kinds(spark, target) == {_VECTORS} else [3, 3, 3])
    assert query(spark, f"select count(*) from {target.qualified}").rows == [[9]]


@pytest.mark.everyday("3")
def test_of_many_keys_some_are_sought_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_merge, "KEYS_AT_ONCE", 2)
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    _commit(bench, "l1", _upsert(target, "a", *range(6)))
    _commit(bench, "l2", _upsert(target, "b", 0, 1, 2, 4, 5, 6))
    _commit(bench, "l3", _upsert(target, "c", 2, 3, 6))
    expected = [(0, "b"), (1, "b"), (2, "c"), (3, "c"), (4, "b"), (5, "b"), (6, "c")]
    assert names(bench.read(target)) == expected


@pytest.mark.nightly
def test_whatever_comes_in_between_a_load_is_there_once(bench: Bench) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    _commit(bench, "l1", _upsert(target, "old", 1, 2))
    load = _upsert(target, "a", 1)
    before_commit(lambda: _commit(bench, "l3", load, by_other=True))
    assert bench.writer.commit("l3", load).was_there
    before_commit(lambda: _commit(bench, "l4", _upsert(target, "b", 1, 2), by_other=True))
    assert not bench.writer.commit("l5", _upsert(target, "c", 1)).was_there
    assert names(bench.read(target)) == [(1, "c"), (2, "b")]


@pytest.mark.everyday("3")
def test_a_compaction_or_a_rollback_in_between_has_it_done_again(spark: SparkSession, bench: Bench) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    _commit(bench, "l1", _upsert(target, "old", 1))
    first = bench.writer.commit("l2", _upsert(target, "old", 2))
    for number in (3, 4):  # Without and with deletes that the files have already.
        compacted_before_commit(spark, target, as_a_whole=True)
        assert not bench.writer.commit(f"l{number}", _upsert(target, f"a{number}", 1)).was_there
        assert names(bench.read(target)) == [(1, f"a{number}"), (2, "old")]
    rolled_back_before_commit(spark, target, first.snapshot_id)
    assert not bench.writer.commit("l5", _upsert(target, "b", 1)).was_there
    assert names(bench.read(target)) == [(1, "b"), (2, "old")]


@pytest.mark.nightly
def test_a_compaction_applies_and_removes_them(spark: SparkSession, bench: Bench) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    for number in range(4):
        _commit(bench, f"l{number}", _upsert(target, f"v{number}", number, number + 1))
    before = names(bench.read(target))
    Compaction(spark, target.qualified).compact()
    assert names(bench.read(target)) == before == [(0, "v0"), (1, "v1"), (2, "v2"), (3, "v3"), (4, "v3")]
    assert _kinds(spark, target) == set()
    _commit(bench, "l9", _upsert(target, "new", 3))
    assert (3, "new") in names(bench.read(target))


@pytest.mark.everyday("3")
def test_a_table_with_equality_deletes_goes_on(spark: SparkSession, iceberg: IcebergTables, bench: Bench) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    by_key = MergeMode.EQUALITY_DELETES
    for number, ids in enumerate([(1, 2, 3, 4), (2, 3)]):
        load = msgspec.structs.replace(_upsert(target, f"k{number}", *ids), merge=by_key)
        iceberg.commit(f"k{number}", load)
    _commit(bench, "l1", _upsert(target, "p", 3, 4, 5))
    iceberg.commit("k3", msgspec.structs.replace(_upsert(target, "k3", 5), merge=by_key))
    _commit(bench, "l2", _upsert(target, "q", 1))
    shown = [row.asDict() for row in spark.table(target.qualified).collect()]
    assert names(shown) == [(1, "q"), (2, "k1"), (3, "p"), (4, "p"), (5, "k3")]
    Compaction(spark, target.qualified).compact()
    assert names(bench.read(target)) == names(shown)
    assert _kinds(spark, target) == set()


@pytest.mark.nightly
def test_a_table_that_was_raised_to_format_3_keeps_its_deletes(
    spark: SparkSession, spark_settings: SparkSettings
) -> None:
    tables = _InFormat2(spark, spark_settings)
    target = tables.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    for number, ids in enumerate([range(9), (1, 2), (2, 3)]):
        tables.commit(f"l{number}", _upsert(target, f"v{number}", *ids))
    query(spark, f"alter table {target.qualified} set tblproperties ('format-version' = '3')")
    tables.commit("l4", _upsert(target, "new", 3, 4))
    shown = names([row.asDict() for row in spark.table(target.qualified).collect()])
    assert shown == [(0, "v0"), (1, "v1"), (2, "v2"), (3, "new"), (4, "new"), *((each, "v0") for each in range(5, 9))]
    assert _VECTORS in _kinds(spark, target)


@pytest.mark.nightly
def test_deletes_of_spark_are_joined_and_spark_joins_ours(spark: SparkSession, bench: Bench) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    schema = pa.schema([target.schema.field("id"), target.schema.field("name")])
    rows = pa.table({"id": range(200_000), "name": ["old"] * 200_000}, schema)
    _commit(bench, "l1", msgspec.structs.replace(_upsert(target, "x"), files=(put(target, rows),)))
    query(spark, f"delete from {target.qualified} where id between 100 and 150000")  # A vector with runs.
    _commit(bench, "l2", _upsert(target, "new", 50, 100, 199_999))
    query(spark, f"delete from {target.qualified} where id in (51, 199999)")
    _commit(bench, "l3", _upsert(target, "newer", 52))
    counts = f"select count(*), count(distinct id), sum(id), count_if(name = 'new') from {target.qualified}"
    ids = {*range(200_000)} - {*range(100, 150_001)} - {51, 199_999} | {100}
    assert query(spark, counts).rows == [[len(ids), len(ids), sum(ids), 2]]


@pytest.fixture(params=[0, 50_000_000], ids=["by_spark", "here"])
def searching(request: pytest.FixtureRequest, spark: SparkSession, spark_settings: SparkSettings) -> IcebergTables:
    return _ByPosition(spark, spark_settings, rows_searched_here=request.param)


@pytest.mark.everyday("here")
def test_keys_are_found_by_their_columns_ids_in_old_files(spark: SparkSession, searching: IcebergTables) -> None:
    """A key that was renamed, widened, and joined by a column that older files lack."""
    name = table_name()
    old = searching.prepare(TableSpec(name, pa.schema([("id", pa.int32()), ("n", pa.int64())]), ("id",)))
    searching.commit("l1", part(old, WriteMode.APPEND, [{"id": each, "n": 0} for each in (1, 2, 3)]))
    query(spark, f"alter table {old.qualified} rename column id to number")
    schema = pa.schema([("number", pa.int64()), ("n", pa.int64()), ("country", pa.string())])
    new = searching.prepare(TableSpec(name, schema, ("number", "country")))
    keys = ("number", "country")
    first, second = [(1, None), (2, "AT"), (1 << 40, "AT")], [(2, "AT"), (3, None), (1 << 40, "DE")]
    for load, rows in (("l2", first), ("l3", second)):
        written = [{"number": number, "country": country, "n": int(load[1])} for number, country in rows]
        searching.commit(load, part(new, WriteMode.APPEND_DEDUP, written, keys=keys))
    asked = f"select number, country, n from {new.qualified} order by number, country"
    assert query(spark, asked).rows == [
        [1, None, 2], [2, None, 0], [2, "AT", 3], [3, None, 3], [1 << 40, "AT", 2], [1 << 40, "DE", 3],
    ]  # fmt: skip


@pytest.mark.nightly
def test_rows_of_other_slices_stay(spark: SparkSession, searching: IcebergTables) -> None:
    target = searching.prepare(TableSpec(table_name(), SCHEMA, ("id",), slice_column=SLICE_COLUMN))
    for name in (MONDAY, TUESDAY):
        searching.commit(f"l {name}", in_slice(target, WriteMode.APPEND_DEDUP, name, [(1, "old"), (2, "old")]))
    searching.commit("l3", in_slice(target, WriteMode.APPEND_DEDUP, MONDAY, [(1, "new")]))
    rows = sliced([row.asDict() for row in spark.table(target.qualified).collect()])
    assert rows == [(MONDAY, 1, "new"), (MONDAY, 2, "old"), (TUESDAY, 1, "old"), (TUESDAY, 2, "old")]


@pytest.mark.nightly
def test_rows_are_found_in_whichever_partition_they_were(spark: SparkSession, bench: Bench) -> None:
    fields = ["day(at)", "bucket(4, id)", "country", "truncate(10, n)", "month(on)"]
    planned = parted(table_name().name, fields)
    rows = [row(number) for number in range(12)]
    land(bench.writer, planned, "load-1", [*rows, *rows[:4]])
    moved = [row(number, version=1) for number in range(0, 12, 2)]
    land(bench.writer, planned, "load-2", moved)
    land(bench.writer, planned, "load-3", [row(0, version=2)])
    now = {each["id"]: each for each in [*rows, *moved, row(0, version=2)]}
    found = query(spark, f"select id, n, country from lake.shop.{planned.table.name}").rows
    expected = [[each["id"], each["n"], each["country"]] for each in now.values()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    kinds = query(spark, f"select distinct content from lake.shop.{planned.table.name}.delete_files").rows
    assert kinds == [[1]]


@pytest.mark.nightly
def test_a_sync_makes_such_a_table_by_itself(spark: SparkSession, iceberg: IcebergTables) -> None:
    properties = {"id": {"type": "integer"}, "country": {"type": "string"}, "n": {"type": "integer"}}
    planned = plan(properties, name=table_name().name, write=WriteMode.APPEND_DEDUP, key=[("id",)], cursor=("n",))
    planned = msgspec.structs.replace(planned, shaping=Shaping(partition_by=("country",)), merge=MergeMode.ON_READ)
    rows = [(1, "AT", 1), (2, "DE", 2), (1, "AT", 3), (1, "DE", 4), (3, "AT", 5), (2, "DE", 6)]
    lines = [record(json.dumps(dict(zip(properties, row, strict=True)))) for row in rows]
    landed(iceberg, planned, [lines[:3], lines[3:]])
    table = f"lake.shop.{planned.table.name}"
    asked = f"select id, country, _partition.country from {table} order by id"
    assert query(spark, asked).rows == [[1, "DE", "DE"], [2, "DE", "DE"], [3, "AT", "AT"]]
    assert query(spark, f"select distinct content from {table}.delete_files").rows == [[1]]
