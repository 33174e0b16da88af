"""A program under bubblewrap does what any program does, and reaches nothing but what it is granted."""

import os
import pwd
import re
import signal
import socket
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.local.sandbox import SandboxedProgram, sandboxed_command
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import Launcher, LaunchOptions
from dagster_airbyte_proto.protocols.conversation import Invocation
from tests.conformance.launcher import (
    Leftovers,
    LiveInputConformance,
    LiveLauncherConformance,
    grace_seconds,
    read_all,
    report_of,
    start,
    until,
)
from tests.launchers.conftest import FAKE_CONNECTOR
from tests.launchers.programs import pypi
from tests.support.needs import require_bubblewrap
from tests.sync.shop import processes_of

_CONFINED = Permissions(sandbox=True)
_COMMAND = [sys.executable, "-S", str(FAKE_CONNECTOR)]


@pytest.fixture(autouse=True)
def _has_bubblewrap() -> None:
    require_bubblewrap()


def _options(runs_folder: Path, permissions: Permissions = _CONFINED) -> LaunchOptions:
    return LaunchOptions(permissions, runs_folder=runs_folder, stop_grace_seconds=0.3)


class TestLauncher(LiveLauncherConformance):
    @pytest.fixture
    def launcher(self, runs_folder: Path, request: pytest.FixtureRequest) -> Launcher:
        options = _options(runs_folder)._replace(stop_grace_seconds=grace_seconds(request))
        return LocalLauncher(_COMMAND, options=options)

    @pytest.fixture
    def leftovers(self, runs_folder: Path) -> Leftovers:
        return lambda: [path.name for path in runs_folder.iterdir()]

    @pytest.mark.parametrize("behaviour", ["family", "family_and_wait"])
    def test_nothing_that_it_forked_outlives_it(self, launcher: Launcher, behaviour: str, runs_folder: Path) -> None:
        connector = start(launcher, behaviour)  # prints process ids that are not this machine's
        assert len((connector.read(60.0) or b"").split()) == 3
        if behaviour == "family":
            assert read_all(connector) == b""
        else:
            assert len(processes_of(runs_folder)) >= 3
            connector.stop()
        report_of(connector)
        assert processes_of(runs_folder) == []


class TestInput(LiveInputConformance):
    @pytest.fixture
    def launcher(self, runs_folder: Path, request: pytest.FixtureRequest) -> Launcher:
        options = _options(runs_folder)._replace(stop_grace_seconds=grace_seconds(request))
        return LocalLauncher(_COMMAND, options=options)


@pytest.mark.usefixtures("wheels")
def test_a_package_finds_its_environment_in_a_folder_that_is_hidden(tmp_path: Path, runs_folder: Path) -> None:
    hidden = _CONFINED._replace(hidden=(tmp_path,))
    assert report_of(start(pypi(tmp_path, _options(runs_folder, hidden)), "fail")).code == 3


def test_kill_9_of_the_guardian_ends_also_who_left_its_group(runs_folder: Path) -> None:
    of_others = psutil.Process().children()  # Of tests before, in the same process.
    connector = start(LocalLauncher(_COMMAND, options=_options(runs_folder)), "family_and_wait")
    assert connector.read(60.0)
    assert len(processes_of(runs_folder)) >= 3
    own = [each for each in psutil.Process().children() if each not in of_others]
    [guardian] = [each for each in own if "guardian.py" in " ".join(each.cmdline())]
    guardian.send_signal(signal.SIGKILL)
    assert report_of(connector).signal == signal.SIGKILL
    until(lambda: processes_of(runs_folder) == [], "all are gone")


def test_it_may_end_by_itself_at_sigterm(runs_folder: Path) -> None:
    options = _options(runs_folder)._replace(stop_grace_seconds=60.0)
    connector = start(LocalLauncher(_COMMAND, options=options), "say_goodbye")
    connector.read(60.0)
    connector.stop()
    assert (report_of(connector).code, report_of(connector).stopped) == (7, True)


def test_a_code_that_is_that_of_no_signal_is_a_code(runs_folder: Path) -> None:
    connector = LocalLauncher(["sh", "-c", "exit 255"], options=_options(runs_folder)).launch(
        Invocation(()), environment={}
    )
    assert (report_of(connector).code, report_of(connector).signal) == (255, None)


def _tried(
    script: str, runs_folder: Path, permissions: Permissions = _CONFINED, **environment: str
) -> Mapping[str, str]:
    """The lines `name answer` of a shell script."""
    connector = LocalLauncher(["sh", "-c", script], options=_options(runs_folder, permissions)).launch(
        Invocation(()), environment=environment
    )
    lines = read_all(connector).decode().splitlines()
    report_of(connector)
    return {name: answer for name, _, answer in (line.partition(" ") for line in lines)}


@pytest.mark.parametrize("environment", [{}, {"HOME": "/opt"}], ids=["none", "another"])
def test_the_homes_of_the_user_are_hidden_whatever_the_connector_has_for_home(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    command = sandboxed_command(SandboxedProgram(["true"], [tmp_path / "run"], environment), _CONFINED)
    hidden = [path for option, path in pairwise(command) if option == "--tmpfs"]
    assert {str(tmp_path.resolve()), str(Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve())} <= {*hidden}


def test_it_reads_no_secret_of_ours_and_writes_nowhere(tmp_path: Path, runs_folder: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    for folder, name in ((home, "keys"), (store, "state.db")):
        folder.mkdir()
        (folder / name).write_text("secret")
    script = f"""
    echo home $(cat {home}/keys 2>&1)
    echo store $(cat {store}/state.db 2>&1)
    echo ours $(cat /proc/{os.getpid()}/environ 2>&1)
    echo processes $(ls /proc | grep -c '^[0-9]')
    echo sockets $(ls /run)
    echo readable $(head -c 5 /etc/passwd)
    echo written $(touch /usr/written 2>&1)
    echo temporary $(touch /tmp/x && ls /tmp)
    echo here $(touch y && ls)
    """
    found = _tried(script, runs_folder, _CONFINED._replace(hidden=(store,)), HOME=str(home))
    assert "No such file" in found["home"]
    assert "No such file" in found["store"]
    assert "No such file" in found["ours"]
    assert int(found["processes"]) < 10
    assert "docker.sock" not in found.get("sockets", "")
    assert found["readable"] == "root:"
    assert re.search("Read-only file system|Permission denied", found["written"])
    assert "x" in found["temporary"].split()
    assert found["here"] == "y"


def test_it_reads_the_certificates_that_its_variables_name(tmp_path: Path, runs_folder: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("authorities.pem", "keys"):
        (home / name).write_text("trusted")
    script = 'echo "named $(cat "$SSL_CERT_FILE")"; echo "seen $(ls "${SSL_CERT_FILE%/*}")"'
    permissions = _CONFINED._replace(hidden=(home,))
    found = _tried(script, runs_folder, permissions, SSL_CERT_FILE=str(home / "authorities.pem"))
    assert found == {"named": "trusted", "seen": "authorities.pem"}


def test_it_writes_to_the_folders_that_are_named(tmp_path: Path, runs_folder: Path) -> None:
    for name in ("working", "batches"):
        (tmp_path / name).mkdir()
    granted = _CONFINED._replace(writable=(tmp_path / "batches", tmp_path / "none"))
    options = _options(runs_folder, granted)._replace(working_folder=tmp_path / "working")
    script = f"echo 1 > made && echo 2 > {tmp_path}/batches/made"
    connector = LocalLauncher(["sh", "-c", script], options=options).launch(Invocation(()), environment={})
    assert report_of(connector).ended_cleanly
    assert (tmp_path / "working" / "made").read_text() == "1\n"
    assert (tmp_path / "batches" / "made").read_text() == "2\n"


@pytest.mark.parametrize("network", [True, False])
def test_it_has_a_network_only_if_that_is_named(network: bool, runs_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        launcher = LocalLauncher(
            [sys.executable, "-S", "-c", code], options=_options(runs_folder, _CONFINED._replace(network=network))
        )
        report = report_of(launcher.launch(Invocation(()), environment={}))
    assert report.ended_cleanly is network


def test_without_bubblewrap_it_does_not_start(
    runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sh := tmp_path / "bin" / "sh").parent.mkdir()
    sh.symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(sh.parent))
    launcher = LocalLauncher(["sh"], options=_options(runs_folder))
    with pytest.raises(ConfigError, match=r"there is no bwrap on the PATH\nInstall bubblewrap"):
        launcher.launch(Invocation(()), environment={})
    refusing = sh.with_name("bwrap")
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(ConfigError, match="may not make namespaces here: bwrap: No permissions"):
        launcher.launch(Invocation(()), environment={})
    assert list(runs_folder.iterdir()) == []


def _project(folder: Path) -> Path:
    """A folder with a state store among other files."""
    (project := folder / "project").mkdir()
    for name in ("state.db", "state.db-wal", "config.json", "lib.sh"):
        (project / name).write_text(f"of {name}")
    (project / "data").mkdir()
    (project / "link").symlink_to("state.db")
    return project


_TRIES = """
echo store $(cat {0}/state.db 2>&1)
echo log $(cat {0}/state.db-wal 2>&1)
echo link $(cat {0}/link 2>&1)
echo replaced $(echo forged 2>&1 > {0}/state.db)
echo beside $(cat {0}/config.json)
echo changed $(echo 1 2>&1 >> {0}/config.json)
echo new $(touch {0}/new 2>&1)
echo made $(touch {0}/data/made && ls {0}/data)
"""


def test_a_state_store_is_hidden_also_in_a_folder_that_the_program_works_in(tmp_path: Path, runs_folder: Path) -> None:
    project = _project(tmp_path)
    hidden = _CONFINED._replace(hidden_files=(project / "state.db",))
    options = _options(runs_folder, hidden)._replace(working_folder=project)
    connector = LocalLauncher(["sh", "-c", _TRIES.format(".")], options=options).launch(Invocation(()), environment={})
    found = dict(line.partition(" ")[::2] for line in read_all(connector).decode().splitlines())
    assert report_of(connector).ended_cleanly
    for each in ("store", "log", "link"):
        assert "No such file" in found[each]
    assert "Read-only file system" in found["new"]  # It would be lost with the sandbox.
    assert (found["beside"], found["made"]) == ("of config.json", "made")
    assert {path.name: path.read_text() for path in project.iterdir() if path.is_file()} == {
        "state.db": "of state.db",
        "state.db-wal": "of state.db-wal",
        "link": "of state.db",
        "config.json": "of config.json1\n",
        "lib.sh": "of lib.sh",
    }


@pytest.mark.parametrize("through", ["folder", "link"])
def test_a_state_store_is_hidden_also_beside_the_program_itself(
    through: str, tmp_path: Path, runs_folder: Path
) -> None:
    project = _project(tmp_path)
    (tmp_path / "here").symlink_to(project)
    named = project if through == "folder" else tmp_path / "here"
    (project / "tap.sh").write_text(_TRIES.format(named) + f". {named}/lib.sh")
    (project / "lib.sh").write_text("echo library read")
    store = tmp_path / "store.db"
    store.symlink_to(project / "state.db")
    options = _options(runs_folder, _CONFINED._replace(hidden_files=(store,)))
    connector = LocalLauncher(["sh", str(named / "tap.sh")], options=options).launch(Invocation(()), environment={})
    found = dict(line.partition(" ")[::2] for line in read_all(connector).decode().splitlines())
    for each in ("store", "log", "link"):
        assert "No such file" in found[each]
    assert (found["beside"], found["library"]) == ("of config.json", "read")
    assert (project / "state.db").read_text() == "of state.db"


def test_a_state_store_among_too_many_files_is_an_error(tmp_path: Path, runs_folder: Path) -> None:
    project = _project(tmp_path)
    for number in range(1100):
        (project / str(number)).touch()
    hidden = _CONFINED._replace(hidden_files=(project / "state.db",))
    options = _options(runs_folder, hidden)._replace(working_folder=project)
    with pytest.raises(
        ConfigError,
        match=r"state\.db in \S+ cannot be hidden among 1,10\d other files\nMove it into a folder of its own",
    ):
        LocalLauncher(["true"], options=options).launch(Invocation(()), environment={})
