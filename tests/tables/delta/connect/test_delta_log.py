"""The log of a Delta table, read from files as Delta writes them."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.tables.delta.connect.delta_log import DeltaLog, read_log
from dagster_airbyte_proto.tables.delta.history import LoadLookup, look_up_load, read_commit

_FILES = LocalFileSystem()
_COLUMNS = '{"type": "struct", "fields": []}'


def _metadata(name: str) -> dict[str, Any]:
    return {"id": name, "schemaString": _COLUMNS, "partitionColumns": ["day"], "configuration": {"a": "b"}}


def _txn(load_id: str, version: int) -> dict[str, Any]:
    return {"txn": {"appId": load_id, "version": version, "lastUpdated": 1}}


def _write(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    lines = [{"commitInfo": {"operation": "WRITE"}}, *actions]
    (folder / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))


def _checkpoint(folder: Path, name: str, *actions: dict[str, Any]) -> None:
    metadata = pa.struct(
        [
            ("id", pa.string()),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", pa.map_(pa.string(), pa.string())),
        ]
    )
    txn = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
    schema = pa.schema([("metaData", metadata), ("txn", txn), ("other", pa.int64())])
    pq.write_table(pa.Table.from_pylist(list(actions), schema), folder / name)


def _read(folder: Path, known: DeltaLog | None = None) -> DeltaLog:
    log = read_log(_FILES, str(folder), known)
    assert log is not None
    return log


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    assert read_log(_FILES, str(tmp_path / "none")) is None


def test_a_log_is_read_on_from_the_version_that_is_known(tmp_path: Path) -> None:
    _write(tmp_path, 0, {"metaData": _metadata("m0")})
    _write(tmp_path, 1, _txn("l1", 1))
    first = _read(tmp_path)
    assert (first.version, first.metadata.id, first.loads) == (1, "m0", {"l1": 1})
    assert first.metadata.configuration == {"a": "b"}
    (tmp_path / f"{0:020}.json").write_text("never read again")
    _write(tmp_path, 2, _txn("l2", 2), {"metaData": _metadata("m2")})
    second = _read(tmp_path, first)
    assert (second.version, second.metadata.id, second.loads) == (2, "m2", {"l1": 1, "l2": 2})


def test_a_table_that_was_made_again_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    _write(tmp_path, 0, {"metaData": _metadata("before")})
    _write(tmp_path, 1, _txn("l1", 1))
    first = _read(tmp_path)
    for version in range(3):
        _write(tmp_path, version, *([] if version else [{"metaData": _metadata("now")}]))
    os.utime(tmp_path / f"{1:020}.json", (1, 1))
    again = _read(tmp_path, first)
    assert (again.version, again.metadata.id, again.loads) == (2, "now", {})


@pytest.mark.parametrize("parts", [1, 2])
def test_what_was_before_a_checkpoint_is_in_it(tmp_path: Path, parts: int) -> None:
    actions = [{"metaData": _metadata("m")}, _txn("l1", 1), {"other": 1}]
    if parts == 1:
        _checkpoint(tmp_path, f"{9:020}.checkpoint.parquet", *actions)
    else:
        _checkpoint(tmp_path, f"{9:020}.checkpoint.0000000001.0000000002.parquet", actions[0])
        _checkpoint(tmp_path, f"{9:020}.checkpoint.0000000002.0000000002.parquet", *actions[1:])
        # The writer of this one died.
        _checkpoint(tmp_path, f"{10:020}.checkpoint.0000000001.0000000002.parquet", _txn("odd", 1))
    _write(tmp_path, 9)
    _write(tmp_path, 10, _txn("l2", 10))
    log = _read(tmp_path)
    assert (log.version, log.metadata.id, log.loads) == (10, "m", {"l1": 1, "l2": 10})
    assert log.metadata.partition_columns == ("day",)


def test_a_log_with_a_gap_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, 0, {"metaData": _metadata("m")})
    _write(tmp_path, 2)
    with pytest.raises(TableError, match=r"versions of .* are missing"):
        read_log(_FILES, str(tmp_path))


def _logged(folder: Path, version: int, load_id: str) -> LoadLookup | None:
    return look_up_load((_FILES, str(folder)), version, load_id)


def test_a_load_is_looked_up_in_the_newest_checkpoint_and_the_commits_after_it(tmp_path: Path) -> None:
    _write(tmp_path, 0, {"metaData": _metadata("m")})
    _write(tmp_path, 1, _txn("l1", 1))
    assert [_logged(tmp_path, 1, each) for each in ("l1", "l2")] == [LoadLookup(1), LoadLookup(None)]
    _checkpoint(tmp_path, f"{9:020}.checkpoint.parquet", {"metaData": _metadata("m")}, _txn("l1", 1), _txn("l2", 8))
    (tmp_path / "_last_checkpoint").write_text('{"version": 9, "size": 3, "checksum": "0"}')
    _write(tmp_path, 10, _txn("l3", 10))
    _write(tmp_path, 11, _txn("l4", 11))
    found = [_logged(tmp_path, 10, each) for each in ("l1", "l2", "l3", "l4")]
    assert found == [LoadLookup(1), LoadLookup(8), LoadLookup(10), LoadLookup(None)]


@pytest.mark.parametrize(
    "note", ['{"version": 9, "parts": 2}', '{"version": 9, "v2Checkpoint": {"path": "x"}}', "{", "{}"]
)
def test_where_the_files_of_a_log_do_not_say_nothing_is_presumed_of_a_load(tmp_path: Path, note: str) -> None:
    _write(tmp_path, 0, _txn("l1", 1))
    assert _logged(tmp_path, 1, "l2") is None  # version 1 is not there
    (tmp_path / "_last_checkpoint").write_text(note)
    assert _logged(tmp_path, 0, "l2") is None


@pytest.mark.parametrize(
    ("info", "operation"),
    [
        ({"operation": "WRITE", "readVersion": 3}, "WRITE"),
        # The protocol lets writers put any JSON there.
        ({"operation": None, "operationParameters": "none", "timestamp": "now"}, ""),
        (["by hand"], ""),
        (None, ""),
    ],
)
def test_a_commit_is_read_whatever_its_writer_says_of_it(tmp_path: Path, info: object, operation: str) -> None:
    actions = [{"commitInfo": info}, {"add": {"path": "a.parquet", "size": 1, "dataChange": True}}]
    (tmp_path / f"{4:020}.json").write_text("\n".join(map(json.dumps, actions)))
    commit = read_commit(_FILES, str(tmp_path), 4)
    assert commit is not None
    assert (commit.info.operation, commit.changes_rows, commit.version_before) == (operation, True, 3)
