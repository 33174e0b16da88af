"""Tables of an Iceberg catalog of type `hadoop` on this machine: folders, of which nobody but the file system knows.

- Iceberg finds no table where it can read neither `version-hint.text` nor the list of the metadata files, and no look
  at a file raises. So where it finds none, the folder itself is looked at (`log_folders.py`).
- A commit makes the folders above the file that it writes. If the table was dropped after the commit had read it, its
  folder is back, with this one metadata file, and Iceberg takes that for the table. `committing` removes the file.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.storage import is_local, without_file_scheme
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.only_writer import only_writer
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.log_folders import log_files

_HINT = "version-hint.text"
_VERSION_FILE = re.compile(r"v(?P<version>[0-9]+)\..*")
# Iceberg reports a version that the hint names, and that is not there, as a validation that failed.
_NOT_FOUND = (Failure.MISSING_TABLE, Failure.CONFLICT)


class TableFolders(NamedTuple):
    """The folders of a catalog's tables, in its `warehouse`; None for a catalog that knows its tables otherwise, or
    whose warehouse is not on this machine."""

    warehouse: str | None

    @classmethod
    def of(cls, session: SparkSession, catalog: str) -> "TableFolders":
        key = f"spark.sql.catalog.{catalog}"
        is_hadoop = session.conf.get(f"{key}.type", None) == "hadoop"
        warehouse = session.conf.get(f"{key}.warehouse", None) or ""
        is_here = is_hadoop and bool(warehouse) and is_local(warehouse)
        return cls(without_file_scheme(warehouse).rstrip("/") if is_here else None)

    def load(self, name: TableName, load: Callable[[], Any]) -> Any:
        """Calls `load`, which returns a table (Java's). Raises TableError where it finds none, and its folder does not
        show that there is none."""
        try:
            return load()
        except CALL_ERRORS as error:
            doing = f"loading table {name}"
            if self.warehouse is None or failure_of(error) not in _NOT_FOUND:
                raise
            folder = f"{self.warehouse}/{name.namespace}/{name.name}/metadata"
            if not (files := log_files(doing, folder, _VERSION_FILE)):
                raise
        try:
            return load()  # Another writer may have made it in between.
        except CALL_ERRORS as error:
            if failure_of(error) not in _NOT_FOUND:
                raise
            found = f"{folder} has {files[0]}, and Iceberg does not find the table: {first_line(error)}"
            remedy = f"Delete {folder}/{_HINT}, and Iceberg takes the newest metadata file of the folder."
            raise TableError(doing, found, remedy=remedy) from error

    @contextmanager
    def committing(self, location: str, read: str) -> Iterator[None]:
        """While it is entered, no other process of this machine commits to the table, if it lies on it.

        The commit follows on the metadata file that was `read`, or a later one. Raises TableError, and leaves no table,
        where the table was dropped meanwhile.
        """
        was_made_again = False
        with only_writer(location):
            try:
                yield
            finally:
                if self.warehouse is not None and read:
                    was_made_again = _unmake(Path(without_file_scheme(location)), Path(without_file_scheme(read)))
        if was_made_again:
            raise TableError(f"committing to the table in {location}", "it was dropped meanwhile")


def _unmake(folder: Path, read: Path) -> bool:
    """Removes the metadata file of a commit that has made a dropped table again. Returns whether there was one.

    A commit leaves the file that it follows on, whatever the table's properties say. So a single file that is not the
    first one belongs to no table.
    """
    with suppress(OSError):
        if not read.exists():
            files = [file for file in (folder / "metadata").iterdir() if _VERSION_FILE.fullmatch(file.name)]
            if len(files) == 1 and not re.match(r"v1\.", files[0].name):
                files[0].unlink()
                (folder / "metadata" / _HINT).unlink(missing_ok=True)
                return True
    return False
