"""Turns a Syncmaven project into push files: one for each of its syncs.

1. A model is a query. It runs on Spark's catalog here, so what it says about its database is not carried over. Its
   `:cursor` becomes NULL, which such a query takes for "all rows": a push itself looks for rows above the last cursor.
2. Syncmaven knows no keys. So a sync appends what is above the last cursor, or all rows; a note tells what a key
   gives.
3. An enrichment becomes a transform. It has to name the columns that it fills, which no project says: until somebody
   does, the file is refused. A push without it would send other rows.
4. Its templates, `{{env.NAME}}` and `${env.NAME}`, become references in the credentials, where a push fills such. What
   else a template may be is named, never guessed.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ConfigError

_ENV = re.compile(r"\{\{~?\s*env\.(\w+)\s*~?\}\}|\$\{\s*env\.(\w+)\s*\}")
_TEMPLATE = re.compile(r"\{\{|\$\{[a-zA-Z]")
# The end of its line stays: a setting is mostly written in a comment, which would go on over the query.
_SETTING = re.compile(
    r"\{\{~?\s*config\s+(?P<name>\"[^\"]*\"|'[^']*')\s+(?P<value>\"[^\"]*\"|'[^']*'|[^\s}~]+)\s*~?\}\}[ \t]*"
)
_CURSOR = re.compile(r"(?<![:\w]):cursor\b")
_EXACT_PACKAGE = re.compile(r"(@[^/@]+/)?[^/@]+@\d[\w.+-]*")
_OF_DATABASE = ("datasource", "deleteField", "pageSize", "pauseBetweenPagesMs")
_DEFAULT_STREAM = "default"
_OF_SYNC = frozenset(
    (
        "id",
        "model",
        "destination",
        "stream",
        "options",
        "mapping",
        "enrichment",
        "enrichments",
        "checkpointEvery",
        "disabled",
    )
)
_OF_MODEL = frozenset(("id", "query", "cursor", *_OF_DATABASE))
_OF_CONNECTION = frozenset(("id", "package", "credentials"))
_OF_PACKAGE = frozenset(("type", "image", "dir", "command", "package"))
_PACKAGES = "A package is {type: docker, image: …}, {type: npm, package: …} or {type: npm, dir: …}."


class ProjectFile(NamedTuple):
    """A file of the project: its name without the ending, its content, and its path. A model of SQL is a text."""

    name: str
    content: Any
    path: str = ""

    @property
    def id(self) -> str:
        return str(self.content.get("id") or self.name) if isinstance(self.content, Mapping) else self.name


class SyncmavenProject(NamedTuple):
    """The files of a project, by their id. `unread` are the errors of models and of connections that cannot be read:
    nobody knows their ids."""

    models: Mapping[str, ProjectFile]
    connections: Mapping[str, ProjectFile]
    syncs: Mapping[str, ProjectFile]
    unread: Mapping[str, Sequence[ConfigError]] = {}


class ImportedSync(NamedTuple):
    """A push file to write: its parts by their key. `left` says what could not be carried over, `variables` are those
    that its config names."""

    name: str
    document: Mapping[str, Any]
    variables: tuple[str, ...]
    left: tuple[str, ...]


def is_disabled(sync: ProjectFile) -> bool:
    return isinstance(sync.content, Mapping) and bool(sync.content.get("disabled"))


def imported_sync(project: SyncmavenProject, sync: ProjectFile) -> ImportedSync:
    """Returns the push file of a sync. Raises ConfigError where it names what is not there."""
    content = _mapping(sync, "sync")
    left: list[str] = []
    _leave(content, _OF_SYNC, f"of sync {sync.id}", left)
    query, cursor = _model(project, content, sync.id, left)
    package, credentials = _connection(project, content.get("destination"), sync.id, left)
    config, variables = _filled(credentials, "credentials", left)
    transforms = [_transform(project, each, sync.id, left) for each in _enrichments(content, sync.id)]
    stream = content.get("stream")
    if not stream:
        left.append(f"it names no stream: put the destination's in the place of {_DEFAULT_STREAM!r}")
    options = {
        "sql": query,
        "mode": "append",
        **({"changes": "cursor", "cursor": cursor} if cursor else {"changes": "all"}),
        **_mapped(content.get("mapping"), left),
        **_stream_options(content.get("options"), left),
    }
    left.append(
        "it names no key: with a `key` and mode upsert, a push sends what is new or changed and goes on by itself"
    )
    if transforms and content.get("mapping"):
        left.append("its mapping comes before its enrichments: these get the rows as they are mapped")
    left.append("its state: the first push begins with the first row")
    chunk = content.get("checkpointEvery")
    document = {
        "connector": {"protocol": "syncmaven", "launch": _launch(package, left)},
        "config": config,
        "push": {str(stream or _DEFAULT_STREAM): options},
        **({"transforms": [transform for transform, _ in transforms]} if transforms else {}),
        **({"checkpoint_rows": int(chunk)} if isinstance(chunk, int | float) and chunk >= 1 else {}),
    }
    every = (*variables, *(name for _, names in transforms for name in names))
    return ImportedSync(sync.id, document, tuple(dict.fromkeys(every)), tuple(left))


def _mapping(file: ProjectFile, kind: str) -> Mapping[str, Any]:
    if not isinstance(file.content, Mapping):
        place = file.path or f"the {kind} {file.name}"
        remedy = "Write keys and their values, as in other files of the project."
        raise ConfigError(f"reading {place}", "it is no mapping of keys to values", remedy=remedy)
    return file.content


def _named(project: SyncmavenProject, kind: str, name: Any, sync: str) -> ProjectFile:
    """Returns the model or the connection that a sync names."""
    files = project.models if kind == "model" else project.connections
    if (found := files.get(str(name))) is not None:
        return found
    remedy = f"Known: {', '.join(files) or 'none'}."
    if unread := project.unread.get(kind, ()):
        remedy += " It may be in a file that cannot be read:" + "".join(f"\n{error}" for error in unread)
    raise ConfigError(f"importing sync {sync}", f"there is no {kind} {name}", remedy=remedy)


def _model(project: SyncmavenProject, content: Mapping[str, Any], sync: str, left: list[str]) -> tuple[str, str | None]:
    """Returns the query of a sync's model, and its cursor."""
    found = _named(project, "model", content.get("model"), sync)
    if isinstance(found.content, str):
        settings = {each["name"][1:-1]: each["value"].strip("\"'") for each in _SETTING.finditer(found.content)}
        query = _SETTING.sub("", found.content)
    else:
        settings = dict(_mapping(found, "model"))
        query = str(settings.get("query") or "")
    _leave(settings, _OF_MODEL, f"of model {found.id}", left)
    if not query.strip():
        remedy = f"Write its `query`{f' in {found.path}' if found.path else ''}."
        raise ConfigError(f"importing sync {sync}", f"model {found.id} has no query", remedy=remedy)
    left += [f"{name} of model {found.id}" for name in _OF_DATABASE if name in settings]
    left.append(f"the query of model {found.id} runs on Spark: look at its names of tables and its functions")
    if _TEMPLATE.search(query):
        left.append(f"the templates in the query of model {found.id}: put values in their place")
    cursor = settings.get("cursor")
    if _CURSOR.search(query):
        query = _CURSOR.sub("NULL", query)
        left.append(f":cursor in the query of model {found.id}: it is NULL, since the push looks for newer rows itself")
    return query.strip().rstrip(";").strip(), str(cursor) if cursor else None


def _connection(project: SyncmavenProject, named: Any, sync: str, left: list[str]) -> tuple[Mapping[str, Any], Any]:
    """Returns the package and the credentials of a connection, which may stand in the sync itself."""
    if not isinstance(named, Mapping):
        named = _mapping(_named(project, "connection", named, sync), "connection")
    package = named.get("package")
    if not isinstance(package, Mapping):
        raise ConfigError(f"importing sync {sync}", "its connection has no package", remedy=_PACKAGES)
    _leave(named, _OF_CONNECTION, f"of the connection of sync {sync}", left)
    _leave(package, _OF_PACKAGE, f"of the package of sync {sync}", left)
    return package, named.get("credentials") or {}


def _transform(
    project: SyncmavenProject, enrichment: Mapping[str, Any], sync: str, left: list[str]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Returns the transform by an enrichment, without the columns that it fills, and the variables that it names."""
    named = enrichment.get("connection")
    name = str(named) if isinstance(named, str) else "its own connection"
    package, credentials = _connection(project, named, sync, left)
    config, variables = _filled(credentials, f"credentials of the enrichment by {name}", left)
    left.append(f"the columns that the enrichment by {name} fills: add them to it, as in columns: {{city: string}}")
    connector = {"protocol": "syncmaven", "launch": _launch(package, left)}
    return {"connector": connector, "config": config, **_stream_options(enrichment.get("options"), left)}, variables


def _launch(package: Mapping[str, Any], left: list[str]) -> dict[str, Any]:
    kind = package.get("type") or "docker"
    if kind == "docker" and package.get("image"):
        return {"kind": "docker", "image": str(package["image"])}
    if kind == "npm" and package.get("dir"):
        try:
            command = shlex.split(str(package.get("command") or "node ."))
        except ValueError as error:  # A quote without its end.
            found = f"the command of its package cannot be split into words: {error}"
            raise ConfigError("importing a connection", found, remedy="Close its quotes.") from error
        return {"kind": "local", "command": command, "working_folder": str(package["dir"])}
    if kind == "npm" and package.get("package"):
        name = str(package["package"])
        if not _EXACT_PACKAGE.fullmatch(name):
            left.append(f"the package {name} has no exact version: write one behind it, as in name@1.0.0")
        return {"kind": "npm", "package": name}
    found = f"its package is neither an image nor one of npm (type {kind})"
    raise ConfigError("importing a connection", found, remedy=_PACKAGES)


def _filled(value: Any, place: str, left: list[str]) -> tuple[Any, tuple[str, ...]]:
    """Returns credentials with references in the place of templates, and the variables that these name."""
    variables: list[str] = []

    def filled(found: Any, path: str) -> Any:
        if isinstance(found, Mapping):
            return {name: filled(each, f"{path}.{name}") for name, each in found.items()}
        if isinstance(found, list):
            return [filled(each, f"{path}.{number}") for number, each in enumerate(found)]
        if not isinstance(found, str):
            return found
        text = _ENV.sub(lambda match: "${env:" + _note(variables, match[1] or match[2]) + "}", found)
        if _TEMPLATE.search(_ENV.sub("", found)):
            left.append(f"the template in {path}: put a value or a reference in its place")
        elif text == found and found:
            left.append(f"{path} is written in the project as it is: a reference keeps it out of files")
        return text

    config = filled(value, place)
    if not isinstance(config, Mapping):
        left.append(f"{place} are no mapping of keys to values")
        config = {}
    return config, tuple(dict.fromkeys(variables))


def _leave(part: Mapping[str, Any], known: frozenset[str], place: str, left: list[str]) -> None:
    left += [f"{name} {place}" for name in part if name not in known]


def _note(variables: list[str], name: str) -> str:
    variables.append(name)
    return name


def _mapped(mapping: Any, left: list[str]) -> dict[str, Any]:
    if not mapping:
        return {}
    if isinstance(mapping, Mapping) and all(isinstance(each, str) for each in mapping.values()):
        return {"map": dict(mapping)}
    left.append("its mapping, which is more than names of columns")
    return {}


def _stream_options(options: Any, left: list[str]) -> dict[str, Any]:
    if not options:
        return {}
    if any(_TEMPLATE.search(text) for text in _texts(options)):
        left.append("the templates in its options: put values in their place")
    return {"options": options}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _enrichments(content: Mapping[str, Any], sync: str) -> list[Mapping[str, Any]]:
    found = content.get("enrichments") or content.get("enrichment") or []
    found = [found] if isinstance(found, str | Mapping) else found
    if not isinstance(found, list) or not all(isinstance(each, str | Mapping) for each in found):
        text = "its enrichments are no list of connections"
        raise ConfigError(f"importing sync {sync}", text, remedy="Write them as [one, two].")
    return [{"connection": each} if isinstance(each, str) else each for each in found]
