"""Writes the folder of a new connector: a small source that builds and runs, to begin from."""

import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from dagster_airbyte_proto.connector_kit.build import WIT_FOLDER
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_text import wit_text

_SKELETONS = files("dagster_airbyte_proto.connector_kit") / "skeletons"
_WIT_FILE = f"{WIT_FOLDER}/rapidbyte-connector.wit"
_MARK = re.compile(r"\{\{(name|title|tools|files)\}\}|(?<=component_of_)LANGUAGE")
"""Stands in the files of a skeleton for what is written there."""


class _Language(NamedTuple):
    """A language as the README of its skeleton names it, with what has to be installed, and its files."""

    title: str
    tools: str
    files: tuple[tuple[str, str], ...]


_LANGUAGES: Mapping[str, _Language] = MappingProxyType(
    {
        "c": _Language(
            "C",
            "pip install ziglang                   # a C compiler for WebAssembly",
            (
                ("source.c", "the source"),
                ("rapidbyte.h", "the functions of the host, memory, and the errors and summaries that are returned"),
                ("arrow.h", "writes rows as Arrow batches"),
            ),
        ),
        "python": _Language(
            "Python",
            "pip install componentize-py           # makes components of Python",
            (("source.py", "the source"), ("arrow_batches.py", "writes rows as Arrow batches")),
        ),
        "rust": _Language(
            "Rust",
            "rustup target add wasm32-wasip2       # what cargo needs to make components",
            (("src/lib.rs", "the source"), ("Cargo.toml", "its crates")),
        ),
    }
)


LANGUAGES = tuple(_LANGUAGES)


class Skeleton(NamedTuple):
    """The files of a new connector, by their paths in its folder. `tools` is what building it needs."""

    folder: Path
    language: str
    files: tuple[str, ...]
    tools: str


def write_skeleton(folder: Path, language: str) -> Skeleton:
    """Writes a source in this language into a folder that is not there yet, or empty. Raises ConfigError."""
    doing = "writing a new connector"
    if language not in _LANGUAGES:
        raise ConfigError(doing, f"there is no skeleton in {language}", remedy=f"Choose {', '.join(LANGUAGES)}.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            doing,
            f"{folder} is there already",
            remedy="Give it another name, or remove what is there: NAME is a folder.",
        )
    about = _LANGUAGES[language]
    words = {
        "name": re.sub(r"[^a-z0-9]+", "_", folder.resolve().name.lower()).strip("_") or "connector",
        "language": language,
        "title": about.title,
        "tools": about.tools,
        "files": "\n".join(f"| `{file}` | {says} |" for file, says in about.files),
    }
    written = {
        path: _MARK.sub(lambda mark: words[mark[1] or "language"], text)
        for part in ("shared", language)
        for path, text in _texts(_SKELETONS / part).items()
    }
    written[_WIT_FILE] = wit_text()
    for path, text in written.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return Skeleton(folder, language, tuple(sorted(written)), about.tools.partition("#")[0].strip())


def _texts(folder: Traversable, before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            found |= _texts(each, f"{before}{each.name}/")
        elif each.is_file():
            found[before + each.name] = each.read_text(encoding="utf-8")
    return found
