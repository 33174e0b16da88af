"""The folder of a run's staged files: inside the table's data location. No table refers to its files until a commit."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pyarrow import fs

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.object_stores.known import is_in_object_store
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, is_local
from dagster_airbyte_proto.loads.table import TableTarget

_LONGEST_NAME = 60
_OF_RUN = "/data/run-"


class StagingFolder(NamedTuple):
    """A folder for staged files. `uri` spells it as the table's location does, and the names of its files begin so."""

    filesystem: fs.FileSystem
    path: str
    uri: str
    storage: Storage = LOCAL

    @classmethod
    def at(cls, uri: str, storage: Storage = LOCAL) -> "StagingFolder":
        """Opens the folder at `uri`. Raises StagingError if its file system is unknown, or has no such place."""
        try:
            filesystem, path = storage.at(uri)
        except (OSError, ValueError) as error:
            raise StagingError("finding the staging folder", f"{uri}: {error}") from error
        return cls(filesystem, path, uri, storage)

    def file(self, name: str) -> tuple[str, str]:
        """Returns the path of a file in the folder, for the file system, and its URI, for everything else."""
        return f"{self.path}/{name}", f"{self.uri}/{name}"


def staging_id(run_id: str, fence: int) -> str:
    """Returns the id of a run, under its lease, in its staging folders.

    Not the run id alone: the partitions of one backfill share it, and the attempts of one step. What one of them has
    left is swept while another may stage its files.
    """
    return f"{run_id}-{fence}"


def run_staging_folder(target: TableTarget, run_id: str) -> str:
    """Returns the folder of a run's staged files of one table, spelled as the table's location is. `run_id` is its
    `staging_id`."""
    return f"{target.location.rstrip('/')}{_OF_RUN}{run_id}"


def location_of_staged(place: str) -> str:
    """Returns the location of the table that a staging folder is of, or a file in one; empty if it is neither."""
    return place.rpartition(_OF_RUN)[0]


def file_name(kind: str, stream: str, suffix: str, number: int) -> str:
    """Returns a name that is unique in the folder and that a person can read."""
    # Hadoop hides files whose names begin with "_" or ".", so the kind comes first.
    return f"{kind}-{number:05d}-{re.sub('[^A-Za-z0-9]+', '-', stream)[:_LONGEST_NAME].strip('-')}-{suffix}.parquet"


def create_folder(folder: StagingFolder) -> None:
    """Creates the folder if it is missing. Does nothing in object stores."""
    # An object store has no folders, and pyarrow would leave an empty object for it.
    if is_in_object_store(folder.uri):
        return
    with raising_staging_error("make the staging folder", folder.uri):
        folder.filesystem.create_dir(folder.path, recursive=True)


def check_folder(folder: StagingFolder) -> None:
    """Raises StagingError where a folder of this machine cannot be made. It leaves none: perhaps no row is written."""
    if not isinstance(folder.filesystem, fs.LocalFileSystem):
        return
    with raising_staging_error("make the staging folder", folder.uri), suppress(FileExistsError):
        path = Path(folder.path)
        path.mkdir(parents=True)
        path.rmdir()


def sync_to_disk(folder: StagingFolder, path: str) -> None:
    """Makes a closed file durable, so that it survives a power failure. Object stores do so themselves."""
    if not isinstance(folder.filesystem, fs.LocalFileSystem):
        return
    for place in (path, folder.path):
        with raising_staging_error("write to disk", place):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def remove_file(folder: StagingFolder, path: str) -> None:
    """Deletes a staged file, if it still exists."""
    uri = folder.uri + path.removeprefix(folder.path)
    with raising_staging_error("remove a staged file", uri), suppress(FileNotFoundError):
        folder.filesystem.delete_file(path)


def has_orphan_files(folder: str, keep: Collection[str], storage: Storage = LOCAL) -> bool:
    """Returns whether `remove_orphan_files` would delete a file."""
    place = StagingFolder.at(folder, storage)
    kept = _paths_of(keep, storage)
    with raising_staging_error("look into the staging folder", folder):
        return any(path not in kept for path in _files_in(place))


def remove_orphan_files(folder: str, keep: Collection[str], storage: Storage = LOCAL) -> int:
    """Deletes the files of a dead run's folder that are not in `keep`, and the folder if none is left.

    Returns the number of deleted files.
    """
    place = StagingFolder.at(folder, storage)
    kept = _paths_of(keep, storage)
    with raising_staging_error("sweep the staging folder", folder):
        files = _files_in(place)
        removed = [path for path in files if path not in kept]
        for path in removed:
            place.filesystem.delete_file(path)
        if len(removed) == len(files):
            _remove_folder(place)
    return len(removed)


def _remove_folder(place: StagingFolder) -> None:
    """Removes an empty folder. In an object store it is there if pyarrow has left an empty object for it."""
    with suppress(FileNotFoundError):
        if place.filesystem.get_file_info(place.path).type is fs.FileType.Directory:
            place.filesystem.delete_dir(place.path)


def _files_in(place: StagingFolder) -> list[str]:
    entries = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True, recursive=True))
    return [info.path for info in entries if info.is_file]


def _paths_of(files: Collection[str], storage: Storage) -> set[str]:
    return {StagingFolder.at(file, storage).path for file in files}


@contextmanager
def raising_staging_error(
    action: str, place: str, *, size_bytes: int | None = None, stream: str | None = None
) -> Iterator[None]:
    """Turns an OSError into a StagingError with the place, the bytes that were to be written, and a remedy."""
    try:
        yield
    except OSError as error:
        size = "" if size_bytes is None else f" ({size_bytes} bytes)"
        reason = error.strerror or str(error)
        there = "Make room there, or make it writable"
        elsewhere = "Is it reachable from here, and may these credentials read, write and delete there?"
        remedy = f"{there}; running again is safe." if is_local(place) else f"{elsewhere} Running again is safe."
        raise StagingError(action, f"{place}{size}: {reason}", remedy=remedy, stream=stream) from error
