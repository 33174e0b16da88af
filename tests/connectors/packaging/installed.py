"""The wheel in an environment that has nothing else, as a user gets it, and the files that a page of the docs shows."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.interpreters import find_python, find_uv
from tests.support.needs import lacks

_DOCS = Path(__file__).parents[3] / "docs"
_FILE = re.compile(r'^```text title="(?P<name>[^"]+)"\n(?P<text>.*?)^```', re.M | re.S)


class Installed:
    """A folder, and an environment in it with nothing but what a test installs.

    `variables` are set for each program.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder = folder
        self._programs = folder / "venv" / "bin"
        uv = find_uv()
        assert uv is not None
        self._uv = uv
        self.variables: Mapping[str, str] = {}
        self.run(uv, "venv", "--quiet", "--python", str(python), "venv")

    def install(self, *words: str) -> None:
        self.run(self._uv, "pip", "install", "--quiet", "--python", "venv/bin/python", *words)

    def run(self, program: str, *words: str) -> str:
        environment = {name: os.environ[name] for name in os.environ if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [program if os.sep in program else str(self._programs / program), *words],
            cwd=self._folder, env={**environment, "PATH": path, **self.variables},
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, (program, words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run("airbyte-proto", "--json", *words))


def write_files_of_page(page: str, folder: Path, changed: Mapping[str, str]) -> None:
    """Writes the files that a page of the docs shows. `changed` has what stands in the place of its words."""
    for fence in _FILE.finditer((_DOCS / page).read_text()):
        text = fence["text"]
        for words, others in changed.items():
            text = text.replace(words, others)
        path = folder / fence["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def interpreter(version: str) -> Path:
    """A Python of this machine; without one the test is skipped, which pytest reports."""
    try:
        return find_python(version)[0]
    except ConfigError:
        lacks(f"python{version}", f"there is no Python {version} here")
