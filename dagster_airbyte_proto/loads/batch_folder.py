"""The one folder whose files a connector may pass to us: a path on this machine, or a URL that pyarrow reads.

A BATCH message is a connector's word, and its files are read and then removed with our permissions. So:

1. A file must lie below the folder that the connection names, with every symbolic link resolved.
2. The resolved path is what is opened, and what a load keeps until it is promoted. Both times it is opened from the
   root, following no link: one that was put there since is refused, and so is what is no regular file.
3. Of a URL only the path below the folder counts. The server, its options and the credentials are those of the
   connection's URL: an `endpoint_override` of the connector's would send our credentials to a server of its choice.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow.fs import FileSystem

# A folder that may be searched but not listed can be passed through with O_PATH, which is Linux's.
_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OpenBatchFile(NamedTuple):
    """A batch file that is being read. `size` is that of the file as it is stored."""

    file: pa.NativeFile
    size: int


class BatchFolder(NamedTuple):
    """A folder, and the one where the connector runs: relative paths start there."""

    place: str
    working_folder: Path | None = None

    def locate(self, named: str) -> str | None:
        """Returns the resolved URL of a file that a connector names; None if it is not below the folder.

        Raises OSError if a local file is not there.
        """
        if "://" in self.place:
            return self._locate_remote(named)
        if "://" in named and not named.startswith("file://"):
            return None
        path = self._local_path(named).resolve(strict=True)
        return f"file://{path}" if path.is_relative_to(Path(self.place).resolve()) else None

    def _local_path(self, named: str) -> Path:
        # Taps built with Meltano's SDK write the path behind `file://` as it is, without percent-encoding. So a local
        # file is looked for under the literal path first.
        start = self.working_folder or Path()
        literal = start / named.removeprefix("file://")
        is_url = named.startswith("file://") and not literal.is_file()
        return start / unquote(urlsplit(named).path) if is_url else literal

    def _locate_remote(self, named: str) -> str | None:
        folder, query = self.place.partition("?")[::2]
        folder = folder.rstrip("/") + "/"
        path = named.partition("?")[0]
        below = path.removeprefix(folder)
        if below == path or not below or {"", ".", ".."} & set(unquote(below).split("/")):
            return None
        return f"{folder}{below}?{query}" if query else f"{folder}{below}"


@contextmanager
def open_batch_file(located: str) -> Iterator[OpenBatchFile]:
    """Opens a file that `locate` returned. Raises OSError or pa.ArrowInvalid."""
    if not located.startswith("file://"):
        system, path = FileSystem.from_uri(located)
        with system.open_input_stream(path, compression=None) as remote:
            yield OpenBatchFile(remote, system.get_file_info(path).size)
        return
    with _open_parent(located) as (parent, name):
        # Without O_NONBLOCK, opening a FIFO would wait for its writer for ever.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    with os.fdopen(descriptor, "rb") as opened:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError("it is no regular file")
        with pa.PythonFile(opened, mode="r") as local:
            yield OpenBatchFile(local, about.st_size)


def remove_batch_file(located: str) -> None:
    """Removes a file that `locate` returned. Raises OSError or pa.ArrowInvalid."""
    if located.startswith("file://"):
        with _open_parent(located) as (parent, name):
            os.unlink(name, dir_fd=parent)
    else:
        system, path = FileSystem.from_uri(located)
        system.delete_file(path)


def remove_sources(located: Iterable[str]) -> None:
    """Removes batch files whose rows have landed. One that cannot be removed stays: nothing in it is needed any
    more."""
    for url in located:
        with suppress(OSError, pa.ArrowInvalid):
            remove_batch_file(url)


@contextmanager
def _open_parent(located: str) -> Iterator[tuple[int, str]]:
    """Opens the folder of a local file, step by step from the root. Yields it with the file's name."""
    root, *folders, name = Path(located.removeprefix("file://")).parts
    descriptor = os.open(root, _SEARCH)
    try:
        for folder in folders:
            below = os.open(folder, _SEARCH, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)
