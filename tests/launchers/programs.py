"""The launchers of programs on this machine, each of the fake connector. Packages need the fixture `wheels`, or
`npm_packages`."""

import sys
from collections.abc import Callable
from pathlib import Path

from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.packages.manifest_launcher import Interpreter, ManifestLauncher
from dagster_airbyte_proto.launchers.packages.npm.launcher import NpmLauncher
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
from dagster_airbyte_proto.launchers.process import Launcher, LaunchOptions
from dagster_airbyte_proto.launchers.recordings.recording import RecordingLauncher
from tests.launchers.conftest import FAKE_CONNECTOR
from tests.support.low_code import MANIFEST
from tests.support.needs import require_npm

MakeLauncher = Callable[[Path, LaunchOptions], Launcher]


def local(folder: Path, options: LaunchOptions) -> Launcher:
    return LocalLauncher([sys.executable, "-S", str(FAKE_CONNECTOR)], options=options)


def pypi(folder: Path, options: LaunchOptions) -> Launcher:
    return PypiLauncher("airbyte-source-fake==1.0", cache=folder / "environments", options=options)


def npm(folder: Path, options: LaunchOptions) -> Launcher:
    require_npm()
    return NpmLauncher("@acme/source-fake@1.0.0", cache=folder / "environments", options=options)


def manifest(folder: Path, options: LaunchOptions) -> Launcher:
    (folder / "api.yaml").write_text(MANIFEST)
    return ManifestLauncher(folder / "api.yaml", Interpreter("1.0"), cache=folder / "environments", options=options)


def recording(folder: Path, options: LaunchOptions) -> Launcher:
    return RecordingLauncher(local(folder, options), folder / "recording", mask=bytes)
