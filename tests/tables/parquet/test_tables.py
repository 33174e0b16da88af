import os
import shutil
import signal
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName, WriteMode
from dagster_airbyte_proto.tables.parquet.session_catalog import register
from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
from dagster_airbyte_proto.tables.spark.session import query
from tests.conformance.table_rows import SCHEMA, Bench, Row, names, part
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance
from tests.tables.writer_process import start_writer

MODES = (WriteMode.APPEND, WriteMode.OVERWRITE)
USERS = TableName("shop", "users")


def plain(target: TableTarget) -> Path:
    return Path(target.location) / "current"


def rows(target: TableTarget) -> list[Row]:
    """As who knows nothing of us reads it."""
    return list(pq.read_table(plain(target)).to_pylist())


class TestParquetTables(TableWriterConformance, WitnessConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        return Bench(ParquetTables(tmp_path), ParquetTables(tmp_path), rows)


@pytest.fixture
def tables(tmp_path: Path) -> ParquetTables:
    return ParquetTables(tmp_path)


@pytest.fixture
def target(tables: ParquetTables) -> TableTarget:
    return tables.prepare(TableSpec(USERS, SCHEMA))


@pytest.mark.parametrize("write", MODES)
@pytest.mark.parametrize("point", ["table.committing", "table.committed", "table.version_made"])
def test_a_killed_writer_leaves_a_whole_table_which_the_next_one_shows(
    tmp_path: Path, tables: ParquetTables, target: TableTarget, write: WriteMode, point: str
) -> None:
    tables.commit("l0", part(target, WriteMode.APPEND, [{"id": 1, "name": "old"}]))
    load = part(target, write, [{"id": 2, "name": "a"}])
    writer = start_writer(ParquetTables, tmp_path, msgspec.json.encode(load), point, signal.SIGKILL)
    assert writer.wait(30) == -signal.SIGKILL
    assert names(rows(target)) == [(1, "old")]
    assert tables.commit("l1", load).was_there == (point != "table.committing")
    assert names(rows(target)) == ([(2, "a")] if write is WriteMode.OVERWRITE else [(1, "old"), (2, "a")])


@pytest.mark.parametrize("write", MODES)
def test_a_stopped_writer_wakes_up_to_a_load_that_is_in(
    tmp_path: Path, tables: ParquetTables, target: TableTarget, write: WriteMode
) -> None:
    load = part(target, write, [{"id": 1, "name": "a"}])
    writer = start_writer(ParquetTables, tmp_path, msgspec.json.encode(load), "table.committing", signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
    assert not tables.commit("l1", load).was_there
    assert not tables.commit("l2", part(target, WriteMode.OVERWRITE, [{"id": 1, "name": "newer"}])).was_there
    writer.send_signal(signal.SIGCONT)
    assert writer.communicate(timeout=30)[0] == b"True\n"
    assert names(rows(target)) == [(1, "newer")]


def test_what_readers_see_never_goes_back(tmp_path: Path, tables: ParquetTables, target: TableTarget) -> None:
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    writer = start_writer(ParquetTables, tmp_path, msgspec.json.encode(load), "table.committed", signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
    tables.commit("l2", part(target, WriteMode.OVERWRITE, [{"id": 1, "name": "newer"}]))
    before = tables.current_folder(USERS)
    writer.send_signal(signal.SIGCONT)
    assert writer.communicate(timeout=30)[0] == b"False\n"
    assert tables.current_folder(USERS) == before
    assert names(rows(target)) == [(1, "newer")]


def test_one_who_is_stopped_while_it_shows_a_load_is_not_overtaken(
    tmp_path: Path, tables: ParquetTables, target: TableTarget
) -> None:
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    writer = start_writer(ParquetTables, tmp_path, msgspec.json.encode(load), "table.version_made", signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
    with pytest.raises(CommitUnknown, match="does not move"):
        ParquetTables(tmp_path, lock_seconds=0.0).commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
    assert rows(target) == []
    writer.send_signal(signal.SIGCONT)
    assert writer.wait(30) == 0
    assert tables.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}])).was_there
    assert names(rows(target)) == [(1, "a"), (2, "b")]


def test_many_processes_each_land_their_load(tmp_path: Path, target: TableTarget) -> None:
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    racing = [start_writer(ParquetTables, tmp_path, msgspec.json.encode(load), "", 0) for _ in range(4)]
    answers = sorted(process.communicate(timeout=60)[0] for process in racing)
    assert answers == [b"False\n", b"True\n", b"True\n", b"True\n"]
    assert names(rows(target)) == [(1, "a")]


def test_what_a_reader_opened_stays_for_an_hour_and_then_goes(tables: ParquetTables, target: TableTarget) -> None:
    old = part(target, WriteMode.APPEND, [{"id": 1, "name": "old"}])
    tables.commit("l1", old)
    opened, first = ds.dataset(tables.current_folder(USERS)), tables.current_folder(USERS)
    tables.commit("l2", part(target, WriteMode.OVERWRITE, [{"id": 2, "name": "new"}]))
    tables.commit("l3", part(target, WriteMode.APPEND, [{"id": 3, "name": "new"}]))
    assert names(opened.to_table().to_pylist()) == [(1, "old")]
    assert Path(old.files[0].path).exists()

    second = tables.current_folder(USERS)
    an_hour_ago = time.time() - 3601
    for version in Path(target.location).glob("v*"):
        os.utime(version, (an_hour_ago, an_hour_ago))
    tables.commit("l4", part(target, WriteMode.APPEND, [{"id": 4, "name": "new"}]))
    assert not first.exists() and second.exists()
    assert not Path(old.files[0].path).exists()
    assert names(rows(target)) == [(2, "new"), (3, "new"), (4, "new")]
    assert tables.commit("l1", old).was_there


def test_what_a_log_that_was_set_back_has_shown_is_not_shown_again(tables: ParquetTables, target: TableTarget) -> None:
    for number, name in enumerate("ab", 1):
        tables.commit(f"l{number}", part(target, WriteMode.APPEND, [{"id": number, "name": name}]))
    max(Path(target.location).glob("log/*.json")).unlink()
    an_hour_ago = time.time() - 3601
    for version in Path(target.location).glob("v*"):
        os.utime(version, (an_hour_ago, an_hour_ago))
    tables.prepare(TableSpec(USERS, SCHEMA))
    assert names(rows(target)) == [(1, "a")]
    tables.commit("l3", part(target, WriteMode.OVERWRITE, [{"id": 3, "name": "c"}]))
    assert names(rows(target)) == [(3, "c")]


def test_a_failure_to_show_a_load_leaves_it_to_recovery(tables: ParquetTables, target: TableTarget) -> None:
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])

    def refuse(point: str) -> None:
        if point == "table.version_made":
            raise OSError(28, "No space left on device")

    points.arm(refuse)
    with pytest.raises(CommitUnknown, match="No space left"):
        tables.commit("l1", load)
    points.arm(None)
    assert rows(target) == []
    assert tables.commit("l1", load).was_there
    assert names(rows(target)) == [(1, "a")]


@pytest.mark.parametrize("moment", ["commit", "link"])
@pytest.mark.parametrize("done", ["dropped", "made again"])
def test_a_table_that_is_dropped_while_a_load_commits_does_not_come_back(
    tables: ParquetTables, target: TableTarget, moment: str, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = msgspec.structs.replace(part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]), table_id=target.table_id)
    warehouse, link = Path(target.location).parents[1], Path.hardlink_to

    def drop() -> None:
        points.arm(None)
        monkeypatch.setattr(Path, "hardlink_to", link)
        shutil.rmtree(target.location)
        if done == "made again":
            ParquetTables(warehouse).prepare(TableSpec(USERS, SCHEMA))

    def drop_and_link(path: Path, unfinished: Path) -> None:
        content = unfinished.read_bytes()
        drop()
        # As if somebody removed the files one after the other, and this one not yet.
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        path.hardlink_to(unfinished)

    if moment == "commit":
        points.arm(lambda point: drop() if point == "table.committing" else None)
    else:
        monkeypatch.setattr(Path, "hardlink_to", drop_and_link)
    refusal = "there is no table" if done == "dropped" else "another table has its name now"
    with pytest.raises(TableError, match=refusal):
        tables.commit("l1", load)
    entries = [path.name for path in Path(target.location).glob("log/*.json")]
    assert entries == ([] if done == "dropped" else ["00000001.json"])


def test_partitions_are_refused(tables: ParquetTables) -> None:
    with pytest.raises(TableError, match="no partitions"):
        tables.prepare(TableSpec(USERS, SCHEMA, slice_column=SLICE_COLUMN))


@pytest.mark.spark
def test_spark_reads_a_table_by_its_path_and_by_its_name(
    spark: SparkSession, tables: ParquetTables, target: TableTarget, tmp_path: Path
) -> None:
    tables.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a", "_airbyte_meta": {"sync_id": 7}}]))
    wider = tables.prepare(TableSpec(USERS, pa.schema([*SCHEMA, pa.field("sp ace.d", pa.float64())])))
    assert spark.read.parquet(str(plain(wider))).columns == [*SCHEMA.names, "sp ace.d"]
    register(spark, tables)
    running = spark.table("spark_catalog.shop.users")
    tables.commit("l2", part(wider, WriteMode.OVERWRITE, [{"id": 2, "name": "b", "sp ace.d": 0.5}]))
    assert [row.id for row in running.collect()] == [1]
    register(spark, tables, USERS)
    assert query(spark, "select id, name, `sp ace.d` from spark_catalog.shop.users").rows == [[2, "b", 0.5]]
    described = query(spark, "describe table spark_catalog.shop.users").rows
    assert ["id", "bigint", "who it is"] in described
    spark.sql("drop table if exists spark_catalog.shop.users")
    odd = tables.prepare(TableSpec(TableName("n sp ace", "dot.ted"), SCHEMA))
    register(spark, tables)
    tables.commit("l3", part(odd, WriteMode.APPEND, [{"id": 3, "name": "c"}]))
    register(spark, tables)
    assert query(spark, f"select id, name from {odd.qualified}").rows == [[3, "c"]]


def test_a_table_that_lost_a_file_refuses_by_its_name(tables: ParquetTables, target: TableTarget) -> None:
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    tables.commit("l1", load)
    lost = Path(load.files[0].path)
    lost.unlink()
    with pytest.raises(TableError, match=f"{lost.name} is gone"):
        tables.prepare(TableSpec(USERS, SCHEMA.append(pa.field("new", pa.int64()))))
    # Nothing lands any more that could not be shown; but all rows may be replaced.
    with pytest.raises(TableError, match=f"{lost.name} is gone"):
        tables.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
    assert tables.find_load("l2", load) is None
    # Of what has landed the error says so, though its file is gone now: nobody is to send it again.
    with pytest.raises(CommitUnknown, match="The rows are committed"):
        tables.find_load("l1", load)
    tables.commit("l3", part(target, WriteMode.OVERWRITE, [{"id": 3, "name": "c"}]))
    assert tables.find_load("l3", load) is not None
