"""Tables as plain folders: Parquet files, and a numbered log that says which of them count. No JVM.

`log/00000001.json` and so on are each written whole beside and then linked into place, which fails when the number is
taken: a compare-and-set that any number of processes share, and that a kill at any moment leaves whole. A commit goes
in at the number after the last one it has read, or not at all, so it knows the whole log that it commits onto.
Deletes are files too, resolved when the table is read, by Iceberg's rules: the number of the entry is the age of its
files; a position delete reaches its own entry and older ones, an equality delete older ones only, and both no other
slice than their own.

Loads that are put aside are entries of the same log, which say of which branch they are; the entry that publishes a
branch has its files count from then on, and no others. So one number fences them all. Where such loads have columns of
their own, an entry says these beforehand, and it is the publishing one that makes them the table's.
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
from dagster_airbyte_proto.loads.column_ids import FIELD_ID, arrow_schema, columns_of, key_ids, with_text, without
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.loads.table import REPLACING, Sought, Standing, TableFit, TableSpec, TableTarget, fit_of
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.evolution import Columns, Verdict, decided
from dagster_airbyte_proto.schema.replacing import Before, replacement
from dagster_airbyte_proto.tables.folder.log import ENTRY, NOTHING, Entry, View
from dagster_airbyte_proto.tables.formats import FOLDER
from dagster_airbyte_proto.tables.part_checks import (
    landing,
    newest_after,
    refuse_aside,
    refuse_mode,
    refuse_part,
    refuse_slices,
)

_ATTEMPTS = 8
_ReadFile = Callable[[str], pa.Table]


def read_file(path: str) -> pa.Table:
    """What is in a file of a table."""
    return pq.read_table(without_file_scheme(path), partitioning=None)


class _Fitting(NamedTuple):
    """What a table is to be for a stream, by which entry if it is not yet, and the number of the columns if they are
    not the readers' before a generation is published."""

    verdict: Verdict
    entry: Entry | None
    schema_id: int | None = None


class FolderTables:
    """The tables under one folder. Processes may share it; one object may serve several threads."""

    abilities = FOLDER
    storage = LOCAL

    def __init__(self, root: Path, read: _ReadFile = read_file) -> None:
        self._root, self._read = root.absolute(), read
        self._views: dict[TableName, View] = {}

    def prepare(self, spec: TableSpec) -> TableTarget:
        doing, wanted = f"preparing table {spec.name}", with_text(columns_of(spec.schema), spec.slice_column)
        for _ in range(_ATTEMPTS):
            with _refusals(doing, self._root):
                self.folder(spec.name, "data").mkdir(parents=True, exist_ok=True)
                view = self._view(spec.name)
                if view.number:
                    refuse_slices(doing, view.slice_column, spec.slice_column)
                fitting = _fitting(view, wanted, spec)
                fitting.verdict.refuse(doing, spec.terms)
                if fitting.entry is None or self._append(spec.name, view, fitting.entry):
                    columns, fit = fitting.verdict.columns, fit_of(fitting.verdict, wanted, spec.terms)
                    target = self._target(spec.name, without(columns, spec.slice_column), fit)
                    return target._replace(schema_id=fitting.schema_id)
        raise TableError(doing, "other writers keep changing it")

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing, stream = f"committing load {load_id} to table {part.table}", str(part.stream)
        refuse_mode(doing, self.abilities, part)
        for _ in range(_ATTEMPTS):
            with _refusals(doing, self._root, stream):
                view = self._view(part.table)
                if known := _known(view, load_id, part):
                    return known
                refuse_part(doing, view.slice_column, part)
                refuse_aside(doing, part, view.newest(part.aside.branch) if part.aside else None)
                entry = _entry(view, load_id, part)
                points.reach("table.committing")
                is_in = self._append(part.table, view, entry)
            if is_in:
                points.reach("table.committed")
                return _committed(part, view, view.after(view.number + 1, entry))
        raise TableError(doing, f"other writers changed the table {_ATTEMPTS} times meanwhile", stream=stream)

    def aside(self, name: TableName) -> Mapping[str, str]:
        view = self._view(name)
        return {branch: newest for branch in view.branches if (newest := view.newest(branch)) is not None}

    def drop_aside(self, name: TableName, branch: str) -> None:
        doing = f"dropping branch {branch} of table {name}"
        for _ in range(_ATTEMPTS):
            with _refusals(doing, self._root):
                view = self._view(name)
                if branch not in view.branches or self._append(name, view, Entry(dropped=branch)):
                    return
        raise TableError(doing, "other writers keep changing it")

    def rows(self, name: TableName, branch: str | None = None) -> pa.Table:
        """All rows as of now, deletes applied, in the table's columns: those that readers see, or of a branch."""
        view = self._view(name).on(branch)
        schema = arrow_schema(view.columns)
        taken_out = _positions(view, self._read)
        keys = _keys(view, self._read)
        pieces = []
        for (number, entry), file in view.files(FileContent.ROWS):
            rows = _shaped(_of_slice(self._read(file.path), view, entry), schema)
            gone = set(taken_out.get(file.path, ()))
            for (deleted_in, names), ages in keys.items():
                if deleted_in == entry.slice:
                    gone.update(i for i, key in enumerate(_tuples(rows, names)) if ages.get(key, 0) > number)
            pieces.append(
                rows.filter(pa.array([i not in gone for i in range(rows.num_rows)], pa.bool_())) if gone else rows
            )
        return pa.concat_tables(pieces) if pieces else schema.empty_table()

    def standing(self, name: TableName, branch: str | None = None) -> Standing:
        return self._view(name).on(branch).standing

    def greatest(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        rows = self.rows(name, branch)
        return pa.table({column: pa.array([pc.max(rows[column]).as_py()], rows[column].type) for column in columns})

    def rows_of(self, name: TableName, sought: Sought, branch: str | None = None) -> pa.Table:
        rows, keys = self.rows(name, branch), sought.keys.column_names
        if sought.since is not None:
            column, least = sought.since
            rows = rows.filter(pc.greater_equal(rows[column], least))
        wanted = set(_tuples(sought.keys, keys))
        return rows.filter(pa.array([key in wanted for key in _tuples(rows, keys)], pa.bool_())).select(sought.columns)

    def view(self, name: TableName) -> View:
        """A table as its log has it. Raises TableError when there is none."""
        view = self._view(name)
        if not view.number:
            raise TableError(f"looking at table {name}", "there is no such table")
        return view

    def names(self) -> list[TableName]:
        """Every table of the folder, by the names of their folders."""
        return [TableName(*map(unquote, log.parts[-3:-1])) for log in sorted(self._root.glob("*/*/log"))]

    def close(self) -> None:
        """Nothing is held."""

    def _target(self, name: TableName, columns: Columns, fit: TableFit) -> TableTarget:
        return TableTarget(name, arrow_schema(columns), str(self.folder(name)), str(name), fit)

    def folder(self, name: TableName, *inside: str) -> Path:
        """Where a table lies, or something inside of it."""
        return self._root.joinpath(*(folder_name(part) for part in name), *inside)

    def _view(self, name: TableName) -> View:
        """The table as of now. Entries never change, so only new ones are read."""
        view = self._views.get(name, NOTHING)
        while (path := self._entry_path(name, view.number + 1)).exists():
            view = view.after(view.number + 1, ENTRY.decode(path.read_bytes()))
        self._views[name] = view
        return view

    def _entry_path(self, name: TableName, number: int) -> Path:
        return self.folder(name, "log", f"{number:08}.json")

    def _append(self, name: TableName, view: View, entry: Entry) -> bool:
        """Makes `entry` the next one after `view`. False when another writer took that number."""
        path = self._entry_path(name, view.number + 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{uuid.uuid4()}.tmp")
        try:
            with beside.open("xb") as file:
                file.write(msgspec.json.encode(entry))
                file.flush()
                os.fsync(file.fileno())
            path.hardlink_to(beside)
        except FileExistsError:
            return False
        finally:
            beside.unlink(missing_ok=True)
        _sync_folder(path.parent)
        return True


def _fitting(view: View, wanted: Columns, spec: TableSpec) -> _Fitting:
    if view.number == 0 or not spec.replaces:
        verdict = decided(view.columns, wanted, view.last_column_id, spec.terms)
        entry = Entry(columns=verdict.columns, last_column_id=verdict.last_id, slice_column=spec.slice_column)
        return _Fitting(verdict, entry if view.number == 0 or verdict.columns != view.columns else None)
    begun = view.begun(spec.begun) if spec.begun else None
    verdict, number = replacement(Before(view.columns, view.last_column_id, view.known, begun), wanted, spec.terms)
    if verdict.columns == view.columns:
        return _Fitting(verdict, None)
    if number is not None:
        return _Fitting(verdict, None, number)
    entry = Entry(columns=verdict.columns, last_column_id=verdict.last_id, generation=True)
    return _Fitting(verdict, entry, view.number + 1)


def folder_name(name: str) -> str:
    """A name may hold what a folder's may not: a slash, a zero byte, dots alone."""
    safe = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return safe.replace(".", "%2E") if not safe.strip(".") else safe


def _known(view: View, load_id: str, part: StagedRows) -> CommittedRows | None:
    """What there is to say of a load that is in already, or that has nothing to land."""
    if not view.number:
        raise TableError(f"committing load {load_id}", f"there is no table {part.table}", stream=str(part.stream))
    if landed := view.loads.get(load_id):
        return CommittedRows(part.stream, str(landed.number), was_there=True, table_rows=view.rows)
    if not part.files and part.write not in REPLACING:
        return CommittedRows(part.stream, str(view.number), was_there=False, table_rows=view.rows)
    return None


def _entry(view: View, load_id: str, part: StagedRows) -> Entry:
    files = landing(part, holds_rows=view.rows != 0)
    key_ids(view.columns_of(part.aside.schema_id if part.aside else None), part.keys)
    for file in part.files:
        if (rows := pq.read_metadata(without_file_scheme(file.path)).num_rows) != file.rows:
            raise TableError("committing a load", f"{file.path} holds {rows} rows where {file.rows} were staged")
    # What a load that begins a branch, or that replaces everything, says of its rows holds whatever there was before.
    newest = newest_after(part, view.on(part.aside.branch if part.aside else None).standing)
    return Entry(
        load_id=load_id,
        write=part.write,
        files=files,
        keys=part.keys,
        slice=part.slice,
        newest=newest,
        aside=part.aside,
    )


def _committed(part: StagedRows, before: View, after: View) -> CommittedRows:
    kept = before.beside(part.slice) if part.write in REPLACING and part.is_shown else before.live
    replaced = before._replace(live=tuple(landed for landed in before.live if landed not in kept))
    deleted = replaced.count(FileContent.ROWS) if replaced.rows is None else replaced.rows
    return CommittedRows(part.stream, str(after.number), was_there=False, deleted=deleted, table_rows=after.rows)


def _positions(view: View, read: _ReadFile) -> dict[str, set[int]]:
    """The rows of each file that position deletes take out. They come with their own load, so age settles nothing."""
    taken_out: dict[str, set[int]] = {}
    for _, file in view.files(FileContent.POSITION_DELETES):
        deletes = read(file.path)
        for path, row in zip(deletes["file_path"].to_pylist(), deletes["pos"].to_pylist(), strict=True):
            taken_out.setdefault(path, set()).add(row)
    return taken_out


def _keys(view: View, read: _ReadFile) -> dict[tuple[str | None, tuple[str, ...]], dict[tuple[object, ...], int]]:
    """By slice and key columns: each deleted key with the number of the last entry that deletes it. Null equals null
    here."""
    found: dict[tuple[str | None, tuple[str, ...]], dict[tuple[object, ...], int]] = {}
    names = {field["id"]: field["name"] for field in view.columns["fields"]}
    for (number, entry), file in view.files(FileContent.EQUALITY_DELETES):
        deletes = read(file.path)
        columns = tuple(names[_field_id(field)] for field in deletes.schema)
        ages = found.setdefault((entry.slice, columns), {})
        ages.update(dict.fromkeys(_tuples(deletes, deletes.column_names), number))
    return found


def _tuples(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    return zip(*(rows[column].to_pylist() for column in columns), strict=True)


def _of_slice(rows: pa.Table, view: View, entry: Entry) -> pa.Table:
    """A file's rows, with the slice that they are of."""
    if view.slice_column is None:
        return rows
    slices = pa.repeat(pa.scalar(entry.slice, pa.string()), rows.num_rows)
    return rows.append_column(arrow_schema(view.columns).field(view.slice_column), slices)


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of an older file in the columns of today: a column is known by its id, for it may have had another name."""
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
    """Makes the names in a folder outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _refusals(doing: str, root: Path, stream: str | None = None) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise TableError(doing, f"{error.filename or error} is missing", stream=stream) from error
    except OSError as error:
        remedy = f"Is the folder there, writable and not full? It is {root}"
        raise TableError(doing, error.strerror or str(error), remedy=remedy, stream=stream) from error
