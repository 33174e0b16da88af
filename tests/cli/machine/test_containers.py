"""`containers list` and `reap`: what nobody owns goes, and never what somebody may."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.container_owners import container_labels
from tests.cli.conftest import Place
from tests.support.containers.images import Image, python_image

pytestmark = pytest.mark.docker

_ELSEWHERE = "pid 7 on elsewhere (started 1, kernel 00000000)"


@pytest.fixture
def sleeper() -> Iterator[Image]:
    with python_image({}, ["-c", "import time; time.sleep(600)"]) as image:
        yield image


def begun(image: Image, verb: str, **labels: str) -> RunningConnector:
    owner = ContainerOwner({"test": image.test, **labels})
    launcher = DockerLauncher(image.launched(), Confinement(network="none"), owner=owner)
    return launcher.launch(Invocation((verb,), verb=Verb(verb)), environment={})


def test_what_nobody_owns_is_reported_and_removed_and_nothing_else(place: Place, sleeper: Image) -> None:
    settings = Settings.load(place.folder / ".airbyte-proto")
    theirs = {"connection": "shop", "run": "r", "owner": _ELSEWHERE}
    connectors = [
        begun(sleeper, "read", **container_labels("shop", "s")),
        begun(sleeper, "read", **{**theirs, "connection": "held"}),
        begun(sleeper, "read", **theirs),
        begun(sleeper, "check", **theirs),
        begun(sleeper, "read", **{**theirs, "run": "of another store"}),
    ]
    with closing(SqlStore(settings.state_url)) as store:
        for connection in ("held", "shop"):
            lease = store.acquire(connection, run_id="r", holder=_ELSEWHERE, seconds=600)
            store.begin_run(lease, refreshed=[], streams=[])
        store.release(lease)

    def listed() -> list[dict[str, str]]:
        return [each for each in place.json("containers", "list")["containers"] if each["image"] == sleeper.name]

    result = sorted((each["ownership"], each["connection"], each["verb"]) for each in listed())
    assert result == [
        ("orphan", "shop", "read"),
        ("owned", "held", "read"),
        ("owned", "shop", "read"),
        ("unknown", "shop", "check"),
        ("unknown", "shop", "read"),
    ]
    place.json("containers", "reap")
    assert sorted(each["ownership"] for each in listed()) == ["owned", "owned", "unknown", "unknown"]
    left = [each["name"] for each in listed()]
    assert place.json("containers", "reap", *left)["removed"] == left
    assert listed() == []
    assert sleeper.leftovers() == []
    for connector in connectors:
        connector.stop()
    refused = place.run("containers", "reap", "no-such")
    assert (refused.code, "no container of a connector is called no-such" in refused.err) == (2, True)
