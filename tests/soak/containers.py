"""Syncs whose connector is an image, and a Docker daemon of the soak's own that can be killed."""

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker

from dagster_airbyte_proto.launchers.docker.containers import LABEL, connector_containers
from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
from dagster_airbyte_proto.testing import fake_source
from tests.soak.kill_methods import RunningSync
from tests.support.containers.images import python_image
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.shop import until

_SCENARIO = "/scenario.json"
_CONTAINERD = "containerd.sock"


class DockerDaemon:
    """A daemon beside the machine's, with its own images, containers and socket. It makes no networks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"unix://{folder / 'docker.sock'}"
        self._process: subprocess.Popen[bytes] | None = None
        # One that dockerd had started by itself would be in the way of the next.
        self._containerd = self._program("containerd", root="images", state="tasks", address=_CONTAINERD)

    def start(self) -> None:
        """Starts it and waits until it answers."""
        (self._folder / "docker.pid").unlink(missing_ok=True)
        apart = ("--host", self.address, "--bridge=none", "--iptables=false", "--ip-masq=false")
        places = {"data-root": "data", "exec-root": "run", "pidfile": "docker.pid", "containerd": _CONTAINERD}
        # Without a bridge it removes docker0, also another daemon's, so it gets its own network namespace.
        self._process = self._program("unshare", "--net", "dockerd", *apart, **places)
        until(self._answers, "an answer of dockerd")

    def dockerd(self, running: RunningSync, chance: random.Random) -> None:  # noqa: ARG002 - as a kill_method is
        """Kills it and starts it again."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.start()

    def end(self) -> None:
        for each in (self._process, self._containerd):
            if each is not None:
                each.terminate()
                each.wait()

    def _program(self, name: str, *words: str, **places: str) -> subprocess.Popen[bytes]:
        options = [f"--{option}={self._folder / place}" for option, place in places.items()]
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([name, *words, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self) -> bool:
        with suppress(docker.errors.DockerException):
            return bool(docker.APIClient(self.address, version="auto").ping())
        return False


@contextmanager
def docker_daemon() -> Iterator[DockerDaemon]:
    """Runs a daemon that this process and its children use. Its folder has a short name, as paths of sockets must be
    short."""
    folder = Path(tempfile.mkdtemp(prefix="dockerd-", dir="/tmp"))
    daemon = DockerDaemon(folder)
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = daemon.address
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.end()
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before
        shutil.rmtree(folder, ignore_errors=True)


class ImageConnection(FakeConnection):
    """A connection whose connector is an image. The container sees the scenario file."""

    def __init__(self, folder: Path, image: str) -> None:
        super().__init__(folder)
        self._image = image
        self.config["scenario"] = _SCENARIO

    def _launch(self, scenario: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - its answers never change
        volumes = [f"{self._scenario_file}:{_SCENARIO}:ro"]
        return {"kind": "docker", "image": self._image, "network": "none", "volumes": volumes}


@contextmanager
def fake_source_image() -> Iterator[str]:
    with python_image({"/fake_source.py": Path(fake_source.__file__)}, ["-S", "/fake_source.py"]) as image:
        yield image.name


def container(running: RunningSync, chance: random.Random) -> None:
    daemon = open_daemon().api
    for each in connector_containers(daemon):
        if each.labels.get("owner", "").startswith(f"pid {running.pid} "):
            with suppress(docker.errors.APIError):  # it has ended already
                daemon.kill(each.name)


def left() -> list[str]:
    """The remaining containers, volumes and networks of connectors."""
    daemon = open_daemon().api
    wanted = {"label": LABEL}
    return [
        *(each["Names"][0] for each in daemon.containers(all=True, filters=wanted)),
        *(each["Name"] for each in daemon.volumes(filters=wanted)["Volumes"] or ()),
        *(each["Name"] for each in daemon.networks(filters=wanted)),
    ]
