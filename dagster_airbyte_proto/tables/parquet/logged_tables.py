"""Tables as plain folders: Parquet files, and a numbered log that says which of them count. No JVM.

- Each log entry (`log/00000001.json` and so on) is written to a temporary file and then hard-linked to its name. The
  link fails when the number is taken: a compare-and-set between any number of processes. A kill at any moment leaves
  the log whole.
- A commit goes in at the number after the last entry that it has read, or not at all. So it has seen the whole log
  that it commits onto. Before and after its link it looks whether the last of these entries still stands: a table that
  somebody dropped meanwhile does not come back with one load in it.
- Loads on a branch are entries of the same log, so one number fences them all. The entry that publishes a branch makes
  the branch's files the table's only ones. Where a branch has columns of its own, an earlier entry proposes these, and
  publishing makes them the table's.
- Plain Parquet shows readers what is in the log. Folder tables (`testing/folder/`) have more: branches, slices, and
  deletes that are applied when a table is read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto import points
from dagster_airbyte_proto.atomic_files import sync_folder, write_atomically
from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.column_ids import (
    arrow_schema,
    columns_of,
    key_ids,
    with_text_column,
    without_column,
)
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import folder_name, without_file_scheme
from dagster_airbyte_proto.loads.table import TableFit, TableSpec, TableTarget, Witness, table_fit
from dagster_airbyte_proto.model import REPLACING, TableName
from dagster_airbyte_proto.schema.evolution import EvolutionDecision, IcebergSchema, evolution_decision
from dagster_airbyte_proto.schema.replacement import ReplacedTable, replacement_schema
from dagster_airbyte_proto.tables.outcome_unknown import outcome_unknown
from dagster_airbyte_proto.tables.parquet.log import ENTRY_DECODER, NO_TABLE, LogEntry, LogSnapshot
from dagster_airbyte_proto.tables.part_checks import (
    check_branch,
    check_follows,
    check_slice,
    check_slice_column,
    check_table_id,
    effective_files,
    high_water_mark_after,
)

ATTEMPTS = 8


class _Preparation(NamedTuple):
    """The columns that a stream needs, and the entry that brings the table to them, None where it has them.

    With a `schema_id` the columns are proposed under that number until a generation is published.
    """

    decision: EvolutionDecision
    entry: LogEntry | None
    schema_id: int | None = None


class LoggedTables:
    """The tables under one folder. Processes may share the folder, and threads one object. Errors have `sql_name`."""

    def __init__(self, root: Path, sql_name: Callable[[TableName], str] = str) -> None:
        self._root = root.absolute()
        self._sql_name = sql_name
        self._read_before: dict[TableName, LogSnapshot] = {}

    def prepare(self, spec: TableSpec) -> TableTarget:
        doing, wanted = (
            f"preparing table {self._sql_name(spec.name)}",
            with_text_column(columns_of(spec.schema), spec.slice_column),
        )
        for _ in range(ATTEMPTS):
            with self._translated_errors(doing):
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
        doing, stream = f"committing load {load_id} to table {self._sql_name(part.table)}", str(part.stream)
        for _ in range(ATTEMPTS):
            with self._translated_errors(doing, stream):
                snapshot = self._read_snapshot(part.table)
                if known := _already_committed(snapshot, load_id, part):
                    return known
                check_table_id(doing, snapshot.table_id, part)
                check_slice(doing, snapshot.slice_column, part)
                check_follows(doing, part, is_shown=snapshot.shows(part.follows))
                check_branch(
                    doing, part, snapshot.last_load(part.branch_position.branch) if part.branch_position else None
                )
                entry = _load_entry(snapshot, load_id, part)
                points.reach("table.committing")
                is_appended = self._append_load(doing, snapshot, entry, part)
            if is_appended:
                points.reach("table.committed")
                return _committed(part, snapshot, snapshot.with_entry(snapshot.number + 1, entry))
        raise TableError(doing, f"other writers changed the table {ATTEMPTS} times meanwhile", stream=stream)

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        doing = f"looking for load {load_id} in table {self._sql_name(part.table)}"
        with self._translated_errors(doing, str(part.stream)):
            snapshot = self._read_snapshot(part.table)
        if not snapshot.number:
            raise TableError(doing, "there is no such table", stream=str(part.stream))
        check_table_id(doing, snapshot.table_id, part)
        return _landed(snapshot, load_id, part)

    def witness(self, name: TableName, connection: str) -> Witness | None:
        with self._translated_errors(f"reading the log of table {self._sql_name(name)}"):
            snapshot = self._read_snapshot(name)
        if not snapshot.number:
            return None
        return Witness(snapshot.table_id, snapshot.newest_load(connection), is_whole=True)

    def snapshot(self, name: TableName) -> LogSnapshot:
        """Reads a table's log. Raises TableError when there is no such table."""
        doing = f"reading the log of table {self._sql_name(name)}"
        with self._translated_errors(doing):
            snapshot = self._read_snapshot(name)
        if not snapshot.number:
            raise TableError(doing, "there is no such table")
        return snapshot

    def newest_snapshot(self, name: TableName) -> str | None:
        """Returns a text that differs whenever the rows of the table have changed; None where it never had rows."""
        with self._translated_errors(f"reading the newest snapshot of {self._sql_name(name)}"):
            return self._read_snapshot(name).freshness.version or None

    def row_count(self, name: TableName) -> int:
        """Returns the number of rows that readers see."""
        return self.snapshot(name).count_rows(FileContent.ROWS)

    def names(self) -> list[TableName]:
        """Returns the name of every table, from the names of their folders."""
        with self._translated_errors(f"listing the tables in {self._root}"):
            return [TableName(*map(unquote, log.parts[-3:-1])) for log in sorted(self._root.glob("*/*/log"))]

    def close(self) -> None:
        """Does nothing: no resource is open."""

    @contextmanager
    def _translated_errors(self, doing: str, stream: str | None = None) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise TableError(doing, f"{error.filename or error} is missing", stream=stream) from error
        except OSError as error:
            remedy = f"Is the folder there, writable and not full? It is {self._root}"
            raise TableError(doing, error.strerror or str(error), remedy=remedy, stream=stream) from error
        except pa.ArrowException as error:
            remedy = "Was a Parquet file of the table changed or cut short by hand? Restore it."
            raise TableError(doing, str(error).partition("\n")[0], remedy=remedy, stream=stream) from error

    def _target(self, name: TableName, columns: IcebergSchema, fit: TableFit) -> TableTarget:
        table_id = self._read_snapshot(name).table_id
        return TableTarget(name, arrow_schema(columns), str(self.folder(name)), str(name), fit, table_id=table_id)

    def folder(self, name: TableName, *inside: str) -> Path:
        """Returns the folder of a table, or a path inside of it."""
        return self._root.joinpath(*(folder_name(part) for part in name), *inside)

    def _read_snapshot(self, name: TableName) -> LogSnapshot:
        """Reads the table as of now. Entries never change, so only new ones are read."""
        snapshot = self._read_before.get(name, NO_TABLE)
        if not self._stands(name, snapshot):
            snapshot = NO_TABLE
        while (entry_id := _file_id(path := self._entry_path(name, snapshot.number + 1))) is not None:
            snapshot = snapshot.with_entry(snapshot.number + 1, _decoded(path))._replace(entry_id=entry_id)
        self._read_before[name] = snapshot
        return snapshot

    def _stands(self, name: TableName, snapshot: LogSnapshot) -> bool:
        """False if the table was dropped since its log was read, or set back: another one may stand in its place."""
        return not snapshot.number or _file_id(self._entry_path(name, snapshot.number)) == snapshot.entry_id

    def _entry_path(self, name: TableName, number: int) -> Path:
        return self.folder(name, "log", f"{number:08}.json")

    def _append_load(self, doing: str, snapshot: LogSnapshot, entry: LogEntry, part: StagedRows) -> bool:
        """Appends the entry of a load, as `_append` does. Raises CommitUnknown for an error behind the link."""
        try:
            return self._append(part.table, snapshot, entry)
        except OSError as error:
            with outcome_unknown(doing, str(part.stream)):
                is_linked = entry.load_id in self._read_snapshot(part.table).loads
            if is_linked:
                raise CommitUnknown(doing, error.strerror or str(error), stream=str(part.stream)) from error
            raise

    def _append(self, name: TableName, snapshot: LogSnapshot, entry: LogEntry) -> bool:
        """Appends `entry` right after `snapshot`. Returns False if another writer took that number, or the log that was
        read does not stand any more."""
        path = self._entry_path(name, snapshot.number + 1)
        if not self._stands(name, snapshot):
            return False
        try:
            # The folder of a table that was dropped is not made again: it would be a table with nothing but this entry.
            write_atomically(path, msgspec.json.encode(entry), overwrite=False, makes_folders=not snapshot.number)
        except (FileExistsError, FileNotFoundError):
            return False
        if not self._stands(name, snapshot):
            path.unlink(missing_ok=True)  # It was dropped while this entry was linked, which belongs to no log now.
            return False
        sync_folder(path.parent)
        return True


def _prepare(snapshot: LogSnapshot, wanted: IcebergSchema, spec: TableSpec) -> _Preparation:
    if snapshot.number == 0 or not spec.replaces:
        decision = evolution_decision(snapshot.columns, wanted, snapshot.last_column_id, spec.evolution_rules)
        entry = LogEntry(
            columns=decision.columns,
            last_column_id=decision.last_id,
            slice_column=spec.slice_column,
            table_id="" if snapshot.number else uuid4().hex,
        )
        return _Preparation(decision, entry if snapshot.number == 0 or decision.columns != snapshot.columns else None)
    resumed = spec.resumed_schema_id
    if resumed is None and spec.resumed_branch:
        resumed = snapshot.branch_schema_id(spec.resumed_branch)
    decision, number = replacement_schema(
        ReplacedTable(snapshot.columns, snapshot.last_column_id, snapshot.known_columns, resumed),
        wanted,
        spec.evolution_rules,
    )
    if decision.columns == snapshot.columns:
        return _Preparation(decision, None)
    if number is not None:
        return _Preparation(decision, None, number)
    entry = LogEntry(columns=decision.columns, last_column_id=decision.last_id, only_proposed=True)
    return _Preparation(decision, entry, snapshot.number + 1)


def _already_committed(snapshot: LogSnapshot, load_id: str, part: StagedRows) -> CommittedRows | None:
    """Returns the answer for a load that is in the table already, or that has nothing to commit. Else None."""
    if not snapshot.number:
        raise TableError(f"committing load {load_id}", f"there is no table {part.table}", stream=str(part.stream))
    if landed := _landed(snapshot, load_id, part):
        return landed
    if not part.changes_table:
        return CommittedRows(part.stream, str(snapshot.number), was_there=False, table_rows=snapshot.rows)
    return None


def _landed(snapshot: LogSnapshot, load_id: str, part: StagedRows) -> CommittedRows | None:
    entry = snapshot.loads.get(load_id)
    return entry and CommittedRows(part.stream, str(entry.number), was_there=True, table_rows=snapshot.rows)


def _decoded(path: Path) -> LogEntry:
    try:
        return ENTRY_DECODER.decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        remedy = "Restore the file from a copy: it is a part of the table's log, and was written whole."
        raise TableError(f"reading the log entry {path}", f"it is damaged: {error}", remedy=remedy) from error


def _file_id(path: Path) -> tuple[int, int] | None:
    """Tells a file from another of its name; None where there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


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
        connection=part.connection,
    )


def _committed(part: StagedRows, before: LogSnapshot, after: LogSnapshot) -> CommittedRows:
    kept = before.live_outside(part.slice) if part.write in REPLACING and part.is_shown else before.live
    replaced = before._replace(live=tuple(landed for landed in before.live if landed not in kept))
    deleted = replaced.count_rows(FileContent.ROWS) if replaced.rows is None else replaced.rows
    return CommittedRows(part.stream, str(after.number), was_there=False, deleted=deleted, table_rows=after.rows)
