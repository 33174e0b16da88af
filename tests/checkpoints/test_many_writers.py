"""Many writers of one store: they wait for each other fairly in SQLite, and at no cost in PostgreSQL."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.scale import many
from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from tests.support.postgres import PostgresServer

_PROCESSES = 50
_SYNCS_OF_EACH = 3
_STREAMS = 3


@pytest.mark.nightly
def test_writers_without_a_pause_all_get_their_turns(tmp_path: Path) -> None:
    database, ends_at = Database(f"sqlite:///{tmp_path}/state.db"), time.monotonic() + 4

    def turns_of(_: int) -> int:
        turns = 0
        while time.monotonic() < ends_at:
            with database.write():
                time.sleep(0.005)
            turns += 1
        return turns

    with ThreadPoolExecutor(20) as pool:
        turns = sorted(pool.map(turns_of, range(20)))
    assert turns[-1] < 8 * turns[0], turns


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.timeout(1200)
def test_fifty_processes_sync_into_one_postgresql_without_an_error(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """The worst minute of an hour with many connections: the first fifty syncs also make the tables of the store."""
    url, names = postgres_server.new_store(), [f"c{number:03}" for number in range(_PROCESSES * _SYNCS_OF_EACH)]
    home = many.new_home(tmp_path / "home", url, names, many.records(tmp_path))
    played = many.play(home, names, _PROCESSES)
    assert played.errors == []
    assert [each.connection for each in (*played.first, *played.measured)] == names
    store = SqlStore(url)
    assert sorted(store.connections()) == names
    for name in names:
        assert (store.current_leases(name), store.announced_loads(name)) == ([], [])
        assert len(store.states(name)) == _STREAMS
    store.close()
