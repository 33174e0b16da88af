"""The argument that names a connection: its file, or a name by which the file is found. A shell completes it to
connection files, and to names in the state store.

A shell completes while somebody types: nothing slow is imported, nothing is created, and every error is an empty list.
"""

import io
import re
import sqlite3
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from dagster_airbyte_proto.checkpoints.sqlite_files import read_only, sqlite_path
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.project_folder import project_folder, working_folder

_CONNECTOR = re.compile(r'(^|[{\s"])connector"?\s*:')
_READ_CHARACTERS = 64 << 10
_MAX_FILES = 500
_SQLITE = "sqlite:///"
_CONNECTIONS = ("C", "C...", "[C]...", "NAME_OR_CONNECTION...")


def connection_file(named: str) -> Path:
    """The connection file with this path; or, of a bare name, the one of the connection with that name, in the working
    folder, the project's, or a folder right below one of them. Errors name connections, not files, in the commands that
    they give.

    Raises ConfigError for a name that no such file has, or several.
    """
    if not re.fullmatch("[a-z0-9_]+", named) or is_file(named):
        return Path(named)
    if (found := file_of_connection(named)) is not None:
        return found
    raise ConfigError(
        f"looking up connection {named}",
        "there is no such file, and no connection file here, or one folder below, has that name",
        remedy="Name its file. `airbyte-proto init` writes one.",
    )


def is_file(name: str) -> bool:
    """True if there is a file with this path. Any text may be one."""
    try:
        return Path(name).is_file()
    except OSError:  # It is too long for a name.
        return False


def file_of_connection(name: str) -> Path | None:
    """The file of the connection with this name, found as by `connection_file`; None if there is none. Raises
    ConfigError if there are several."""
    here = working_folder()
    for place in dict.fromkeys((here, project_folder(here))):
        # Seen from here where it can be, as the user would write it.
        files = [Path(shown) for shown in _files("" if place == here else f"{place}/")]
        found = [file for file in files if _is_of(name, file)]
        if len(found) > 1:
            text = f"{', '.join(map(str, found))} have that name"
            raise ConfigError(f"looking up connection {name}", text, remedy="Name one of these files.")
        if found:
            return found[0]
    return None


def _is_of(name: str, file: Path) -> bool:
    """True if the connection in a file has this name, which the file says, or has itself."""
    import yaml

    try:
        text = file.read_text(encoding="utf-8-sig")
        written = yaml.safe_load(text) if name in text or name == file.stem else None
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(written, dict) and str(written.get("name") or file.stem) == name


def written_name(named: str) -> str:
    """The name of a connection whose file is wrong: the one in it, if it can be read, or else that of the file. Empty
    where that is no name of a connection."""
    import yaml

    file = Path(named)
    try:
        written = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        written = None
    name = str(written.get("name") or file.stem) if isinstance(written, dict) else file.stem
    return name if re.fullmatch("[a-z0-9_]+", name) else ""


class ConnectionArgument(StringParamType):
    """A connection file; with `names` also the name of a connection. One of the `words` may stand before it."""

    def __init__(self, *, names: bool, words: tuple[str, ...] = ()) -> None:
        self._names, self._words = names, words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        is_first = not ctx.params.get(param.name or "")
        found = [word for word in self._words if is_first and word.startswith(incomplete)]
        found += _files(incomplete)
        if self._names:
            found += [name for name in _stored_names(ctx.obj) if name.startswith(incomplete)]
        return [CompletionItem(each) for each in found]


def complete_connections(command: click.Command) -> None:
    """Makes the arguments of a command that name connections complete."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.metavar in _CONNECTIONS:
            parameter.type = ConnectionArgument(names=not (parameter.name or "").startswith("connection_file"))


def _files(incomplete: str) -> Iterator[str]:
    folder, _, start = incomplete.rpartition("/")
    place = Path(f"{folder}/" if folder or incomplete.startswith("/") else ".")
    for pattern in ("*.y*ml", "*/*.y*ml"):
        for path in islice(sorted(place.glob(pattern)), _MAX_FILES):
            shown = str(path)
            is_hidden = path.relative_to(place).parts[0].startswith(".")
            if (
                shown.startswith(f"{folder}/{start}" if folder else incomplete)
                and not is_hidden
                and _is_connection(path)
            ):
                yield shown


def _is_connection(path: Path) -> bool:
    try:
        with path.open(errors="replace") as file:
            return _CONNECTOR.search(file.read(_READ_CHARACTERS)) is not None
    except OSError:
        return False


def _stored_names(call: Any) -> list[str]:
    """The connections in the state store of a Call, if it is a file: no server is called while somebody types."""
    with redirect_stderr(io.StringIO()), suppress(ProtoError, OSError, sqlite3.Error):
        url = call.settings().state_url
        if url.startswith(_SQLITE) and (path := Path(sqlite_path(url))).is_file():
            with read_only(path) as store:
                return [
                    name for (name,) in store.execute("SELECT connection FROM airbyte_proto_connections ORDER BY 1")
                ]
    return []
