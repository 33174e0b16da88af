"""A new connection file: from what a user calls a connector to the file, with every field of the connector's config.

The command `init` and the scaffolder of the Dagster component write the same files.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.drafting.config_fields import Prompter
from dagster_airbyte_proto.connection.drafting.connection_file import Draft, FileHeader, draft
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.registry.connectors import ConnectorRegistry, RegistryEntry
from dagster_airbyte_proto.sync.connector.opened_source import opened_source
from dagster_airbyte_proto.sync.engine import Engine

_IMAGE = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)+(:[\w.-]+|@sha256:[0-9a-f]+)")
_REQUIREMENT = re.compile(r"[\w.-]+(\[[\w,.-]*\])?==\S+")
_PROGRAM = re.compile(r"(?:source|tap)-[\w.-]+")
_TAP = re.compile(r"(?:^|[/._-])tap[_-]", re.IGNORECASE)
_LOW_CODE = (
    "It is a low-code connector: with its manifest.yaml it also runs without Docker, by\n"
    "launch: {kind: manifest, path: manifest.yaml}"
)


class NewConnector(NamedTuple):
    """A connector that a connection is written for.

    `launch` starts it, with paths relative to the new file's folder; `launch_here` has them relative to the working
    directory, because the new folder may not exist yet. `entry` is what a registry says of it.
    """

    protocol: str
    launch: Mapping[str, Any]
    launch_here: Mapping[str, Any]
    entry: RegistryEntry | None = None


class NewConnection(NamedTuple):
    """A connection that is to be written to `file`."""

    name: str
    file: Path
    connector: NewConnector


def launch_kind(text: str) -> str | None:
    """The kind of launch that a text stands for. None if it can only be a connector's name in a registry."""
    if _REQUIREMENT.fullmatch(text):
        return "pypi"
    if text.endswith((".yaml", ".yml")):
        return "manifest"
    if _IMAGE.fullmatch(text) and not Path(text).exists():
        return "docker"
    program, *arguments = text.split() or [""]
    # A single word is looked for among the programs only if it is called like a connector: `postgres` is a server.
    is_command = shutil.which(program) and (arguments or _PROGRAM.fullmatch(program))
    return "local" if is_command or "/" in program else None


def connection_name(connector: str) -> str:
    """The name of a connection to this connector: google_ads for `source-google-ads` and `tap-google-ads`."""
    word = connector.split()[0] if launch_kind(connector) == "local" else connector
    bare = re.split(r"==|[:@\[]", re.sub(r"\.ya?ml$", "", word.strip().lower().rpartition("/")[2]))[0]
    made = re.sub("[^a-z0-9_]+", "_", re.sub(r"^(?:airbyte-)?source-|^(?:\w+-)?tap[_-]", "", bare)).strip("_")
    if not made:
        raise ConfigError("naming the connection", f"{connector!r} has no letter or digit", remedy="Give another NAME.")
    return made


def chosen_connector(
    text: str, file: Path, open_registry: Callable[[], ConnectorRegistry], protocol: str | None = None
) -> NewConnector:
    """The connector that a text stands for, for a connection in `file`. Only a bare name opens the registry."""
    if kind := launch_kind(text):
        return named_connector(kind, text, file, protocol)
    if protocol == "singer" or text.startswith("tap-"):
        raise ConfigError(
            f"looking up connector {text}",
            "registries list only Airbyte's connectors",
            remedy="Name a tap by its package (meltanolabs-tap-postgres==0.10.0), its image, or its command.",
        )
    return listed_connector(open_registry().named(text))


def named_connector(kind: str, text: str, file: Path, protocol: str | None = None) -> NewConnector:
    """The connector that a package, an image, a manifest or a command is, for a connection in `file`.

    Nearly all taps are called tap-…, and nothing else is: that decides on the protocol, unless it is given.
    """
    protocol = protocol or ("singer" if kind != "manifest" and _TAP.search(text.partition(" ")[0]) else "airbyte")
    if kind == "manifest":
        if protocol == "singer":
            raise ConfigError("choosing a connector", "a manifest is no Singer tap", remedy="Name a tap's package.")
        launch = {"kind": kind, "path": os.path.relpath(text, file.parent)}
        return NewConnector(protocol, launch, {**launch, "path": text})
    if kind == "local":
        words = shlex.split(text)
        if not words:
            raise ConfigError("choosing a connector", "its command is empty")
        return NewConnector(
            protocol, {"kind": kind, "command": _relative(words, file)}, {"kind": kind, "command": words}
        )
    launch = {"kind": kind, "image" if kind == "docker" else "package": text}
    return NewConnector(protocol, launch, launch)


def listed_connector(entry: RegistryEntry) -> NewConnector:
    """The connector of a registry's entry, started as a package if it is one, else as an image."""
    if entry.role != "source":
        raise ConfigError(
            f"writing a connection to {entry.name}", "it is a destination", remedy="Connections read from sources."
        )
    launch = next(launch for launch in entry.launches if launch["kind"] != "manifest")
    return NewConnector("airbyte", launch, launch, entry)


def draft_connection(
    open_engine: Callable[[], Engine], new: NewConnection, prompter: Prompter, on_line: Callable[[str, str], None]
) -> Draft:
    """Drafts the file of a connection. The connector itself is asked for its spec, unless a registry has it: then no
    engine is opened."""
    name, file, connector = new
    entry = connector.entry
    spec = entry.spec if entry and entry.spec else _fetch_spec(open_engine, new, on_line)
    title = entry.title if entry else spec.get("connectionSpecification", {}).get("title") or name
    page = spec.get("documentationUrl") or (entry.documentation_url if entry else "")
    is_low_code = entry is not None and any(launch["kind"] == "manifest" for launch in entry.launches)
    header = FileHeader(
        connection=name,
        name=None if file.stem == name else name,
        connector={"protocol": connector.protocol, "launch": connector.launch},
        writes_defaults=connector.protocol == "airbyte",
        about=(f"{title}: {page}" if page else str(title)) + (f"\n{_LOW_CODE}" if is_low_code else ""),
        suggested_streams=entry.suggested_streams if entry else (),
    )
    return draft(header, spec["connectionSpecification"], prompter)


def write_connection(file: Path, text: str, *, overwrite: bool) -> None:
    """Writes a connection file. Raises ConfigError if it exists, or cannot be written."""
    try:
        write_atomically(file, text.encode("utf-8", "replace"), overwrite=overwrite)
    except FileExistsError:
        raise file_exists(file) from None
    except OSError as error:
        raise ConfigError(
            f"writing {file}", error.strerror or str(error), remedy="Name another with --file."
        ) from error


def file_exists(file: Path) -> ConfigError:
    return ConfigError(
        f"writing {file}", "the file exists", remedy="Name another with --file, or overwrite it with --force."
    )


def _relative(words: list[str], file: Path) -> list[str]:
    """The command with the program's path relative to the folder of the connection file."""
    if "/" not in words[0] or words[0].startswith(("/", "~")):
        return words
    relative = os.path.relpath(words[0], file.parent)
    return [relative if "/" in relative else f"./{relative}", *words[1:]]


def _fetch_spec(
    open_engine: Callable[[], Engine], new: NewConnection, on_line: Callable[[str, str], None]
) -> Mapping[str, Any]:
    launched = {"protocol": new.connector.protocol, "launch": new.connector.launch_here}
    document = {"name": new.name, "connector": launched, "config": {}}
    unwritten = Connection.model_validate(document, context={"folder": Path()})
    with open_engine() as engine, opened_source(engine, unwritten, on_line=on_line) as source:
        return {"connectionSpecification": {}, **source.spec(fresh=True).message}
