"""The folders in which tables of this machine keep their logs, as the operating system shows them.

Java's file system for local folders takes every look at a file that fails for a file that is not there: also one for
which a right is lacking, or on a disk or a network file system that does not answer. So what Iceberg or Delta takes for
a table that is missing may be one that cannot be read. Here the two are told apart.
"""

import re
from pathlib import Path

from dagster_airbyte_proto.errors import TableError

_UNREADABLE = "Mount its disk, or give this user the right to read it. A table that cannot be read is not made anew."


def log_files(doing: str, folder: str, names: re.Pattern[str]) -> list[str]:
    """Returns the files of a log folder whose names match; none where the folder is not there.

    Raises TableError where nobody can tell.
    """
    place = Path(folder)
    try:
        place.lstat()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TableError(doing, f"{folder}: {error.strerror}", remedy=_UNREADABLE) from error
    try:
        return sorted(file.name for file in place.iterdir() if names.fullmatch(file.name))
    except OSError as error:
        raise TableError(doing, f"{folder}: {error.strerror}", remedy=_UNREADABLE) from error
