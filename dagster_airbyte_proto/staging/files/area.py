"""Where staged files lie: a folder of the run inside the table's data location, referenced by nobody until a commit."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, is_local
from dagster_airbyte_proto.loads.table import TableTarget

_LONGEST_NAME = 60


class Folder(NamedTuple):
    """A folder for staged files. `uri` is how the table's location spells it, and so how the files are called."""

    filesystem: fs.FileSystem
    path: str
    uri: str

    @classmethod
    def at(cls, uri: str, storage: Storage = LOCAL) -> "Folder":
        """Raises StagingError when there is no such kind of place."""
        try:
            filesystem, path = storage.at(uri)
        except (OSError, pa.ArrowInvalid) as error:
            raise StagingError("find the staging folder", f"{uri}: {error}") from error
        return cls(filesystem, path, uri)

    def file(self, name: str) -> tuple[str, str]:
        """A file in it: its path for the file system, and what it is called everywhere else."""
        return f"{self.path}/{name}", f"{self.uri}/{name}"


def run_folder(target: TableTarget, run_id: str) -> str:
    """The folder of a run's staged files of one table, spelled as the table's location is."""
    return f"{target.location.rstrip('/')}/data/run-{run_id}"


def file_name(kind: str, stream: str, mark: str, number: int) -> str:
    """A name that nothing else in the folder has, that Hadoop does not hide, and that a person can read."""
    return f"{kind}-{number:05d}-{re.sub('[^A-Za-z0-9]+', '-', stream)[:_LONGEST_NAME].strip('-')}-{mark}.parquet"


def make(folder: Folder) -> None:
    """Creates the folder; there already is fine. Object stores have none, and would keep an empty object for it."""
    if isinstance(folder.filesystem, fs.S3FileSystem):
        return
    with on_disk("make the staging folder", folder.uri):
        folder.filesystem.create_dir(folder.path, recursive=True)


def settle(folder: Folder, path: str) -> None:
    """Makes a closed file outlive a loss of power. Object stores do so by themselves."""
    if not isinstance(folder.filesystem, fs.LocalFileSystem):
        return
    for place in (path, folder.path):
        with on_disk("write to disk", place):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def remove(folder: Folder, path: str) -> None:
    """Removes a staged file. Gone already is fine."""
    uri = folder.uri + path.removeprefix(folder.path)
    with on_disk("remove a staged file", uri), suppress(FileNotFoundError):
        folder.filesystem.delete_file(path)


def sweep(folder: str, keep: Collection[str], storage: Storage = LOCAL) -> int:
    """Removes the files of a dead run's folder that are not in `keep`, and the folder once it is empty. How many."""
    place = Folder.at(folder, storage)
    kept = {Folder.at(path, storage).path for path in keep}
    with on_disk("sweep the staging folder", folder):
        found = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True, recursive=True))
        removed = [info.path for info in found if info.is_file and info.path not in kept]
        for path in removed:
            place.filesystem.delete_file(path)
        if len(removed) == sum(info.is_file for info in found):
            with suppress(FileNotFoundError):
                place.filesystem.delete_dir(place.path)
    return len(removed)


@contextmanager
def on_disk(doing: str, place: str, *, size_bytes: int | None = None, stream: str | None = None) -> Iterator[None]:
    """Turns what the file system says into a StagingError that names the place, and how much was to be written."""
    try:
        yield
    except OSError as error:
        size = "" if size_bytes is None else f" ({size_bytes} bytes)"
        reason = error.strerror or str(error)
        there = "Make room there, or make it writable"
        elsewhere = "Is it reachable from here, and may these credentials read, write and delete there?"
        remedy = f"{there}; running again is safe." if is_local(place) else f"{elsewhere} Running again is safe."
        raise StagingError(doing, f"{place}{size}: {reason}", remedy=remedy, stream=stream) from error
