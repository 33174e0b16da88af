"""Tables as plain folders: Parquet files, and a numbered log that says which of them count. No JVM.

- Each log entry (`log/00000001.json` and so on) is written to a temporary file and then hard-linked to its name. The
  link fails when the number is taken: a compare-and-set between any number of processes. A kill at any moment leaves
  the log whole.
- A commit goes in at the number after the last entry that it has read, or not at all. So it has seen the whole log
  that it commits onto.
- Deletes are files too, applied when the table is read, by Iceberg's rules. The number of an entry is the age of its
  files. A position delete reaches its own entry and older ones, an equality delete older ones only. Neither reaches
  another slice.
- Loads on a branch are entries of the same log, so one number fences them all. The entry that publishes a branch makes
  the branch's files the table's only ones. Where a branch has columns of its own, an earlier entry proposes these, and
  publishing makes them the table's.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import (
    FIELD_ID,
    arrow_schema,
    columns_of,
    key_ids,
    with_text_column,
    without_column,
)
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.loads.table import (
    REPLACING,
    Freshness,
    KeyQuery,
    TableFit,
    TableSpec,
    TableTarget,
    table_fit,
)
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.evolution import EvolutionDecision, IcebergSchema, evolution_decision
from dagster_airbyte_proto.schema.replacement import ReplacedTable, replacement_schema
from dagster_airbyte_proto.tables.folder import ABILITIES
from dagster_airbyte_proto.tables.parquet.log import ENTRY_DECODER, NO_TABLE, LogEntry, LogSnapshot
from dagster_airbyte_proto.tables.part_checks import (
    check_branch,
    check_mode,
    check_slice,
    check_slice_column,
    effective_files,
    high_water_mark_after,
)

_ATTEMPTS = 8
_ReadFile = Callable[[str], pa.Table]


def read_file(path: str) -> pa.Table:
    """Reads a file of a table."""
    return pq.read_table(without_file_scheme(path), partitioning=None)


class _Preparation(NamedTuple):
    """The columns that a stream needs, and the entry that brings the table to them, None where it has them.

    With a `schema_id` the columns are proposed under that number until a generation is published.
    """

    decision: EvolutionDecision
    entry: LogEntry | None
    schema_id: int | None = None


class FolderTables:
    """The tables under one folder. Processes may share the folder, and threads one object."""

    abilities = ABILITIES
    storage = LOCAL

    def __init__(self, root: Path, read: _ReadFile = read_file) -> None:
        self._root, self._read = root.absolute(), read
        self._snapshots: dict[TableName, LogSnapshot] = {}

    def prepare(self, spec: TableSpec) -> TableTarget:
        doing, wanted = f"preparing table {spec.name}", with_text_column(columns_of(spec.schema), spec.slice_column)
        for _ in range(_ATTEMPTS):
            with _translated_errors(doing, self._root):
                self.folder(spec.name, "data").mkdir(parents=True, exist_ok=True)
                snapshot = self._read_snapshot(spec.name)
                if snapshot.number:
                    check_slice_column(doing, snapshot.slice_column, spec.slice_column)
                preparation = _prepare(snapshot, wanted, spec)
                preparation.decision.check_accepted(doing, spec.evolution_rules)
                if preparation.entry is None or self._append(spec.name, snapshot, preparation.entry):
                    columns, fit = (
                        preparation.decision.columns,
                        table_fit(preparation.decision, wanted, spec.evolution_rules),
                    )
                    target = self._target(spec.name, without_column(columns, spec.slice_column), fit)
                    return target._replace(schema_id=preparation.schema_id)
        raise TableError(doing, "other writers keep changing it")

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing, stream = f"committing load {load_id} to table {part.table}", str(part.stream)
        check_mode(doing, self.abilities, part)
        for _ in range(_ATTEMPTS):
            with _translated_errors(doing, self._root, stream):
                snapshot = self._read_snapshot(part.table)
                if known := _already_committed(snapshot, load_id, part):
                    return known
                check_slice(doing, snapshot.slice_column, part)
                check_branch(
                    doing, part, snapshot.last_load(part.branch_position.branch) if part.branch_position else None
                )
                entry = _load_entry(snapshot, load_id, part)
                points.reach("table.committing")
                is_appended = self._append(part.table, snapshot, entry)
            if is_appended:
                points.reach("table.committed")
                return _committed(part, snapshot, snapshot.with_entry(snapshot.number + 1, entry))
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile", stream=stream)

    def branches(self, name: TableName) -> Mapping[str, str]:
        snapshot = self._read_snapshot(name)
        return {branch: load for branch in snapshot.branches if (load := snapshot.last_load(branch)) is not None}

    def drop_branch(self, name: TableName, branch: str) -> None:
        doing = f"dropping branch {branch} of table {name}"
        for _ in range(_ATTEMPTS):
            with _translated_errors(doing, self._root):
                snapshot = self._read_snapshot(name)
                if branch not in snapshot.branches or self._append(name, snapshot, LogEntry(dropped_branch=branch)):
                    return
        raise TableError(doing, "other writers keep changing it")

    def rows(self, name: TableName, branch: str | None = None) -> pa.Table:
        """Reads all rows with deletes applied, in the table's columns: those that readers see, or those of a branch."""
        snapshot = self._read_snapshot(name).of_branch(branch)
        schema = arrow_schema(snapshot.columns)
        positions = _deleted_positions(snapshot, self._read)
        keys = _deleted_keys(snapshot, self._read)
        pieces = []
        for (number, entry), file in snapshot.files(FileContent.ROWS):
            rows = _in_schema(_with_slice_column(self._read(file.path), snapshot, entry), schema)
            deleted = set(positions.get(file.path, ()))
            for (deleted_in, names), ages in keys.items():
                if deleted_in == entry.slice:
                    deleted.update(i for i, key in enumerate(_key_tuples(rows, names)) if ages.get(key, 0) > number)
            pieces.append(
                rows.filter(pa.array([i not in deleted for i in range(rows.num_rows)], pa.bool_())) if deleted else rows
            )
        return pa.concat_tables(pieces) if pieces else schema.empty_table()

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:
        return self._read_snapshot(name).of_branch(branch).freshness

    def greatest_values(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        rows = self.rows(name, branch)
        return pa.table({column: pa.array([pc.max(rows[column]).as_py()], rows[column].type) for column in columns})

    def rows_with_keys(self, name: TableName, query: KeyQuery, branch: str | None = None) -> pa.Table:
        rows, keys = self.rows(name, branch), query.keys.column_names
        if query.since is not None:
            column, least = query.since
            rows = rows.filter(pc.greater_equal(rows[column], least))
        wanted = set(_key_tuples(query.keys, keys))
        return rows.filter(pa.array([key in wanted for key in _key_tuples(rows, keys)], pa.bool_())).select(
            query.columns
        )

    def snapshot(self, name: TableName) -> LogSnapshot:
        """Reads a table's log. Raises TableError when there is no such table."""
        snapshot = self._read_snapshot(name)
        if not snapshot.number:
            raise TableError(f"reading the log of table {name}", "there is no such table")
        return snapshot

    def names(self) -> list[TableName]:
        """Returns the name of every table, from the names of their folders."""
        return [TableName(*map(unquote, log.parts[-3:-1])) for log in sorted(self._root.glob("*/*/log"))]

    def close(self) -> None:
        """Does nothing: no resource is open."""

    def _target(self, name: TableName, columns: IcebergSchema, fit: TableFit) -> TableTarget:
        return TableTarget(name, arrow_schema(columns), str(self.folder(name)), str(name), fit)

    def folder(self, name: TableName, *inside: str) -> Path:
        """Returns the folder of a table, or a path inside of it."""
        return self._root.joinpath(*(folder_name(part) for part in name), *inside)

    def _read_snapshot(self, name: TableName) -> LogSnapshot:
        """Reads the table as of now. Entries never change, so only new ones are read."""
        snapshot = self._snapshots.get(name, NO_TABLE)
        while (path := self._entry_path(name, snapshot.number + 1)).exists():
            snapshot = snapshot.with_entry(snapshot.number + 1, ENTRY_DECODER.decode(path.read_bytes()))
        self._snapshots[name] = snapshot
        return snapshot

    def _entry_path(self, name: TableName, number: int) -> Path:
        return self.folder(name, "log", f"{number:08}.json")

    def _append(self, name: TableName, snapshot: LogSnapshot, entry: LogEntry) -> bool:
        """Appends `entry` right after `snapshot`. Returns False when another writer took that number."""
        path = self._entry_path(name, snapshot.number + 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{uuid.uuid4()}.tmp")
        try:
            with unfinished.open("xb") as file:
                file.write(msgspec.json.encode(entry))
                file.flush()
                os.fsync(file.fileno())
            path.hardlink_to(unfinished)
        except FileExistsError:
            return False
        finally:
            unfinished.unlink(missing_ok=True)
        _sync_folder(path.parent)
        return True


def _prepare(snapshot: LogSnapshot, wanted: IcebergSchema, spec: TableSpec) -> _Preparation:
    if snapshot.number == 0 or not spec.replaces:
        decision = evolution_decision(snapshot.columns, wanted, snapshot.last_column_id, spec.evolution_rules)
        entry = LogEntry(columns=decision.columns, last_column_id=decision.last_id, slice_column=spec.slice_column)
        return _Preparation(decision, entry if snapshot.number == 0 or decision.columns != snapshot.columns else None)
    branch_schema_id = snapshot.branch_schema_id(spec.resumed_branch) if spec.resumed_branch else None
    decision, number = replacement_schema(
        ReplacedTable(snapshot.columns, snapshot.last_column_id, snapshot.known_columns, branch_schema_id),
        wanted,
        spec.evolution_rules,
    )
    if decision.columns == snapshot.columns:
        return _Preparation(decision, None)
    if number is not None:
        return _Preparation(decision, None, number)
    entry = LogEntry(columns=decision.columns, last_column_id=decision.last_id, only_proposed=True)
    return _Preparation(decision, entry, snapshot.number + 1)


def folder_name(name: str) -> str:
    """Returns a table's name as a folder's: escapes slashes, zero bytes, and names of dots alone."""
    safe = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return safe.replace(".", "%2E") if not safe.strip(".") else safe


def _already_committed(snapshot: LogSnapshot, load_id: str, part: StagedRows) -> CommittedRows | None:
    """Returns the answer for a load that is in the table already, or that has nothing to commit. Else None."""
    if not snapshot.number:
        raise TableError(f"committing load {load_id}", f"there is no table {part.table}", stream=str(part.stream))
    if landed := snapshot.loads.get(load_id):
        return CommittedRows(part.stream, str(landed.number), was_there=True, table_rows=snapshot.rows)
    if not part.files and part.write not in REPLACING:
        return CommittedRows(part.stream, str(snapshot.number), was_there=False, table_rows=snapshot.rows)
    return None


def _load_entry(snapshot: LogSnapshot, load_id: str, part: StagedRows) -> LogEntry:
    files = effective_files(part, holds_rows=snapshot.rows != 0)
    key_ids(snapshot.columns_of(part.branch_position.schema_id if part.branch_position else None), part.keys)
    for file in part.files:
        if (rows := pq.read_metadata(without_file_scheme(file.path)).num_rows) != file.rows:
            raise TableError("committing a load", f"{file.path} holds {rows} rows where {file.rows} were staged")
    # The mark of a load that begins a branch or replaces everything is right whatever rows there were before.
    mark = high_water_mark_after(
        part, snapshot.of_branch(part.branch_position.branch if part.branch_position else None).freshness
    )
    return LogEntry(
        load_id=load_id,
        write=part.write,
        files=files,
        keys=part.keys,
        slice=part.slice,
        high_water_mark=mark,
        branch_position=part.branch_position,
    )


def _committed(part: StagedRows, before: LogSnapshot, after: LogSnapshot) -> CommittedRows:
    kept = before.live_outside(part.slice) if part.write in REPLACING and part.is_shown else before.live
    replaced = before._replace(live=tuple(landed for landed in before.live if landed not in kept))
    deleted = replaced.count_rows(FileContent.ROWS) if replaced.rows is None else replaced.rows
    return CommittedRows(part.stream, str(after.number), was_there=False, deleted=deleted, table_rows=after.rows)


def _deleted_positions(snapshot: LogSnapshot, read: _ReadFile) -> dict[str, set[int]]:
    """Returns the deleted rows of each file.

    Position deletes come with the rows of their own load, so age is no matter.
    """
    positions: dict[str, set[int]] = {}
    for _, file in snapshot.files(FileContent.POSITION_DELETES):
        deletes = read(file.path)
        for path, row in zip(deletes["file_path"].to_pylist(), deletes["pos"].to_pylist(), strict=True):
            positions.setdefault(path, set()).add(row)
    return positions


def _deleted_keys(
    snapshot: LogSnapshot, read: _ReadFile
) -> dict[tuple[str | None, tuple[str, ...]], dict[tuple[object, ...], int]]:
    """Returns by slice and key columns each deleted key, with the number of the last entry that deletes it.

    Null equals null here, as in Iceberg's equality deletes.
    """
    found: dict[tuple[str | None, tuple[str, ...]], dict[tuple[object, ...], int]] = {}
    names = {field["id"]: field["name"] for field in snapshot.columns["fields"]}
    for (number, entry), file in snapshot.files(FileContent.EQUALITY_DELETES):
        deletes = read(file.path)
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
    columns = (
        rows.column(places[_field_id(field)]).cast(field.type)
        if _field_id(field) in places
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    )
    return pa.table(list(columns), schema=schema)


def _field_id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _translated_errors(doing: str, root: Path, stream: str | None = None) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise TableError(doing, f"{error.filename or error} is missing", stream=stream) from error
    except OSError as error:
        remedy = f"Is the folder there, writable and not full? It is {root}"
        raise TableError(doing, error.strerror or str(error), remedy=remedy, stream=stream) from error
