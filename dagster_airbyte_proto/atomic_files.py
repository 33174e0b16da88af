"""Writes files atomically: a reader sees the whole file or none, even if the writer dies in between."""

import errno
import os
from pathlib import Path
from uuid import uuid4

_HAS_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)


def write_atomically(path: Path, content: bytes, *, overwrite: bool = True, makes_folders: bool = True) -> None:
    """Writes the file. Unless `overwrite`, raises FileExistsError if it exists, and unless it `makes_folders`,
    FileNotFoundError if its folder does not, which may go until the file has its name."""
    if makes_folders:
        path.parent.mkdir(parents=True, exist_ok=True)
    # tempfile is no use here: only the owner may read its files, and catalogs are built into images that others run.
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            unfinished.replace(path)
        else:
            # A link fails if the target exists. A check before a rename would leave a gap for another writer.
            path.hardlink_to(unfinished)
    finally:
        unfinished.unlink(missing_ok=True)


def write_new_file(path: Path, content: bytes) -> None:
    """Writes a file that a person will read, and raises FileExistsError if it exists.

    Also where there are no hard links (exFAT, some network disks): an empty file takes the name first, and the whole
    one replaces it. A writer that dies between leaves the empty one, which the log of a table could not bear.
    """
    try:
        write_atomically(path, content, overwrite=False)
    except OSError as error:
        if not has_no_links(error):
            raise
        path.open("xb").close()
        try:
            write_atomically(path, content)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def has_no_links(error: OSError) -> bool:
    """True for the error of a hard link on a file system that has none, or gives none to this user."""
    return error.errno in _HAS_NO_LINKS


def has_no_room(error: OSError) -> bool:
    """True if the disk is full, or the user may write no more on it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
