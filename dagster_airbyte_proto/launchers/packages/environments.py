"""Virtual environments of pinned packages, each built once and shared by all processes.

1. An environment is built under a lock and named by a link, see `linked_builds.py`.
2. The folder itself is never moved: the scripts of an environment contain its absolute path. Only uv can avoid that
   (`--relocatable`), pip cannot.
3. The Python that a package says it needs is read before it is installed, and kept beside the environments. Installers
   take a wrong one: uv heeds no upper bound, and then compiles dependencies for minutes.
4. The versions of the dependencies and the hashes of their files are written beside the environments, and the next
   build of the package uses the same ones: what ran yesterday runs tomorrow, also with another patch release of Python,
   or on a machine that got the file.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, StagingError
from dagster_airbyte_proto.launchers.packages.installer_process import InstallerWatch, locked_build, run_installer
from dagster_airbyte_proto.launchers.packages.interpreters import find_matching_python, find_python, find_uv
from dagster_airbyte_proto.launchers.packages.linked_builds import LOCK_FILE, build_and_link, lock_of_build
from dagster_airbyte_proto.launchers.packages.package_locks import has_all_hashes, lock_of_pip_report
from dagster_airbyte_proto.launchers.permissions import build_environment
from dagster_airbyte_proto.masking import without_logins

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?P<extras>\[[A-Za-z0-9._, -]+\])?\s*"
    r"===?\s*(?P<version>[0-9][A-Za-z0-9.!+_-]*)"
)
_PINS = "requirements.txt"
_TAIL_LINES = 30
# The installers report these causes only as text, which decides the class of our error: who can act.
_NO_ROOM = re.compile("no space left on device|disk quota exceeded|read-only file system")
_NO_NETWORK = re.compile(
    "error sending request|dns error|name resolution|timed out|network timeout|network is unreachable"
    "|connection (refused|reset|aborted|broken)|failed to establish a new connection"
    # Of an index that is overloaded or restarts, and of one that breaks off in the middle of a file.
    "|server error|too many requests|response body|incomplete-download",
)
_NETWORK_REMEDY = (
    "Check the network, the proxy, and the package index that the installer's settings name. Once installed, a package "
    "needs no network."
)


class PinnedPackage(NamedTuple):
    name: str
    extras: str
    version: str

    @classmethod
    def of(cls, requirement: str) -> "PinnedPackage":
        """Parses a requirement. Raises ConfigError unless it pins one version: what ran yesterday must run tomorrow."""
        found = _REQUIREMENT.fullmatch(requirement.strip())
        if found is None:
            raise ConfigError(
                "reading the connector's package",
                f"{requirement!r} is not pinned to one version",
                remedy='Write it as "airbyte-source-faker==7.2.1".',
            )
        name = re.sub(r"[-_.]+", "-", found["name"]).lower()
        return cls(name, (found["extras"] or "").replace(" ", ""), found["version"])

    def __str__(self) -> str:
        return f"{self.name}{self.extras}=={self.version}"


class _OtherPythonNeeded(Exception):
    """The package takes no Python of this version. The versions that it takes are kept by now."""


class _Installer(NamedTuple):
    """The commands that build an environment.

    `pins` is the file with the versions and hashes of the dependencies, which exists if the package was installed
    before; `needed_python` that with the versions of Python that it takes, None if the connection names the Python.
    """

    python: Path
    version: str
    uv: str | None
    pins: Path
    needed_python: Path | None
    watch: InstallerWatch

    def install(self, package: PinnedPackage, folder: Path) -> None:
        """Installs the package. Raises _OtherPythonNeeded, before anything is installed, if it takes no such Python."""
        inside = str(folder / "bin" / "python")
        if self.uv is not None:
            self._run([self.uv, "venv", "--quiet", "--no-project", "--python", str(self.python), str(folder)], package)
            pip, quiet = [self.uv, "pip"], ["--quiet", "--python", inside]
        else:
            self._run([str(self.python), "-m", "venv", str(folder)], package)
            pip, quiet = [inside, "-m", "pip", "--disable-pip-version-check", "--no-input"], []
        # With pins this Python has been right before, and nothing may be fetched that they do not name.
        if self.needed_python is not None and not self.needed_python.is_file() and not self.pins.is_file():
            self._check_python(package, folder, [*pip, "install", *quiet], self.needed_python)
        pins = self._resolved(package, folder, pip)
        (folder / _PINS).write_bytes(pins)
        if has_all_hashes(pins):
            wanted = ["--require-hashes", "--requirement", str(folder / _PINS)]
        else:
            wanted = ["--constraint", str(folder / _PINS), str(package)]
            if self.watch.on_notice is not None:
                self.watch.on_notice(f"the package index gives no hashes of {package}: its files are not checked")
        self._run([*pip, "install", *quiet, *wanted], package)
        installed = self._run([*pip, "freeze", *quiet], package)
        if not self.pins.is_file() or self.pins.read_bytes() != pins:
            write_atomically(self.pins, pins)
        (folder / LOCK_FILE).write_bytes(f"# python {self.version}\n".encode() + installed)

    def _check_python(self, package: PinnedPackage, folder: Path, install: list[str], note: Path) -> None:
        """Notes the versions of Python that the package takes, and compares ours."""
        heedless = [] if self.uv is not None else ["--ignore-requires-python"]
        alone = folder / "alone"
        try:
            self._run([*install, "--no-deps", *heedless, "--target", str(alone), str(package)], package)
            needed = next(iter(distributions(name=package.name, path=[str(alone)]))).metadata["Requires-Python"] or ""
            wanted = SpecifierSet(needed)
        except (ConfigError, StopIteration, InvalidSpecifier):
            return  # the installation tells why
        finally:
            shutil.rmtree(alone, ignore_errors=True)
        write_atomically(note, needed.encode())
        if not wanted.contains(self.version, prereleases=True):
            raise _OtherPythonNeeded

    def _resolved(self, package: PinnedPackage, folder: Path, pip: list[str]) -> bytes:
        """The versions to install: those of the last time, with the hashes that a file of an older version lacks."""
        pinned = ["--constraint", str(self.pins)] if self.pins.is_file() else []
        if pinned and has_all_hashes(known := self.pins.read_bytes()):
            return known
        heading = f"# what came with {package}\n".encode()
        if self.uv is None:
            report = folder / "report.json"  # not stdout: pip may say more there
            self._run([*pip, "install", "--dry-run", "--report", str(report), *pinned, str(package)], package)
            return heading + lock_of_pip_report(report.read_bytes())
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{package}\n")
        options = ["--quiet", "--no-header", "--no-annotate", "--generate-hashes", "--python", f"{folder}/bin/python"]
        return heading + self._run([*pip, "compile", *options, *pinned, str(wanted)], package)

    def _run(self, command: list[str], package: PinnedPackage) -> bytes:
        environment = build_environment(os.environ)
        # Unlike pip, uv does not compile by default. Then each sync, a process of its own, would compile again.
        environment.setdefault("UV_COMPILE_BYTECODE", "1")
        ended = run_installer(command, environment, self.watch)
        if ended.returncode != 0:
            raise self._error(Path(command[0]).name, package, ended)
        return ended.stdout

    def _error(
        self, installer: str, package: PinnedPackage, ended: "subprocess.CompletedProcess[bytes]"
    ) -> StagingError | ConnectorError | ConfigError:
        """The error of an installer that failed, of the class that says who can act."""
        output = (ended.stdout + ended.stderr).decode(errors="replace")
        doing = f"installing {package} with {installer} for {self.python}"
        lines = without_logins(output).strip().splitlines()[-_TAIL_LINES:]
        found = "\n".join(lines) or f"exit code {ended.returncode} without a message"
        words = output.lower()
        if _NO_ROOM.search(words):
            remedy = f"Make room in {self.pins.parent}, and in the installer's cache; running again is safe."
            return StagingError(doing, found, remedy=remedy)
        if _NO_NETWORK.search(words) and "certificate" not in words:
            return ConnectorError(doing, found, remedy=_NETWORK_REMEDY, retryable=True)
        if "permission denied" in words and "cache" in words:  # As in a container whose user has no home.
            remedy = "Set UV_CACHE_DIR to a folder that this user may write to, or HOME to a home of theirs."
            return ConfigError(doing, found, remedy=remedy)
        remedy = "Check the name and the version, the package index, and which Python the connector needs."
        if self.pins.is_file():
            remedy += (
                f" It must be what {self.pins} names: if a hash differs, the index delivers another file than at "
                "the first installation. To allow other versions of its dependencies, remove that file."
            )
        return ConfigError(doing, found, remedy=remedy)


def ensure_environment(
    package: PinnedPackage, *, cache: Path, python: str | None, on_notice: Callable[[str], None] | None = None
) -> Path:
    """Returns the folder of the package's environment.

    Builds it if necessary, or waits for another process that does.
    """
    needed_python = None if python else cache / f"{package.name}-{package.version}.requires-python"
    try:
        return _ensured(package, cache, python, needed_python, on_notice)
    except _OtherPythonNeeded:
        return _ensured(package, cache, python, needed_python, on_notice)


def _ensured(
    package: PinnedPackage,
    cache: Path,
    python: str | None,
    needed_python: Path | None,
    on_notice: Callable[[str], None] | None,
) -> Path:
    if needed_python is not None and needed_python.is_file():
        interpreter, version = find_matching_python(needed_python.read_text())
    else:
        interpreter, version = find_python(python)
    link = _link(package, cache, interpreter, version)
    extras = re.sub("[^A-Za-z0-9]+", "-", package.extras).strip("-")
    parts = (package.name, extras, package.version, _tag(version))
    pins = link.with_name("-".join(filter(None, parts)) + ".requirements.txt")
    if not is_complete(link):
        if on_notice is not None:
            on_python = "" if interpreter == Path(sys.executable) else f", on Python {version}"
            on_notice(f"installing {package} into its own environment (only once){on_python}")
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked_build(lock_of_build(link), str(package), on_notice) as watch:
                if not is_complete(link):
                    installer = _Installer(interpreter, version, find_uv(), pins, needed_python, watch)
                    build_and_link(link, lambda folder: installer.install(package, folder))
        except OSError as error:
            raise StagingError(f"installing {package}", f"{error.strerror or error} ({cache})") from error
    return link.resolve()


def _link(package: PinnedPackage, cache: Path, interpreter: Path, version: str) -> Path:
    """The name of the package's environment for this interpreter."""
    digest = hashlib.sha256(f"{package}\0{interpreter.resolve()}\0{version}".encode()).hexdigest()[:12]
    # Resolved, because the programs contain this path: they would break if a link in it went away.
    return cache.resolve() / f"{package.name}-{package.version}-{_tag(version)}-{digest}"


def _tag(version: str) -> str:
    """The tag of a version of Python, as in the names of wheels."""
    return "cp" + "".join(version.split(".")[:2])


def is_complete(link: Path) -> bool:
    """True if the build was completed and its interpreter still exists: an upgrade of the system's Python may remove
    it."""
    return (link / LOCK_FILE).is_file() and (link / "bin" / "python").exists()
