"""A hook that kills: at the point, at the right time, and with a log of the way there."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.testing.crash_points import command, crash_hook

_PROGRAM = """
import sys
from dagster_airbyte_proto.testing.crash_points import crash_hook
hook = crash_hook("load.announced:2", sys.argv[1])
for point in ("load.staged", "load.announced", "load.announced", "load.promoted"):
    hook(point)
"""


def test_it_kills_at_the_nth_reaching_and_logs_every_point(tmp_path: Path) -> None:
    log = tmp_path / "points"
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, str(log)], check=False)
    assert ended.returncode == -9
    assert log.read_text().split() == ["load.staged", "load.announced", "load.announced"]


def test_it_can_wait_in_the_place_of_dying(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    hook = crash_hook("load.announced", until=go_on)
    waiting = threading.Thread(target=hook, args=("load.announced",))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    go_on.touch()
    waiting.join(10)
    assert not waiting.is_alive()


@pytest.mark.parametrize("at", ["load.anounced", "load.announced:x"])
def test_a_point_that_does_not_exist_is_refused(at: str) -> None:
    with pytest.raises(ConfigError, match="is not a crash point"):
        crash_hook(at)


def test_the_command_is_that_of_the_command_line() -> None:
    ended = subprocess.run([*command(), "--help"], check=True, capture_output=True, text=True)
    assert ended.stdout.startswith("Usage: airbyte-proto")
