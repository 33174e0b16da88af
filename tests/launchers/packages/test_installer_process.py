"""Installers, as far as what they do to us is not for a package manager to say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.packages import installer_process
from dagster_airbyte_proto.launchers.packages.installer_process import locked_build, run_installer
from tests.conformance.launcher import is_running, until

_ROOT = Path(__file__).parents[3]
_ENDS_MEANWHILE = """
import os, sys, threading, time
from pathlib import Path
from dagster_airbyte_proto.launchers.packages.installer_process import locked_build, run_installer
lock, number = sys.argv[1:]

def install():
    with locked_build(Path(lock), "source==1.0", None) as watch:
        run_installer(["sh", "-c", 'echo $$ > "$0"; exec sleep 600', number], dict(os.environ), watch)

threading.Thread(target=install, daemon=True).start()
while not (Path(number).exists() and Path(number).read_text()):
    time.sleep(0.01)
"""


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


def test_an_installer_ends_with_us_though_a_thread_still_waits_for_it(tmp_path: Path) -> None:
    """As where Dagster terminates a run: its main thread ends the process."""
    command = [sys.executable, "-c", _ENDS_MEANWHILE, str(tmp_path / "lock"), str(tmp_path / "number")]
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(_ROOT)})
    installer = int((tmp_path / "number").read_text())
    until(lambda: not is_running(installer), "the end of the installer")
