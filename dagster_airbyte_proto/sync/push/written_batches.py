"""The files in which a Singer target gets records, in the place of RECORD lines: a BATCH message names each.

A target on Meltano's SDK validates, copies and stamps each record that comes as a line. It takes a file as it is, which
costs it a seventh of the CPU. So it does not add its `_sdc_` columns then, nor map, flatten or validate records.

The files lie in a private folder below `batch_folder`. Each goes once its rows are acknowledged, all go with the
process, and those of a run that was killed go with the next push, also if that sends nothing.
"""

import gzip
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.launch import DockerLaunch
from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.launchers.run_folder import RunFolder, remove_dead_folders

# Level 6 costs three times as much CPU, and its files are smaller by a fourteenth. They live for seconds.
_LEVEL = 1


class WrittenBatches:
    """The batch files of one process. `is_shared` lets other users read them: a container's user is not ours."""

    def __init__(self, folder: RunFolder, *, is_shared: bool) -> None:
        self._folder, self._is_shared = folder, is_shared
        self._files: deque[tuple[int, str]] = deque()

    def write(self, lines: memoryview | bytes, end: int) -> str:
        """Writes the records of a batch, one a line, that ends at a position of the plan. Returns the file's path."""
        name = f"{end}.jsonl.gz"
        file = str(self._folder.path / name)
        try:
            self._folder.write(name, gzip.compress(lines, _LEVEL, mtime=0), is_shared=self._is_shared)
        except OSError as error:
            raise StagingError(
                "writing a batch file", f"{file}: {error.strerror}", remedy="Make room there."
            ) from error
        self._files.append((end, name))
        return file

    def remove_until(self, position: int) -> None:
        """Removes the files whose rows all come before a position."""
        while self._files and self._files[0][0] <= position:
            self._folder.unlink(self._files.popleft()[1])


def remove_dead_batches(connection: Connection) -> None:
    """Removes the batch files of pushes that were killed."""
    if connection.connector.batch_folder is not None:
        remove_dead_folders(Path(connection.connector.batch_folder))


@contextmanager
def written_batches(connection: Connection) -> Iterator[WrittenBatches | None]:
    """Opens the folder for the batch files of one process; None if the connection names no `batch_folder`."""
    place = connection.connector.batch_folder
    if place is None:
        yield None
        return
    is_shared = isinstance(connection.connector.launch, DockerLaunch)
    folder = RunFolder.make(Path(place), {})
    try:
        if is_shared:
            folder.share()
        yield WrittenBatches(folder, is_shared=is_shared)
    finally:
        folder.remove()
