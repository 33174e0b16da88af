"""Folder tables: the log and files of plain Parquet, with branches, slices and deletes. Only this library reads them.

Deletes are files too, applied when the table is read, by Iceberg's rules. The number of an entry is the age of its
files. A position delete reaches its own entry and older ones, an equality delete older ones only. Neither reaches
another slice.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import FIELD_ID, arrow_schema
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.tables.parquet.log import LogEntry, LogSnapshot
from dagster_airbyte_proto.tables.parquet.logged_tables import ATTEMPTS, LoggedTables
from dagster_airbyte_proto.tables.part_checks import check_mode
from dagster_airbyte_proto.tables.tasks import TaskRunner
from dagster_airbyte_proto.testing.folder import ABILITIES
from dagster_airbyte_proto.testing.folder.planner import FolderPlanner
from dagster_airbyte_proto.testing.folder.process_tasks import ProcessTasks


def read_file(path: str) -> pa.Table:
    """Reads a file of a table. One that has not changed is not read again: tests read all tables after each sync."""
    place = without_file_scheme(path)
    found = Path(place).stat()
    return _read_version(place, found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1000)
def _read_version(path: str, *_: int) -> pa.Table:
    # Not `pq.read_table`: it looks for a data set of many files, which takes several times as long as a small file.
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False)


class FolderTables(LoggedTables):
    """The tables under one folder. Processes may share the folder, and threads one object."""

    abilities = ABILITIES
    storage = LOCAL

    def __init__(self, root: Path, *, tasks: TaskRunner | None = None) -> None:
        super().__init__(root)
        self._tasks = tasks or ProcessTasks()

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        check_mode(f"committing load {load_id} to table {part.table}", self.abilities, part)
        return super().commit(load_id, part)

    def branches(self, name: TableName) -> Mapping[str, str]:
        with self._translated_errors(f"looking at the branches of table {name}"):
            snapshot = self._read_snapshot(name)
        return {branch: load for branch in snapshot.branches if (load := snapshot.last_load(branch)) is not None}

    def drop_branch(self, name: TableName, branch: str) -> None:
        doing = f"dropping branch {branch} of table {name}"
        for _ in range(ATTEMPTS):
            with self._translated_errors(doing):
                snapshot = self._read_snapshot(name)
                if branch not in snapshot.branches or self._append(name, snapshot, LogEntry(dropped_branch=branch)):
                    return
        raise TableError(doing, "other writers keep changing it")

    def rows(self, name: TableName, branch: str | None = None) -> pa.Table:
        """Reads all rows with deletes applied, in the table's columns: those that readers see, or those of a branch."""
        with self._translated_errors(f"reading the rows of table {name}"):
            return self._rows(name, branch)

    def _rows(self, name: TableName, branch: str | None) -> pa.Table:
        snapshot = self._read_snapshot(name).of_branch(branch)
        schema = arrow_schema(snapshot.columns)
        positions = _deleted_positions(snapshot)
        keys = _deleted_keys(snapshot)
        pieces = []
        for (number, entry), file in snapshot.files(FileContent.ROWS):
            rows = _in_schema(_with_slice_column(read_file(file.path), snapshot, entry), schema)
            deleted = set(positions.get(file.path, ()))
            for (deleted_in, names), ages in keys.items():
                if deleted_in == entry.slice:
                    deleted.update(i for i, key in enumerate(_key_tuples(rows, names)) if ages.get(key, 0) > number)
            pieces.append(
                rows.filter(pa.array([i not in deleted for i in range(rows.num_rows)], pa.bool_())) if deleted else rows
            )
        return pa.concat_tables(pieces) if pieces else schema.empty_table()

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:
        with self._translated_errors(f"reading the log of table {name}"):
            return self._read_snapshot(name).of_branch(branch).freshness

    def greatest_values(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        rows = self.rows(name, branch)
        return pa.table({column: pa.array([pc.max(rows[column]).as_py()], rows[column].type) for column in columns})

    def rows_with_keys(self, name: TableName, query: KeyQuery, branch: str | None = None) -> pa.Table:
        rows, keys = self.rows(name, branch), query.keys.column_names
        # As Spark, which ignores the case of names.
        names = {case_folded(each): each for each in (*keys, *query.columns)}
        rows = rows.rename_columns([names.get(case_folded(each), each) for each in rows.column_names])
        if query.since is not None:
            column, least = query.since
            rows = rows.filter(pc.greater_equal(rows[column], least))
        wanted = set(_key_tuples(query.keys, keys))
        return rows.filter(pa.array([key in wanted for key in _key_tuples(rows, keys)], pa.bool_())).select(
            query.columns
        )

    def planner(self) -> FolderPlanner:
        return FolderPlanner(self.rows)

    def tasks(self) -> TaskRunner:
        return self._tasks

    def row_count(self, name: TableName) -> int:
        return len(self.rows(name))


def _deleted_positions(snapshot: LogSnapshot) -> dict[str, set[int]]:
    """Returns the deleted rows of each file.

    Position deletes come with the rows of their own load, so age is no matter.
    """
    positions: dict[str, set[int]] = {}
    for _, file in snapshot.files(FileContent.POSITION_DELETES):
        deletes = read_file(file.path)
        for path, row in zip(deletes["file_path"].to_pylist(), deletes["pos"].to_pylist(), strict=True):
            positions.setdefault(path, set()).add(row)
    return positions


def _deleted_keys(
    snapshot: LogSnapshot,
) -> dict[tuple[str | None, tuple[str, ...]], dict[tuple[object, ...], int]]:
    """Returns by slice and key columns each deleted key, with the number of the last entry that deletes it.

    Null equals null here, as in Iceberg's equality deletes.
    """
    found: dict[tuple[str | None, tuple[str, ...]], dict[tuple[object, ...], int]] = {}
    names = {field["id"]: field["name"] for field in snapshot.columns["fields"]}
    for (number, entry), file in snapshot.files(FileContent.EQUALITY_DELETES):
        deletes = read_file(file.path)
        columns = tuple(names[_field_id(field)] for field in deletes.schema)
        ages = found.setdefault((entry.slice, columns), {})
        ages.update(dict.fromkeys(_key_tuples(deletes, deletes.column_names), number))
    return found


def _key_tuples(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    return zip(*(rows[column].to_pylist() for column in columns), strict=True)


def _with_slice_column(rows: pa.Table, snapshot: LogSnapshot, entry: LogEntry) -> pa.Table:
    """Adds the column of the slice, which files do not have."""
    if snapshot.slice_column is None:
        return rows
    slices = pa.repeat(pa.scalar(entry.slice, pa.string()), rows.num_rows)
    return rows.append_column(arrow_schema(snapshot.columns).field(snapshot.slice_column), slices)


def _in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows in the table's present columns. Columns are matched by id: their names may have changed."""
    places = {_field_id(field): place for place, field in enumerate(rows.schema)}

    def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
        place = places.get(_field_id(field))
        if place is None:
            return pa.nulls(rows.num_rows, field.type)
        found = rows.column(place)
        return found if found.type == field.type else found.cast(field.type)

    return pa.table([column(field) for field in schema], schema=schema)


def _field_id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])
