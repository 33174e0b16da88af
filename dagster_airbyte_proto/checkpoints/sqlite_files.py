"""The files of SQLite that URLs name, and those that earlier releases read out of them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote

from dagster_airbyte_proto.errors import ConfigError

_BEGINNING = b"SQLite format 3\0"
_CANNOT_WRITE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def is_sqlite_file(path: Path) -> bool:
    """True if the file is there, and one of SQLite's."""
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Reads a file for what decides nothing, such as names to show. Nothing is created or migrated.

    SQLite cannot read a file in WAL mode where it can make no files beside it. On a read-only disk it is read as it
    stands, without what a killed writer may have left beside it.
    """
    with closing(_opened(path.absolute().as_uri())) as connection:
        yield connection


def _opened(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA schema_version").fetchone()  # SQLite looks for those files at the first read.
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF not in _CANNOT_WRITE:
            raise
        return sqlite3.connect(f"{uri}?immutable=1", uri=True)
    return connection


def sqlite_path(url: str) -> str:
    """Returns the path in a URL, with letters for its escapes: SQLAlchemy reads them from 2.1 on.

    Raises ConfigError where an earlier release took the escapes for letters and left a store there: a new one beside it
    would know of no sync.
    """
    written = url.partition("?")[0].partition(":///")[2]
    path = unquote(written)
    if path != written and is_sqlite_file(Path(written)) and not Path(path).exists():
        raise ConfigError(
            "reading state_url",
            f"it names {path}, which is not there; an earlier release put a store at {written}",
            remedy="Move that, with the files beside it that begin with its name; or write %25 for each % of its path.",
        )
    return path
