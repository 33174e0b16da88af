"""Files that are there whole or not at all, whoever reads at the same time and whatever dies meanwhile."""

import os
from pathlib import Path
from uuid import uuid4


def write_whole(path: Path, content: bytes, *, over: bool = True) -> None:
    """Writes the file, and the folders above it. With `over` false, raises FileExistsError where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not made by tempfile, whose files only their owner may read: catalogs are built into images that others run.
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if over:
            unfinished.replace(path)
        else:
            path.hardlink_to(unfinished)
    finally:
        unfinished.unlink(missing_ok=True)
