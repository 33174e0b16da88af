"""Installers, as far as what they do to us is not for a package manager to say."""

import os
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.packages import installer_process
from dagster_airbyte_proto.launchers.packages.installer_process import locked_build, run_installer
from tests.conformance.launcher import is_running, until


def test_what_an_installer_leaves_behind_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the daemon of a build tool: it has the pipes of the installer, and the lock of the build."""
    monkeypatch.setattr(installer_process, "_NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(installer_process, "_LAST_WORDS_SECONDS", 0.1)
    monkeypatch.setattr(installer_process, "_LIMIT_SECONDS", 30.0)
    script = "sleep 600 & echo $!; echo broken >&2; exit 3"
    with locked_build(tmp_path / "lock", "source==1.0", None) as watch:
        ended = run_installer(["sh", "-c", script], dict(os.environ), watch)
    assert (ended.returncode, ended.stderr) == (3, b"broken\n")
    until(lambda: not is_running(int(ended.stdout)), "the end of what it left behind")
