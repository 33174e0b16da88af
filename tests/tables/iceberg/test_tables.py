import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.loads.load import FileContent
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import REPLACING, WriteMode
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items
from dagster_airbyte_proto.tables.spark.session import query, start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_branches import BranchConformance
from tests.conformance.table_care import CaredForTableConformance
from tests.conformance.table_rows import (
    MODES,
    SCHEMA,
    Bench,
    Reader,
    names,
    part,
    part_of,
    position_deletes,
    staged,
    table_name,
)
from tests.conformance.table_slices import MONDAY, TUESDAY, SlicedTableConformance, in_slice, sliced
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance
from tests.staging.conftest import landed, plan, record
from tests.tables.changes_by_others import compacted_before_commit, refresh_until_gone, rolled_back_before_commit

pytestmark = pytest.mark.spark


class TestIcebergTables(
    TableWriterConformance, WitnessConformance, SlicedTableConformance, BranchConformance, CaredForTableConformance
):
    @pytest.fixture
    def bench(self, iceberg_bench: Bench) -> Bench:
        return iceberg_bench


@pytest.fixture
def target(iceberg: IcebergTables) -> TableTarget:
    return iceberg.prepare(TableSpec(table_name(), SCHEMA, comment="people"))


def test_the_log_tells_of_the_load(spark: SparkSession, iceberg: IcebergTables, target: TableTarget) -> None:
    iceberg.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    [[operation, summary]] = query(spark, f"select operation, summary from {target.qualified}.snapshots").rows
    assert operation == "append"
    told = {key: value for key, value in summary.items() if key.startswith("airbyte-proto.")}
    assert told == {
        "airbyte-proto.load-id": "l1",
        "airbyte-proto.stream": "users",
        "airbyte-proto.connection": "shop",
        "airbyte-proto.run-id": "r1",
    }


def test_comments_and_properties_are_in_the_table(spark: SparkSession, target: TableTarget) -> None:
    described = {row[0]: row for row in query(spark, f"describe table extended {target.qualified}").rows}
    assert described["id"] == ["id", "bigint", "who it is"]
    assert described["Comment"][1] == "people"
    properties = dict(query(spark, f"show tblproperties {target.qualified}").rows)
    assert properties["format-version"] == "2"
    assert properties["write.parquet.compression-codec"] == "zstd"


def test_a_compaction_in_between_disturbs_no_append(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    for i in range(2):
        iceberg.commit(f"l{i}", part(target, WriteMode.APPEND, [{"id": i, "name": "a"}]))
    compacted_before_commit(spark, target)
    assert not iceberg.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}])).was_there
    assert names(iceberg_rows(target)) == [(0, "a"), (1, "a"), (2, "b")]
    assert iceberg.commit("l0", part(target, WriteMode.APPEND, [{"id": 0, "name": "a"}])).was_there


def test_a_compaction_in_between_brings_no_replaced_row_back(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    for i in range(2):
        iceberg.commit(f"l{i}", part(target, WriteMode.APPEND, [{"id": i, "name": "old"}]))
    compacted_before_commit(spark, target)
    committed = iceberg.commit("l2", part(target, WriteMode.OVERWRITE_DEDUP, [{"id": 2, "name": "new"}]))
    assert names(iceberg_rows(target)) == [(2, "new")]
    assert (committed.was_there, committed.deleted) == (False, 2)


def test_a_replacement_with_duplicates_is_one_snapshot_and_leaves_no_old_file(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget
) -> None:
    for i in range(3):
        iceberg.commit(f"l{i}", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "old"}]))
    load = part(target, WriteMode.OVERWRITE_DEDUP, [{"id": 1, "name": "new"}])
    iceberg.commit("l3", load)
    assert query(spark, f"select count(*) from {target.qualified}.snapshots").rows == [[4]]
    now = query(spark, f"select file_path from {target.qualified}.files").rows
    assert sorted(path for [path] in now) == sorted(file.path for file in load.files)


@pytest.mark.everyday("append_dedup", "overwrite")
@pytest.mark.parametrize("write", MODES)
def test_a_rollback_in_between_is_noticed(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader, write: WriteMode
) -> None:
    first = iceberg.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    iceberg.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
    rolled_back_before_commit(spark, target, first.snapshot_id)
    assert not iceberg.commit("l3", part(target, write, [{"id": 3, "name": "c"}])).was_there
    assert names(iceberg_rows(target)) == [(1, "a"), (3, "c")][write in REPLACING :]
    assert not iceberg.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}])).was_there


def test_a_rollback_in_between_refuses_a_part_that_follows_what_it_undoes(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    first = iceberg.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    iceberg.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
    rolled_back_before_commit(spark, target, first.snapshot_id)
    load = part(target, WriteMode.APPEND, [{"id": 3, "name": "c"}])
    with pytest.raises(TableError, match="it no longer has load l2"):
        iceberg.commit("l3", msgspec.structs.replace(load, follows="l2"))
    assert names(iceberg_rows(target)) == [(1, "a")]
    assert not iceberg.commit("l3", msgspec.structs.replace(load, follows="l1")).was_there
    assert names(iceberg_rows(target)) == [(1, "a"), (3, "c")]


def test_a_load_whose_snapshot_expired_is_still_known_by_its_files(
    spark: SparkSession, iceberg: IcebergTables, elsewhere: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    iceberg.commit("l1", load)
    iceberg.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
    query(spark, f"call lake.system.expire_snapshots('{target.name}', timestamp '2100-01-01 00:00:00', 1)")
    assert elsewhere.find_load("l1", load) is not None
    assert elsewhere.commit("l1", load).was_there
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "b")]
    assert not elsewhere.commit("l3", part(target, WriteMode.APPEND, [{"id": 3, "name": "c"}])).was_there


def test_a_cached_frame_shows_what_was_committed(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget
) -> None:
    iceberg.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    frame = spark.table(target.qualified).cache()
    assert frame.count() == 1
    iceberg.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
    assert spark.table(target.qualified).count() == 2
    frame.unpersist()


def test_deletes_left_over_by_a_compaction_do_not_make_a_table_look_empty(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    rows = part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])
    files = (*rows.files, position_deletes(target, rows.files[0], 0))
    assert iceberg.commit("l1", part_of(target, WriteMode.APPEND_DEDUP, *files)).table_rows == 1
    query(
        spark,
        f"call lake.system.rewrite_data_files(table => '{target.name}', options => map('rewrite-all', 'true'))",
    )
    upsert = part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "c"}])
    assert iceberg.commit("l2", upsert).table_rows is None
    assert names(iceberg_rows(target)) == [(1, "c")]


def test_late_rows_leave_newer_ones_whatever_their_keys_and_cursors_are(
    spark: SparkSession, iceberg: IcebergTables
) -> None:
    kinds: tuple[tuple[dict[str, str], Any, Any], ...] = (
        ({"type": "string", "airbyte_type": "big_integer"}, "9", "9" * 38),
        ({"type": "string", "format": "date-time"}, "1582-01-01T00:00:00Z", "2026-03-29T02:30:00.000001+02:00"),
        (
            {"type": "string", "airbyte_type": "timestamp_without_timezone"},
            "2026-03-29T02:30:00",
            "2026-03-29T03:30:00",
        ),
        ({}, 7, "7"),
    )
    for kind, older, newer in kinds:
        properties = {"id": kind, "at": kind, "n": {"type": "integer"}}
        planned = plan(properties, name=table_name().name, write=WriteMode.APPEND_DEDUP, key=[("id",)], cursor=("at",))
        rows = [(older, newer), (newer, older), (older, older), (newer, newer)]
        lines = [record(json.dumps({"id": key, "at": at, "n": n})) for n, (key, at) in enumerate(rows)]
        first, second = landed(iceberg, planned, [lines[:2], lines[2:]])
        assert (first.duplicates, second.duplicates) == (0, 1), kind
        assert query(spark, f"select n from lake.shop.{planned.table.name} order by n").rows == [[0], [3]], kind
    # After a change by others the table has no high-water mark, so its rows are read.
    query(spark, f"update lake.shop.{planned.table.name} set n = 10 where n = 0")
    landed(iceberg, planned, [lines[2:3]], "again")
    assert query(spark, f"select n from lake.shop.{planned.table.name} order by n").rows == [[3], [10]]


def test_tables_commit_side_by_side(iceberg: IcebergTables, iceberg_rows: Reader) -> None:
    targets = [iceberg.prepare(TableSpec(table_name(), SCHEMA)) for _ in range(4)]

    def land(number: int) -> None:
        for target in targets[number::2]:
            iceberg.commit(f"l{number}", part(target, WriteMode.APPEND, [{"id": number, "name": "a"}]))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(land, range(2)))
    assert [names(iceberg_rows(target)) for target in targets] == [[(0, "a")], [(1, "a")]] * 2


def test_threads_with_one_load_land_it_once(iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader) -> None:
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: iceberg.commit("l1", load).was_there, range(3)))
    assert sorted(answers) == [False, True, True]
    assert names(iceberg_rows(target)) == [(1, "a")]


def test_a_partitioned_table_is_refused(spark: SparkSession, iceberg: IcebergTables, target: TableTarget) -> None:
    query(spark, f"alter table {target.qualified} add partition field id")
    with pytest.raises(TableError, match="partitioned"):
        iceberg.prepare(TableSpec(target.name, SCHEMA))


def test_a_slice_is_found_by_its_column_which_its_files_lack(spark: SparkSession, iceberg: IcebergTables) -> None:
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA, slice_column=SLICE_COLUMN))
    for name in (MONDAY, TUESDAY):
        iceberg.commit(f"l {name}", in_slice(target, WriteMode.APPEND_DEDUP, name, [(1, name), (2, name)]))
        iceberg.commit(f"u {name}", in_slice(target, WriteMode.APPEND_DEDUP, name, [(2, "new")]))
    found = query(spark, f"select id, name from {target.qualified} where {SLICE_COLUMN} = '{TUESDAY}' order by id").rows
    assert found == [[1, TUESDAY], [2, "new"]]


def test_replacing_a_slice_is_one_snapshot_and_leaves_no_file_of_it(
    spark: SparkSession, iceberg: IcebergTables
) -> None:
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA, slice_column=SLICE_COLUMN))
    kept = in_slice(target, WriteMode.APPEND_DEDUP, TUESDAY, [(1, "old")])
    iceberg.commit("l1", kept)
    for number in range(2):
        iceberg.commit(f"m{number}", in_slice(target, WriteMode.APPEND_DEDUP, MONDAY, [(1, "old")]))
    load = in_slice(target, WriteMode.OVERWRITE_DEDUP, MONDAY, [(1, "new")])
    iceberg.commit("l2", load)
    assert query(spark, f"select count(*) from {target.qualified}.snapshots").rows == [[4]]
    now = {path for [path] in query(spark, f"select file_path from {target.qualified}.files").rows}
    rows_of_tuesday = {file.path for file in kept.files if file.content is FileContent.ROWS}
    assert now == rows_of_tuesday | {file.path for file in load.files}


def test_a_compaction_of_a_slice_disturbs_no_other(
    spark: SparkSession, iceberg: IcebergTables, iceberg_rows: Reader
) -> None:
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA, slice_column=SLICE_COLUMN))
    for number in range(2):
        iceberg.commit(f"m{number}", in_slice(target, WriteMode.APPEND, MONDAY, [(number, "old")]))
    compacted_before_commit(spark, target)
    iceberg.commit("l1", in_slice(target, WriteMode.OVERWRITE_DEDUP, TUESDAY, [(1, "new")]))
    assert sliced(iceberg_rows(target)) == [(MONDAY, 0, "old"), (MONDAY, 1, "old"), (TUESDAY, 1, "new")]
    assert iceberg.commit("m0", in_slice(target, WriteMode.APPEND, MONDAY, [(0, "old")])).was_there


def test_a_table_dropped_and_made_anew_is_found(
    spark: SparkSession, iceberg: IcebergTables, elsewhere: IcebergTables, target: TableTarget, iceberg_rows: Reader
) -> None:
    elsewhere.prepare(TableSpec(target.name, SCHEMA))
    query(spark, f"drop table {target.qualified}")
    again = iceberg.prepare(TableSpec(target.name, SCHEMA))
    iceberg.commit("l1", part(again, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    assert elsewhere.prepare(TableSpec(target.name, SCHEMA)).schema == again.schema
    assert elsewhere.commit("l1", part(again, WriteMode.APPEND, [{"id": 1, "name": "a"}])).was_there


def test_a_file_that_is_no_parquet_is_an_error_in_one_line(iceberg: IcebergTables, target: TableTarget) -> None:
    file = staged(target, [{"id": 1, "name": "a"}])
    Path(file.path).write_bytes(b"no parquet at all, but long enough to be looked at")
    broken = part(target, WriteMode.APPEND, [])
    with pytest.raises(TableError) as refused:
        iceberg.commit("l1", type(broken)(broken.stream, broken.table, broken.write, files=(file,)))
    assert "not a Parquet file" in refused.value.found
    assert "\n" not in refused.value.found


def test_a_warehouse_that_cannot_be_written_is_a_table_error(spark_settings: SparkSettings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = spark_settings._replace(catalog="sealed", warehouse=str(tmp_path / "file" / "warehouse"))
    with pytest.raises(TableError) as refused:
        IcebergTables(start_session(settings), settings).prepare(TableSpec(table_name(), SCHEMA))
    assert settings.warehouse in refused.value.found
    assert "\n" not in refused.value.found


def test_a_catalog_that_the_session_lacks_is_a_config_error(spark: SparkSession, spark_settings: SparkSettings) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        IcebergTables(spark, spark_settings._replace(catalog="nowhere")).prepare(TableSpec(table_name(), SCHEMA))


def test_a_column_of_another_writer_that_parquet_lacks_is_left_alone(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget
) -> None:
    query(spark, f"alter table {target.qualified} add column small int, deep map<string, array<decimal(9,2)>>")
    schema = iceberg.prepare(TableSpec(target.name, SCHEMA)).schema
    assert schema.field("small").type == pa.int32()
    assert schema.field("deep").type.item_type.value_type == pa.decimal128(9, 2)


def test_reading_on_in_a_java_iterable_raises_what_java_raised(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    held = jvm.java.util.ArrayList()
    held.add("a")
    held.add("b")
    items = java_items(held)
    assert next(items) == "a"
    held.add("c")
    with pytest.raises(Py4JJavaError, match="ConcurrentModificationException"):
        next(items)


def test_a_load_that_landed_is_not_refused_where_the_log_cannot_be_read_once_more(
    iceberg: IcebergTables, target: TableTarget, iceberg_rows: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is refused after its effect, as over a connection to a database that breaks. Then the catalog goes."""
    iceberg.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    load, table = part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]), iceberg._table(target.name)
    again, alone = table.change(load, table.refresh()), table.alone

    @contextmanager
    def committing_twice() -> Iterator[None]:
        with alone():
            yield
        again.commit()

    with monkeypatch.context() as patched:
        patched.setattr(table, "alone", committing_twice)
        patched.setattr(table, "refresh", refresh_until_gone(table, 2))
        with pytest.raises(CommitUnknown, match="the catalog is gone"):
            iceberg.commit("l2", load)
    assert iceberg.commit("l2", load).was_there
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "b")]
