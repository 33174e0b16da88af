"""The private folder of one run: config, catalog and state. Nobody else can read it, and it goes when the run ends.

1. A folder belongs to the process that holds the lock on its `.lock` file. The kernel frees the lock however that
   process ends, so a folder whose lock is free belongs to a dead run.
2. The lock file is made first and removed last. So a folder without one is empty: it is being made or being removed.
   `rmdir` harms neither, because the maker tries again.
3. A connector may write to its folder, in a sandbox too, and perhaps to the folder around it. What has the name of the
   folder by now, or that of a file in it, may be a link of the connector's to anywhere. So a folder is opened once, and
   what is in it is reached from there. No link is followed.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from dagster_airbyte_proto.errors import StagingError

_PREFIX = "airbyte-proto-run-"
_LOCK = ".lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_REWRITTEN_BYTES = 16 << 20


class RunFolder:
    """A private folder, which is open at `folder`. `make` creates it; the caller of `make` removes it."""

    def __init__(self, path: Path, folder: int, lock: int) -> None:
        self.path = path
        self._folder = folder
        self._lock: int | None = lock

    @classmethod
    def make(cls, parent: Path | None, files: Mapping[str, bytes]) -> "RunFolder":
        """Creates a folder (0700) with its files (0600) under `parent` (None: the system's temporary folder).

        First removes the folders of dead runs there.
        """
        doing = "making the private folder of a run"
        remedy = "Make room there." if parent else "Make room there, or name another folder by TMPDIR."
        try:
            parent = (parent or Path(tempfile.gettempdir())).absolute()
        except OSError as error:  # Neither TMPDIR nor a folder of the system can be written to.
            raise StagingError(doing, error.strerror or str(error), remedy=remedy) from error
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_dead_folders(parent)
            folder = cls._claim(parent)
            try:
                for name, content in files.items():
                    folder.write(name, content)
            except BaseException:
                folder.remove()
                raise
        except OSError as error:
            raise StagingError(doing, f"{error.strerror or error} ({parent})", remedy=remedy) from error
        return folder

    @classmethod
    def _claim(cls, parent: Path) -> "RunFolder":
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            # Another process may have swept it before it had its lock file: then this tries again.
            with suppress(FileNotFoundError), ExitStack() as opened:
                folder = os.open(path, _FOLDER)
                opened.callback(os.close, folder)
                lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
                if _try_to_hold(lock, folder):
                    opened.pop_all()
                    return cls(path, folder, lock)

    def write(self, name: str, content: bytes, *, is_shared: bool = False) -> None:
        """Writes a new file, which other users may read if it `is_shared`. Raises FileExistsError for a name that the
        connector has given to something."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._folder), "wb") as file:
            if is_shared:
                os.fchmod(file.fileno(), 0o644)
            file.write(content)

    def unlink(self, name: str) -> None:
        """Removes a file, which need not be there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)

    def share(self) -> None:
        """Lets other users look for files in it."""
        os.fchmod(self._folder, 0o755)

    def remove(self) -> None:
        """Removes the folder. Safe to call twice, and after another process removed it."""
        if self._lock is not None:
            _remove(self.path, self._folder)
            os.close(self._folder)
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
            if recheck or seen != self._seen:
                content = _regular_content(self._path)
                if content is not None:
                    self._content = None if content == self._handed_over else content
            self._seen = seen
        return self._content


def _regular_content(path: Path) -> bytes | None:
    """The content of a regular file of at most 16 MiB; None of anything else. It is opened before it is looked at: in
    between the connector may put a link to a file of ours in its place, or a pipe that never ends."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_REWRITTEN_BYTES + 1)
    finally:
        os.close(descriptor)
    return content if len(content) <= MAX_REWRITTEN_BYTES else None


def _try_to_hold(lock: int, folder: int) -> bool:
    """Takes the lock and checks that the file is still the one in the folder. Closes it and returns False otherwise."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(_LOCK, dir_fd=folder, follow_symlinks=False)):
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return False


def remove_dead_folders(parent: Path) -> None:
    """Removes the folders of dead runs below a folder that may not be there."""
    for path in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    folder = os.open(path, _FOLDER)
    try:
        # Everybody writes to the system's temporary folder: touch only a real folder of our own user.
        if os.fstat(folder).st_uid != os.geteuid():
            return
        try:
            lock = os.open(_LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            path.rmdir()
            return
        if _try_to_hold(lock, folder):
            _remove(path, folder)
            os.close(lock)
    finally:
        os.close(folder)


def _remove(path: Path, folder: int) -> None:
    """Removes all that is in the open folder, and then what has its path, if that is an empty folder."""
    for name in os.listdir(folder):
        if name == _LOCK:
            continue
        try:
            os.unlink(name, dir_fd=folder)
        except OSError:
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
    # If the connector left something unremovable, the lock file stays, and the next sweep tries again.
    with suppress(OSError):
        if os.listdir(folder) == [_LOCK]:
            os.unlink(_LOCK, dir_fd=folder)
        path.rmdir()
