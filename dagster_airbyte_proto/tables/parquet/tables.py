"""Plain Parquet: folders with a log that any reader takes by a plain path. No JVM; local disks.

- The log (`logged_tables.py`) makes a commit land once and whole. Readers do not know the log, so each
  entry is then *shown* to them (docs/decisions/0006).
- `current` is a link to a folder such as `v00000007`, which shows the log up to entry 7: hard links to the files that
  count, and one file without rows that has every column. That file comes first by name, because plain readers take the
  columns from the first file.
- A version's folder is built under a temporary name and renamed; then the link is renamed over the old one. Both happen
  under a lock, because a writer that was paused could move the link back. So `current` only goes forward.
- A writer that dies in between leaves the old version shown. The next commit shows the new one, above all the repeated
  commit of the same load.
- A version that is no longer current stays for an hour, so that a reader that has listed it can still open its files.
"""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq

from dagster_airbyte_proto import points
from dagster_airbyte_proto.atomic_files import sync_folder
from dagster_airbyte_proto.errors import LandedUnseen, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema
from dagster_airbyte_proto.loads.load import CommittedRows, FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget, Witness
from dagster_airbyte_proto.model import REPLACING, TableName
from dagster_airbyte_proto.tables.only_writer import locked_in_time
from dagster_airbyte_proto.tables.outcome_unknown import outcome_unknown
from dagster_airbyte_proto.tables.parquet import ABILITIES
from dagster_airbyte_proto.tables.parquet.log import LogSnapshot
from dagster_airbyte_proto.tables.parquet.logged_tables import LoggedTables
from dagster_airbyte_proto.tables.part_checks import check_mode
from dagster_airbyte_proto.tables.sql_names import is_catalog_name, qualified, quoted

CURRENT = "current"
_COLUMNS = "00000000-columns.parquet"
_KEEP_SECONDS = 3600.0


class ParquetTables:
    """The tables under one folder. Processes may share the folder, and threads one object.

    A commit waits up to `lock_seconds` for another one that is showing a load.
    """

    abilities = ABILITIES
    storage = LOCAL

    def __init__(self, root: Path, *, catalog: str = "spark_catalog", lock_seconds: float = 30.0) -> None:
        self.folders = LoggedTables(root, self.sql_name)
        self._catalog = catalog
        self._lock_seconds = lock_seconds

    def prepare(self, spec: TableSpec) -> TableTarget:
        if spec.slice_column is not None:
            raise TableError(f"preparing table {self.sql_name(spec.name)}", "plain Parquet tables have no partitions")
        target = self.folders.prepare(spec)
        self._show(f"preparing table {self.sql_name(spec.name)}", spec.name)
        return target._replace(qualified=self.sql_name(spec.name))

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        doing = f"committing load {load_id} to table {self.sql_name(part.table)}"
        check_mode(doing, self.abilities, part)
        if part.write not in REPLACING and self.folders.find_load(load_id, part) is None:
            self._check_files(doing, part.table)
        committed = self.folders.commit(load_id, part)
        # Also for a load that is in the log already: the writer that landed it may have died before showing it.
        self._show_landed(doing, part)
        return committed

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        landed = self.folders.find_load(load_id, part)
        if landed is not None:
            self._show_landed(f"showing load {load_id} in table {self.sql_name(part.table)}", part)
        return landed

    def witness(self, name: TableName, connection: str) -> Witness | None:
        return self.folders.witness(name, connection)

    def names(self) -> list[TableName]:
        return self.folders.names()

    def sql_name(self, name: TableName) -> str:
        """Returns a table's name in SQL: the path that readers use where the session catalog does not take the name."""
        if is_catalog_name(name):
            return qualified(self._catalog, name)
        return f"parquet.{quoted(str(self.folders.folder(name) / CURRENT))}"

    def current_folder(self, name: TableName) -> Path:
        """Returns the folder of the current version by its own name.

        What is opened in it stays, whatever is committed.
        """
        return (self.folders.folder(name) / CURRENT).resolve()

    def close(self) -> None:
        """Does nothing: no resource is open."""

    def _check_files(self, doing: str, name: TableName) -> None:
        """Raises TableError if a file of the table is gone: a load that lands could not be shown."""
        try:
            gone = next((path for _, path in _linked_files(self.folders.snapshot(name)) if not path.exists()), None)
        except OSError as error:
            raise TableError(doing, f"{error.filename or name}: {error.strerror or error}") from error
        if gone is not None:
            raise _file_gone(doing, gone)

    def _show_landed(self, doing: str, part: StagedRows) -> None:
        """Makes readers see a load that is in the log. Raises LandedUnseen: it is no load to be repeated, nor lost."""
        with outcome_unknown(doing, str(part.stream)):
            try:
                self._show(doing, part.table)
            except TableError as error:
                remedy = (
                    f"The rows are committed; sync again to show them. {error.remedy} Before that, resolve its load as"
                    " landed: `airbyte-proto loads resolve`."
                )
                raise LandedUnseen(doing, error.found, remedy=remedy) from error

    def _show(self, doing: str, name: TableName) -> None:
        """Makes readers see all that is in the log now, or more. Raises TableError if that is not possible."""
        folder = self.folders.folder(name)
        try:
            with _locked(folder / "log" / ".showing", doing, self._lock_seconds):
                snapshot = self.folders.snapshot(name)
                if self.current_folder(name).name != _version(snapshot.number):
                    _make_version(folder, snapshot)
                    points.reach("table.version_made")
                    _point_current_to(folder, snapshot.number)
                    _remove_old_versions(folder, snapshot)
        except FileNotFoundError as error:
            raise _file_gone(doing, error.filename or folder) from error
        except OSError as error:
            remedy = "Does the folder's file system take hard links?"
            raise TableError(doing, f"{folder}: {error.strerror or error}", remedy=remedy) from error


def _file_gone(doing: str, path: Path | str) -> TableError:
    remedy = "Restore the file, or drop the table and sync with --refresh."
    return TableError(doing, f"{path} is gone", remedy=remedy)


@contextmanager
def _locked(path: Path, doing: str, timeout_seconds: float) -> Iterator[None]:
    """Lets one process in at a time.

    A process that dies frees the lock; for one that is stopped others wait a while.
    """
    with path.open("wb") as file:
        if not locked_in_time(file.fileno(), timeout_seconds):
            raise TableError(doing, f"another process holds {path} and does not move")
        yield


def _version(number: int) -> str:
    return f"v{number:08}"


def _make_version(folder: Path, snapshot: LogSnapshot) -> None:
    """Makes the folder of a version. It is there under its name only when it is whole."""
    version_folder = folder / _version(snapshot.number)
    if version_folder.exists():
        if _is_version_of(version_folder, snapshot):
            return
        shutil.rmtree(version_folder)  # Of another log, which had come as far before somebody set it back.
    for left in folder.glob(".v*"):  # left by a process that died here: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    unfinished = folder / f".{version_folder.name}-{uuid.uuid4().hex}"
    unfinished.mkdir()
    pq.write_table(arrow_schema(snapshot.columns).empty_table(), unfinished / _COLUMNS)
    for name, path in _linked_files(snapshot):
        (unfinished / name).hardlink_to(path)
    sync_folder(unfinished)
    unfinished.rename(version_folder)


def _is_version_of(version_folder: Path, snapshot: LogSnapshot) -> bool:
    """True if a folder shows this snapshot, and not another one of its number."""
    linked = dict(_linked_files(snapshot))
    return (
        {path.name for path in version_folder.iterdir()} == {_COLUMNS, *linked}
        and all((version_folder / name).samefile(path) for name, path in linked.items())
        and pq.read_schema(version_folder / _COLUMNS).equals(arrow_schema(snapshot.columns))
    )


def _point_current_to(folder: Path, number: int) -> None:
    unfinished = folder / f".{CURRENT}"
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(_version(number))
    unfinished.replace(folder / CURRENT)
    sync_folder(folder)


def _remove_old_versions(folder: Path, snapshot: LogSnapshot) -> None:
    """Removes versions that have not been current for a while, and the files that only they had."""
    # Those behind the current one are of a log that somebody set back: they say nothing of how old it is.
    versions = sorted(each for each in folder.glob("v[0-9]*") if each.name <= _version(snapshot.number))
    young = time.time() - _KEEP_SECONDS
    for old, next_one in pairwise(versions):
        if next_one.stat().st_mtime < young:
            shutil.rmtree(old)
    if versions[0].exists():
        return
    live = {path for _, path in _linked_files(snapshot)}
    for landed in snapshot.loads.values():
        for file in landed.entry.files:
            path = Path(without_file_scheme(file.path))
            if path not in live and path.exists() and path.stat().st_nlink == 1:
                path.unlink()


def _linked_files(snapshot: LogSnapshot) -> Iterator[tuple[str, Path]]:
    """Yields for each live file its name in a version's folder, which sorts by age, and its path."""
    for (number, entry), file in snapshot.files(FileContent.ROWS):
        yield f"{number:08}-{entry.files.index(file):05}.parquet", Path(without_file_scheme(file.path))
