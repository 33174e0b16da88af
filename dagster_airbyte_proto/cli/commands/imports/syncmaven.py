"""Push files from a Syncmaven project. Slow modules are imported when it runs; see call.py."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dagster_airbyte_proto.cli.commands.imports.project_errors import ProjectErrors
from dagster_airbyte_proto.cli.commands.imports.written import check_free, write_connection
from dagster_airbyte_proto.cli.output import Answer, plain
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection.syncmaven.project import ImportedSync, ProjectFile

_ENDINGS = (".yaml", ".yml", ".json", ".sql")
_AGAIN = "Correct that, and import again: --into names another folder, --force overwrites the files that are there."


class _FolderFiles(NamedTuple):
    """The files of a folder of the project, by their id, and the errors of those that cannot be read."""

    by_id: "Mapping[str, ProjectFile]"
    unread: Mapping[Path, ConfigError]


def imported_syncs(root: Path, folder: Path, *, force: bool) -> Answer:
    """Writes a push file for each sync of the project in `root`."""
    from dagster_airbyte_proto.connection.syncmaven.project import SyncmavenProject, imported_sync, is_disabled
    from dagster_airbyte_proto.sync.connector.new_connection import connection_name

    folders = [root / name for name in ("models", "connections", "syncs")]
    models, connections, syncs = map(_files, folders)
    if not syncs.by_id and not syncs.unread:
        remedy = f"PROJECT is the folder that has models, connections and syncs ({', '.join(_ENDINGS)} files)."
        raise ConfigError(f"importing {root}", "its folder syncs has no file", remedy=remedy)
    unread = {"model": tuple(models.unread.values()), "connection": tuple(connections.unread.values())}
    project = SyncmavenProject(models.by_id, connections.by_id, syncs.by_id, unread)
    errors = ProjectErrors("sync", _AGAIN)
    for path, error in syncs.unread.items():
        errors.add(_name(path), error, file=str(path))
    skipped = [name for name, sync in syncs.by_id.items() if is_disabled(sync)]
    imported: list[ImportedSync] = []
    paths: dict[str, Path] = {}
    for name, sync in syncs.by_id.items():
        if name not in skipped:
            with errors.leaving_others(name, file=sync.path):
                made, path = imported_sync(project, sync), folder / f"{connection_name(name)}.yaml"
                imported.append(made)
                paths[name] = path
    doubled = [name for name, path in paths.items() if list(paths.values()).count(path) > 1]
    if doubled:
        found = f"the syncs {', '.join(doubled)} would be written to one file"
        raise ConfigError(f"importing {root}", found, remedy="Rename one, or give it another `id`.")
    check_free(paths.values(), (path for each in folders for path in _paths(each)), force=force)
    for each in imported:
        head = [f"# {plain(each.name)} of {plain(root.absolute().name)}"]
        write_connection(paths[each.name], head, _from_folder(each, root, folder), force=force)
    return _answer(imported, paths, skipped, errors)


def _files(folder: Path) -> _FolderFiles:
    from dagster_airbyte_proto.connection.syncmaven.project import ProjectFile

    found: dict[str, ProjectFile] = {}
    unread: dict[Path, ConfigError] = {}
    for path in _paths(folder):
        try:
            file = ProjectFile(_name(path), _content(path), str(path))
        except ConfigError as error:
            unread[path] = error
            continue
        if file.id in found:
            remedy = "Rename one, or give it another `id`."
            raise ConfigError(f"reading {folder}", f"two of its files have the id {file.id}", remedy=remedy)
        found[file.id] = file
    return _FolderFiles(found, unread)


def _name(path: Path) -> str:
    """The name of a file without its ending, as Syncmaven reads it."""
    return path.stem


def _paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS) if folder.is_dir() else []


def _content(path: Path) -> Any:
    from dagster_airbyte_proto.connection.document import read_document

    try:
        if path.suffix == ".sql":
            return path.read_text(encoding="utf-8-sig")
        if path.suffix == ".json":
            return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"reading {path}", getattr(error, "strerror", None) or str(error)) from error
    return read_document(path, what="file of a Syncmaven project").data


def _from_folder(imported: "ImportedSync", root: Path, folder: Path) -> "dict[str, Any]":
    """The document, with the folders of programs as they are seen from the file that is written."""

    def placed(part: Mapping[str, Any]) -> dict[str, Any]:
        launch = part["connector"]["launch"]
        if "working_folder" in launch:
            launch = {**launch, "working_folder": os.path.relpath(root / launch["working_folder"], folder)}
        return {**part, "connector": {**part["connector"], "launch": launch}}

    document = placed(imported.document)
    if "transforms" in document:
        document["transforms"] = [placed(each) for each in document["transforms"]]
    return document


def _answer(
    imported: "Sequence[ImportedSync]", paths: Mapping[str, Path], skipped: Sequence[str], errors: ProjectErrors
) -> Answer:
    lines: list[str] = []
    for each in imported:
        unset = [name for name in each.variables if name not in os.environ]
        lines.append(f"{each.name} -> {paths[each.name]}")
        lines += [f"  to set in the environment: {', '.join(unset)}"] if unset else []
        lines += [f"  not carried over: {plain(text, max_characters=2000)}" for text in each.left]
        lines.append(f"  then: airbyte-proto check {shlex.quote(str(paths[each.name]))}")
    left = [f"the sync {name}, which is disabled" for name in skipped]
    lines += [f"not carried over: {text}" for text in left]
    connections = [
        {
            "sync": each.name,
            "file": str(paths[each.name]),
            "variables": list(each.variables),
            "not_carried_over": list(each.left),
        }
        for each in imported
    ]
    return errors.answer(connections, left, lines)
