import errno
import os
import shutil
import signal
import stat
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import TableName, WriteMode
from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.conformance.table_branches import BranchConformance
from tests.conformance.table_rows import MODES, SCHEMA, Bench, names, part
from tests.conformance.table_slices import SlicedTableConformance
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance
from tests.tables.writer_process import start_writer


class TestFolderTables(TableWriterConformance, WitnessConformance, SlicedTableConformance, BranchConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        writer = FolderTables(tmp_path)
        return Bench(writer, FolderTables(tmp_path), lambda target: list(writer.rows(target.name).to_pylist()))


@pytest.mark.parametrize("write", MODES)
@pytest.mark.parametrize("point", ["table.committing", "table.committed"])
def test_a_killed_writer_leaves_a_whole_table(tmp_path: Path, write: WriteMode, point: str) -> None:
    tables = FolderTables(tmp_path)
    target = tables.prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    load = part(target, write, [{"id": 1, "name": "a"}])
    assert (
        start_writer(FolderTables, tmp_path, msgspec.json.encode(load), point, signal.SIGKILL).wait(30)
        == -signal.SIGKILL
    )
    assert tables.commit("l1", load).was_there == (point == "table.committed")
    assert names(tables.rows(target.name).to_pylist()) == [(1, "a")]


@pytest.mark.parametrize("write", MODES)
def test_a_stopped_writer_wakes_up_to_a_load_that_is_in(tmp_path: Path, write: WriteMode) -> None:
    tables = FolderTables(tmp_path)
    target = tables.prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    load = part(target, write, [{"id": 1, "name": "a"}])
    process = start_writer(FolderTables, tmp_path, msgspec.json.encode(load), "table.committing", signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    assert not tables.commit("l1", load).was_there
    assert not tables.commit("l2", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}])).was_there
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=30)[0] == b"True\n"
    assert names(tables.rows(target.name).to_pylist()) == [(1, "newer")]


def test_many_processes_each_land_their_load(tmp_path: Path) -> None:
    tables = FolderTables(tmp_path)
    target = tables.prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    racing = [start_writer(FolderTables, tmp_path, msgspec.json.encode(load), "table.committing", 0) for _ in range(4)]
    answers = sorted(process.communicate(timeout=60)[0] for process in racing)
    assert answers == [b"False\n", b"True\n", b"True\n", b"True\n"]
    assert names(tables.rows(target.name).to_pylist()) == [(1, "a")]


def test_what_a_killed_writer_left_beside_the_log_is_ignored(tmp_path: Path) -> None:
    tables = FolderTables(tmp_path)
    target = tables.prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    (Path(target.location) / "log" / ".half.tmp").write_text('{"load_id": "l')
    assert not tables.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])).was_there
    assert len(FolderTables(tmp_path).rows(target.name)) == 1


def test_an_error_after_the_commit_point_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = FolderTables(tmp_path)
    target = tables.prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # the folder's own, once the entry is linked
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(CommitUnknown, match="Input/output error"):
            tables.commit("l1", load)
    assert tables.find_load("l1", load) is not None
    assert tables.commit("l1", load).was_there


def test_a_damaged_entry_of_the_log_and_a_cut_file_are_errors_of_the_table(tmp_path: Path) -> None:
    tables = FolderTables(tmp_path)
    target = tables.prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    with Path(load.files[0].path).open("r+b") as file:
        file.truncate(10)
    with pytest.raises(TableError, match="Parquet"):
        tables.commit("l1", load)
    entry = Path(target.location) / "log" / "00000001.json"
    entry.write_bytes(entry.read_bytes()[:-10])
    for damaged in (FolderTables(tmp_path), ParquetTables(tmp_path)):
        with pytest.raises(TableError, match=r"00000001\.json: it is damaged"):
            damaged.witness(target.name, "shop")


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_table_that_was_dropped_takes_nothing_from_a_writer_that_knew_it(
    tmp_path: Path, *, is_made_again: bool
) -> None:
    tables = FolderTables(tmp_path)
    target = tables.prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    tables.commit("l1", load)
    shutil.rmtree(target.location + "/log")
    if not is_made_again:
        with pytest.raises(TableError, match="there is no table"):
            tables.commit("l2", load)
        assert not Path(target.location, "log").exists()
        return
    FolderTables(tmp_path).prepare(TableSpec(TableName("shop", "users"), SCHEMA))
    assert tables.rows(target.name).num_rows == 0
    assert not tables.commit("l1", load).was_there


def test_a_warehouse_that_cannot_be_written_is_a_table_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match="writable"):
        FolderTables(tmp_path / "file").prepare(TableSpec(TableName("shop", "users"), pa.schema([("id", pa.int64())])))
