"""A new connection file: from what a user calls a connector to the file, with every field of the connector's config.

A source gives a sync, with a destination beside it a relay, and a destination alone gives a push. The command `init`
and the scaffolder of the Dagster component write the same files.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dagster_airbyte_proto.atomic_files import has_no_room, write_atomically, write_new_file
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.document import Document
from dagster_airbyte_proto.connection.drafting.config_fields import Prompter
from dagster_airbyte_proto.connection.drafting.connection_file import (
    Draft,
    DraftedConnector,
    FileHeader,
    PushedTable,
    draft,
)
from dagster_airbyte_proto.connection.validation import validated
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.registry.connectors import ConnectorRegistry, RegistryEntry
from dagster_airbyte_proto.protocols.events import SpecEvent
from dagster_airbyte_proto.sync.connector.opened_connector import opened_destination, opened_source
from dagster_airbyte_proto.sync.engine import Engine

_IMAGE = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)+(:[\w.-]+|@sha256:[0-9a-f]+)")
_REQUIREMENT = re.compile(r"[\w.-]+(\[[\w,.-]*\])?==\S+")
_NPM_PACKAGE = re.compile(r"(@[\w.-]+/)?[\w.-]+@\d+\.\d+\.\d+[\w.+-]*")
_PROGRAM = re.compile(r"(?:source|tap|destination|target)-[\w.-]+")
_ROLE = re.compile(r"(?:^|[/._-])(source|tap|destination|target)[_-]", re.IGNORECASE)
_NAMED_BY = {"pypi": "package", "npm": "package", "local": "command", "manifest": "manifest", "docker": "image"}
_LOW_CODE = (
    "It is a low-code connector: with its manifest.yaml it also runs without Docker, by\n"
    "launch: {kind: manifest, path: manifest.yaml}"
)


class NewConnector(NamedTuple):
    """A connector that a connection is written for.

    `launch` starts it, with paths relative to the new file's folder; `launch_here` has them relative to the working
    directory, because the new folder may not exist yet. `entry` is what a registry says of it. `role` is `source` or
    `destination`, or empty if its name does not say.
    """

    protocol: str
    launch: Mapping[str, Any]
    launch_here: Mapping[str, Any]
    entry: RegistryEntry | None = None
    role: str = ""


class NewConnection(NamedTuple):
    """A connection that is to be written to `file`: of a `pushed` table, of a source whose records go `to` another
    connector, or of a source alone."""

    name: str
    file: Path
    connector: NewConnector
    pushed: PushedTable | None = None
    to: NewConnector | None = None


def launch_kind(text: str) -> str | None:
    """The kind of launch that a text stands for. None if it can only be a connector's name in a registry."""
    if _REQUIREMENT.fullmatch(text):
        return "pypi"
    if _NPM_PACKAGE.fullmatch(text):
        return "npm"
    if text.endswith((".yaml", ".yml")):
        return "manifest"
    if _IMAGE.fullmatch(text) and not Path(text).exists():
        return "docker"
    program, *arguments = text.split() or [""]
    # A single word is looked for among the programs only if it is called like a connector: `postgres` is a server.
    is_command = shutil.which(program) and (arguments or _PROGRAM.fullmatch(program))
    return "local" if is_command or "/" in program else None


def connection_name(connector: str) -> str:
    """The name of a connection to this connector: google_ads for `source-google-ads` and `target-google-ads`."""
    word = connector.split()[0] if launch_kind(connector) == "local" else connector
    bare = re.split(r"==|[:@\[]", re.sub(r"\.ya?ml$", "", word.strip().lower().rpartition("/")[2]))[0]
    made = re.sub(
        "[^a-z0-9_]+", "_", re.sub(r"^(?:airbyte-)?(?:source|destination)-|^(?:\w+-)?(?:tap|target)[_-]", "", bare)
    ).strip("_")
    if not made:
        raise ConfigError("naming the connection", f"{connector!r} has no letter or digit", remedy="Give another NAME.")
    return made


def new_connection(
    name: str, file: Path, connector: NewConnector, pushed: PushedTable | None = None, to: NewConnector | None = None
) -> NewConnection:
    """A connection of these connectors. One to a destination is a push, also if no table is named yet.

    Raises ConfigError if a connector is not of the role that it gets.
    """
    pushes = pushed is not None or connector.role == "destination"
    doing = f"writing connection {name}"
    if to is not None and pushes:
        remedy = "Name the source first, and the destination by --to. A push of a table has no --to."
        raise ConfigError(doing, "a relay reads from a source, and this is a destination", remedy=remedy)
    if pushes and connector.role == "source":
        remedy = "Name a destination or a target, or leave --from and --key out."
        raise ConfigError(doing, "a push sends to a destination, and its connector is a source", remedy=remedy)
    if to is not None and to.role == "source":
        raise ConfigError(doing, "--to names a source", remedy="Name a destination or a target.")
    return NewConnection(name, file, connector, (pushed or PushedTable()) if pushes else None, to)


def chosen_connector(
    text: str,
    file: Path,
    open_registry: Callable[[], ConnectorRegistry],
    protocol: str | None = None,
    *,
    role: str = "source",
) -> NewConnector:
    """The connector that a text stands for, for a connection in `file`. Only a bare name opens the registry.

    There a connector of the `role` comes before others of its name. Raises ConfigError if there is none of that name.
    """
    if not text:
        remedy = "Name it by a registry's name, a package, an image, a manifest file or a command."
        raise ConfigError("choosing a connector", "its name is empty", remedy=remedy)
    if kind := launch_kind(text):
        return named_connector(kind, text, file, protocol)
    if protocol == "singer" or text.startswith(("tap-", "target-")):
        kind = "target" if text.startswith("target-") else "tap"
        raise ConfigError(
            f"looking up connector {text}",
            "registries list only Airbyte's connectors",
            remedy=f"Name a {kind} by its package (meltanolabs-{kind}-postgres==0.10.0), its image, or its command.",
        )
    return listed_connector(open_registry().named(text, role=role))


def named_connector(kind: str, text: str, file: Path, protocol: str | None = None) -> NewConnector:
    """The connector that a package, an image, a manifest or a command is, for a connection in `file`.

    Nearly all taps are called tap-…, all targets target-…, and nothing else is: that decides on the protocol, unless
    it is given. A package of npm is Syncmaven's, whose connectors are destinations. Raises ConfigError for a text
    that names nothing.
    """
    if not text.strip():
        found = f"its {_NAMED_BY[kind]} is empty"
        raise ConfigError("choosing a connector", found, remedy="Name one, or leave the option out.")
    if kind == "manifest":
        if protocol == "singer":
            raise ConfigError("choosing a connector", "a manifest is no Singer tap", remedy="Name a tap's package.")
        launch = {"kind": kind, "path": os.path.relpath(text, file.parent)}
        return NewConnector(protocol or "airbyte", launch, {**launch, "path": text}, role="source")
    named = _ROLE.search(text.partition(" ")[0])
    word = named[1].lower() if named else ""
    by_name = "singer" if word in ("tap", "target") else "syncmaven" if kind == "npm" else "airbyte"
    protocol = protocol or by_name
    role = word and ("destination" if word in ("destination", "target") else "source")
    role = "destination" if protocol == "syncmaven" else role
    if kind == "local":
        try:
            words = shlex.split(text)
        except ValueError as error:  # A quote without its end.
            raise ConfigError("choosing a connector", f"its command cannot be split into words: {error}") from error
        here = {"kind": kind, "command": words}
        return NewConnector(protocol, {**here, "command": _relative(words, file)}, here, role=role)
    launch = {"kind": kind, "image" if kind == "docker" else "package": text}
    return NewConnector(protocol, launch, launch, role=role)


def listed_connector(entry: RegistryEntry) -> NewConnector:
    """The connector of a registry's entry, started as a package if it is one, else as an image."""
    launch = next(launch for launch in entry.launches if launch["kind"] != "manifest")
    return NewConnector("airbyte", launch, launch, entry, entry.role)


def draft_connection(
    open_engine: Callable[[], Engine], new: NewConnection, prompter: Prompter, on_line: Callable[[str, str], None]
) -> Draft:
    """Drafts the file of a connection. A connector itself is asked for its spec, unless a registry has it: then no
    engine is opened."""
    name, file, connector, pushed, to = new
    specs = _SpecReader(open_engine, on_line, name)
    header = FileHeader(
        connection=name,
        name=None if file.stem == name else name,
        suggested_streams=connector.entry.suggested_streams if connector.entry else (),
        push=pushed,
        to=specs.drafted(to, "", is_destination=True) if to else None,
    )
    drafted = specs.drafted(connector, name, is_destination=pushed is not None)
    if drafted.is_enrichment:
        if pushed is not None and pushed.table is not None:
            remedy = "Leave --from and --key out, and use it in the `transforms` of a push, a sync or a relay."
            raise ConfigError(
                f"writing connection {name}", "its connector is an enrichment, and no destination", remedy=remedy
            )
        header = header._replace(push=None)
    return draft(header, drafted, prompter)


def write_connection(file: Path, text: str, *, overwrite: bool) -> None:
    """Writes a connection file. Raises ConfigError if it exists, or cannot be written."""
    content = text.encode("utf-8", "replace")
    try:
        if overwrite:
            write_atomically(file, content)
        else:
            write_new_file(file, content)
    except FileExistsError:
        raise file_exists(file) from None
    except OSError as error:
        remedy = "Make room there." if has_no_room(error) else "Name another with --file."
        raise ConfigError(f"writing {file}", error.strerror or str(error), remedy=remedy) from error


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


class _SpecReader(NamedTuple):
    """Reads the specs of the connectors of a new connection: that of a registry, or else the connector's answer."""

    open_engine: Callable[[], Engine]
    on_line: Callable[[str, str], None]
    connection: str

    def drafted(self, connector: NewConnector, named: str, *, is_destination: bool) -> DraftedConnector:
        entry = connector.entry
        spec = entry.spec if entry and entry.spec else self._fetched(connector, is_destination=is_destination)
        schema = spec.get("connectionSpecification") or {}
        title = entry.title if entry else schema.get("title") or named
        page = spec.get("documentationUrl") or (entry.documentation_url if entry else "")
        is_low_code = entry is not None and any(launch["kind"] == "manifest" for launch in entry.launches)
        return DraftedConnector(
            {"protocol": connector.protocol, "launch": connector.launch},
            schema,
            writes_defaults=connector.protocol == "airbyte",
            about=(f"{title}: {page}" if page else str(title)) + (f"\n{_LOW_CODE}" if is_low_code else ""),
            is_enrichment=spec.get("roles") == ["enrichment"],
        )

    def _fetched(self, connector: NewConnector, *, is_destination: bool) -> Mapping[str, Any]:
        launched = {"protocol": connector.protocol, "launch": connector.launch_here}
        written = {"name": self.connection, "connector": launched, "config": {}}
        document = Document(f"writing connection {self.connection}", written, {})
        unwritten = validated(Connection, document, folder=Path())
        with self.open_engine() as engine:
            if is_destination:
                with opened_destination(engine, unwritten, on_line=self.on_line) as destination:
                    return _with_schema(destination.spec(fresh=True))
            with opened_source(engine, unwritten, on_line=self.on_line) as source:
                return _with_schema(source.spec(fresh=True))


def _with_schema(spec: SpecEvent) -> Mapping[str, Any]:
    """The whole specification, with the schema of the config where Airbyte has it."""
    return {**spec.message, "connectionSpecification": spec.config_schema}
