"""The guardian of a container, with a client of Docker that only notes what it was asked to remove."""

import fcntl
import os
import resource
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.docker import guardian, launcher
from dagster_airbyte_proto.launchers.docker.running_container import Guardian
from tests.conformance.launcher import until

_CLIENT = """
from pathlib import Path

class APIClient:
    def __init__(self, **_):
        pass

    def remove_container(self, name, **_):
        Path(__file__).with_name("removed").write_text(name)

    def remove_volume(self, name):
        pass

class errors:
    class NotFound(Exception):
        pass

class utils:
    kwargs_from_env = dict
"""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guardian]:
    """The guardian of the container `ours`. Docker's client is where an isolated Python does not look for it."""
    (tmp_path / "docker.py").write_text(_CLIENT)
    monkeypatch.syspath_prepend(tmp_path)
    found = launcher._start_guardian("ours")
    yield found
    found.process.kill()
    found.process.wait()


def _removed(folder: Path) -> str:
    file = folder / "removed"
    return file.read_text() if file.exists() else ""


def _ignores(process: int, number: int) -> bool:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    ignored = next(line.split()[1] for line in lines if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> (number - 1) & 1)


def test_it_finds_dockers_client_where_we_have_it(started: Guardian, tmp_path: Path) -> None:
    """As a package of the user, or by PYTHONPATH."""
    started.hand_over()
    until(lambda: _removed(tmp_path) == "ours", "the container is removed")


def test_a_signal_for_everybody_does_not_end_it(started: Guardian, tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        until(partial(_ignores, started.process.pid, number), f"it ignores {number.name}")
        os.kill(started.process.pid, number)
    started.hand_over()
    until(lambda: _removed(tmp_path) == "ours", "the container is removed")


@pytest.fixture
def many_files() -> Iterator[None]:
    """Lets this process open more files than most systems let it by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_the_pipe_to_it_may_have_any_number() -> None:
    """That of its owner, which may have thousands of open files."""
    reader, writer = os.pipe()
    high = fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, 1024)
    os.write(writer, guardian.DONE)
    assert guardian._wait_for_owner(high, os.getppid())
    os.close(writer)
    assert not guardian._wait_for_owner(high, os.getppid())
    for each in (reader, high):
        os.close(each)
