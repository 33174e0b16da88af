"""Connection files from a Meltano project. Slow modules are imported when it runs; see call.py."""

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dagster_airbyte_proto.cli.call import Call
from dagster_airbyte_proto.cli.commands.imports.project_errors import ProjectErrors
from dagster_airbyte_proto.cli.commands.imports.written import check_free, write_connection
from dagster_airbyte_proto.cli.commands.states.state import put_state
from dagster_airbyte_proto.cli.commands.states.state_words import refuse_constant
from dagster_airbyte_proto.cli.output import Answer, plain
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.masking import without_logins
from dagster_airbyte_proto.protocols.raw_json import exact_value

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection.meltano.plugin_config import PluginConfig
    from dagster_airbyte_proto.connection.meltano.project import MeltanoProject, Plugin
    from dagster_airbyte_proto.connection.meltano.selection import CatalogColumns

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[^]]*\])?(?P<version>[=<>~!].*)?")
_PYTHON = re.compile(r"python(?P<version>[0-9.]+)")
_AGAIN = "Correct that, and import again: --tap NAME takes one tap, --force overwrites the files that are there."
_LOCK_REMEDY = "Correct it, or have Meltano write it anew: `meltano lock --update NAME`."


class _ImportedTap(NamedTuple):
    """A tap to import: the file to write for it, and what could not be carried over (`left`)."""

    tap: "Plugin"
    connection: str
    path: Path
    document: Mapping[str, Any]
    config: "PluginConfig"
    left: tuple[str, ...]


class MeltanoChoice(NamedTuple):
    """The part of a Meltano project to import, and the states that its taps begin with.

    Without an `environment` the project's default is used, without `taps` all are imported. With a `loader` the records
    are sent to it. A state is written as TAP=FILE.
    """

    environment: str | None = None
    taps: tuple[str, ...] = ()
    loader: str | None = None
    states: tuple[str, ...] = ()


def imported_taps(call: Call, file: Path, folder: Path, choice: MeltanoChoice, *, force: bool) -> Answer:
    """Writes a connection file for each chosen tap of the project in `file`, and saves their states."""
    from dagster_airbyte_proto.connection.meltano.project import parsed_project

    locks, unread = _locks(file.parent)
    project = parsed_project(_document(file), locks, choice.environment, unread)
    chosen = _chosen("tap", project.taps, choice.taps, file)
    saved = _saved(choice.states, chosen)
    loaders = [] if choice.loader is None else _chosen("loader", project.loaders, [choice.loader], file)
    if loaders and loaders[0].error is not None:
        raise loaders[0].error
    place = _Place(project, file.parent, folder, loaders[0] if loaders else None, _dotenv(file.parent))
    errors = ProjectErrors("tap", _AGAIN)
    imported: list[_ImportedTap] = []
    for tap in chosen:
        with errors.leaving_others(tap.name):
            imported.append(_import_tap(call, tap, place))
    _check_names_are_unique(imported)
    check_free([each.path for each in imported], [file], force=force)
    moved: list[str] = []
    for each in imported:
        _write(each, file, force=force)
        if each.tap.name in saved:
            with errors.leaving_others(each.tap.name, effect="has no state"):
                put_state(call, call.connection_target(str(each.path)), None, saved[each.tap.name])
                moved.append(each.tap.name)
    return _answer(imported, project, moved, errors)


def _document(file: Path) -> Mapping[str, Any]:
    """The project's file, joined with the files that it includes."""
    from dagster_airbyte_proto.connection.document import read_document
    from dagster_airbyte_proto.connection.meltano.project import merged_documents

    first = read_document(file, what="Meltano project").data
    patterns = first.get("include_paths") or []
    if not isinstance(patterns, list):
        raise ConfigError("reading include_paths", f"in {file} it is no list", remedy="Write it as [one.yml, two.yml].")
    included = [path for pattern in patterns for path in _included(file.parent, str(pattern)) if path != file]
    return merged_documents([first, *(read_document(path, what="Meltano project").data for path in included)])


def _included(root: Path, pattern: str) -> list[Path]:
    try:
        return sorted(path for path in root.glob(pattern) if path.is_file())
    except (ValueError, NotImplementedError) as error:  # Empty, or from the root of the file system.
        remedy = "Write it as a path from the project's folder."
        raise ConfigError("reading include_paths", f"{pattern!r}: {error}", remedy=remedy) from error


def _locks(root: Path) -> tuple[list[Mapping[str, Any]], dict[str, ConfigError]]:
    """The plugin definitions that Meltano stores in the project's folder, and the errors of those that cannot be read,
    by the names of their files."""
    found: list[Mapping[str, Any]] = []
    unread: dict[str, ConfigError] = {}
    for path in sorted((root / "plugins").glob("*s/*.lock")):
        try:
            found.append(_definition(path))
        except ConfigError as error:
            unread[path.stem] = error
    return found, unread


def _definition(path: Path) -> Mapping[str, Any]:
    definition = _read_json(path, json.loads, remedy=_LOCK_REMEDY)
    if not isinstance(definition, dict):
        found = "it is no definition of a plugin, which is an object of JSON"
        raise ConfigError(f"reading {path}", found, remedy=_LOCK_REMEDY)
    return definition


def _state_value(raw: bytes) -> Any:
    """The value of a saved state, with all digits of its numbers."""
    json.loads(raw, parse_constant=refuse_constant)
    text = raw.decode(json.detect_encoding(raw))  # A file of Windows may be in UTF-16, or begin with a mark.
    return exact_value(text.encode("utf-8", "surrogatepass"))


def _read_json(path: Path, parse: Callable[[bytes], Any], *, remedy: str = "") -> Any:
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or f"it is not JSON: {error}"
        raise ConfigError(f"reading {path}", str(found), remedy=remedy) from error


def _saved(words: Sequence[str], chosen: Sequence["Plugin"]) -> dict[str, Any]:
    """The states to import, by tap."""
    known = [tap.name for tap in chosen]
    saved: dict[str, Any] = {}
    for word in words:
        name, equals, file = word.partition("=")
        if not equals or name not in known:
            raise ConfigError(
                f"reading --state {word}", "no tap is named", remedy=f"Write TAP=FILE. Taps: {', '.join(known)}."
            )
        value = _read_json(Path(file), _state_value)
        state = value.get("singer_state", value) if isinstance(value, dict) else value
        if not isinstance(state, dict):
            remedy = "Give the output of `meltano state get`."
            raise ConfigError(f"reading --state {word}", "it contains no state", remedy=remedy)
        saved[name] = state
    return saved


def _chosen(kind: str, plugins: Sequence["Plugin"], names: Sequence[str], file: Path) -> list["Plugin"]:
    known = {plugin.name: plugin for plugin in plugins}
    unknown = [name for name in names if name not in known]
    if not known:
        section = "extractors" if kind == "tap" else "loaders"
        remedy = f"Taps and targets stand in `plugins` of a meltano.yml. Is {file} the right file?"
        raise ConfigError(f"looking for {kind}s in {file}", f"its `plugins` has no {section}", remedy=remedy)
    if unknown:
        found = f"there is no {unknown[0]!r}"
        raise ConfigError(f"looking for {kind}s in {file}", found, remedy=f"There are: {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(names)] if names else list(plugins)


def _check_names_are_unique(imported: Sequence[_ImportedTap]) -> None:
    """Checks that no two taps get the same connection name: state and tables belong to the name, even if the files are
    in different folders."""
    made: dict[str, str] = {}
    for each in imported:
        first = made.setdefault(each.connection, each.tap.name)
        if first != each.tap.name:
            raise ConfigError(
                "naming the connections",
                f"{first} and {each.tap.name} would both be called {each.connection}, and share state and tables",
                remedy=f"Give one of them another name in the project, or import one alone: --tap {each.tap.name}.",
            )


class _Place(NamedTuple):
    """A project in its folder, the folder of the connection files, the loader that they relay to, if any, and the
    variables of its `.env`."""

    project: "MeltanoProject"
    root: Path
    folder: Path
    loader: "Plugin | None"
    dotenv: Mapping[str, str]


def _import_tap(call: Call, tap: "Plugin", place: _Place) -> _ImportedTap:
    from dagster_airbyte_proto.connection.meltano.plugin_config import (
        connection_config,
        has_variable,
        pipeline_variables,
        with_values,
    )
    from dagster_airbyte_proto.connection.meltano.selection import selected_streams
    from dagster_airbyte_proto.sync.connector.new_connection import connection_name

    if tap.error is not None:
        raise tap.error
    project, root, folder, loader, dotenv = place
    connection = connection_name(tap.name)
    path = folder / f"{connection}.yaml"
    variables = pipeline_variables(project, str(root.absolute()), tap, loader)
    config = connection_config(tap, project, variables, dotenv)
    launch, left = _launch(tap, root, folder)
    launch |= _working_folder(config.values, root, folder)
    document: dict[str, Any] = {"connector": {"protocol": "singer", "launch": launch}, "config": config.values}
    chosen = selected_streams(tap, None)
    if chosen.needs_catalog:
        columns, why = _columns(call, connection, document, folder)
        chosen = selected_streams(tap, columns) if columns is not None else chosen
        left += [why] if why else []
    if chosen.streams is not None:
        document["streams"] = chosen.streams
    if chosen.streams == {}:
        left.append("select: it selects no stream, so the file is refused until `streams` names one")
    schema = with_values(tap.load_schema, variables)
    if loader is not None:
        to_config = connection_config(loader, project, variables, dotenv)
        to_launch, left_of_loader = _launch(loader, root, folder)
        to_launch |= _working_folder(to_config.values, root, folder)
        document["to"] = {"connector": {"protocol": "singer", "launch": to_launch}, "config": to_config.values}
        config = config.joined(to_config)
        left += [*loader.not_imported, *left_of_loader]
        if schema and schema not in to_config.values.values():
            left.append(f"load_schema {schema}: name it in the config of `to`")
    elif has_variable(schema):
        left.append(f"load_schema {schema}: a namespace has no variables; write it as namespace of `destination`")
    elif schema:
        document["destination"] = {"namespace": schema}
    return _ImportedTap(tap, connection, path, document, config, (*tap.not_imported, *left, *chosen.not_imported))


def _dotenv(root: Path) -> dict[str, str]:
    from dotenv import dotenv_values

    try:
        found = dotenv_values(root / ".env", interpolate=False)
    except UnicodeDecodeError as error:
        raise ConfigError(f"reading {root / '.env'}", "it is not UTF-8 text") from error
    return {name: value for name, value in found.items() if value is not None}


def _launch(plugin: "Plugin", root: Path, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The launch settings: a package of the index if the plugin came from there, else Meltano's own installation."""
    words = [word for word in _words(plugin.pip_url) if not word.startswith("-")]
    named = _PYTHON.fullmatch(plugin.python)
    python = {"python": named["version"] if named else plugin.python} if plugin.python else {}
    # `name @ https://…` is a package of another place, whatever the index has under that name.
    is_elsewhere = words[1:2] == ["@"]
    found = _REQUIREMENT.fullmatch(words[0]) if words and not is_elsewhere else None
    if found is None:
        inside = _venv(plugin, root) / "bin" / plugin.executable
        program = inside if words else root / plugin.executable if "/" in plugin.executable else None
        command = [os.path.relpath(program, folder) if program else plugin.executable]
        shown = without_logins(plugin.pip_url)
        left = [f"pip_url {shown}: it is not a package of the index, so the copy that Meltano installed is used"]
        return {"kind": "local", "command": command}, left if words else []
    others = without_logins(" ".join(words[1:]))
    left = [f"pip_url {others}: it is not installed with the plugin"] if others else []
    version = found["version"] or ""
    if not re.fullmatch(r"==[^*,=$]+", version):
        installed = _installed(_venv(plugin, root), found["name"])
        version = f"=={installed}" if installed else version
        if not installed:
            left.append(f"pip_url {words[0]}: it is not pinned; add the version")
    package = f"{found['name']}{found['extras'] or ''}{version}"
    return {"kind": "pypi", "package": package, "executable": plugin.executable, **python}, left


def _venv(plugin: "Plugin", root: Path) -> Path:
    """The environment in which Meltano has installed a plugin. An heir without a package of its own has that of its
    parent."""
    places = [root / ".meltano" / plugin.kind / name / "venv" for name in (plugin.name, *plugin.inherits_from)]
    return next(filter(Path.is_dir, places), places[0])


def _words(pip_url: str) -> list[str]:
    try:
        return shlex.split(pip_url)
    except ValueError:  # A quote without its end.
        return pip_url.split()


def _working_folder(values: Any, root: Path, folder: Path) -> dict[str, str]:
    """The working folder of a plugin whose config names files of the project by relative paths: Meltano starts it
    there."""
    return {"working_folder": os.path.relpath(root, folder)} if any(_relative_paths(values, root)) else {}


def _relative_paths(value: Any, root: Path) -> Iterator[str]:
    """The texts in a config that name something in the project."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _relative_paths(each, root)
    elif isinstance(value, str) and value.strip("./") and not Path(value).is_absolute() and _exists(root / value):
        yield value


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # Any text may be in a config: this one is too long for a name.
        return False


def _installed(environment: Path, package: str) -> str | None:
    folders = [str(path) for path in environment.glob("lib/python*/site-packages")]
    return next((found.version for found in distributions(name=package, path=folders)), None) if folders else None


def _columns(
    call: Call, connection: str, document: Mapping[str, Any], folder: Path
) -> tuple["CatalogColumns | None", str]:
    """The columns of the tap's own catalog, or the reason why there are none."""
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.connector.opened_connector import opened_source

    unwritten = Connection.model_validate({"name": connection, **document}, context={"folder": folder})
    try:
        with call.engine() as engine, opened_source(engine, unwritten) as source:
            streams = source.catalog().streams
    except ProtoError as error:
        return None, f"its catalog: {plain(error.found, max_characters=2000)}"
    return {str(stream.id): list(stream.json_schema.get("properties") or ()) for stream in streams}, ""


def _write(imported: _ImportedTap, file: Path, *, force: bool) -> None:
    named = [] if imported.path.stem == imported.connection else [f"name: {imported.connection}"]
    head = [f"# {plain(imported.tap.name)} of {plain(file.name)}", *named]
    write_connection(imported.path, head, imported.document, force=force)


def _answer(
    imported: Sequence[_ImportedTap], project: "MeltanoProject", moved: Collection[str], errors: ProjectErrors
) -> Answer:
    from dagster_airbyte_proto.connection.meltano.project import LOADERS

    lines: list[str] = []
    is_relayed = any("to" in each.document for each in imported)
    for each in imported:
        unset = [name for name in each.config.variables if name not in os.environ]
        lines += [f"{each.tap.name} -> {each.path}" + (", with its state" if each.tap.name in moved else "")]
        plaintext = each.config.open_secrets.items()
        lines += [
            f"  {name}: its value is written in the project; set {variable} to it" for name, variable in plaintext
        ]
        lines += [f"  to set in the environment: {', '.join(unset)}"] if unset else []
        lines += [f"  not carried over: {plain(text, max_characters=2000)}" for text in each.left]
        lines += [f"  then: airbyte-proto check {shlex.quote(str(each.path))}"]
    rest = [text for text in project.not_imported if not (is_relayed and text.startswith(f"{LOADERS} "))]
    lines += [f"not carried over: {plain(text, max_characters=2000)}" for text in rest]
    connections = [
        {
            "tap": each.tap.name,
            "connection": each.connection,
            "file": str(each.path),
            "variables": list(each.config.variables),
            "not_carried_over": list(each.left),
            "has_state": each.tap.name in moved,
        }
        for each in imported
    ]
    return errors.answer(connections, rest, lines)
