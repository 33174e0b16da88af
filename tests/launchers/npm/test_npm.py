"""Packages of npm, installed from a registry that these tests run."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, StagingError
from dagster_airbyte_proto.launchers.packages.installed import installed_environments, remove_environment
from dagster_airbyte_proto.launchers.packages.npm.installation import NpmPackage
from dagster_airbyte_proto.launchers.packages.npm.launcher import NpmLauncher
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import LaunchOptions
from dagster_airbyte_proto.protocols.conversation import Invocation
from tests.conformance.launcher import read_all, report_of, start
from tests.support.needs import require_bubblewrap, require_npm
from tests.support.npm_registry import NpmRegistry

_ROOT = Path(__file__).parents[3]
_PACKAGE = "@acme/source-fake@1.0.0"


@pytest.fixture(autouse=True)
def _has_npm() -> None:
    require_npm()


def _launcher(folder: Path, package: str = _PACKAGE, main: str | None = None, **options: Any) -> NpmLauncher:
    return NpmLauncher(package, main, cache=folder / "cache", **options)


def _said(launcher: NpmLauncher) -> str:
    connector = launcher.launch(Invocation(()), environment={})
    said = read_all(connector).decode()
    report = report_of(connector)
    assert report.ended_cleanly, report
    return said


def _refusal(launcher: NpmLauncher) -> str:
    with pytest.raises(ConfigError) as refused:
        launcher.launch(Invocation(()), environment={})
    return str(refused.value)


def _builds(folder: Path) -> list[Path]:
    return [path for path in (folder / "cache").iterdir() if ".build-" in path.name]


def _program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a program first on the PATH."""
    file = folder / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")


class TestPins:
    @pytest.mark.parametrize("written", ["geo@1.2.0", "@acme/geo@1.2.0-beta.1+build", " @acme/geo.js@0.0.1 "])
    def test_a_pinned_package_is_read(self, written: str) -> None:
        assert str(NpmPackage.of(written)) == written.strip()

    @pytest.mark.parametrize(
        "written",
        ["geo", "geo@latest", "geo@^1.2.0", "geo@1.2", "geo@1.x", "@acme/geo", "acme/geo@1.0.0", "@acme/../geo@1.0.0",
         "file:geo@1.0.0", "geo@npm:other@1.0.0", "--global@1.0.0/x", ".geo@1.0.0"],
    )  # fmt: skip
    def test_any_other_is_refused(self, written: str) -> None:
        with pytest.raises(ConfigError, match="not pinned to one version"):
            NpmPackage.of(written)


@pytest.mark.everyday("test_it_is_installed_once_and_then_needs_no_npm")
class TestInstallation:
    def test_it_is_installed_once_and_then_needs_no_npm(
        self, npm_packages: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[str] = []
        options = LaunchOptions(on_notice=told.append)
        identity = _launcher(tmp_path, options=options).identity()
        assert identity.startswith(f"{_PACKAGE}-")
        assert told == [f"installing {_PACKAGE} into its own folder (only once)"]
        monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
        _program(tmp_path, "npm", "exit 9", monkeypatch)
        asked = len(npm_packages.requests)
        again = _launcher(tmp_path, options=options)
        assert again.identity() == identity
        assert report_of(start(again, "fail")).code == 3
        assert (len(told), len(npm_packages.requests), len(_builds(tmp_path))) == (1, asked, 1)

    def test_two_processes_at_once_install_it_once(self, npm_packages: NpmRegistry, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path;"
            "from dagster_airbyte_proto.launchers.packages.npm.launcher import NpmLauncher;"
            f"print(NpmLauncher({_PACKAGE!r}, cache=Path(sys.argv[1])).identity())"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "cache")]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(2)]
        said = {process.communicate()[0] for process in processes}
        assert [process.returncode for process in processes] == [0, 0]
        assert (len(said), len(_builds(tmp_path))) == (1, 1)
        assert sum(".tgz" in each for each in npm_packages.requests) == 1

    @pytest.mark.usefixtures("npm_packages")
    def test_what_a_killed_installation_left_is_removed(self, tmp_path: Path) -> None:
        launcher = _launcher(tmp_path)
        launcher.identity()
        (link,) = [path for path in (tmp_path / "cache").iterdir() if path.is_symlink()]
        half_built = link.with_name(f"{link.name}.build-dead")
        half_built.mkdir()
        link.unlink()
        launcher.identity()
        assert not half_built.exists() and len(_builds(tmp_path)) == 1

    @pytest.mark.usefixtures("npm_packages")
    def test_it_is_listed_and_removed_as_other_environments(self, tmp_path: Path) -> None:
        launcher = _launcher(tmp_path, options=LaunchOptions(connection="shop"))
        launcher.identity()
        (found,) = installed_environments(tmp_path / "cache")
        assert (found.package, found.package_name, found.users) == (_PACKAGE, "@acme/source-fake", ("shop",))
        assert (found.python, found.fault()) == ("", "") and found.node.count(".") == 2
        assert not remove_environment(found)
        del launcher
        assert remove_environment(found)
        assert installed_environments(tmp_path / "cache") == []

    def test_a_connection_cannot_change_where_and_what_npm_installs(
        self, npm_packages: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Settings that a user has for other work: no lock, scripts off, global, a dry run."""
        for name in ("package_lock", "save"):
            monkeypatch.setenv(f"npm_config_{name}", "false")
        for name in ("global", "dry_run"):
            monkeypatch.setenv(f"npm_config_{name}", "true")
        monkeypatch.setenv("npm_config_prefix", str(tmp_path / "prefix"))
        npm_packages.add("plain", "1.0.0", {"index.js": "console.log('ran')"})
        assert _said(_launcher(tmp_path, "plain@1.0.0")) == "ran\n"
        assert not (tmp_path / "prefix").exists()


@pytest.mark.everyday("test_another_file_under_the_same_version_is_not_installed", "test_a_broken_lock_is_named")
class TestLocks:
    """`source`, which needs `library`, is installed, and again elsewhere with the lock of the first time."""

    @pytest.fixture(autouse=True)
    def _packages(self, npm_packages: NpmRegistry, tmp_path: Path) -> None:
        npm_packages.add("library", "1.0.0", {"index.js": "module.exports = 'library 1'"})
        needs = {"library": "^1.0.0"}
        npm_packages.add("source", "1.0.0", {"index.js": "console.log(require('library'))"}, dependencies=needs)
        assert _said(_launcher(tmp_path, "source@1.0.0")) == "library 1\n"
        self._elsewhere = tmp_path / "elsewhere"
        (self._elsewhere / "cache").mkdir(parents=True)
        (lock,) = (tmp_path / "cache").glob("source@1.0.0-node*.package-lock.json")
        self._lock = self._elsewhere / "cache" / lock.name
        shutil.copy(lock, self._lock)

    def test_what_came_with_a_package_comes_with_it_again(self, npm_packages: NpmRegistry, tmp_path: Path) -> None:
        npm_packages.add("library", "1.1.0", {"index.js": "module.exports = 'library 1.1'"})
        assert npm_packages.url not in self._lock.read_text()
        locked = _launcher(self._elsewhere, "source@1.0.0")
        assert locked.identity() == _launcher(tmp_path, "source@1.0.0").identity()
        assert _said(locked) == "library 1\n"
        del locked
        self._lock.unlink()
        (installed,) = installed_environments(self._elsewhere / "cache")
        assert remove_environment(installed)
        assert _said(_launcher(self._elsewhere, "source@1.0.0")) == "library 1.1\n"

    def test_another_file_under_the_same_version_is_not_installed(
        self, npm_packages: NpmRegistry, tmp_path: Path
    ) -> None:
        npm_packages.add("library", "1.0.0", {"index.js": "module.exports = 'stolen'"})
        shutil.rmtree(tmp_path / "npm-cache")
        message = _refusal(_launcher(self._elsewhere, "source@1.0.0"))
        assert "Integrity checksum failed" in message and f"removing {self._lock}" in message
        assert _builds(self._elsewhere) == []

    def test_a_lock_of_another_package_is_refused(self, npm_packages: NpmRegistry) -> None:
        npm_packages.add("other", "1.0.0", {"index.js": ""})
        self._lock.rename(self._lock.with_name(self._lock.name.replace("source", "other")))
        assert "is no lock of this package" in _refusal(_launcher(self._elsewhere, "other@1.0.0"))

    def test_a_broken_lock_is_named(self) -> None:
        self._lock.write_text("{")
        assert f"{self._lock} is no lock of npm" in _refusal(_launcher(self._elsewhere, "source@1.0.0"))


class TestOverrides:
    """`source` pins a `library` that is not there."""

    @pytest.fixture(autouse=True)
    def _packages(self, npm_packages: NpmRegistry) -> None:
        for version in ("1.0.0", "2.0.0"):
            npm_packages.add("library", version, {"index.js": f"module.exports = 'library {version}'"})
        script = {"index.js": "console.log(require('library'))"}
        npm_packages.add("source", "1.0.0", script, dependencies={"library": "1.5.0"})

    def test_a_dependency_that_is_not_there_is_replaced(self, tmp_path: Path) -> None:
        assert "library@1.5.0" in _refusal(_launcher(tmp_path, "source@1.0.0"))
        launchers = [
            NpmLauncher(NpmPackage.of("source@1.0.0", {"library": version}), cache=tmp_path / "cache")
            for version in ("1.0.0", "2.0.0")
        ]
        for _ in range(2):
            assert [_said(each) for each in launchers] == ["library 1.0.0\n", "library 2.0.0\n"]
        assert len({each.identity() for each in launchers}) == len(_builds(tmp_path)) == 2

    @pytest.mark.parametrize("overrides", [{"library": "^1.0.0"}, {"library": "npm:other@1.0.0"}, {"../x": "1.0.0"}])
    def test_any_but_an_exact_version_is_refused(self, overrides: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match="is not pinned to one version"):
            NpmPackage.of("source@1.0.0", overrides)


class TestScripts:
    _WRITES = "node -e \"require('fs').writeFileSync('ran', '')\""
    _TELLS = "console.log(require('fs').existsSync(__dirname + '/ran'))"

    @pytest.mark.parametrize(("is_allowed", "said"), [(False, "false\n"), (True, "true\n")])
    def test_install_scripts_run_only_where_the_connection_allows_them(
        self, npm_packages: NpmRegistry, tmp_path: Path, is_allowed: bool, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("npm_config_ignore_scripts", "true" if is_allowed else "false")
        npm_packages.add("source", "1.0.0", {"index.js": self._TELLS}, scripts={"install": self._WRITES})
        told: list[str] = []
        options = LaunchOptions(on_notice=told.append)
        assert _said(_launcher(tmp_path, "source@1.0.0", install_scripts=is_allowed, options=options)) == said
        notices = ["install scripts do not run: source. `install_scripts: true` allows them"]
        assert told[1:] == ([] if is_allowed else notices)


_SCRIPTS = {name: f"console.log({name!r})" for name in ("a.js", "lib/index.js", "index.js")}


@pytest.mark.everyday(
    "about1-None-a.js",
    "../library/index.js",
    "test_a_package_sees_its_dependencies_in_a_sandbox_that_hides_their_folder",
)
class TestMain:
    @pytest.mark.parametrize(
        ("about", "main", "said"),
        [
            ({}, None, "index.js"),
            ({"main": "a.js", "bin": "index.js"}, None, "a.js"),
            ({"main": "./a"}, None, "a.js"),
            ({"main": "lib"}, None, "lib/index.js"),
            ({"bin": "a.js"}, None, "a.js"),
            ({"bin": {"x": "a.js"}}, None, "a.js"),
            ({"main": "index.js"}, "lib/index.js", "lib/index.js"),
        ],
    )
    def test_the_script_is_the_named_one_or_that_of_the_package(
        self, npm_packages: NpmRegistry, tmp_path: Path, about: dict[str, Any], main: str | None, said: str
    ) -> None:
        npm_packages.add("source", "1.0.0", _SCRIPTS, **about)
        assert _said(_launcher(tmp_path, "source@1.0.0", main)) == f"{said}\n"

    @pytest.mark.parametrize("main", ["none.js", "../library/index.js", "/etc/hostname"])
    def test_one_that_is_not_there_or_not_its_own_is_refused(
        self, npm_packages: NpmRegistry, tmp_path: Path, main: str
    ) -> None:
        npm_packages.add("library", "1.0.0", {"index.js": ""})
        npm_packages.add("source", "1.0.0", {"a.js": ""}, bin={"x": "a.js"}, dependencies={"library": "1.0.0"})
        message = _refusal(_launcher(tmp_path, "source@1.0.0", main))
        assert f"it has no file {main}; its package.json names a.js" in message

    @pytest.mark.usefixtures("npm_packages")
    def test_a_package_sees_its_dependencies_in_a_sandbox_that_hides_their_folder(
        self, npm_packages: NpmRegistry, tmp_path: Path, runs_folder: Path
    ) -> None:
        require_bubblewrap()
        npm_packages.add("library", "1.0.0", {"index.js": "module.exports = 'library'"})
        script = "console.log(require('library'), require('fs').readdirSync(process.argv[1].split('/cache/')[0]))"
        npm_packages.add("source", "1.0.0", {"lib/index.js": script}, main="lib", dependencies={"library": "1.0.0"})
        (tmp_path / "secret").write_text("")
        options = LaunchOptions(Permissions(sandbox=True, hidden=(tmp_path,)), runs_folder=runs_folder)
        said = _said(_launcher(tmp_path, "source@1.0.0", options=options))
        assert said.startswith("library") and "'cache'" in said and "secret" not in said


@pytest.mark.everyday(
    "none@1.0.0-none-Check the name of the package",
    "test_a_node_that_the_package_does_not_take_is_refused_before_it_is_installed",
    "E503",
    "test_without_node_or_npm_it_says_what_to_install",
)
class TestFaults:
    @pytest.mark.parametrize(
        ("package", "found", "remedy"),
        [
            ("none@1.0.0", "none", "Check the name of the package"),
            ("@acme/source-fake@9.9.9", "@acme/source-fake@9.9.9", "npm view NAME versions"),
        ],
    )
    @pytest.mark.usefixtures("npm_packages")
    def test_a_package_that_is_not_there_is_named_and_leaves_nothing(
        self, tmp_path: Path, package: str, found: str, remedy: str
    ) -> None:
        message = _refusal(_launcher(tmp_path, package))
        assert f"installing {package} with npm" in message
        assert found in message.partition(":")[2] and remedy in message
        assert _builds(tmp_path) == []

    @pytest.mark.usefixtures("npm_packages")
    def test_without_a_network_it_says_so_and_may_be_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
        with pytest.raises(ConnectorError, match="Check the network") as refused:
            _launcher(tmp_path).identity()
        assert refused.value.retryable

    @pytest.mark.parametrize("code", ["E503", "E429"])
    @pytest.mark.usefixtures("npm_packages")
    def test_a_registry_that_is_busy_may_answer_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
    ) -> None:
        error = json.dumps({"error": {"code": code, "summary": f"{code[1:]} - GET https://npm.example.org/source"}})
        _program(tmp_path, "npm", f"echo '{error}'; exit 1", monkeypatch)
        with pytest.raises(ConnectorError, match=r"GET https://npm\.example\.org/source") as refused:
            _launcher(tmp_path).identity()
        assert refused.value.retryable

    @pytest.mark.usefixtures("npm_packages")
    def test_a_full_disk_is_no_fault_of_the_config(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        error = json.dumps({"error": {"code": errno.errorcode[errno.ENOSPC], "summary": "no space left on device"}})
        _program(tmp_path, "npm", f"echo '{error}'; exit 1", monkeypatch)
        with pytest.raises(StagingError, match=r"no space left on device[\s\S]*Make room"):
            _launcher(tmp_path).identity()

    @pytest.mark.usefixtures("npm_packages")
    def test_the_login_of_a_registry_is_in_no_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        said = "request to https://ann:hunter22@npm.example.org failed"
        error = json.dumps({"error": {"code": "E401", "summary": said}})
        _program(tmp_path, "npm", f"echo '{error}'; exit 1", monkeypatch)
        assert "request to https://***@npm.example.org failed" in _refusal(_launcher(tmp_path))

    def test_a_node_that_the_package_does_not_take_is_refused_before_it_is_installed(
        self, npm_packages: NpmRegistry, tmp_path: Path
    ) -> None:
        npm_packages.add("source", "1.0.0", {"index.js": ""}, engines={"node": ">=99"})
        assert "source@1.0.0 needs Node >=99" in _refusal(_launcher(tmp_path, "source@1.0.0"))
        assert not any(".tgz" in each for each in npm_packages.requests)
        assert _builds(tmp_path) == []

    def test_without_node_or_npm_it_says_what_to_install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "there is no node on the PATH" in _refusal(_launcher(tmp_path))
        _program(tmp_path, "node", "echo v20.1.0", monkeypatch)
        assert "there is no npm on the PATH" in _refusal(_launcher(tmp_path))
        _program(tmp_path, "node", "echo broken >&2; exit 3", monkeypatch)
        assert "does not run: broken" in _refusal(_launcher(tmp_path))


def test_npm_gets_its_settings_and_no_other_secret(
    npm_packages: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = shutil.which("npm"), tmp_path / "seen"
    _program(tmp_path, "npm", f'env > {written}\nexec {real} "$@"', monkeypatch)
    monkeypatch.setenv("NPM_TOKEN", "t")
    for name in ("AWS_SECRET_ACCESS_KEY", "STATE_URL", "UV_INDEX_HOME_PASSWORD", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "secret")
    _launcher(tmp_path, options=LaunchOptions(permissions=Permissions(("STATE_URL",)))).identity()
    seen = dict(line.split("=", 1) for line in written.read_text().splitlines() if "=" in line)
    assert (seen["NPM_TOKEN"], seen["npm_config_registry"]) == ("t", npm_packages.url)
    assert "secret" not in seen.values()
