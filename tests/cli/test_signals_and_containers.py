"""Signals to a command whose connector is an image; the command runs on this machine, or in a container itself."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.launchers.docker.containers import Container, connector_containers
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing import fake_source
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.conftest import USERS, Place, Result, until
from tests.support.containers.daemon_gate import Gate
from tests.support.containers.images import Image, python_image
from tests.support.containers.machine_container import REPOSITORY, machine_image, machine_volumes

pytestmark = pytest.mark.docker

# Images of our own: other tests run at the same time, and ours count the containers of an image.
_OURS = "OF=signals"
_HANGING = {**USERS, "failure": {"kind": "hang", "after": 15}}
_EITHER = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture
def source() -> Iterator[Image]:
    with python_image({"/fake_source.py": Path(fake_source.__file__)}, ["-S", "/fake_source.py"], ENV=_OURS) as image:
        yield image


@pytest.fixture
def mute() -> Iterator[Image]:
    """One that answers nothing, and lives."""
    with python_image({}, ["-c", "import time; time.sleep(600)"], ENV=_OURS) as image:
        yield image


@pytest.fixture
def own() -> Iterator[Image]:
    with machine_image() as image:
        yield image


def connect(place: Place, image: Image, scenario: Mapping[str, Any] = USERS, **load: int) -> str:
    launch = {"kind": "docker", "image": image.name, "network": "none"}
    connector = {"protocol": "airbyte", "launch": launch}
    return place.connect(scenario, connector=connector, load=load or {"max_bytes": 1})


def connectors(image: Image) -> list[Container]:
    return [each for each in connector_containers(image.daemon) if each.image == image.name]


def states(place: Place) -> list[Any]:
    return [each["state"] for result in place.json("state", "list")["connections"] for each in result["states"]]


def expect_cancelled(place: Place, source: Image, ended: Result) -> None:
    """Complete rows are committed, the next sync brings the rest, and no container is left."""
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    users = ended.json["streams"]["users"]
    assert (ended.json["status"], users["committed"], users["rejected"]) == ("cancelled", 10, 5)
    assert connectors(source) == []
    expect_the_rest(place, source)


def expect_the_rest(place: Place, source: Image) -> None:
    assert place.json("sync", connect(place, source))["status"] == "complete"
    landed = FolderTables(place.folder / ".airbyte-proto" / "warehouse").rows(TableName("shop", "users"))
    assert sorted(landed["id"].to_pylist()) == list(range(25))


@pytest.mark.everyday("15")
@_EITHER
def test_a_cancelled_sync_leaves_no_container(place: Place, source: Image, number: signal.Signals) -> None:
    running = place.start("sync", connect(place, source, _HANGING), "--json")
    until(lambda: states(place) == [{"next": 10}])
    assert len(connectors(source)) == 1
    running.process.send_signal(number)
    expect_cancelled(place, source, running.end())


def test_a_connector_that_is_only_asked_goes_with_a_signal_too(place: Place, mute: Image) -> None:
    running = place.start("discover", connect(place, mute), "--json")
    until(lambda: [each.state for each in connectors(mute)] == ["running"])
    running.process.send_signal(signal.SIGTERM)
    assert running.end().code == 130
    until(lambda: connectors(mute) == [])  # One that had just begun is its guardian's to remove.


def test_a_daemon_that_goes_away_in_the_middle_costs_nothing_that_a_state_covers(place: Place, source: Image) -> None:
    gate = Gate(place.folder)
    file = connect(place, source, _HANGING, max_bytes=1 << 20)
    running = place.start("sync", file, "--json", DOCKER_HOST=gate.address)
    running.wait_for("15 rows")
    gate.shut()
    ended = running.end()
    users = ended.json["streams"]["users"]
    assert (ended.code, ended.json["status"], users["committed"], users["rejected"]) == (1, "failed", 10, 5)
    assert "Docker's daemon went away" in users["error"]
    assert len(connectors(source)) == 1
    gate.open()
    until(lambda: connectors(source) == [])
    expect_the_rest(place, source)


@pytest.mark.everyday("2")
@_EITHER
def test_a_cancelled_sync_that_is_in_a_container_leaves_none_beside_it(
    place: Place, source: Image, own: Image, number: signal.Signals
) -> None:
    daemon = own.daemon
    command = [sys.executable, "-m", "dagster_airbyte_proto", "sync", connect(place, source, _HANGING), "--json"]
    host = daemon.create_host_config(binds=machine_volumes(place.folder), network_mode="none")
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": os.environ["PATH"]}
    made = daemon.create_container(
        own.name, command, host_config=host, working_dir=str(place.folder), environment=environment
    )["Id"]
    try:
        daemon.start(made)
        until(lambda: states(place) == [{"next": 10}])
        assert len(connectors(source)) == 1
        daemon.kill(made, signal=number.name)
        code = daemon.wait(made, timeout=180)["StatusCode"]
        out, err = (daemon.logs(made, stdout=out, stderr=not out).decode() for out in (True, False))
    finally:
        daemon.remove_container(made, force=True)
    expect_cancelled(place, source, Result(code, out, err))
