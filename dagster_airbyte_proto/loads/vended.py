"""Files of tables whose credentials a catalog vends: it gives them with each table, for a limited time.

- A pyarrow file system keeps the credentials that it was opened with. So each call here goes to one that was opened
  with credentials that are still good, and a caller may keep this one as long as a sync lasts.
- A file that is being written stays with the credentials with which it was opened. Therefore a source renews them when
  half of their life is over, and no file is open for long.
- Vended credentials are in memory only: nothing here pickles or shows them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
from pyarrow import fs

MOST_OPEN_SECONDS: Final = 120.0
"""A file with vended credentials is closed after so long, and the next rows go into another one. Else that of a stream
which is read whole would be open until the sync ends. Credentials that live for five minutes are good for the rest."""


class CredentialSource(Protocol):
    """A catalog that vends credentials."""

    def settings_at(self, location: str) -> Mapping[str, str]:
        """Returns the settings for the files at a location, with credentials that stay good for a while.

        Empty where the catalog vends none. May call the catalog. Raises OSError if that fails. Threads may share it.
        """
        ...


class RenewedFileSystem(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Passes each call on to the file system that `current` returns for it."""

    def __init__(self, current: Callable[[], fs.FileSystem]) -> None:
        self._current = current

    def get_type_name(self) -> str:
        return "renewed"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self._current().get_file_info(paths)
        return found

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self._current().get_file_info(selector)
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        """Does nothing: an object store has no folders, and what a catalog vends does not reach those above a table."""

    def delete_dir(self, path: str) -> None:
        self._current().delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._current().delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("nothing of ours deletes a whole store")

    def delete_file(self, path: str) -> None:
        self._current().delete_file(path)

    def move(self, source: str, target: str) -> None:
        self._current().move(source, target)

    def copy_file(self, source: str, target: str) -> None:
        self._current().copy_file(source, target)

    # pyarrow itself unpacks what comes from these, by the file's name. Done here too, it would be done twice.

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._current().open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._current().open_input_file(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        return self._current().open_output_stream(path, compression=None, metadata=metadata)

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        return self._current().open_append_stream(path, compression=None, metadata=metadata)
