"""The launcher of connectors that are packages of PyPI, pinned, each in its own environment."""

import hashlib
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.packages.environment_use import EnvironmentUse
from dagster_airbyte_proto.launchers.packages.environments import PinnedPackage, ensure_environment, is_complete
from dagster_airbyte_proto.launchers.packages.linked_builds import LOCK_FILE, link_of_build
from dagster_airbyte_proto.launchers.process import HostPlace, LaunchOptions, RunningConnector
from dagster_airbyte_proto.protocols.conversation import Invocation


class PypiLauncher:
    """Installs `package` ("airbyte-source-faker==7.2.1") under `cache` when first needed, then runs its `executable`.

    Without `executable`, one of the package's console scripts is chosen. `python` is as in `find_python`. Once its
    environment was needed, nobody removes that while this launcher lives.
    """

    def __init__(
        self,
        package: str,
        executable: str | None = None,
        *,
        cache: Path,
        python: str | None = None,
        options: LaunchOptions | None = None,
    ) -> None:
        self._package = PinnedPackage.of(package)
        self._cache = cache
        self._executable = executable
        self._python = python
        self._options = options
        self._use: EnvironmentUse | None = None

    def identity(self) -> str:
        """Names the package with a digest of all that is installed with it. Installs it if necessary."""
        installed = (self._environment() / LOCK_FILE).read_bytes()
        digest = hashlib.sha256(installed + (self._executable or "").encode()).hexdigest()
        return f"{self._package}-{digest[:16]}"

    def host_place(self) -> HostPlace | None:
        return (self._options or LaunchOptions()).host_place

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        program = self._program(self._environment())
        return LocalLauncher([str(program)], options=self._options).launch(invocation, environment=environment)

    def _environment(self) -> Path:
        options = self._options or LaunchOptions()
        while True:
            environment = ensure_environment(
                self._package, cache=self._cache, python=self._python, on_notice=options.on_notice
            )
            self._use = EnvironmentUse(link_of_build(environment), options.connection)
            if is_complete(environment):  # else another process has removed it just before
                return environment

    def _program(self, environment: Path) -> Path:
        scripts = _console_scripts(environment, self._package.name)
        name = self._executable or _likely_program(scripts, self._package.name)
        if name is None or not (environment / "bin" / name).is_file():
            raise ConfigError(
                f"choosing the program of {self._package}",
                f"it installs {', '.join(scripts) or 'no programs'}" + (f", and no {name!r}" if name else ""),
                remedy="Name one of them as `executable`." if scripts else "Is it a connector?",
            )
        return environment / "bin" / name


def _console_scripts(environment: Path, package: str) -> list[str]:
    """The console scripts of the package itself, without those of its dependencies."""
    folders = [str(path) for path in environment.glob("lib/python*/site-packages")]
    for found in distributions(name=package, path=folders):
        return sorted(entry.name for entry in found.entry_points if entry.group == "console_scripts")
    return []


def _likely_program(scripts: list[str], package: str) -> str | None:
    for name in (package.removeprefix("airbyte-"), package):
        if name in scripts:
            return name
    return scripts[0] if len(scripts) == 1 else None
