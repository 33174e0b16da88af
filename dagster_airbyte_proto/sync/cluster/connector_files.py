"""The files of connectors on executors: manifests and their code, components, catalogs of taps.

1. The driver reads them when a sync begins. Its order has their paths, sizes and digests, and no content.
2. A task looks for a file in the cache of its machine, by the digest, and fetches what is not there from the driver,
   part by part. So a file comes once to each machine, and the driver's path is only a name there.
3. Content is held to its digest at each read, not only when it comes: connectors run as the same user, and could write
   there. What does not fit is fetched again.
"""

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, InternalError, StagingError

MAX_FILE_BYTES = 256 << 20
"""The driver keeps each file in memory while its sync runs. A component with a whole Python in it has some 40 MiB."""
_PART_BYTES = 4 << 20
_UNUSED_DAYS = 30
_FOLDER = "connector_files"
_OWN_NAME = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{16})?")


class SentFile(NamedTuple):
    """The content of a file, by its SHA-256."""

    digest: str
    size: int


class FilesOfDriver(Protocol):
    """The driver, as a task fetches files from it."""

    def part(self, digest: str, offset: int) -> bytes:
        """Returns the next bytes of a file from an offset on; b"" at its end."""
        ...


class SyncFiles:
    """The files of one connection, as they were when its sync began. Implements `FilesOfDriver`.

    Syncs that run together share `contents`: connections with the same component hold it once. Raises ConfigError for a
    file that cannot be read, or is too large. One that is not there is left to who wants to read it.
    """

    def __init__(self, connection: Connection, contents: dict[str, bytes]) -> None:
        self.by_path: dict[str, SentFile] = {}
        self._contents: dict[str, bytes] = {}
        for path in connection.files:
            with suppress(FileNotFoundError):
                content = _content(path, connection.name)
                digest = _digest(content)
                self.by_path[str(path)] = SentFile(digest, len(content))
                self._contents[digest] = contents.setdefault(digest, content)

    def part(self, digest: str, offset: int) -> bytes:
        return self._contents[digest][offset : offset + _PART_BYTES]


def _content(path: Path, connection: str) -> bytes:
    doing = f"reading the files of connection {connection} for executors"
    try:
        # No pipe is waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = _read(descriptor, MAX_FILE_BYTES + 1) if is_file else b""
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(doing, f"{path} cannot be read: {error.strerror or error}") from error
    if not is_file:
        raise ConfigError(doing, f"{path} is no regular file", remedy="Name a file, or set run_on: driver.")
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(
            doing,
            f"{path} has more than {MAX_FILE_BYTES >> 20} MiB, the most that is sent to executors",
            remedy="Make it smaller (a component: without its debug information), or set run_on: driver.",
        )
    return content


def _read(descriptor: int, most_bytes: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(most_bytes)


class CachedFiles:
    """The files of a sync's connection, by their paths on the driver, in a private folder of this machine."""

    def __init__(self, home: Path, by_path: Mapping[str, SentFile], driver: FilesOfDriver) -> None:
        self._folder = home / _FOLDER
        self._by_path = by_path
        self._driver = driver

    def read(self, path: Path) -> bytes:
        """Returns the content of a file. Raises FileNotFoundError if the driver has none there, StagingError if the
        cache cannot be written, StateUnavailable if the driver does not answer."""
        sent = self._by_path.get(str(path))
        if sent is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        content = _kept(self._folder / sent.digest, sent)
        if content is None:
            content = self._fetched(sent, path)
            _keep(self._folder, sent.digest, content)
        return content

    def _fetched(self, sent: SentFile, path: Path) -> bytes:
        content = bytearray()
        while len(content) < sent.size and (part := self._driver.part(sent.digest, len(content))):
            content += part
        if _digest(content) != sent.digest:
            raise InternalError(f"fetching {path} from the driver", "its bytes are not those that the driver announced")
        return bytes(content)


def _kept(file: Path, sent: SentFile) -> bytes | None:
    """Returns the content of a file of the cache; None if it is missing, or another one than was sent."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size != sent.size:
            return None
        content = _read(descriptor, sent.size)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if _digest(content) != sent.digest:
        return None
    with suppress(OSError):
        os.utime(file)
    return content


def _keep(folder: Path, digest: str, content: bytes) -> None:
    with _translated_faults(folder):
        _make_private(folder)
        _remove_unused(folder)
        unfinished = folder / f"{digest}.{os.urandom(8).hex()}"  # Containers that share it have the same process ids.
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            unfinished.replace(folder / digest)
        except IsADirectoryError as error:
            raise IsADirectoryError(errno.EISDIR, f"{folder / digest} is a folder") from error
        finally:
            unfinished.unlink(missing_ok=True)


def check_files_folder(home: Path) -> None:
    """Raises StagingError where files of connectors cannot be kept in this home folder."""
    folder = home / _FOLDER
    with _translated_faults(folder):
        _make_private(folder)
        probe = folder / f"{_digest(b'')}.{os.urandom(8).hex()}"  # As a file of a killed task: it goes some day.
        probe.touch()
        probe.unlink()


@contextmanager
def _translated_faults(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StagingError(
            "keeping files of connectors on an executor",
            f"{folder} cannot be used: {error.strerror or error}",
            remedy="Make room there, or name another home folder with spark.executorEnv.AIRBYTE_PROTO_EXECUTOR_HOME.",
        ) from error


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is a link, or no folder")
    if about.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if about.st_mode & 0o077:
        folder.chmod(0o700)


def _remove_unused(folder: Path) -> None:
    """Removes what no sync has read for long, and what killed tasks left. Whoever misses a file fetches it again."""
    for each in folder.iterdir():
        with suppress(OSError):  # Another task removes it.
            if _OWN_NAME.fullmatch(each.name) and each.lstat().st_mtime < time.time() - _UNUSED_DAYS * 86400:
                each.unlink()


def _digest(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()
