"""Finds a Python of the version that a connector needs."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packaging.specifiers import SpecifierSet

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.permissions import build_environment
from dagster_airbyte_proto.project_folder import expanded

try:
    import uv
except ImportError:  # on a platform without its wheel: pip does the same, slower
    uv = None  # type: ignore[assignment]  # a module or nothing

_PROBE = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_PROBE_SECONDS = 20.0
_PATCHES = range(30)
_MINORS = range(20, 2, -1)
"""The versions 3.N that are looked for, the newest first."""


def find_uv() -> str | None:
    """The path of uv, on the PATH or installed in our environment; None if there is none."""
    found = shutil.which("uv")
    if found is None and uv is not None:
        try:
            found = os.fspath(uv.find_uv_bin())
        except FileNotFoundError:
            return None
    return found


def find_python(requested: str | None) -> tuple[Path, str]:
    """Returns an interpreter that runs, and its version. `requested` is `3.10`, `3.10.13`, a path, or None for our own.

    Raises ConfigError with the interpreters that were found instead.
    """
    if requested is None:
        return Path(sys.executable), platform.python_version()
    seen = []
    for candidate in _candidates(requested):
        version = _version(candidate)
        if version is not None and (os.sep in requested or f"{version}.".startswith(f"{requested}.")):
            return Path(candidate).absolute(), version
        seen.append(f"{candidate} ({version or 'does not run'})")
    raise ConfigError(
        "finding a Python for the connector",
        f"there is no Python {requested} here; looked at: {', '.join(seen) or 'nothing, none is installed'}",
        remedy="Install it (for example `uv python install`), or give `python` the path of an interpreter.",
    )


def find_matching_python(requirement: str) -> tuple[Path, str]:
    """Returns an interpreter of a version that the package takes (`>=3.10,<3.13`), and its version: our own if it is
    one, else the newest that is found. Raises ConfigError with the interpreters that were found instead."""
    wanted = SpecifierSet(requirement)
    own = platform.python_version()
    if wanted.contains(own, prereleases=True):
        return Path(sys.executable), own
    minors = [f"3.{minor}" for minor in _MINORS if any(wanted.contains(f"3.{minor}.{patch}") for patch in _PATCHES)]
    seen = [f"{sys.executable} ({own})"]
    for minor in minors:
        for candidate in _candidates(minor):
            version = _version(candidate)
            if version is not None and wanted.contains(version, prereleases=True):
                return Path(candidate).absolute(), version
            seen.append(f"{candidate} ({version or 'does not run'})")
    newest = minors[0] if minors else requirement
    raise ConfigError(
        "finding a Python for the connector",
        f"it needs Python {requirement}, and there is none here; looked at: {', '.join(seen)}",
        remedy=f"Install one (for example `uv python install {newest}`), or give `python` the path of an interpreter.",
    )


def _candidates(requested: str) -> Iterator[str]:
    if os.sep in requested:
        yield str(expanded(requested))
        return
    minor = ".".join(requested.split(".")[:2])
    program = find_uv()
    if program is not None:
        found = _output([program, "python", "find", "--no-project", "--no-python-downloads", requested])
        if found is not None:
            yield found
    on_path = shutil.which(f"python{minor}")
    if on_path is not None:
        yield on_path
    # pyenv puts shims on the PATH for versions that are not selected: they fail when run. So its folders are searched
    # too.
    with suppress(ConfigError):  # Who has no home has no pyenv.
        yield from sorted(map(str, expanded("~").glob(f".pyenv/versions/{minor}*/bin/python")), reverse=True)


def _version(python: str) -> str | None:
    return _output([python, "-I", "-c", _PROBE])


def _output(command: list[str]) -> str | None:
    """The output of a command; None if it failed or printed nothing."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False,
            env=build_environment(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
