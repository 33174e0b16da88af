"""Deletes that a data file has already are joined with those of an upsert, and none is lost."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import POSITION_DELETES
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.tables.iceberg.positions.deletion_vectors import puffin_file
from dagster_airbyte_proto.tables.iceberg.positions.older_deletes import (
    JoinedDeletes,
    OlderDeletes,
    position_delete_table,
)
from dagster_airbyte_proto.tables.iceberg.positions.planned_files import NewDeletes, PlannedDeletes, PlannedTask

_FILE = {"spec-id": 0, "file-path": "/t/a", "file-format": "parquet", "record-count": 100, "partition": {"1000": "x"}}


def _task(*deletes: dict[str, Any]) -> PlannedTask:
    return PlannedTask.from_json(json.dumps({"schema": {}, "data-file": _FILE, "delete-files": deletes}))


def _rows(*rows: int) -> Any:
    return np.array(rows, dtype=np.int64)


def _vector(folder: Path, *rows: int, said: int | None = None) -> dict[str, Any]:
    content, vectors = puffin_file({"/t/b": _rows(9), "/t/a": _rows(*rows)})
    path = folder / f"{rows}.puffin"
    path.write_bytes(content)
    return {
        "content": "position-deletes", "file-path": str(path), "file-format": "puffin",
        "record-count": len(rows) if said is None else said, "referenced-data-file": "/t/a",
        "content-offset": vectors[1].offset, "content-size-in-bytes": vectors[1].size_bytes,
    }  # fmt: skip


def _positions(folder: Path, rows: dict[str, list[int]], *, only: str | None = None) -> dict[str, Any]:
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(position_delete_table(POSITION_DELETES, [(file, _rows(*each)) for file, each in rows.items()]), path)
    described = {"content": "position-deletes", "file-path": str(path), "file-format": "parquet", "record-count": 1}
    return {**described, "referenced-data-file": only} if only else described


def _joined(task: PlannedTask, *found: int, writes_vectors: bool = True) -> JoinedDeletes | None:
    return OlderDeletes(LOCAL, writes_vectors=writes_vectors).joined(task, _rows(*found))


def _shown(joined: JoinedDeletes | None) -> tuple[list[int], list[str]] | None:
    if joined is None:
        return None
    return joined.rows.tolist(), [Path(each.deletes.file_path).suffix for each in joined.replaced]


def test_a_new_vector_has_the_rows_of_the_older_one_which_goes(tmp_path: Path) -> None:
    task = _task(_vector(tmp_path, 1, 5, 70_000))
    assert _shown(_joined(task, 5, 6)) == ([1, 5, 6, 70_000], [".puffin"])
    assert _joined(task, 5, 70_000) is None
    assert _shown(_joined(_task(), 3)) == ([3], [])


def test_a_table_that_was_raised_to_format_3_has_its_older_files_in_the_vector(tmp_path: Path) -> None:
    of_both = _positions(tmp_path, {"/t/a": [1], "/t/b": [2]})
    of_one = _positions(tmp_path, {"/t/a": [4]}, only="/t/a")
    assert _shown(_joined(_task(of_both, of_one), 1, 9)) == ([1, 4, 9], [".parquet"])


def test_format_2_gets_only_rows_that_are_not_deleted_yet(tmp_path: Path) -> None:
    task = _task(_positions(tmp_path, {"/t/a": [1, 3], "/t/b": [2]}))
    assert _shown(_joined(task, 1, 2, writes_vectors=False)) == ([2], [])
    assert _joined(task, 1, 3, writes_vectors=False) is None


def test_deletes_by_key_stay_as_they_are(tmp_path: Path) -> None:
    by_key = {"content": "equality-deletes", "file-path": "/gone", "file-format": "parquet", "record-count": 1}
    assert _shown(_joined(_task(by_key, _vector(tmp_path, 2)), 1)) == ([1, 2], [".puffin"])


def test_deletes_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="the table says 3"):
        _joined(_task(_vector(tmp_path, 2, said=3)), 1)
    with pytest.raises(TableError, match="Compact"):
        _joined(_task({**_positions(tmp_path, {"/t/a": [1]}), "file-format": "avro"}), 1)


def test_new_deletes_are_described_as_iceberg_describes_them() -> None:
    file = _task().data_file
    new = NewDeletes(file.spec_id, file.partition, "/t/d.puffin", "puffin", 99, 2, "/t/a", 4, 40)
    described = json.loads(new.json())
    assert described["content"] == "position-deletes"
    assert described["partition"] == {"1000": "x"}
    read = PlannedDeletes("position-deletes", "/t/d.puffin", "puffin", 2, "/t/a", 4, 40)
    [applied] = _task(described).position_deletes()
    assert applied.deletes == read
    assert json.loads(applied.json) == described
