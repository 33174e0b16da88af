"""A working directory with a connection to the fake source, folder tables, and the command line to run in it."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.testing import fake_source
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS: Mapping[str, Any] = {"streams": {"users": {"records": 25}}, "state_every": 5}
SECRET = "hunter22"
_PATIENCE_SECONDS = 180.0


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one document that it must be."""
        return json.loads(self.out)


class Running:
    """The command line as a process of its own, whose stderr can be waited for."""

    def __init__(self, process: "subprocess.Popen[bytes]", stderr: Path) -> None:
        self.process = process
        self._stderr = stderr

    def wait_for(self, text: str) -> None:
        until(lambda: text in self._stderr.read_text() or self.process.poll() is not None)
        assert text in self._stderr.read_text()

    def end(self) -> Result:
        out, _ = self.process.communicate(timeout=_PATIENCE_SECONDS)
        return Result(self.process.returncode, out.decode(), self._stderr.read_text())


class Place:
    """A folder to work in. `run` runs a command within this process, `start` as one of its own."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str], catalog: Mapping[str, str]) -> None:
        self.folder = folder
        self.catalog = catalog.get("name", "lake")
        self._capture = capture
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "airbyte-proto.yaml").write_text(json.dumps({"catalog": catalog}))

    def connect(self, scenario: Mapping[str, Any], name: str = "shop", **written: Any) -> str:
        """Writes a connection file to the fake source and gives its name."""
        launch = {"kind": "local", "command": fake_source.command()}
        document = {
            "connector": {"protocol": "airbyte", "launch": launch},
            "config": {"scenario": dict(scenario), "password": SECRET},
            **written,
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(document))
        return file.name

    def run(self, *words: str) -> Result:
        self._capture.readouterr()
        code = main(words)
        out, err = self._capture.readouterr()
        return Result(code, out, err)

    def json(self, *words: str, code: int = 0) -> Any:
        result = self.run(*words, "--json")
        assert result.code == code, result.err
        return result.json

    def start(self, *words: str, **environment: str) -> Running:
        stderr = self.folder / f"stderr-{len(self._started)}"
        with stderr.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "dagster_airbyte_proto", *words],
                cwd=self.folder,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=file,
            )
        self._started.append(process)
        return Running(process, stderr)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be so in time"
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Place]:
    yield from _place(tmp_path, monkeypatch, Place(tmp_path, capfd, {"format": FOLDER_FORMAT}))


@pytest.fixture
def pier(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Place]:
    """The same with Iceberg tables, in a catalog of its own beside the session's."""
    yield from _place(tmp_path, monkeypatch, Place(tmp_path, capfd, {"name": f"pier_{uuid.uuid4().hex[:8]}"}))


def _place(folder: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> Iterator[Place]:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("AIRBYTE_PROTO_HOME", raising=False)
    yield place
    place.close()
