"""Every launcher passes its suite in `tests/conformance/launcher.py`. A new launcher is one line here."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.docker.launcher import Confinement, DockerLauncher
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.packages.manifest_launcher import ManifestLauncher
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
from dagster_airbyte_proto.launchers.process import Launcher, LaunchOptions
from dagster_airbyte_proto.launchers.recordings.recording import RecordingLauncher
from dagster_airbyte_proto.launchers.recordings.replay import ReplayLauncher
from tests.conformance.launcher import (
    ALL_BYTES,
    RECORDED_BEHAVIOURS,
    RECORDED_EXCHANGES,
    InputConformance,
    LauncherConformance,
    Leftovers,
    LiveInputConformance,
    LiveLauncherConformance,
    LocalInputConformance,
    LocalLauncherConformance,
    exchange,
    read_all,
    report_of,
    start,
    start_with_input,
)
from tests.launchers.conftest import FAKE_CONNECTOR, IMAGES
from tests.support.containers.images import Image
from tests.support.low_code import MANIFEST

MakeLauncher = Callable[[Path, LaunchOptions], Launcher]


def _local(folder: Path, options: LaunchOptions) -> Launcher:
    return LocalLauncher([sys.executable, "-S", str(FAKE_CONNECTOR)], options=options)


def _pypi(folder: Path, options: LaunchOptions) -> Launcher:
    return PypiLauncher("airbyte-source-fake==1.0", cache=folder / "environments", options=options)


def _manifest(folder: Path, options: LaunchOptions) -> Launcher:
    (folder / "api.yaml").write_text(MANIFEST)
    return ManifestLauncher(folder / "api.yaml", version="1.0", cache=folder / "environments", options=options)


def _recording(folder: Path, options: LaunchOptions) -> Launcher:
    return RecordingLauncher(_local(folder, options), folder / "recording", mask=bytes)


def _replay(folder: Path, options: LaunchOptions) -> Launcher:
    recorder = _recording(folder, options)
    for behaviour in RECORDED_BEHAVIOURS:
        connector = start(recorder, behaviour)
        read_all(connector)
        report_of(connector)
    for behaviour, times in RECORDED_EXCHANGES.items():
        connector = start_with_input(recorder, behaviour)
        exchange(connector, ALL_BYTES, times)
        report_of(connector)
    return ReplayLauncher(folder / "recording")


@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize("make", [_local, _pypi, _manifest, _recording])
class TestLocalLaunchers(LocalLauncherConformance):
    @pytest.fixture
    def launcher(self, make: MakeLauncher, tmp_path: Path, runs_folder: Path) -> Launcher:
        return make(tmp_path, LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=0.3))


@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize("make", [_local, _pypi, _manifest, _recording])
class TestInputOfLocalLaunchers(LocalInputConformance):
    @pytest.fixture
    def launcher(self, make: MakeLauncher, tmp_path: Path, runs_folder: Path) -> Launcher:
        return make(tmp_path, LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=0.3))


@pytest.mark.docker
@pytest.mark.parametrize("image", IMAGES, indirect=True)
class TestDockerLauncher(LiveLauncherConformance, LiveInputConformance):
    @pytest.fixture
    def launcher(self, image: Image, runs_folder: Path) -> Launcher:
        options = LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=0.3)
        confinement = Confinement(network="none")
        return DockerLauncher(image.launched(), confinement, labels={"test": image.test}, options=options)

    @pytest.fixture
    def leftovers(self, image: Image, runs_folder: Path) -> Leftovers:
        return lambda: [*image.leftovers(), *map(str, runs_folder.iterdir())]


@pytest.mark.parametrize("make", [_replay], scope="class")
class TestOtherLaunchers(LauncherConformance, InputConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def launcher(cls, make: MakeLauncher, tmp_path_factory: pytest.TempPathFactory) -> Launcher:
        return make(tmp_path_factory.mktemp("launcher"), LaunchOptions())
