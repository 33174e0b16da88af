"""Plain Parquet: folder tables that any reader takes by a plain path. No JVM; local disks.

What is in stands in the folder table's log (`folder.py`), which makes a commit land once and whole. From it this makes
what readers see: `current`, a link to a folder `v00000007` that shows the log up to its entry 7: hard links to the
files that count, and one file of no rows that has every column and comes first by name, as plain readers take the
columns from the first file.

A folder is made beside and renamed into place, and then the link is renamed over the old one, both under a lock, for a
link could be moved back by somebody who slept: so `current` only goes forward. Whoever dies in between leaves the old
folder in sight. The next to look at the table, the commit of the same load above all, moves on. A folder that is no
longer current stays for an hour, so that who listed it can still open its files.
"""

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.folder.log import View
from dagster_airbyte_proto.tables.folder.tables import FolderTables
from dagster_airbyte_proto.tables.formats import PARQUET
from dagster_airbyte_proto.tables.part_checks import refuse_mode
from dagster_airbyte_proto.tables.sql_names import qualified

CURRENT = "current"
_COLUMNS = "00000000-columns.parquet"
_KEEP_SECONDS = 3600.0
_LOOK_SECONDS = 0.01


class ParquetTables:
    """The tables under one folder. Processes may share it, and threads one object.

    Who is stopped while it shows a load is waited for `lock_seconds`.
    """

    abilities = PARQUET
    storage = LOCAL

    def __init__(self, root: Path, *, catalog: str = "spark_catalog", lock_seconds: float = 30.0) -> None:
        self.folders = FolderTables(root)
        self._catalog = catalog
        self._lock_seconds = lock_seconds

    def prepare(self, spec: TableSpec) -> TableTarget:
        if spec.slice_column is not None:
            raise TableError(f"preparing table {spec.name}", "plain Parquet tables have no partitions")
        target = self.folders.prepare(spec)
        self._show(f"preparing table {spec.name}", spec.name)
        return target._replace(qualified=qualified(self._catalog, spec.name))

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing = f"committing load {load_id} to table {part.table}"
        refuse_mode(doing, self.abilities, part)
        committed = self.folders.commit(load_id, part)
        # Also for a load that is in: whoever landed it may have died before it was shown.
        self._show(doing, part.table)
        return committed

    def names(self) -> list[TableName]:
        return self.folders.names()

    def shown(self, name: TableName) -> Path:
        """The folder that readers see now, by its own name: what is opened in it stays, whatever is committed."""
        return (self.folders.folder(name) / CURRENT).resolve()

    def close(self) -> None:
        """Nothing is held."""

    def _show(self, doing: str, name: TableName) -> None:
        """Readers see all that is in the log now, or more."""
        folder = self.folders.folder(name)
        try:
            with _locked(folder / "log" / ".showing", doing, self._lock_seconds):
                view = self.folders.view(name)
                if self.shown(name).name != _version(view.number):
                    _make(folder, view)
                    points.reach("table.version_made")
                    _turn(folder, view.number)
                    _clear(folder, view)
        except OSError as error:
            remedy = "The rows are in; to show them, sync again. Are the folder's file system and its hard links fine?"
            raise CommitUnknown(doing, f"{folder}: {error.strerror or error}", remedy=remedy) from error


@contextmanager
def _locked(path: Path, doing: str, patience_seconds: float) -> Iterator[None]:
    """One process at a time. The lock of one that dies is free; one that is stopped with it is waited for a while."""
    deadline = time.monotonic() + patience_seconds
    with path.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CommitUnknown(doing, f"another process holds {path} and does not move") from None
                time.sleep(_LOOK_SECONDS)
        yield


def _version(number: int) -> str:
    return f"v{number:08}"


def _make(folder: Path, view: View) -> None:
    """The folder of a view, whole under its name or not there."""
    place = folder / _version(view.number)
    if place.exists():
        return
    for left in folder.glob(".v*"):  # by one who died here: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    beside = folder / f".{place.name}-{uuid.uuid4().hex}"
    beside.mkdir()
    pq.write_table(arrow_schema(view.columns).empty_table(), beside / _COLUMNS)
    for name, path in _files(view):
        (beside / name).hardlink_to(path)
    _sync_folder(beside)
    beside.rename(place)


def _turn(folder: Path, number: int) -> None:
    beside = folder / f".{CURRENT}"
    beside.unlink(missing_ok=True)
    beside.symlink_to(_version(number))
    beside.replace(folder / CURRENT)
    _sync_folder(folder)


def _clear(folder: Path, view: View) -> None:
    """Lets go of folders that have not been current for a while, and of the files that only they had."""
    versions = sorted(folder.glob("v[0-9]*"))
    young = time.time() - _KEEP_SECONDS
    for old, next_one in pairwise(versions):
        if next_one.stat().st_mtime < young:
            shutil.rmtree(old)
    if versions[0].exists():
        return
    live = {path for _, path in _files(view)}
    for landed in view.loads.values():
        for file in landed.entry.files:
            path = Path(without_file_scheme(file.path))
            if path not in live and path.exists() and path.stat().st_nlink == 1:
                path.unlink()


def _files(view: View) -> Iterator[tuple[str, Path]]:
    """What each live file is called in a folder of readers, by age; and where it is."""
    for (number, entry), file in view.files(FileContent.ROWS):
        yield f"{number:08}-{entry.files.index(file):05}.parquet", Path(without_file_scheme(file.path))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
