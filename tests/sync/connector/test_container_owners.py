"""Whose a container is that was started on another machine."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.launchers.docker.containers import Container
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import ReadRequest, SourceProtocol
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.sync.connector.container_owners import Ownership, ownership
from tests.sync.conftest import OpenShop

_ELSEWHERE = "pid 7 on elsewhere (started 1, kernel 00000000)"


@pytest.mark.parametrize(
    ("verb", "minutes", "expected"),
    [
        ("check", 5, Ownership.UNKNOWN),
        ("check", 70, Ownership.ORPHAN),
        ("discover", 70, Ownership.ORPHAN),
        ("read", 70, Ownership.UNKNOWN),
    ],
)
def test_a_question_is_nobodys_when_no_answer_is_waited_for_any_more(
    shop: OpenShop, verb: str, minutes: int, expected: Ownership
) -> None:
    place = shop()

    def store() -> StateStore:
        return place.store

    labels = {"verb": verb, "connection": "shop", "run": "of another store", "owner": _ELSEWHERE}
    began = datetime.now(UTC) - timedelta(minutes=minutes)
    assert ownership(Container("c", "image", "running", began, labels), store) is expected


def test_a_read_is_its_lease_holders_by_the_clock_of_the_store(tmp_path: Path) -> None:
    slow = datetime.now(UTC) - timedelta(hours=1)
    labels = {"verb": "read", "connection": "shop", "run": "run-1", "owner": _ELSEWHERE}
    container = Container("c", "image", "running", datetime.now(UTC), labels)
    with closing(SqlStore(f"sqlite:///{tmp_path}/state.db", clock=lambda: slow)) as store:
        lease = store.acquire("shop", run_id="run-1", holder=_ELSEWHERE, seconds=60)
        store.begin_run(lease, refreshed=[], streams=[])
        assert ownership(container, lambda: store) is Ownership.OWNED
        store.release(lease)
        assert ownership(container, lambda: store) is Ownership.ORPHAN


@pytest.mark.parametrize(
    "protocol", [AirbyteSource(), SingerSource(), SingerSource(frozenset({"--catalog", "--discover", "--test"}))]
)
def test_containers_are_labelled_with_the_request_by_every_protocol(protocol: SourceProtocol) -> None:
    read = protocol.read(ReadRequest(config={}, streams=(), states=(), sync_id=1))
    invocations = [*protocol.spec(), protocol.check({}), protocol.discover({}), read]
    assert list(dict.fromkeys(each.verb for each in invocations)) == ["spec", "check", "discover", "read"]
