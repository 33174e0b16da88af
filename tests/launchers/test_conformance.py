"""Every launcher passes its suite in `tests/conformance/launcher.py`. A new launcher is one line here."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
from dagster_airbyte_proto.launchers.process import Launcher, LaunchOptions
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
    grace_seconds,
    read_all,
    report_of,
    start,
    start_with_input,
)
from tests.launchers.conftest import IMAGES
from tests.launchers.programs import MakeLauncher, local, manifest, npm, pypi, recording
from tests.support.containers.images import Image


def _replay(folder: Path, options: LaunchOptions) -> Launcher:
    recorder = recording(folder, options)
    for behaviour in RECORDED_BEHAVIOURS:
        connector = start(recorder, behaviour)
        read_all(connector)
        report_of(connector)
    for behaviour, times in RECORDED_EXCHANGES.items():
        connector = start_with_input(recorder, behaviour)
        exchange(connector, ALL_BYTES, times)
        report_of(connector)
    return ReplayLauncher(folder / "recording")


@pytest.mark.everyday(
    "local",
    "recording",
    "family-recording",
    "family-local",
    "family_and_wait-local",
    "test_files_are_gone_after_a_stop[pypi]",
    "test_exit_code_and_last_words_are_reported[manifest]",
    "test_exit_code_and_last_words_are_reported[npm]",
)
@pytest.mark.usefixtures("wheels", "npm_packages")
@pytest.mark.parametrize("make", [local, pypi, npm, manifest, recording])
class TestLocalLaunchers(LocalLauncherConformance):
    @pytest.fixture
    def launcher(
        self, make: MakeLauncher, tmp_path: Path, runs_folder: Path, request: pytest.FixtureRequest
    ) -> Launcher:
        return make(tmp_path, LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=grace_seconds(request)))


@pytest.mark.everyday(
    "local",
    "recording",
    "test_one_that_reads_before_it_writes_gets_all[pypi]",
    "test_one_that_reads_before_it_writes_gets_all[manifest]",
    "test_one_that_reads_before_it_writes_gets_all[npm]",
)
@pytest.mark.usefixtures("wheels", "npm_packages")
@pytest.mark.parametrize("make", [local, pypi, npm, manifest, recording])
class TestInputOfLocalLaunchers(LocalInputConformance):
    @pytest.fixture
    def launcher(
        self, make: MakeLauncher, tmp_path: Path, runs_folder: Path, request: pytest.FixtureRequest
    ) -> Launcher:
        return make(tmp_path, LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=grace_seconds(request)))


@pytest.mark.everyday(
    "fake_image",
    "test_exit_code_and_last_words_are_reported[bare_image]",
    "test_files_are_private_and_writable_and_gone_afterwards[bare_image]",
    "test_a_stop_ends_a_write_that_waits[bare_image]",
    "test_one_that_writes_before_it_reads_does_not_deadlock[bare_image]",
)
@pytest.mark.docker
@pytest.mark.parametrize("image", IMAGES, indirect=True)
class TestDockerLauncher(LiveLauncherConformance, LiveInputConformance):
    @pytest.fixture
    def launcher(self, image: Image, runs_folder: Path, request: pytest.FixtureRequest) -> Launcher:
        options = LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=grace_seconds(request))
        confinement, owner = Confinement(network="none"), ContainerOwner({"test": image.test})
        return DockerLauncher(image.launched(), confinement, owner=owner, options=options)

    @pytest.fixture
    def leftovers(self, image: Image, runs_folder: Path) -> Leftovers:
        return lambda: [*image.leftovers(), *map(str, runs_folder.iterdir())]


@pytest.mark.parametrize("make", [_replay], scope="class")
class TestOtherLaunchers(LauncherConformance, InputConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def launcher(cls, make: MakeLauncher, tmp_path_factory: pytest.TempPathFactory) -> Launcher:
        return make(tmp_path_factory.mktemp("launcher"), LaunchOptions())
