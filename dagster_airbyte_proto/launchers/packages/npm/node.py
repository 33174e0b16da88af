"""Finds Node, and npm."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.permissions import npm_environment

_PROBE_SECONDS = 20.0
_ACTION = "finding Node for the connector"


class Node(NamedTuple):
    """A program `node`, and its version, such as `20.20.2`."""

    program: Path
    version: str

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


def node_program() -> str | None:
    """The program of the Node on the PATH: some distributions call it `nodejs`. None if there is none."""
    return shutil.which("node") or shutil.which("nodejs")


def find_node() -> Node:
    """Returns the Node on the PATH. Raises ConfigError if there is none, or if it does not run."""
    found = node_program()
    if found is None:
        raise ConfigError(
            _ACTION,
            "there is no node on the PATH",
            remedy="Install Node with npm (Debian: apt-get install nodejs npm), or put its folder on the PATH of the "
            "process that runs syncs: a shell's setup (nvm, fnm) does not reach a service.",
        )
    try:
        ended = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False,
            env=npm_environment(os.environ),
        )  # fmt: skip
        said = ended.stdout.strip() if ended.returncode == 0 else ""
        reason = ended.stderr.strip() or f"it exits with {ended.returncode} and {ended.stdout.strip()!r}"
    except (OSError, subprocess.TimeoutExpired) as error:
        said, reason = "", str(error)
    if not said.startswith("v"):
        raise ConfigError(_ACTION, f"{found} does not run: {reason}", remedy="Install Node again.")
    return Node(Path(found).absolute(), said.removeprefix("v"))


def find_npm() -> Path:
    """Returns the npm on the PATH. Raises ConfigError if there is none."""
    found = shutil.which("npm")
    if found is None:
        raise ConfigError(
            "finding npm for the connector",
            "there is no npm on the PATH",
            remedy="Install it beside Node (Debian: apt-get install npm). It is needed only while a package is "
            "installed for the first time.",
        )
    return Path(found).absolute()
