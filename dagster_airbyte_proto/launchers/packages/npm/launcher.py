"""The launcher of connectors that are packages of npm, pinned, each with its dependencies in a folder of its own."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.packages.environment_use import EnvironmentUse
from dagster_airbyte_proto.launchers.packages.linked_builds import LOCK_FILE, link_of_build
from dagster_airbyte_proto.launchers.packages.npm.installation import NpmPackage, ensure_npm_package, is_installed
from dagster_airbyte_proto.launchers.packages.npm.node import Node, find_node
from dagster_airbyte_proto.launchers.process import HostPlace, LaunchOptions, RunningConnector
from dagster_airbyte_proto.protocols.conversation import Invocation


class _PackageFile(msgspec.Struct, frozen=True):
    main: str | None = None
    bin: str | dict[str, str] | None = None


_PACKAGE_FILE = msgspec.json.Decoder(_PackageFile)


class NpmLauncher:
    """Installs `package` ("@acme/geo@1.2.0") under `cache` when first needed, then runs its `main` by the Node on the
    PATH.

    Without `main`, the script is the package's own `main`, else its only program. Once the package was needed, nobody
    removes it while this launcher lives.
    """

    def __init__(
        self,
        package: str | NpmPackage,
        main: str | None = None,
        *,
        cache: Path,
        install_scripts: bool = False,
        options: LaunchOptions | None = None,
    ) -> None:
        self._package = package if isinstance(package, NpmPackage) else NpmPackage.of(package)
        self._main = main
        self._cache = cache
        self._install_scripts = install_scripts
        self._options = options or LaunchOptions()
        self._use: EnvironmentUse | None = None

    def identity(self) -> str:
        """Names the package with a digest of all that is installed with it. Installs it if necessary."""
        installed = (self._installed(find_node()) / LOCK_FILE).read_bytes()
        digest = hashlib.sha256(installed + (self._main or "").encode()).hexdigest()
        return f"{self._package}-{digest[:16]}"

    def host_place(self) -> HostPlace | None:
        return self._options.host_place

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        node = find_node()
        command = [str(node.program), str(self._script(self._installed(node)))]
        return LocalLauncher(command, options=self._options).launch(invocation, environment=environment)

    def _installed(self, node: Node) -> Path:
        while True:
            folder = ensure_npm_package(
                self._package,
                cache=self._cache,
                node=node,
                install_scripts=self._install_scripts,
                on_notice=self._options.on_notice,
            )
            self._use = EnvironmentUse(link_of_build(folder), self._options.connection)
            if is_installed(folder):  # else another process has removed it just before
                return folder

    def _script(self, folder: Path) -> Path:
        """The file that Node runs. Raises ConfigError if there is none, or if it is not the package's own."""
        package = (folder / "node_modules" / self._package.name).resolve()
        about = self._package_file(package / "package.json")
        programs = {self._package.name: about.bin} if isinstance(about.bin, str) else about.bin or {}
        only_program = next(iter(programs.values())) if len(programs) == 1 else None
        written = self._main or about.main or only_program or "index.js"
        for candidate in _candidates(package / written):
            if candidate.is_file() and candidate.resolve().is_relative_to(package):
                return candidate
        scripts = sorted({*filter(None, [about.main]), *programs.values()})
        raise ConfigError(
            f"choosing the script of {self._package}",
            f"it has no file {written}; its package.json names {', '.join(scripts) or 'none'}",
            remedy="Name a file of the package as `main`." if scripts or self._main else "Is it a connector?",
        )

    def _package_file(self, path: Path) -> _PackageFile:
        try:
            return _PACKAGE_FILE.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"choosing the script of {self._package}", f"{path} cannot be read: {error}") from error


def _candidates(path: Path) -> Iterator[Path]:
    """The files that Node tries for a `main`."""
    yield path
    yield from (path.with_name(f"{path.name}{ending}") for ending in (".js", ".cjs", ".mjs"))
    yield path / "index.js"
