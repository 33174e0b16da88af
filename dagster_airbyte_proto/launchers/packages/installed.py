"""The environments of packages that are installed: their list, their size, and their removal."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.environment_use import is_locked, unused, used_at, users, users_file
from dagster_airbyte_proto.launchers.packages.linked_builds import (
    BUILD,
    LOCK_FILE,
    link_of_build,
    lock_of_build,
    try_lock,
)
from dagster_airbyte_proto.launchers.packages.npm.node import find_node

_PYPI_NAME = re.compile(r"(?P<package>.+)-(?P<version>[0-9][^-]*)-cp\d+-[0-9a-f]{12}")
_NPM_NAME = re.compile(r"(?P<package>.+@[0-9].*)-node\d+-[0-9a-f]{12}")
_PROBE_SECONDS = 20.0


class InstalledEnvironment(NamedTuple):
    """An environment, named by its link. `folder` is the one that the link leads to.

    A folder that no link leads to was left by a build that died; it has no `package`, and its own name. `interpreter`
    is `python 3.11.2` or `node 20.20.2`. `users` are the connections that have used it. `used_at` is the time of the
    last use, or of the installation if no use was noted.
    """

    link: Path
    folder: Path
    package: str
    interpreter: str
    users: tuple[str, ...]
    used_at: datetime

    @property
    def name(self) -> str:
        return self.link.name if self.package else self.folder.name

    @property
    def python(self) -> str:
        """The version of its Python; empty if it has none."""
        return self._version("python")

    @property
    def node(self) -> str:
        """The version of the Node that it was installed for; empty if it needs none."""
        return self._version("node")

    @property
    def package_name(self) -> str:
        """The package without its version."""
        return self.package.rpartition("@")[0] if self.node else self.package.partition("==")[0]

    def size_bytes(self) -> int:
        """The bytes on disk. Files that uv has linked from its cache take no further room, and free none."""
        inodes: dict[tuple[int, int], int] = {}
        for folder, _, files in os.walk(self.folder):
            for name in files:
                try:
                    found = (Path(folder) / name).lstat()
                except FileNotFoundError:
                    continue
                inodes[found.st_dev, found.st_ino] = found.st_blocks * 512
        return sum(inodes.values())

    def fault(self) -> str:
        """The reason why its programs cannot run; empty if they can."""
        if self.node:
            return _fault_of_node(self.node)
        python = self.folder / "bin" / "python"
        if not python.exists():
            return f"its Python is gone ({python.readlink() if python.is_symlink() else python})"
        try:
            ended = subprocess.run([python, "-I", "-c", ""], capture_output=True, timeout=_PROBE_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"its Python does not run: {error}"
        return "" if ended.returncode == 0 else f"its Python exits with {ended.returncode}"

    def _version(self, interpreter: str) -> str:
        name, _, version = self.interpreter.partition(" ")
        return version if name == interpreter else ""


def _fault_of_node(version: str) -> str:
    try:
        found = find_node()
    except ConfigError as error:
        return error.found
    is_same = found.major == version.partition(".")[0]
    return "" if is_same else f"it was installed for Node {version}, and here is {found.version}: no connection uses it"


def installed_environments(cache: Path) -> list[InstalledEnvironment]:
    """The environments of a folder, and the remains of builds that died, by name. Another process may remove some
    meanwhile."""
    links = [path for path in _entries(cache) if path.is_symlink() and (path / LOCK_FILE).is_file()]
    found = [each for link in links if (each := _if_there(_installed, link)) is not None]
    linked = {each.folder for each in found}
    remains = [path for path in _entries(cache) if BUILD in path.name and path.is_dir() and path not in linked]
    return [*found, *(each for folder in remains if (each := _if_there(_remains, folder)) is not None)]


def is_in_use(environment: InstalledEnvironment) -> bool:
    """True if a process uses the environment, or builds it. Writes nothing."""
    is_used = is_locked(users_file(environment.link)) if environment.package else _has_been_linked(environment)
    return is_used or is_locked(lock_of_build(environment.link))


def remove_environment(environment: InstalledEnvironment) -> bool:
    """Removes an environment; the next run of its package installs it again, with the same dependencies.

    Returns False, and removes nothing, if it is in use, being built, or was built anew since it was listed.
    """
    with _idle(environment) as is_idle:
        if is_idle:
            if environment.package:
                # First the name: an environment that has one is complete.
                environment.link.unlink(missing_ok=True)
            shutil.rmtree(environment.folder, ignore_errors=True)
        return is_idle


@contextmanager
def _idle(environment: InstalledEnvironment) -> Iterator[bool]:
    """Gives True if nobody builds or uses the environment, and keeps it so."""
    with try_lock(lock_of_build(environment.link)) as is_built:
        if is_built and environment.package:
            with unused(environment.link) as is_unused:
                # Others may have removed it since it was listed, and installed the package again: that one stays.
                yield is_unused and (_has_been_linked(environment) or not environment.link.is_symlink())
        else:
            yield is_built and not _has_been_linked(environment)


def _has_been_linked(environment: InstalledEnvironment) -> bool:
    """True if the name leads to this folder: of a build that looked like one that died, once it has ended well."""
    return environment.link.resolve() == environment.folder


def _entries(cache: Path) -> Iterator[Path]:
    return iter(sorted(cache.resolve().iterdir()) if cache.is_dir() else ())


def _if_there(look: Callable[[Path], InstalledEnvironment], path: Path) -> InstalledEnvironment | None:
    try:
        return look(path)
    except FileNotFoundError:
        return None


def _installed(link: Path) -> InstalledEnvironment:
    first = (link / LOCK_FILE).read_text(errors="replace").partition("\n")[0]
    if named := _NPM_NAME.fullmatch(link.name):
        package = named["package"].replace("+", "/", 1) if link.name.startswith("@") else named["package"]
    elif named := _PYPI_NAME.fullmatch(link.name):
        package = f"{named['package']}=={named['version']}"
    else:
        package = link.name
    seconds = used_at(link) or (link / LOCK_FILE).stat().st_mtime
    used = datetime.fromtimestamp(seconds, UTC)
    return InstalledEnvironment(link, link.resolve(), package, first.removeprefix("# "), users(link), used)


def _remains(folder: Path) -> InstalledEnvironment:
    return InstalledEnvironment(
        link_of_build(folder), folder, "", "", (), datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    )
