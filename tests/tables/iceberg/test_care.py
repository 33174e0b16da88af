"""Compaction and expiry: what readers see, which files stay, and syncs that commit at the same time."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, TableName, WriteMode
from dagster_airbyte_proto.tables.care import CompactionResult, ProtectedFiles
from dagster_airbyte_proto.tables.formats import rewinder_of
from dagster_airbyte_proto.tables.iceberg.care.compaction import Compaction, TableChanged
from dagster_airbyte_proto.tables.iceberg.care.iceberg_care import IcebergCare
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from tests.conformance.table_rows import (
    SCHEMA,
    Reader,
    Row,
    before_commit,
    names,
    part,
    part_of,
    position_deletes,
    staged,
    table_name,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def care(iceberg: IcebergTables) -> IcebergCare:
    return IcebergCare(iceberg)


def rows_of(*pairs: tuple[int, str]) -> list[Row]:
    return [{"id": identity, "name": name} for identity, name in pairs]


def upsert(target: TableTarget, *pairs: tuple[int, str]) -> StagedRows:
    """An upsert that leaves deletes by key: a compaction has to take these out, and can land beside more of them."""
    return by_key(part(target, WriteMode.APPEND_DEDUP, rows_of(*pairs)))


def by_key(upserted: StagedRows) -> StagedRows:
    return msgspec.structs.replace(upserted, merge=MergeMode.EQUALITY_DELETES)


def delete_files(spark: SparkSession, target: TableTarget) -> int:
    [[count]] = query(spark, f"select count(*) from {target.qualified}.all_delete_files").rows
    [[live]] = query(spark, f"select count(*) from {target.qualified}.delete_files").rows
    assert live <= count
    return int(live)


def test_ten_upserts_leave_no_delete_file_and_the_same_rows(
    spark: SparkSession, iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    iceberg.commit("l0", part(target, WriteMode.APPEND, rows_of(*((i, "first") for i in range(100, 110)))))
    for number in range(10):
        rows = staged(target, rows_of((1, "twice"), (1, f"n{number}"), (number + 2, f"n{number}")))
        deletes = upsert(target, (1, ""), (number + 2, "")).files[1]
        upserted = part_of(target, WriteMode.APPEND_DEDUP, rows, deletes, position_deletes(target, rows, 0))
        iceberg.commit(f"u{number}", by_key(upserted))
    before = names(iceberg_rows(target))
    assert delete_files(spark, target) == 20

    done = care.compact(target.name)

    assert delete_files(spark, target) == 0
    assert names(iceberg_rows(target)) == before
    assert len(before) == 21
    assert (done.removed_delete_files, done.attempts) == (20, 1)
    facts = care.facts(target.name)
    assert (facts.rows, facts.delete_files, facts.last_load) == (21, 0, "u9")
    assert facts.files == 1
    again = care.compact(target.name)
    assert (again.rewritten_files, again.removed_delete_files) == (0, 0)


def test_deletes_go_although_a_file_stays_that_is_older_and_has_none_of_their_keys(
    spark: SparkSession, iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    first = part(target, WriteMode.APPEND, rows_of((100, "a"), (101, "b")))
    size = first.files[0].size_bytes
    query(spark, f"alter table {target.qualified} set tblproperties ('write.target-file-size-bytes' = '{size}')")
    iceberg.commit("l0", first)
    for number in range(3):
        iceberg.commit(f"l{number + 1}", upsert(target, (1, f"n{number}")))
    done = care.compact(target.name)
    assert (done.rewritten_files, done.removed_delete_files) == (2, 3)
    assert delete_files(spark, target) == 0
    paths = query(spark, f"select file_path from {target.qualified}.data_files").rows
    assert [first.files[0].path] in paths
    assert names(iceberg_rows(target)) == [(1, "n2"), (100, "a"), (101, "b")]


def test_a_load_that_is_committed_again_after_a_compaction_lands_once(
    iceberg: IcebergTables, elsewhere: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    parts = [upsert(target, (number, "a")) for number in range(6)]
    for number, each in enumerate(parts):
        iceberg.commit(f"l{number}", each)
    care.compact(target.name)
    for writer in (iceberg, elsewhere):
        for number, each in enumerate(parts):
            assert writer.commit(f"l{number}", each).was_there
    assert names(iceberg_rows(target)) == [(number, "a") for number in range(6)]


def test_a_writer_that_slept_over_compaction_and_expiry_lands_nothing_again(
    iceberg: IcebergTables, elsewhere: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    """Its load is no longer in the log, its files were deleted with the snapshot: nobody can tell any more."""
    parts = [part(target, WriteMode.APPEND, rows_of((number, "a"))) for number in range(6)]
    snapshots = [iceberg.commit(f"l{number}", each).snapshot_id for number, each in enumerate(parts)]
    care.compact(target.name)
    assert care.expire(target.name, snapshots) == 6
    for writer in (iceberg, elsewhere):
        for call in (writer.commit, writer.find_load):
            with pytest.raises(CommitUnknown, match="have expired, and its files are not in the table"):
                call("l3", parts[3])
    assert names(iceberg_rows(target)) == [(number, "a") for number in range(6)]
    iceberg.commit("l6", part(target, WriteMode.APPEND, rows_of((6, "a"))))
    assert len(iceberg_rows(target)) == 7


@pytest.mark.everyday("append_dedup")
@pytest.mark.parametrize("write", [WriteMode.APPEND, WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP])
def test_a_load_is_neither_lost_nor_doubled_by_a_compaction_that_comes_before_its_commit(
    spark: SparkSession,
    iceberg: IcebergTables,
    care: IcebergCare,
    target: TableTarget,
    iceberg_rows: Reader,
    write: WriteMode,
) -> None:
    for number in range(5):
        iceberg.commit(f"l{number}", upsert(target, (1, f"n{number}"), (number + 10, "a")))
    before_commit(lambda: _assert_compacts(care, target.name))
    staged_part = part(target, write, rows_of((1, "last"), (2, "b")))
    iceberg.commit("late", staged_part)
    kept = [] if write is WriteMode.OVERWRITE_DEDUP else [(number + 10, "a") for number in range(5)]
    old = [(1, "n4")] if write is WriteMode.APPEND else []
    assert names(iceberg_rows(target)) == sorted([*old, (1, "last"), (2, "b"), *kept], key=repr)
    assert iceberg.commit("late", staged_part).was_there


def _assert_compacts(care: IcebergCare, name: TableName) -> None:
    assert care.compact(name).rewritten_files == 5


def test_upserts_that_come_in_between_the_two_changes_keep_their_deletes(
    spark: SparkSession, iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    for number in range(3):
        iceberg.commit(f"l{number}", upsert(target, (1, f"n{number}")))
    compaction = Compaction(spark, target.qualified)
    rewritten = compaction.rewrite()
    iceberg.commit("between", upsert(target, (1, "between")))
    assert compaction.remove_applied_deletes(rewritten) == 2
    assert names(iceberg_rows(target)) == [(1, "between")]
    assert delete_files(spark, target) == 1
    care.compact(target.name)
    assert names(iceberg_rows(target)) == [(1, "between")]
    assert delete_files(spark, target) == 0


def test_a_table_that_is_taken_back_between_the_two_changes_keeps_its_deletes(
    spark: SparkSession, iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    """The old files are in the table again, and with them the rows that their deletes remove."""
    snapshots = [iceberg.commit(f"l{number}", upsert(target, (1, f"n{number}"))).snapshot_id for number in range(3)]
    compaction = Compaction(spark, target.qualified)
    rewritten = compaction.rewrite()
    rewinder = rewinder_of(iceberg)
    assert rewinder.rewind(target.name, snapshots[1], seen=rewinder.past(target.name), version=1)
    with pytest.raises(TableChanged):
        compaction.remove_applied_deletes(rewritten)
    assert names(iceberg_rows(target)) == [(1, "n1")]
    care.compact(target.name)
    assert names(iceberg_rows(target)) == [(1, "n1")]
    assert delete_files(spark, target) == 0


@contextmanager
def every_core_taken(spark: SparkSession, gate: Path) -> Iterator[None]:
    """Makes Spark's jobs wait until the gate file exists."""

    def wait(_: int) -> None:
        deadline = time.monotonic() + 120
        while not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    cores = spark.sparkContext.defaultParallelism
    job = threading.Thread(target=lambda: spark.sparkContext.parallelize(range(cores), cores).foreach(wait))
    job.start()
    try:
        yield
    finally:
        gate.touch()
        job.join()


def test_a_compaction_whose_files_are_taken_out_under_it_begins_again(
    spark: SparkSession, iceberg: IcebergTables, elsewhere: IcebergTables, care: IcebergCare, target: TableTarget,
    iceberg_rows: Reader, eventually: Callable[[Callable[[], bool]], None], tmp_path: Path,
) -> None:  # fmt: skip
    for number in range(5):
        iceberg.commit(f"l{number}", part(target, WriteMode.APPEND, rows_of((number, "a"))))
    tracker, done = spark.sparkContext.statusTracker(), list[CompactionResult]()
    others = set(tracker.getActiveJobsIds())  # Of tests before: Spark notes late that a job has ended.

    def active() -> int:
        return len(set(tracker.getActiveJobsIds()) - others)

    compacting = threading.Thread(target=lambda: done.append(care.compact(target.name)))
    with every_core_taken(spark, tmp_path / "gate"):
        eventually(lambda: active() == 1)
        compacting.start()
        eventually(lambda: active() == 2)
        elsewhere.commit("late", part(target, WriteMode.OVERWRITE, rows_of((1, "last"))))
    compacting.join()
    assert [(each.attempts, each.rewritten_files) for each in done] == [(2, 0)]
    assert names(iceberg_rows(target)) == [(1, "last")]


def test_compactions_beside_a_sync_that_goes_on_lose_nothing_and_double_nothing(
    spark: SparkSession, iceberg: IcebergTables, elsewhere: IcebergTables, care: IcebergCare, target: TableTarget,
    iceberg_rows: Reader,
) -> None:  # fmt: skip
    for number in range(4):
        iceberg.commit(f"l{number}", upsert(target, (1, f"n{number}"), (number + 10, "a")))
    compacted, loads = threading.Event(), 0
    theirs = elsewhere.prepare(TableSpec(target.name, SCHEMA, keys=("id",)))

    def sync() -> int:
        count = 0
        while not compacted.is_set() and count < 200:
            elsewhere.commit(f"s{count}", upsert(theirs, (1, f"s{count}"), (100 + count, "b")))
            count += 1
        return count

    counts: list[int] = []
    syncing = threading.Thread(target=lambda: counts.append(sync()))
    syncing.start()
    try:
        care.compact(target.name)
    finally:
        compacted.set()
        syncing.join()
    [loads] = counts
    assert loads > 1
    expected = [(1, f"s{loads - 1}"), *((n + 10, "a") for n in range(4)), *((100 + n, "b") for n in range(loads))]
    assert names(iceberg_rows(target)) == sorted(expected, key=repr)


def test_each_slice_is_compacted_by_itself(
    spark: SparkSession, iceberg: IcebergTables, care: IcebergCare, iceberg_rows: Reader
) -> None:
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA, keys=("id",), slice_column=SLICE_COLUMN))
    for number in range(6):
        upserted = msgspec.structs.replace(upsert(target, (1, f"n{number}")), slice=("mon", "tue")[number % 2])
        iceberg.commit(f"l{number}", upserted)
    care.compact(target.name)
    rows = sorted((row[SLICE_COLUMN], row["id"], row["name"]) for row in iceberg_rows(target))
    assert rows == [("mon", 1, "n4"), ("tue", 1, "n5")]
    assert delete_files(spark, target) == 0
    facts = care.facts(target.name)
    assert (facts.partitioned_by, facts.slices, facts.rows) == (SLICE_COLUMN, 2, 2)


def test_a_table_without_rows_or_without_anything_to_do_is_left_alone(
    iceberg: IcebergTables, care: IcebergCare, target: TableTarget
) -> None:
    assert care.compact(target.name).rewritten_files == 0
    assert care.expire(target.name, []) == 0
    iceberg.commit("l1", upsert(target, (1, "a")))
    assert care.compact(target.name).rewritten_files == 0
    assert [change.operation for change in care.history(target.name).changes] == ["append"]


def test_what_is_expired_is_gone_with_its_files_and_the_current_one_is_not(
    iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    snapshots = [
        iceberg.commit(f"l{n}", part(target, WriteMode.OVERWRITE, rows_of((n, "a")))).snapshot_id for n in (1, 2)
    ]
    before = set(Path(target.location).glob("data/*.parquet"))
    assert care.expire(target.name, snapshots) == 1
    assert len(before - set(Path(target.location).glob("data/*.parquet"))) == 1
    assert [change.snapshot_id for change in care.history(target.name).changes] == snapshots[1:]
    assert names(iceberg_rows(target)) == [(2, "a")]


def test_orphans_are_files_of_nobody_that_have_lain_for_long(
    iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    iceberg.commit("l1", part(target, WriteMode.APPEND, rows_of((1, "a"))))
    orphans = {
        folder: str(Path(target.location) / "data" / folder / "rows.parquet")
        for folder in ("run-dead", "run-live", "run-announced", "run-young")
    }
    long_ago = datetime.now(UTC) - timedelta(days=9)
    for folder, path in orphans.items():
        Path(path).parent.mkdir()
        Path(path).write_bytes(b"rows")
        if folder != "run-young":
            os.utime(path, (long_ago.timestamp(), long_ago.timestamp()))
    for file in Path(target.location).glob("data/*.parquet"):
        os.utime(file, (long_ago.timestamp(), long_ago.timestamp()))
    but = ProtectedFiles(frozenset([orphans["run-announced"]]), frozenset(["live"]))

    removed = care.remove_orphans(target.name, before=datetime.now(UTC) - timedelta(days=3), protected=but)

    assert list(removed) == [orphans["run-dead"]]
    assert [Path(path).exists() for path in orphans.values()] == [False, True, True, True]
    assert names(iceberg_rows(target)) == [(1, "a")]
    assert care.remove_orphans(target.name, before=long_ago, protected=ProtectedFiles()) == ()


def test_metadata_files_that_the_table_names_no_more_are_orphans(
    spark: SparkSession, iceberg: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    query(spark, f"alter table {target.qualified} set tblproperties ('write.metadata.previous-versions-max' = '1')")
    for number in range(4):
        iceberg.commit(f"l{number}", part(target, WriteMode.APPEND, rows_of((number, "a"))))
    folder = Path(target.location) / "metadata"
    versions = sorted(int(file.name[1:].partition(".")[0]) for file in folder.glob("v*.metadata.json"))
    for file in folder.glob("v*.metadata.json"):
        os.utime(file, (1, 1))
    before = datetime.now(UTC) - timedelta(days=3)
    removed = care.remove_orphans(target.name, before=before, protected=ProtectedFiles())
    assert {Path(path) for path in removed} == {folder / f"v{each}.metadata.json" for each in versions[1:-2]}
    assert len(removed) >= 3
    iceberg.commit("l4", part(target, WriteMode.APPEND, rows_of((4, "a"))))
    assert names(iceberg_rows(target)) == [(number, "a") for number in range(5)]


def test_a_table_of_a_hard_name_is_cared_for(iceberg: IcebergTables, care: IcebergCare, iceberg_rows: Reader) -> None:
    target = iceberg.prepare(TableSpec(TableName("n Büch 書", f"Größe [a] {table_name().name}"), SCHEMA, keys=("id",)))
    for number in range(2):
        iceberg.commit(f"l{number}", upsert(target, (1, f"n{number}")))
    orphan = Path(target.location) / "data" / "run-dead" / "a.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"rows")
    os.utime(orphan, (1, 1))
    assert care.compact(target.name).rewritten_files == 2
    assert care.facts(target.name).rows == 1
    assert (
        len(care.remove_orphans(target.name, before=datetime(2020, 1, 1, tzinfo=UTC), protected=ProtectedFiles())) == 1
    )
    assert names(iceberg_rows(target)) == [(1, "n1")]
    assert target.name in care.names()


def test_a_table_that_is_not_there_is_told(care: IcebergCare) -> None:
    for ask in (care.facts, care.history, care.compact):
        with pytest.raises(TableError, match=r"nowhere\.nothing"):
            ask(TableName("nowhere", "nothing"))


def test_a_table_that_is_not_there_is_said_to_be_gone(care: IcebergCare) -> None:
    with pytest.raises(TableError, match="there is no such table"):
        care.facts(TableName("nowhere", "users"))
