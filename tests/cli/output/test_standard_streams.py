"""Commands whose stdout or stderr is closed, full, or without a reader."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import USERS, Place

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="a device that is always full stands in for a full disk")


def test_a_sync_goes_on_where_its_messages_cannot_be_written(place: Place) -> None:
    with FULL.open("w") as full:
        ended = _ran(place, "sync", place.connect(USERS), "--json", stderr=full)
    assert (ended.returncode, json.loads(ended.stdout)["status"]) == (0, "complete")
    reading, writing = os.pipe()
    os.close(reading)
    ended = _ran(place, "state", "show", "nobody", "--json", stderr=writing)
    os.close(writing)
    assert (ended.returncode, json.loads(ended.stdout)["error"]["kind"]) == (2, "ConfigError")


def test_a_sync_runs_without_any_stream(place: Place) -> None:
    file = place.connect(USERS)
    without = f'exec "{sys.executable}" -m dagster_airbyte_proto sync {file} <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", without], cwd=place.folder, check=False).returncode == 0
    assert place.json("state", "show", "shop")["states"][0]["state"] == {"next": 25}


def test_an_answer_that_cannot_be_written_is_an_error_of_one_line(place: Place) -> None:
    (place.folder / ".airbyte-proto").mkdir()
    with FULL.open("w") as full:
        ended = _ran(place, "state", "list", stdout=full)
    assert ended.returncode == 1
    assert ended.stderr == "error: printing the answer: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [["--help"], ["state", "show", "--help"], ["--version"]])
def test_help_that_cannot_be_written_is_an_error_of_one_line(place: Place, words: list[str]) -> None:
    with FULL.open("w") as full:
        ended = _ran(place, *words, stdout=full)
    assert ended.returncode == 1
    assert ended.stderr == "error: printing the answer: stdout cannot be written: No space left on device\n"
    reading, writing = os.pipe()
    os.close(reading)
    ended = _ran(place, *words, stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_error_that_cannot_be_written_keeps_its_exit_code(place: Place) -> None:
    for words in (["bogus"], ["sync", "nowhere.yaml"]):
        with FULL.open("w") as full:
            ended = _ran(place, *words, stderr=full, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        assert ended.returncode == 2


def test_letters_that_a_terminal_lacks_are_replaced(place: Place) -> None:
    assert place.run("sync", place.connect(USERS)).code == 0
    ended = _ran(place, "status", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr
    assert "shop" in ended.stdout and "?" in ended.stdout


def _ran(
    place: Place,
    *words: str,
    stdout: IO[str] | int = subprocess.PIPE,
    stderr: IO[str] | int = subprocess.PIPE,
    **environment: str,
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "dagster_airbyte_proto", *words],
        cwd=place.folder,
        env={**os.environ, **environment},
        stdout=stdout,
        stderr=stderr,
        text=True,
        check=False,
    )
