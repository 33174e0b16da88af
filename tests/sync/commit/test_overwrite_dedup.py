"""A table that each sync replaces, with one row of each key: the latest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.sync_fork_server import SyncForkServer


@pytest.fixture
def server() -> Iterator[SyncForkServer]:
    server = SyncForkServer()
    yield server
    server.close()


def test_each_sync_leaves_the_latest_row_of_each_key_that_the_source_has(
    server: SyncForkServer, tmp_path: Path
) -> None:
    connection = FakeConnection(tmp_path, write="overwrite_dedup")
    # Without `read`, the mode itself asks for all records, of a source that could send only what is new.
    del connection.modes["*"]["read"]
    connection.offer({"streams": {"users": {"records": 11, "keys": 4}}})
    assert server.sync(connection) == 0, connection.report
    assert connection.column("users") == [7, 8, 9, 10]
    connection.offer({"streams": {"users": {"records": 9, "keys": 3}}})
    for point in ("table.committing", "table.committed"):
        assert server.sync(connection, (point, 1)) == -9
        assert connection.column("users") == ([7, 8, 9, 10] if point == "table.committing" else [6, 7, 8])
    assert server.sync(connection) == 0, connection.report
    assert connection.column("users") == [6, 7, 8]
    told = connection.report["streams"]["users"]
    assert (told["emitted"], told["committed"], told["rejected"]) == (9, 9, 0)
    connection.offer({"streams": {"users": {"records": 0, "keys": 3}}})
    assert server.sync(connection) == 0, connection.report
    assert connection.column("users") == []
    landed = connection.landed("users")
    assert len(set(landed)) == len(landed)
