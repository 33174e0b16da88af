"""Installed environments: their list, and their removal beside runs that use them."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.packages.environment_use import EnvironmentUse
from dagster_airbyte_proto.launchers.packages.installed import (
    InstalledEnvironment,
    installed_environments,
    is_in_use,
    remove_environment,
)
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
from dagster_airbyte_proto.launchers.process import LaunchOptions
from tests.conformance.launcher import report_of, start
from tests.sync.read.test_failures import mounted

_ROOT = Path(__file__).parents[2]
_PACKAGE = "airbyte-source-fake==1.0"
_HOLD = f"""
import sys, time
from pathlib import Path
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
launcher = PypiLauncher({_PACKAGE!r}, cache=Path(sys.argv[1]))
launcher.identity()
print("held", flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.usefixtures("wheels")


def _launcher(cache: Path, connection: str = "") -> PypiLauncher:
    return PypiLauncher(_PACKAGE, cache=cache, options=LaunchOptions(connection=connection))


def _only(cache: Path) -> InstalledEnvironment:
    (found,) = installed_environments(cache)
    return found


def test_an_environment_is_listed_with_its_size_and_its_users(tmp_path: Path) -> None:
    for connection in ("shop", "crm", "shop"):
        _launcher(tmp_path, connection).identity()
    found = _only(tmp_path)
    assert (found.package, found.users) == (_PACKAGE, ("shop", "crm"))
    assert found.python.startswith("3.") and found.size_bytes() > 4096 and found.fault() == ""
    os.utime(tmp_path / f"{found.name}.users", (86400, 86400))
    assert _only(tmp_path).used_at.year == 1970
    _launcher(tmp_path).identity()
    assert _only(tmp_path).used_at.year > 2000


def test_to_look_is_no_use_where_an_older_version_noted_none(tmp_path: Path) -> None:
    _launcher(tmp_path).identity()
    link = _only(tmp_path).link
    (tmp_path / f"{link.name}.users").unlink()
    os.utime(link, (86400, 86400), follow_symlinks=False)
    os.utime(link / "lock.txt", (86400, 86400))
    assert not is_in_use(_only(tmp_path))
    assert _only(tmp_path).used_at.year == 1970


def test_one_that_a_launcher_uses_stays_until_it_is_gone(tmp_path: Path) -> None:
    launcher = _launcher(tmp_path)
    connector = start(launcher, "hang")
    found = _only(tmp_path)
    assert is_in_use(found) and not remove_environment(found)
    connector.stop()
    report_of(connector)
    assert found.folder.is_dir()
    del launcher, connector
    gc.collect()
    assert remove_environment(found)
    assert not found.link.is_symlink() and not found.folder.exists()
    assert installed_environments(tmp_path) == []


def test_one_that_another_process_uses_stays_until_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert not remove_environment(_only(tmp_path))
        process.send_signal(signal.SIGKILL)
    assert remove_environment(_only(tmp_path))


def test_what_was_removed_is_installed_again_with_the_same_versions(tmp_path: Path) -> None:
    first = _launcher(tmp_path).identity()
    launcher = _launcher(tmp_path)
    gc.collect()
    assert remove_environment(_only(tmp_path))
    assert list(tmp_path.glob("*.requirements.txt"))
    assert launcher.identity() == first
    assert report_of(start(launcher, "fail")).code == 3


def test_the_remains_of_a_build_that_died_are_listed_and_removed(tmp_path: Path) -> None:
    _launcher(tmp_path).identity()
    remains = tmp_path / f"{_only(tmp_path).name}.build-dead"
    remains.mkdir()
    _, dead = installed_environments(tmp_path)
    assert (dead.name, dead.package) == (remains.name, "")
    assert remove_environment(dead)
    assert not remains.exists() and _only(tmp_path).fault() == ""


def test_a_complete_environment_runs_where_its_use_cannot_be_noted(tmp_path: Path) -> None:
    """As in an image that has its packages already, read-only."""
    _launcher(tmp_path).identity()
    users = tmp_path / f"{_only(tmp_path).name}.users"
    users.unlink()
    users.mkdir()
    assert _launcher(tmp_path).identity()


def _laid_down(cache: Path, name: str = "airbyte-source-fake-1.0-cp311-0123456789ab") -> Path:
    """The link of an environment with nothing installed in it."""
    folder = cache / f"{name}.build-1"
    folder.mkdir(parents=True)
    (folder / "lock.txt").write_text("# python 3.11.2\n")
    link = cache / name
    link.symlink_to(folder.name)
    return link


def _remove(link: Path) -> None:
    shutil.rmtree(link.resolve())
    link.unlink(missing_ok=True)


@pytest.mark.parametrize("look", ["is_file", "is_dir"])
def test_one_that_another_process_removes_while_they_are_listed_is_not_there(
    look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, removed = _laid_down(tmp_path), _laid_down(tmp_path, "source-other-2.0-cp311-0123456789ab")
    folder, seen = removed.resolve(), getattr(Path, look)
    if look == "is_dir":
        removed.unlink()  # What is left of a build that died has no link.

    def removes_what_it_has_seen(path: Path) -> bool:
        found: bool = seen(path)
        if path.resolve().is_relative_to(folder) and folder.exists():
            removed.unlink(missing_ok=True)
            shutil.rmtree(folder)
        return found

    monkeypatch.setattr(Path, look, removes_what_it_has_seen)
    assert [each.link for each in installed_environments(tmp_path)] == [kept]
    assert not folder.exists()


def test_one_that_another_process_has_removed_since_it_was_listed_is_no_error(tmp_path: Path) -> None:
    _laid_down(tmp_path)
    listed = _only(tmp_path)
    _remove(listed.link)
    assert not is_in_use(listed) and remove_environment(listed)
    assert installed_environments(tmp_path) == []


def test_one_that_was_installed_again_since_it_was_listed_stays(tmp_path: Path) -> None:
    link = _laid_down(tmp_path)
    listed = _only(tmp_path)
    _remove(link)
    folder = tmp_path / f"{link.name}.build-2"
    folder.mkdir()
    (folder / "lock.txt").write_text("# python 3.11.2\n")
    link.symlink_to(folder.name)
    assert not remove_environment(listed)
    assert _only(tmp_path).folder == folder
    assert remove_environment(_only(tmp_path))


def test_a_build_that_ends_after_it_was_listed_as_remains_stays(tmp_path: Path) -> None:
    link = _laid_down(tmp_path)
    link.unlink()
    (remains,) = installed_environments(tmp_path)
    link.symlink_to(remains.folder.name)
    assert is_in_use(remains) and not remove_environment(remains)
    assert _only(tmp_path).folder == remains.folder


def test_environments_of_a_read_only_disk_are_listed_with_their_use(tmp_path: Path) -> None:
    link = _laid_down(tmp_path / "cache")
    with mounted(tmp_path / "seen", "--bind", "-o", "ro", str(tmp_path / "cache")) as disk:
        assert not is_in_use(_only(disk))
        held = EnvironmentUse(link, "shop")
        found = _only(disk)
        assert is_in_use(found) and found.users == ("shop",)
        del held
        gc.collect()
        assert not is_in_use(found)
