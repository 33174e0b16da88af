"""Writes the connection files of an imported project."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.errors import ConfigError


def check_free(paths: Iterable[Path], read: Iterable[Path], *, force: bool) -> None:
    """Raises ConfigError if one of the files exists, before any is written. Those that were `read` stay in any case."""
    originals = {path.resolve() for path in read}
    for path in paths:
        if path.resolve() in originals:
            found = "it is the file that is imported, which stays as it is"
            raise ConfigError(f"writing {path}", found, remedy="Name another folder with --into.")
        if path.exists() and not force:
            raise ConfigError(
                f"writing {path}",
                "the file exists",
                remedy="Overwrite it with --force, or name another folder with --into.",
            )


def write_connection(path: Path, head: Iterable[str], document: Mapping[str, Any], *, force: bool) -> None:
    """Writes a connection file: lines of its head, then each part of it."""
    from dagster_airbyte_proto.atomic_files import has_no_room, write_atomically, write_new_file
    from dagster_airbyte_proto.connection.yaml_text import yaml_text

    lines = list(head)
    for number, (key, inner) in enumerate(document.items()):
        space = [""] if number else []
        if isinstance(inner, list) and inner and all(isinstance(each, Mapping) for each in inner):
            lines += [*space, f"{key}:", *(f"  - {yaml_text(each)}" for each in inner)]
            continue
        if not isinstance(inner, Mapping) or not inner:
            lines += [*space, f"{key}: {yaml_text(inner)}"]
            continue
        lines += [*space, f"{key}:"]
        lines += [f"  {yaml_text(name)}: {yaml_text(value)}" for name, value in inner.items()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = ("\n".join(lines) + "\n").encode()
        if force:
            write_atomically(path, content)
        else:
            write_new_file(path, content)
    except OSError as error:
        found = "the file exists" if isinstance(error, FileExistsError) else error.strerror or str(error)
        remedy = "Make room there." if has_no_room(error) else "Name another folder with --into."
        raise ConfigError(f"writing {path}", found, remedy=remedy) from error
    sys.stderr.write(f"wrote {path}\n")
