import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.packages import environments, installer_process
from dagster_airbyte_proto.launchers.packages.environments import PinnedPackage
from dagster_airbyte_proto.launchers.packages.interpreters import find_python
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
from dagster_airbyte_proto.launchers.process import LaunchOptions
from dagster_airbyte_proto.protocols.conversation import Invocation
from tests.conformance.launcher import read_all, report_of, start
from tests.launchers.conftest import write_wheel
from tests.support.needs import lacks

_ROOT = Path(__file__).parents[2]
_PACKAGE = "airbyte-source-fake==1.0"


def _refusal(launcher: PypiLauncher) -> str:
    with pytest.raises(ConfigError) as refused:
        launcher.launch(Invocation(("lines",)), environment={})
    return str(refused.value)


def _builds(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if ".build-" in path.name]


class TestPins:
    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("airbyte-source-faker==7.2.1", "airbyte-source-faker==7.2.1"),
            (" Airbyte_Source.Faker [a, b] == 7.2.1rc1 ", "airbyte-source-faker[a,b]==7.2.1rc1"),
            ("source===1!2.0+local", "source==1!2.0+local"),
        ],
    )
    def test_a_pinned_package_is_read(self, written: str, read: str) -> None:
        assert str(PinnedPackage.of(written)) == read

    @pytest.mark.parametrize(
        "written",
        [
            "source",
            "source>=1",
            "source==1.*",
            "source==1,<2",
            "source @ file:///tmp/x",
            "./source",
            "-r file",
            "--pre==1",
        ],
    )
    def test_any_other_is_refused(self, written: str) -> None:
        with pytest.raises(ConfigError, match="not pinned to one version"):
            PinnedPackage.of(written)


@pytest.mark.usefixtures("wheels")
class TestEnvironments:
    def test_it_is_built_once_and_says_what_is_in_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        launcher = PypiLauncher(_PACKAGE, cache=tmp_path / "cache")
        identity = launcher.identity()
        monkeypatch.setenv("UV_FIND_LINKS", "/nowhere")
        again = PypiLauncher(_PACKAGE, cache=tmp_path / "cache")
        assert again.identity() == identity
        assert identity.startswith("airbyte-source-fake==1.0-")
        assert report_of(start(again, "fail")).code == 3
        (build,) = _builds(tmp_path / "cache")
        python, *packages = (build / "lock.txt").read_text().splitlines()
        assert python.startswith("# python 3.")
        assert packages == ["airbyte-source-fake==1.0"]

    def test_who_waits_for_an_installation_is_told_of_it_and_only_then(self, tmp_path: Path) -> None:
        told: list[str] = []
        for _ in range(2):
            options = LaunchOptions(on_notice=told.append)
            PypiLauncher(_PACKAGE, cache=tmp_path / "cache", options=options).identity()
        assert told == ["installing airbyte-source-fake==1.0 into its own environment (only once)"]

    def test_without_uv_pip_does_the_same(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(environments, "find_uv", lambda: None)
        launcher = PypiLauncher(_PACKAGE, cache=tmp_path / "cache")
        connector = start(launcher, "fail")
        read_all(connector)
        assert report_of(connector).code == 3
        (build,) = _builds(tmp_path / "cache")
        assert "airbyte-source-fake==1.0" in (build / "lock.txt").read_text()

    def test_two_processes_at_once_build_one(self, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path;"
            "from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher;"
            f"print(PypiLauncher({_PACKAGE!r}, cache=Path(sys.argv[1])).identity())"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "cache")]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(3)]
        said = {process.communicate()[0] for process in processes}
        assert [process.returncode for process in processes] == [0, 0, 0]
        assert len(said) == 1
        assert len(_builds(tmp_path / "cache")) == 1

    def test_what_a_killed_builder_left_is_removed(self, tmp_path: Path) -> None:
        launcher = PypiLauncher(_PACKAGE, cache=tmp_path / "cache")
        launcher.identity()
        (link,) = [path for path in (tmp_path / "cache").iterdir() if path.is_symlink()]
        half_built = link.with_name(f"{link.name}.build-dead")
        half_built.mkdir()
        link.unlink()
        launcher.identity()
        assert not half_built.exists()
        assert len(_builds(tmp_path / "cache")) == 1

    def test_one_whose_python_is_gone_is_built_anew(self, tmp_path: Path) -> None:
        launcher = PypiLauncher(_PACKAGE, cache=tmp_path / "cache")
        launcher.identity()
        (build,) = _builds(tmp_path / "cache")
        (build / "bin" / "python").unlink()
        assert report_of(start(launcher, "fail")).code == 3

    def test_a_failed_install_tells_why_and_leaves_nothing(self, tmp_path: Path) -> None:
        message = _refusal(PypiLauncher("airbyte-source-fake==9.9", cache=tmp_path / "cache"))
        assert "installing airbyte-source-fake==9.9" in message
        assert "9.9" in message.partition(":")[2]
        assert _builds(tmp_path / "cache") == []

    def test_the_login_of_an_index_is_in_no_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        uv = tmp_path / "bin" / "uv"
        uv.parent.mkdir()
        uv.write_text("#!/bin/sh\necho 'error: Failed to fetch https://ann:hunter22@pypi.example.org/x' >&2\nexit 2\n")
        uv.chmod(0o755)
        monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
        message = _refusal(PypiLauncher(_PACKAGE, cache=tmp_path / "cache"))
        assert "error: Failed to fetch https://***@pypi.example.org/x" in message


class TestLocks:
    """`source`, which needs `library`, is installed, and again elsewhere with the lock of the first time."""

    @pytest.fixture(autouse=True)
    def _packages(self, wheels: Path, tmp_path: Path) -> None:
        write_wheel(wheels, "source", "source = source:run", requires="library")
        write_wheel(wheels, "library", "")
        (tmp_path / "elsewhere").mkdir()

    def _lock_elsewhere(self, folder: Path) -> Path:
        (lock,) = (folder / "cache").glob("source-1.0-cp*.requirements.txt")
        return lock.rename(folder / "elsewhere" / lock.name)

    def test_what_came_with_a_package_comes_with_it_again(self, tmp_path: Path, wheels: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        first = PypiLauncher("source==1.0", cache=tmp_path / "cache").identity()
        write_wheel(wheels, "library", "", version="2.0")
        lock = self._lock_elsewhere(tmp_path)
        assert PypiLauncher("source==1.0", cache=elsewhere).identity() == first
        assert PypiLauncher("source==1.0", cache=tmp_path / "fresh").identity() != first
        (gone,) = wheels.glob("library-1.0-*")
        gone.unlink()
        for build in [*_builds(elsewhere), *(path for path in elsewhere.iterdir() if path.is_symlink())]:
            build.rename(tmp_path / build.name)
        message = _refusal(PypiLauncher("source==1.0", cache=elsewhere))
        assert f"It must be what {lock} names" in message

    @pytest.mark.everyday("uv")
    @pytest.mark.parametrize("installer", ["uv", "pip"])
    def test_another_file_under_the_same_version_is_not_installed(
        self, installer: str, tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if installer == "pip":
            monkeypatch.setattr(environments, "find_uv", lambda: None)
        PypiLauncher("source==1.0", cache=tmp_path / "cache").identity()
        lock = self._lock_elsewhere(tmp_path)
        assert lock.read_text().count("--hash=sha256:") == 2
        write_wheel(wheels, "library", "stranger = library:run")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))  # its own still has the file of the first time
        message = _refusal(PypiLauncher("source==1.0", cache=tmp_path / "elsewhere"))
        assert "library" in message
        assert "hash" in message.partition("It must be")[0].lower()
        assert _builds(tmp_path / "elsewhere") == []

    def test_a_lock_without_hashes_keeps_its_versions_and_gets_them(self, tmp_path: Path, wheels: Path) -> None:
        first = PypiLauncher("source==1.0", cache=tmp_path / "cache").identity()
        lock = self._lock_elsewhere(tmp_path)
        lock.write_text("# what came with source==1.0\nlibrary==1.0\nsource==1.0\n")
        write_wheel(wheels, "library", "", version="2.0")
        assert PypiLauncher("source==1.0", cache=tmp_path / "elsewhere").identity() == first
        assert lock.read_text().count("--hash=sha256:") == 2


@pytest.fixture
def hashless_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An index on a server of its own that says nothing of its files but their names. Returns its folder."""
    folder = tmp_path / "simple"
    for name, requires in (("source", "library"), ("library", "")):
        (folder / name).mkdir(parents=True)
        write_wheel(folder / name, name, "source = source:run" if requires else "", requires=requires)
        links = (f'<a href="{each.name}">{each.name}</a>' for each in (folder / name).glob("*.whl"))
        (folder / name / "index.html").write_text("".join(links))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for name in [each for each in os.environ if each.startswith(("UV_", "PIP_"))]:
            monkeypatch.delenv(name)
        url = f"http://127.0.0.1:{server.server_port}/simple"
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        monkeypatch.setenv("PIP_INDEX_URL", url)
        yield folder
        server.shutdown()


@pytest.mark.everyday("uv")
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_the_files_of_an_index_without_hashes_have_hashes_in_the_lock(
    installer: str, tmp_path: Path, hashless_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installers hash what they download."""
    if installer == "pip":
        monkeypatch.setattr(environments, "find_uv", lambda: None)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    told: list[str] = []
    options = LaunchOptions(on_notice=told.append)
    PypiLauncher("source==1.0", cache=tmp_path / "cache", options=options).identity()
    (lock,) = (tmp_path / "cache").glob("*.requirements.txt")
    assert lock.read_text().count("--hash=sha256:") == 2
    assert not any("no hashes" in each for each in told)
    (tmp_path / "elsewhere").mkdir()
    lock.rename(tmp_path / "elsewhere" / lock.name)
    write_wheel(hashless_index / "library", "library", "stranger = library:run")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another uv"))
    assert (
        "hash" in _refusal(PypiLauncher("source==1.0", cache=tmp_path / "elsewhere")).partition("It must be")[0].lower()
    )
    assert _builds(tmp_path / "elsewhere") == []


class TestPrograms:
    def test_the_programs_to_choose_from_are_listed(self, tmp_path: Path, wheels: Path) -> None:
        write_wheel(wheels, "many", "one = many:run\ntwo = many:run")
        message = _refusal(PypiLauncher("many==1.0", cache=tmp_path / "cache"))
        assert "it installs one, two" in message
        connector = start(PypiLauncher("many==1.0", "two", cache=tmp_path / "cache"), "fail")
        assert report_of(connector).code == 3

    @pytest.mark.usefixtures("wheels")
    def test_a_program_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        message = _refusal(PypiLauncher(_PACKAGE, "three", cache=tmp_path / "cache"))
        assert "it installs source-fake, and no 'three'" in message

    def test_a_package_without_programs_is_said_to_have_none(self, tmp_path: Path, wheels: Path) -> None:
        write_wheel(wheels, "library", "")
        assert "it installs no programs" in _refusal(PypiLauncher("library==1.0", cache=tmp_path / "cache"))

    def test_a_single_program_is_taken_whatever_its_name(self, tmp_path: Path, wheels: Path) -> None:
        write_wheel(wheels, "single", "odd-name = single:run")
        assert report_of(start(PypiLauncher("single==1.0", cache=tmp_path / "cache"), "fail")).code == 3


@pytest.mark.parametrize(("seconds", "next_one"), [(0, 5), (6, 10), (12, 20), (100, 160)])
def test_the_notices_of_an_installation_come_ever_more_seldom(seconds: int, next_one: int) -> None:
    watch = installer_process.InstallerWatch(_PACKAGE, -1, None, time.monotonic() - seconds)
    assert watch.next_notice() - watch.started == pytest.approx(next_one)


def test_a_long_installation_says_how_long_it_takes(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer_process, "_NOTICE_SECONDS", 0.001)
    told: list[str] = []
    PypiLauncher(_PACKAGE, cache=tmp_path / "cache", options=LaunchOptions(on_notice=told.append)).identity()
    assert any(re.fullmatch(rf"installing {_PACKAGE}: \d+ s", each) for each in told), told


@pytest.mark.usefixtures("wheels")
def test_an_installer_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "uv"
    hanging.write_text("#!/bin/sh\nsleep 600")
    hanging.chmod(0o755)
    launcher = PypiLauncher(_PACKAGE, cache=tmp_path / "cache")
    with monkeypatch.context() as patched:
        patched.setattr(installer_process, "_NOTICE_SECONDS", 0.1)
        patched.setattr(installer_process, "_LIMIT_SECONDS", 0.2)
        patched.setattr(environments, "find_uv", lambda: str(hanging))
        with pytest.raises(ConnectorError, match="uv had not ended after 0 s, and was stopped") as raised:
            launcher.identity()
    assert raised.value.retryable
    assert launcher.identity()  # Nothing holds the lock of its environment any more.


class TestNeededPython:
    """Requires-Python is read before anything is installed."""

    @pytest.fixture(params=["uv", "pip"])
    def installer(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.param == "pip":
            monkeypatch.setattr(environments, "find_uv", lambda: None)

    @pytest.mark.everyday("uv")
    @pytest.mark.usefixtures("installer")
    def test_one_that_nobody_has_is_told_in_a_line(self, tmp_path: Path, wheels: Path) -> None:
        write_wheel(wheels, "odd", "odd = odd:run", python=">=3.3,<3.4")
        message = _refusal(PypiLauncher("odd==1.0", cache=tmp_path / "cache"))
        assert "it needs Python >=3.3,<3.4, and there is none here" in message
        assert "`uv python install 3.3`" in message
        assert len(message.splitlines()) == 2

    def test_another_that_is_here_is_taken(self, tmp_path: Path, wheels: Path) -> None:
        other = next(minor for minor in ("3.12", "3.13", "3.11") if minor != "{}.{}".format(*sys.version_info))
        try:
            find_python(other)
        except ConfigError:
            lacks(f"python{other}", f"there is no Python {other} beside ours")
        write_wheel(wheels, "odd", "odd = odd:run", python=f"=={other}.*")
        told: list[str] = []
        for _ in range(2):
            launcher = PypiLauncher("odd==1.0", cache=tmp_path / "cache", options=LaunchOptions(on_notice=told.append))
            assert report_of(start(launcher, "fail")).code == 3
        [build] = _builds(tmp_path / "cache")
        assert (build / "lock.txt").read_text().startswith(f"# python {other}.")
        assert f"installing odd==1.0 into its own environment (only once), on Python {other}." in told[-1]

    def test_an_index_that_was_away_is_asked_again(self, tmp_path: Path, wheels: Path) -> None:
        launcher = PypiLauncher("odd==1.0", cache=tmp_path / "cache")
        assert "installing odd==1.0" in _refusal(launcher)
        write_wheel(wheels, "odd", "odd = odd:run", python="<3")
        assert "it needs Python <3" in _refusal(launcher)


class TestInterpreters:
    def test_our_own_is_the_default(self) -> None:
        assert find_python(None)[0] == Path(sys.executable)

    def test_ours_is_found_by_its_version(self) -> None:
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        assert find_python(minor)[1].startswith(f"{minor}.")

    def test_a_shim_that_fails_is_passed_over_and_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shim = tmp_path / "python3.99"
        shim.write_text("#!/bin/sh\necho 'pyenv: python3.99: command not found' >&2\nexit 127\n")
        shim.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with pytest.raises(ConfigError) as refused:
            find_python("3.99")
        assert "there is no Python 3.99" in str(refused.value)
        assert f"{shim} (does not run)" in str(refused.value)

    def test_one_in_the_home_folder_of_pyenv_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        python = tmp_path / ".pyenv" / "versions" / "3.99.1" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho 3.99.1\n")
        python.chmod(0o755)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert find_python("3.99") == (python, "3.99.1")
        assert find_python(str(python)) == (python, "3.99.1")

    def test_one_that_uv_has_installed_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        version, minor = platform.python_version(), "{}.{}".format(*sys.version_info)
        python = tmp_path / f"cpython-{version}-linux-{platform.machine()}-gnu" / "bin" / f"python{minor}"
        python.parent.mkdir(parents=True)
        python.symlink_to(Path(sys.executable).resolve())
        monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
        monkeypatch.setenv("UV_PYTHON_PREFERENCE", "only-managed")
        assert find_python(minor) == (python, version)


@pytest.mark.connectors
def test_a_real_connector_from_the_index_tells_its_spec(connector_environments: Path, runs_folder: Path) -> None:
    options = LaunchOptions(runs_folder=runs_folder)
    launcher = PypiLauncher("airbyte-source-hardcoded-records==0.0.48", cache=connector_environments, options=options)
    connector = launcher.launch(Invocation(("spec",)), environment={})
    assert b'"type":"SPEC"' in read_all(connector).replace(b" ", b"")
    assert report_of(connector).ended_cleanly


@pytest.mark.usefixtures("wheels")
def test_an_environment_outlives_the_link_by_which_it_was_built(tmp_path: Path) -> None:
    cache, link = tmp_path / "cache", tmp_path / "link"
    cache.mkdir()
    link.symlink_to(cache)
    for path in (link, cache):
        assert report_of(start(PypiLauncher(_PACKAGE, cache=path), "lines")).code == 0
        link.unlink(missing_ok=True)
    assert len(_builds(cache)) == 1
