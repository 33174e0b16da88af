"""A Syncmaven destination in a container: its state server is on its own network, or it has none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.launchers.docker.networks import ensure_own_network, gateway_of
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.testing import fake_syncmaven
from tests.support.containers.images import Image, node_image, python_image
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.push.syncmaven.people import PEOPLE, PeopleServer
from tests.sync.push.syncmaven.people import person as kit_person

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with python_image({"/destination.py": Path(fake_syncmaven.__file__)}, ["/destination.py"]) as made:
        yield made


@pytest.fixture
def table(quick_folder: Path, image: Image) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven")
    pushed.run_in_container(image.name)
    pushed.fill([person(number) for number in range(20)])
    return pushed


def test_it_keeps_values_over_the_network_of_its_container(table: PushedTable) -> None:
    table.config["keeps"] = True
    table.options["checkpoint_rows"] = 10
    report = table.contacts()
    assert (report.error, report.acknowledged) == (None, 20)
    store = SqlStore(table.settings.state_url)
    assert store.count_kept_values(Asset("crm", StreamId.of("contacts")))[0] == 20
    store.close()


def test_without_a_network_it_runs_and_the_log_says_that_it_keeps_nothing(table: PushedTable) -> None:
    table.launch["network"] = "none"
    report = table.run()
    assert report.streams["contacts"].acknowledged == 20
    assert "cannot reach us from where it runs" in Path(report.log).read_text()


def test_an_image_runs_in_its_own_folder_by_its_own_command(quick_folder: Path) -> None:
    """As those of Syncmaven do: `WORKDIR /syncmaven`, `ENTRYPOINT ["node", "main.js"]`."""
    files = {"/app/destination.py": Path(fake_syncmaven.__file__)}
    with python_image(files, ["destination.py"], WORKDIR="/app") as image:
        table = PushedTable(quick_folder, protocol="syncmaven")
        table.run_in_container(image.name)
        table.fill([person(number) for number in range(20)])
        report = table.contacts()
    assert (report.error, report.acknowledged) == (None, 20)


@pytest.mark.connectors
@pytest.mark.nightly
def test_a_destination_on_the_kit_for_node_runs_as_an_image(quick_folder: Path, program: Path) -> None:
    files = {"/app/people.js": program, "/app/node_modules": program.parent / "node_modules"}
    with node_image(files, ["/app/people.js"]) as image:
        server = PeopleServer(gateway_of(image.daemon, ensure_own_network(image.daemon)) or "")
        table = PushedTable(quick_folder, protocol="syncmaven", schema=PEOPLE)
        table.launch, table.config = {"kind": "docker", "image": image.name}, {"url": server.url}
        table.stream, table.push["options"] = "people", {"list": "vip"}
        rows = [kit_person(number, city="Łódź") for number in range(1, 21)]
        table.fill(rows)
        report = table.run().streams["people"]
        server.close()
    assert (report.error, report.acknowledged) == (None, 20)
    assert server.rows == [("/vip", row) for row in rows]
    store = SqlStore(table.settings.state_url)
    kept = dict(store.kept_values(Asset("crm", StreamId.of("people"))))
    store.close()
    assert kept["syncId=crm.people", "type=count"] == b'{"total":20}'
