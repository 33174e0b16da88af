"""The files of SQLite that URLs name, and those that earlier releases read out of them."""

from pathlib import Path
from urllib.parse import unquote

from dagster_airbyte_proto.errors import ConfigError

_BEGINNING = b"SQLite format 3\0"


def is_sqlite_file(path: Path) -> bool:
    """True if the file is there, and one of SQLite's."""
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


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
