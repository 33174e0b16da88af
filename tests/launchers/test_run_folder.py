import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path, PosixPath

import pytest

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.launchers.run_folder import RunFolder, WatchedFile

_ROOT = Path(__file__).parents[2]
_MAKE_AND_DIE = """
import os, sys
from pathlib import Path, PosixPath
from dagster_airbyte_proto.launchers.run_folder import RunFolder, WatchedFile
folder = RunFolder.make(Path(sys.argv[1]), {"config.json": b"secret"})
os.kill(os.getpid(), 9)
"""


def _leave_a_dead_run(parent: Path) -> Path:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    subprocess.run([sys.executable, "-c", _MAKE_AND_DIE, str(parent)], env=environment, check=False)
    (folder,) = parent.iterdir()
    return folder


def test_the_next_run_removes_what_a_dead_one_left(tmp_path: Path) -> None:
    dead = _leave_a_dead_run(tmp_path)
    assert (dead / "config.json").read_bytes() == b"secret"
    folder = RunFolder.make(tmp_path, {})
    assert list(tmp_path.iterdir()) == [folder.path]


def test_the_folder_of_a_living_run_is_left_alone(tmp_path: Path) -> None:
    living = RunFolder.make(tmp_path, {"config.json": b"{}"})
    RunFolder.make(tmp_path, {}).remove()
    assert (living.path / "config.json").read_bytes() == b"{}"
    living.remove()
    living.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".lock").touch()
    parent = tmp_path / "runs"
    parent.mkdir()
    (parent / "airbyte-proto-run-link").symlink_to(elsewhere, target_is_directory=True)
    (parent / "airbyte-proto-run-file").touch()
    (parent / "other").mkdir()
    RunFolder.make(parent, {}).remove()
    assert len(list(parent.iterdir())) == 3
    assert (elsewhere / ".lock").exists()


def test_many_starting_at_once_take_nothing_from_each_other(tmp_path: Path) -> None:
    failures: list[str] = []

    def make_and_remove() -> None:
        for _ in range(50):
            folder = RunFolder.make(tmp_path, {"config.json": b"{}"})
            if (folder.path / "config.json").read_bytes() != b"{}":
                failures.append("changed")
            folder.remove()
            if folder.path.exists():
                failures.append("still there")

    def run() -> None:
        try:
            make_and_remove()
        except (OSError, StagingError) as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_hold_it_is_a_staging_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StagingError, match="private folder"):
        RunFolder.make(tmp_path / "file" / "runs", {})


def test_without_a_temporary_folder_it_is_a_staging_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a read-only disk and nothing mounted at /tmp."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(StagingError, match="No usable temporary directory") as refused:
        RunFolder.make(None, {})
    assert "TMPDIR" in refused.value.remedy


def test_a_link_that_has_its_name_by_now_is_not_followed(tmp_path: Path) -> None:
    runs, home = tmp_path / "runs", tmp_path / "home"
    home.mkdir()
    for name in ("precious", ".lock"):
        (home / name).touch()
    folder = RunFolder.make(runs, {"config.json": b"{}"})
    (folder.path / "inner").mkdir()
    (folder.path / "inner" / "home").symlink_to(home)
    folder.path.rename(runs / "aside")
    folder.path.symlink_to(home, target_is_directory=True)
    folder.remove()
    RunFolder.make(runs, {}).remove()
    assert {path.name for path in home.iterdir()} == {"precious", ".lock"}
    assert list((runs / "aside").iterdir()) == []


class _Replaced(PosixPath):
    """A file in whose place a link to one of ours is, as soon as it was looked at."""

    def lstat(self) -> os.stat_result:
        about = super().lstat()
        self.unlink()
        self.symlink_to(self.with_name("ours.json"))
        return about


def test_a_file_of_ours_is_no_config_that_a_connector_wrote(tmp_path: Path) -> None:
    (tmp_path / "ours.json").write_bytes(b'{"key": "secret"}')
    (tmp_path / "config.json").write_bytes(b"{}")
    assert WatchedFile(tmp_path / "config.json", b"").rewritten_content() == b"{}"
    assert WatchedFile(_Replaced(tmp_path / "config.json"), b"").rewritten_content() is None
