"""Pushes to a destination in a container: rows go through its stdin, no faster than it reads."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.testing import fake_destination
from tests.support.containers.images import Image, python_image
from tests.sync.push.push_fork_server import PushForkServer
from tests.sync.push.pushed_table import PushedTable, person

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

_ROWS = 100_000
_BATCH = 5_000


@pytest.fixture
def image() -> Iterator[Image]:
    with python_image({"/destination.py": Path(fake_destination.__file__)}, ["/destination.py"]) as made:
        yield made


@pytest.fixture
def table(quick_folder: Path, image: Image) -> PushedTable:
    pushed = PushedTable(quick_folder)
    pushed.run_in_container(image.name, network="none")
    pushed.options = {"batch": {"rows": _BATCH}}
    pushed.fill([person(number) for number in range(_ROWS)])
    return pushed


def _until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be so in time"
        time.sleep(0.05)


def _running(image: Image) -> list[str]:
    return [each["Id"] for each in image.daemon.containers(filters={"ancestor": image.name})]


def _acknowledged(table: PushedTable) -> set[int]:
    store = SqlStore(table.settings.state_url)
    [delivery] = store.deliveries("crm").values()
    store.close()
    batches = plan_batches(delivery.plan, LOCAL, 0, delivery.acknowledged)
    return {number for batch in batches for number in batch.rows.column("id").to_pylist()}


@pytest.mark.nightly
def test_a_destination_that_reads_no_more_is_sent_no_more(table: PushedTable, image: Image) -> None:
    table.config |= {"hangs_after": 3 * _BATCH + 10, "once": "/out/once"}
    table.heartbeat_seconds = 3.0
    table.push["mode"] = "append"  # so that it is not tried again at once
    report = table.contacts()
    acknowledged = report.acknowledged
    assert (report.status, 2 * _BATCH < acknowledged <= 3 * _BATCH) == ("unknown", True)
    # What is on its way is in the pipes and sockets, and one batch here.
    assert report.unknown <= 4 * _BATCH
    assert _running(image) == []
    assert table.contacts(retries_unknown=True).acknowledged == _ROWS - acknowledged
    assert {row["id"] for row in table.received()} == set(range(_ROWS))


def test_a_container_that_is_killed_in_the_middle_is_gone_on_with(table: PushedTable, image: Image) -> None:
    killed: list[str] = []

    def kill() -> None:
        _until(lambda: table.out.exists() and table.out.read_bytes().count(b"\n") > _ROWS // 3)
        for container in _running(image):
            image.daemon.kill(container)
            killed.append(container)

    killer = threading.Thread(target=kill)
    killer.start()
    report = table.contacts()
    killer.join()
    assert killed
    if report.status != "complete":
        report = table.contacts()
    assert report.status == "complete"
    rows = [row["id"] for row in table.received()]
    assert set(rows) == set(range(_ROWS))
    assert len(rows) <= _ROWS + 4 * _BATCH  # acknowledged rows are not sent again
    assert len(table.delivered()) == _ROWS


@pytest.mark.nightly
def test_a_push_that_is_killed_leaves_a_container_that_ends(table: PushedTable, image: Image) -> None:
    server = PushForkServer()
    try:
        assert server.push(table, ("push.sent", 9)) == -9
        _until(lambda: _running(image) == [])
        acknowledged, at_death = _acknowledged(table), len(table.received())
        assert len(acknowledged) >= _BATCH
        assert server.push(table) == 0
    finally:
        server.close()
    rows = [row["id"] for row in table.received()]
    assert set(rows) == set(range(_ROWS))
    assert not acknowledged & set(rows[at_death:])


@pytest.mark.nightly
def test_a_container_takes_records_from_a_folder_that_it_shares(table: PushedTable) -> None:
    # /tmp and /dev/shm are the container's own.
    with TemporaryDirectory(dir="/var/tmp", prefix="airbyte-proto-") as shared:
        Path(shared).chmod(0o711)
        table.protocol = "singer"
        table.launch["volumes"].append(f"{shared}:{shared}:ro")
        table.connector["batch_folder"] = shared
        report = table.contacts()
        assert (report.error, report.acknowledged) == (None, _ROWS)
        assert list(Path(shared).iterdir()) == []
    assert {row["id"] for row in table.received()} == set(range(_ROWS))
    assert sum(message["type"] == "BATCH" for message in table.messages()) >= _ROWS // _BATCH
