"""Pinned packages of npm, each installed once in a folder of its own, with all that it depends on.

1. A folder belongs to a package, its version, a major version of Node (compiled dependencies fit one), and to whether
   install scripts may run. It is built under a lock and named by a link, see `linked_builds.py`.
2. The first installation writes npm's own lock, with the hash of each file, beside the folders. Each later one is an
   `npm ci` from that lock, which installs these files or fails. The lock has no addresses: npm's settings decide where
   packages come from, so a lock serves behind any mirror. Each major version of Node has its own: npm prefers versions
   of dependencies that take the Node which runs it.
3. The versions of Node that a package takes stand in the lock, so they are compared before anything is installed. npm
   itself only warns, and the program fails later with a syntax error.
4. A package may pin a dependency that is not there, or is broken. npm's own `overrides` name another version of it;
   the folder and the lock belong to these versions too.
5. Scripts of packages are programs of strangers that run while they are installed, with the login of the registry in
   reach. Few packages need them. So none runs unless the connection allows it.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, StagingError
from dagster_airbyte_proto.launchers.packages.installer_process import InstallerWatch, locked_build, run_installer
from dagster_airbyte_proto.launchers.packages.linked_builds import LOCK_FILE, build_and_link, lock_of_build
from dagster_airbyte_proto.launchers.packages.npm.node import Node, find_node, find_npm
from dagster_airbyte_proto.launchers.packages.npm.version_ranges import is_in_range
from dagster_airbyte_proto.launchers.permissions import npm_environment
from dagster_airbyte_proto.masking import without_logins

_REQUIREMENT = re.compile(
    r"(?P<name>(?:@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*)"
    r"@(?P<version>\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)"
)
_NPM_LOCK = "package-lock.json"
_TAIL_LINES = 30
# Settings of the user's own that would change what is installed, and where, are overruled.
_OPTIONS = (
    "--json", "--loglevel=error", "--no-progress", "--no-audit", "--no-fund", "--no-update-notifier",
    "--save=true", "--package-lock=true", "--omit-lockfile-registry-resolved=true", "--omit=dev", "--include=prod",
    "--include=optional", "--global=false", "--dry-run=false", "--workspaces=false",
)  # fmt: skip
_NETWORK_CODES = frozenset(
    {"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH",
     "ERR_SOCKET_TIMEOUT", "E429"}
)  # fmt: skip
_SERVER_ERROR = re.compile(r"E5\d\d")
"""The codes of a registry that is overloaded or restarts, by the status of HTTP."""
_DISK_CODES = frozenset({"ENOSPC", "EDQUOT", "EROFS"})
_NETWORK_REMEDY = (
    "Check the network, the proxy, and the registry in npm's settings. Once installed, a package needs no network."
)
_REMEDIES = {
    "E404": "Check the name of the package. npm finds a private registry by `.npmrc` or `npm_config_registry`.",
    "ETARGET": "Name a version that there is: `npm view NAME versions` lists them.",
    "E401": "Give npm its login for the registry in `.npmrc`.",
    "E403": "Give npm its login for the registry in `.npmrc`, or ask for the right to read the package.",
    "ENOTCACHED": _NETWORK_REMEDY,
    "ENEEDAUTH": "Give npm its login for the registry in `.npmrc`.",
    "EINTEGRITY": "The registry delivers another file than at the first installation, under the same version. Find out "
    "why before you trust it: removing {lock} accepts it.",
    "EUSAGE": "{lock} is no lock of this package. Remove it, or put the right one in its place.",
}


_NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})


class NpmPackage(NamedTuple):
    """A package of npm. `overrides` are names and versions of what it depends on, in the place of those that it pins
    itself."""

    name: str
    version: str
    overrides: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, written: str, overrides: Mapping[str, str] = _NO_OVERRIDES) -> "NpmPackage":
        """Parses `name@1.2.0` or `@scope/name@1.2.0`. Raises ConfigError unless it pins one version, and each override
        does."""
        name, version = _pinned(written)
        return cls(name, version, tuple(_pinned(f"{each}@{overrides[each]}") for each in sorted(overrides)))

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def file_name(self) -> str:
        return str(self).replace("/", "+")

    @property
    def lock_suffix(self) -> str:
        """Tells its locks with these overrides from others."""
        if not self.overrides:
            return ""
        return "-" + hashlib.sha256(json.dumps(self.overrides).encode()).hexdigest()[:12]


def _pinned(written: str) -> tuple[str, str]:
    found = _REQUIREMENT.fullmatch(written.strip())
    if found is None:
        raise ConfigError(
            "reading the connector's package",
            f"{written!r} is not pinned to one version",
            remedy='Write it as "name@1.2.0", or "@scope/name@1.2.0"; an override as {name: 1.2.0}.',
        )
    return found["name"], found["version"]


class _LockedPackage(msgspec.Struct, rename="camel", frozen=True):
    version: str = ""
    integrity: str = ""
    engines: Any = None  # old packages have a list
    has_install_script: bool = False


class _NpmLock(msgspec.Struct, frozen=True):
    packages: dict[str, _LockedPackage]

    def installed(self) -> dict[str, _LockedPackage]:
        """The packages by their places; the first, without a place, is ours."""
        return {place: package for place, package in self.packages.items() if place}


_LOCK = msgspec.json.Decoder(_NpmLock)


class _Installer(NamedTuple):
    """`kept_lock` is the file with the versions and hashes, which exists if the package was installed before."""

    node: Node
    npm: Path
    kept_lock: Path
    install_scripts: bool
    watch: InstallerWatch

    def install(self, package: NpmPackage, folder: Path) -> None:
        wanted = {
            "name": "connector",
            "version": "1.0.0",
            "private": True,
            "dependencies": {package.name: package.version},
            **({"overrides": dict(package.overrides)} if package.overrides else {}),
        }
        (folder / "package.json").write_text(json.dumps(wanted, indent=2))
        if self.kept_lock.is_file():
            shutil.copyfile(self.kept_lock, folder / _NPM_LOCK)
        else:
            self._run(["install", "--package-lock-only", "--ignore-scripts"], folder)
        content = (folder / _NPM_LOCK).read_bytes()
        installed = self._read(content).installed()
        self._check_node(package, installed)
        self._give_notices(package, installed)
        self._run(["ci", f"--ignore-scripts={json.dumps(not self.install_scripts)}"], folder)
        if not self.kept_lock.is_file():
            write_atomically(self.kept_lock, content)
        lines = sorted(f"{place} {each.version} {each.integrity}\n" for place, each in installed.items())
        (folder / LOCK_FILE).write_text(f"# node {self.node.version}\n{''.join(lines)}")

    def _read(self, content: bytes) -> _NpmLock:
        try:
            return _LOCK.decode(content)
        except msgspec.DecodeError as error:
            if self.kept_lock.is_file():
                found, remedy = f"{self.kept_lock} is no lock of npm: {error}", "Remove it."
            else:
                found, remedy = f"{self.npm} wrote no list of packages: {error}", "Install npm 7 or newer."
            raise ConfigError(f"reading the lock of {self.watch.package}", found, remedy=remedy) from error

    def _check_node(self, package: NpmPackage, installed: dict[str, _LockedPackage]) -> None:
        entry = installed.get(f"node_modules/{package.name}")
        engines = entry.engines if entry is not None and isinstance(entry.engines, dict) else {}
        wanted = engines.get("node")
        if isinstance(wanted, str) and is_in_range(self.node.version, wanted) is False:
            raise ConfigError(
                "finding Node for the connector",
                f"{package} needs Node {wanted}, and {self.node.program} is {self.node.version}",
                remedy="Put such a Node first on the PATH of the process that runs syncs, or choose another version of "
                "the package.",
            )

    def _give_notices(self, package: NpmPackage, installed: dict[str, _LockedPackage]) -> None:
        on_notice = self.watch.on_notice
        if on_notice is None:
            return
        if unhashed := [place for place, each in installed.items() if not each.integrity]:
            on_notice(f"the registry gives no hashes for {package}: not checked are {_names(unhashed)}")
        scripts = [place for place, each in installed.items() if each.has_install_script]
        if scripts and not self.install_scripts:
            on_notice(f"install scripts do not run: {_names(scripts)}. `install_scripts: true` allows them")

    def _run(self, arguments: list[str], folder: Path) -> None:
        environment = npm_environment(os.environ)
        ended = run_installer([str(self.npm), *arguments, *_OPTIONS], environment, self.watch, folder=folder)
        if ended.returncode == 0:
            return
        action = f"installing {self.watch.package} with npm for Node {self.node.version}"
        code, summary = _npm_error(ended.stdout)
        if not summary:
            lines = (ended.stdout + ended.stderr).decode(errors="replace").strip().splitlines()
            summary = "\n".join(lines[-_TAIL_LINES:]) or f"exit code {ended.returncode} without a message"
        if code in _DISK_CODES:
            remedy = f"Make room in {folder.parent} and in npm's cache; running again is safe."
            raise StagingError(action, without_logins(summary), remedy=remedy)
        if code in _NETWORK_CODES or _SERVER_ERROR.fullmatch(code):
            raise ConnectorError(action, without_logins(summary), remedy=_NETWORK_REMEDY, retryable=True)
        default = "Check the name and the version, and npm's settings (`npm config list`)."
        remedy = _REMEDIES.get(code, default)
        raise ConfigError(action, without_logins(summary), remedy=remedy.format(lock=self.kept_lock))


def ensure_npm_package(
    package: NpmPackage,
    *,
    cache: Path,
    node: Node | None = None,
    install_scripts: bool = False,
    on_notice: Callable[[str], None] | None = None,
) -> Path:
    """Returns the folder with the package's `node_modules`.

    Installs it if necessary, or waits for another process that does.
    """
    node = node or find_node()
    kind = f"{package.file_name}-node{node.major}"
    of_build = f"{package}\0{node.major}\0{install_scripts}{package.lock_suffix}"
    digest = hashlib.sha256(of_build.encode()).hexdigest()[:12]
    link = cache.resolve() / f"{kind}-{digest}"
    if not is_installed(link):
        if on_notice is not None:
            on_notice(f"installing {package} into its own folder (only once)")
        npm = find_npm()
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked_build(lock_of_build(link), str(package), on_notice) as watch:
                if not is_installed(link):
                    kept_lock = cache.resolve() / f"{kind}{package.lock_suffix}.{_NPM_LOCK}"
                    installer = _Installer(node, npm, kept_lock, install_scripts, watch)
                    build_and_link(link, lambda folder: installer.install(package, folder))
        except OSError as error:
            raise StagingError(f"installing {package}", f"{error.strerror or error} ({cache})") from error
    return link.resolve()


def is_installed(link: Path) -> bool:
    """True if the installation was completed."""
    return (link / LOCK_FILE).is_file()


def _npm_error(output: bytes) -> tuple[str, str]:
    """The code and the summary of an error in the output of `npm --json`; empty where it gives none."""
    try:
        error = msgspec.json.decode(output).get("error") or {}
        return str(error.get("code") or ""), str(error.get("summary") or "")
    except (msgspec.DecodeError, AttributeError):
        return "", ""


def _names(places: list[str]) -> str:
    names = sorted({place.rpartition("node_modules/")[2] for place in places})
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
