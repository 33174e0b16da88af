"""Writes files atomically: a reader sees the whole file or none, even if the writer dies in between."""

import os
from pathlib import Path
from uuid import uuid4


def write_atomically(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Writes the file, and creates the folders above it. Unless `overwrite`, raises FileExistsError if it exists."""
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


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
