"""The private folder of one run: config, catalog and state. Nobody else can read it, and it goes when the run ends.

1. A folder belongs to the process that holds the lock on its `.lock` file. The kernel frees the lock however that
   process ends, so a folder whose lock is free belongs to a dead run.
2. The lock file is made first and removed last. So a folder without one is empty: it is being made or being removed.
   `rmdir` harms neither, because the maker tries again.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dagster_airbyte_proto.errors import StagingError

_PREFIX = "airbyte-proto-run-"
_LOCK = ".lock"
MAX_REWRITTEN_BYTES = 16 << 20


class RunFolder:
    """A private folder. `make` creates it; the caller of `make` removes it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock

    @classmethod
    def make(cls, parent: Path | None, files: Mapping[str, bytes]) -> "RunFolder":
        """Creates a folder (0700) with its files (0600) under `parent` (None: the system's temporary folder).

        First removes the folders of dead runs there.
        """
        parent = (parent or Path(tempfile.gettempdir())).absolute()
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_dead_folders(parent)
            folder = cls._claim(parent)
            try:
                for name, content in files.items():
                    _write_private(folder.path / name, content)
            except BaseException:
                folder.remove()
                raise
        except OSError as error:
            raise StagingError(
                "making the private folder of a run", f"{error.strerror or error} ({parent})", remedy="Make room there."
            ) from error
        return folder

    @classmethod
    def _claim(cls, parent: Path) -> "RunFolder":
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            with suppress(FileNotFoundError):  # another process swept it before it had its lock file: try again
                lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                if _try_to_hold(lock, path / _LOCK):
                    return cls(path, lock)

    def remove(self) -> None:
        """Removes the folder. Safe to call twice, and after another process removed it."""
        if self._lock is not None:
            _remove(self.path)
            os.close(self._lock)
            self._lock = None


class WatchedFile:
    """A file of a run that the connector may rewrite. `original` is the content that it was given."""

    def __init__(self, path: Path, original: bytes) -> None:
        self._path = path
        self._handed_over = original
        self._seen: tuple[int, int, int] | None = None
        self._content: bytes | None = None

    def rewritten_content(self, *, recheck: bool = False) -> bytes | None:
        """The last known content; None if it is the original.

        Reads the file only if its inode, time or size changed. `recheck` reads it in any case: two writes in quick
        succession may leave the same time and size.
        """
        with suppress(OSError):
            about = self._path.lstat()
            seen = about.st_ino, about.st_mtime_ns, about.st_size
            if (recheck or seen != self._seen) and stat.S_ISREG(about.st_mode) and about.st_size <= MAX_REWRITTEN_BYTES:
                content = self._path.read_bytes()
                self._content = None if content == self._handed_over else content
            self._seen = seen
        return self._content


def _try_to_hold(lock: int, path: Path) -> bool:
    """Takes the lock and checks that the file is still the one at `path`. Closes it and returns False otherwise."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return False


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def remove_dead_folders(parent: Path) -> None:
    """Removes the folders of dead runs below a folder that may not be there."""
    for path in parent.glob(f"{_PREFIX}*"):
        # Everybody writes to the system's temporary folder: touch only a real folder of our own user.
        with suppress(OSError):
            if not path.is_symlink() and path.is_dir() and path.stat().st_uid == os.geteuid():
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        path.rmdir()
        return
    if _try_to_hold(lock, path / _LOCK):
        _remove(path)
        os.close(lock)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        for entry in path.iterdir():
            if entry.name == _LOCK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    with suppress(
        OSError
    ):  # the connector left something unremovable: the lock file stays, and the next sweep tries again
        (path / _LOCK).unlink()
        path.rmdir()
