"""Tests SqlStore on SQLite and PostgreSQL, and what is special to each."""

import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, insert

from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.migrations.steps import MIGRATIONS
from dagster_airbyte_proto.checkpoints.sql.migrations.table_version import checked_version
from dagster_airbyte_proto.checkpoints.sql.schema import metadata, state_history
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT
from dagster_airbyte_proto.errors import ConfigError, StateConflict, StateUnavailable
from tests.checkpoints.migration_tests import MigrationTests, take_back_endings
from tests.conformance.state_store.fixtures import (
    USERS,
    HandClock,
    OpenStore,
    load_of,
    stream_state,
)
from tests.conformance.state_store.lease_tests import FENCED
from tests.conformance.state_store.suite import StateStoreConformance
from tests.support.postgres import PostgresServer
from tests.sync.read.test_failures import mounted

# Waits to be told, so that all of them begin at once; then takes the lease, and says how that went.
RACER = """
import sys
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import StateConflict
store = SqlStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    print("fence", store.acquire("shop", run_id=sys.argv[2], holder=sys.argv[2], seconds=60).fence)
except StateConflict as error:
    print("refused", error)
"""

# Announces and promotes until it is killed, with two streams that always move together.
WRITER = """
import sys
from itertools import count
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.model import State, StateScope, StreamId
store = SqlStore(sys.argv[1])
lease = store.acquire("shop", run_id="run-1", holder="writer", seconds=0)
for number in count():
    states = tuple(State(StateScope.STREAM, b"%d" % number, StreamId.of(name)) for name in ("users", "orders"))
    load = Load(f"{lease.fence}-{number}", "shop", "run-1", (), states)
    store.announce(lease, load)
    print(number, flush=True)
    store.promote(lease, load, states, [])
"""


class SqlStoreConformance(StateStoreConformance, MigrationTests):
    """Adds the tests that need several processes on one real database."""

    @pytest.fixture
    def open_store(self, state_url: str) -> OpenStore:
        return lambda clock: SqlStore(state_url, clock=clock)

    def test_of_processes_that_race_on_an_empty_database_one_gets_the_lease(self, state_url: str) -> None:
        racers = [_started(RACER, state_url, f"racer-{number}") for number in range(3)]
        for racer in racers:
            assert _line(racer) == "ready"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        results = [racer.communicate(timeout=60) for racer in racers]
        assert [error for _, error in results] == [""] * len(racers)
        assert sorted(output.split()[0] for output, _ in results) == ["fence", "refused", "refused"]
        assert all("racer-" in output for output, _ in results if output.startswith("refused"))

    def test_a_store_without_a_test_clock_recognizes_an_expired_lease(self, state_url: str) -> None:
        store = SqlStore(state_url)
        first = store.acquire("shop", run_id="run-1", holder="one", seconds=-1)
        second = store.acquire("shop", run_id="run-2", holder="two", seconds=3600)
        assert second.fence > first.fence
        with pytest.raises(StateConflict, match="two has held it"):
            store.acquire("shop", run_id="run-3", holder="three", seconds=1)

    @pytest.mark.parametrize("seed", range(2))
    def test_killed_at_any_moment_states_and_loads_agree(self, state_url: str, seed: int) -> None:
        writer = _started(WRITER, state_url)
        for _ in range(random.Random(seed).randint(1, 15)):
            _line(writer)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        store = SqlStore(state_url)
        lease = store.acquire("shop", run_id="run-2", holder="next", seconds=60)
        for load in store.announced_loads("shop"):
            store.promote(lease, load, load.states, [])
        done = store.loads("shop", limit=1)[0].load
        assert {stored.state for stored in store.states("shop")} == set(done.states)

    def test_a_forked_child_uses_a_connection_of_its_own(self, state_url: str) -> None:
        store = SqlStore(state_url, clock=HandClock())
        lease = store.acquire("shop", run_id="run-1", holder="parent", seconds=60)
        child = os.fork()
        if child == 0:
            store.change_state(lease, USERS, stream_state(USERS, "child"), who="child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        store.note_folders(lease, ["parent"])
        assert store.history("shop")[0].who == "child"

    @pytest.mark.parametrize("call", FENCED)
    def test_a_run_from_before_the_database_was_lost_changes_nothing(self, state_url: str, call: str) -> None:
        """Fences begin at 1 again there. They repeat as well after a restored backup, or a failover to a replica."""
        store = SqlStore(state_url)
        before = self.acquired(store, "run-1")
        with Database(state_url).write() as tx:
            for table in reversed(metadata.sorted_tables):
                if table.name != "airbyte_proto_schema_version":
                    tx.execute(table.delete())
        taker = self.acquired(store, "run-2")
        store.announce(taker, load_of("open"))
        assert taker.fence == before.fence
        stored = self.stored_values(store, taker)
        with pytest.raises(StateConflict, match="run-2 on host took it over"):
            FENCED[call](store, before)
        assert self.stored_values(store, taker) == stored

    def test_dagsters_tables_may_be_in_the_same_database(self, state_url: str) -> None:
        with Database(state_url).write() as tx:
            for table in ("runs", "loads", "schema_version"):
                tx.exec_driver_sql(f"CREATE TABLE {table} (id INTEGER)")
        assert SqlStore(state_url).connections() == []


class TestSqlite(SqlStoreConformance):
    @pytest.fixture
    def state_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/state.db"


@pytest.mark.postgres
class TestPostgres(SqlStoreConformance):
    @pytest.fixture
    def state_url(self, postgres_server: PostgresServer) -> str:
        return postgres_server.new_store()

    def test_the_error_of_an_unreachable_server_hides_the_password(self, tmp_path: Path) -> None:
        store = SqlStore(f"postgresql://ann:secret@/shop?host={tmp_path}&password=secret2")
        with pytest.raises(StateUnavailable) as refused:
            store.connections()
        assert refused.value.retryable
        assert "postgresql+psycopg://ann:***@/shop" in str(refused.value)
        assert "secret" not in str(refused.value)

    def test_a_connection_that_the_server_cut_is_replaced(self, state_url: str) -> None:
        name = state_url.rpartition("%3D")[2]  # Of its schema. Others have connections to the same database.
        store = SqlStore(f"{state_url}&application_name={name}")
        assert store.connections() == []
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
        with create_engine(state_url.replace("postgresql:", "postgresql+psycopg:")).connect() as other:
            assert True in other.exec_driver_sql(cut).scalars().all()
        assert store.connections() == []

    def test_a_migration_waits_for_who_writes_into_the_older_tables(self, state_url: str) -> None:
        SqlStore(state_url).connections()
        with Database(state_url).write() as tx:
            take_back_endings(tx)
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 13")
        engine = create_engine(state_url.replace("postgresql:", "postgresql+psycopg:"))
        with ThreadPoolExecutor() as pool:
            with engine.begin() as writer:
                assert checked_version(writer) == 13
                migrated = pool.submit(SqlStore(state_url).loads, "shop")
                _wait_for_waiting_call(engine)
                writer.exec_driver_sql("INSERT INTO airbyte_proto_connections VALUES ('shop', 1, 1, 1, '')")
            assert migrated.result() == []
        with Database(state_url).read() as tx:
            assert checked_version(tx) == len(MIGRATIONS)

    def test_a_database_without_an_encoding_keeps_every_text(self, postgres_server: PostgresServer) -> None:
        with psycopg.connect(postgres_server.conninfo(), autocommit=True) as connection:
            connection.execute(
                "CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
            )
        url = postgres_server.new_store().partition("&options=")[0].replace("@/postgres", "@/plain")
        store = SqlStore(url)
        lease = store.acquire("büro", run_id="run-1", holder="one", seconds=60)
        assert store.connections() == ["büro"]
        store.release(lease)

    def test_a_missing_database_is_unavailable(self, state_url: str) -> None:
        with pytest.raises(StateUnavailable, match="does not exist"):
            SqlStore(state_url.replace("@/postgres", "@/not_there")).connections()


def _wait_for_waiting_call(engine: Engine) -> None:
    query = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'airbyte_proto_schema_version'::regclass"
    deadline = time.monotonic() + 60
    while True:
        with engine.connect() as tx:
            if tx.exec_driver_sql(query).scalar_one():
                return
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.05)


def test_constructing_a_store_touches_nothing(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/deep/state.db")
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) in repr(store)


def test_the_file_and_its_side_files_are_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "state.db"
    database = Database(f"sqlite:///{path}")
    with database.write():
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == dict.fromkeys(("state.db", "state.db-wal", "state.db-shm"), 0o600)


def test_what_is_committed_is_synced_to_the_disk(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}/state.db").read() as tx:
        assert tx.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        assert tx.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2, "FULL"
        assert tx.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1


def test_pruning_the_states_of_many_partitions_takes_no_time_to_speak_of(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/state.db")
    store = SqlStore(f"sqlite:///{tmp_path}/state.db")
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    made: dict[str, Any] = {
        "connection": "shop",
        "namespace": "",
        "stream": "users",
        "scope": "stream",
        "message": b"{}",
        "why": "sync",
    }
    made |= {"who": "one", "run_id": "run-1", "changed_at": datetime.now(UTC) - timedelta(days=10)}
    rows = [{**made, "version": number, "partition_key": str(number)} for number in range(1, 20_001)]
    again = [{**row, "version": 20_000 + row["version"], "message": b"[]"} for row in rows[:100]]
    with database.write() as tx:
        tx.execute(insert(state_history), [*rows, *again])
    began = time.process_time()
    store.prune_history(lease, days=7)
    assert time.process_time() - began < 3, "by looking for a later one of each it was 10 to 20"
    kept = {change.partition: change for change in store.history("shop", limit=NO_LIMIT)}
    assert len(kept) == 20_000 and {change.version for change in kept.values()} == {20_100}
    newest = {number for number, change in kept.items() if change.state and change.state.message == b"[]"}
    assert newest == {str(number) for number in range(1, 101)}


def test_a_locked_file_is_an_error_and_nothing_has_moved(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/state.db?timeout=0.1")
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateUnavailable, match=r"locked[^|]*keep the state in PostgreSQL") as refused:
        store.change_state(lease, USERS, stream_state(USERS, "u"), who="ann")
    assert "state.db" in str(refused.value)
    assert store.states("shop") == [], "and reading goes on"
    other.close()
    store.change_state(lease, USERS, stream_state(USERS, "u"), who="ann")


def test_a_file_that_is_removed_while_in_use_is_not_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqlStore("sqlite:///state.db")
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    monkeypatch.chdir("/")
    assert store.connections() == ["shop"], "the working directory matters only once"
    (tmp_path / "state.db").unlink()
    with pytest.raises(ConfigError, match="unable to open"):
        store.renew(lease, 60)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_and_nothing_has_moved(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    SqlStore(url).acquire("shop", run_id="run-1", holder="one", seconds=-1)
    # A limit on the size of files stands in for a disk of that size.
    filling = """
import resource, sys
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import StateUnavailable
store = SqlStore(sys.argv[1])
lease = store.acquire("shop", run_id="run-2", holder="two", seconds=60)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    store.save_config(lease, {"big": "x" * 1_000_000}, based_on="a")
except StateUnavailable as error:
    print(error)
"""
    output, errors = _started(filling, url).communicate(timeout=60)
    assert errors == ""
    assert "state.db" in output
    assert "disk" in output
    assert SqlStore(url).stored_config("shop") is None


def test_a_disk_without_any_room_is_said_to_be_full(tmp_path: Path) -> None:
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        url = f"sqlite:///{tmp_path}/state.db"
        SqlStore(url).acquire("shop", run_id="run-1", holder="one", seconds=-1)
        with (tmp_path / "rest").open("wb") as rest, pytest.raises(OSError, match="No space left"):
            rest.write(bytes(1 << 20))
            rest.flush()
        with pytest.raises(StateUnavailable, match="The disk is full"):
            SqlStore(url).stored_config("shop")


def test_what_a_killed_writer_left_is_read_from_a_read_only_disk_or_named(tmp_path: Path) -> None:
    live, copied = tmp_path / "live", tmp_path / "copied"
    live.mkdir()
    store = SqlStore(f"sqlite:///{live}/state.db")
    store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    with closing(sqlite3.connect(live / "state.db")) as writer:
        writer.execute("UPDATE airbyte_proto_leases SET run_id = 'run-2'")
        writer.commit()
        assert (live / "state.db-wal").stat().st_size
        shutil.copytree(live, copied)
    with mounted(copied, "--bind", "-o", "ro", str(copied)):
        assert [each.run_id for each in SqlStore(f"sqlite:///{copied}/state.db").current_leases("shop")] == ["run-2"]
    (copied / "state.db-shm").unlink()
    with (
        mounted(copied, "--bind", "-o", "ro", str(copied)),
        pytest.raises(ConfigError, match=r"its newest changes are in state\.db-wal"),
    ):
        SqlStore(f"sqlite:///{copied}/state.db").current_leases("shop")


def test_a_store_that_others_write_while_it_is_read_from_a_read_only_mount_is_no_answer(tmp_path: Path) -> None:
    live, seen = tmp_path / "live", tmp_path / "seen"
    live.mkdir()
    store = SqlStore(f"sqlite:///{live}/state.db")
    store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    with mounted(seen, "--bind", "-o", "ro", str(live)):
        reader = Database(f"sqlite:///{seen}/state.db")
        with pytest.raises(StateUnavailable, match="another program wrote to it"), reader.read() as tx:
            tx.exec_driver_sql("SELECT 1 FROM airbyte_proto_leases")
            store.acquire("crm", run_id="run-2", holder="two", seconds=60)
        with reader.read() as tx:
            assert tx.exec_driver_sql("SELECT count(*) FROM airbyte_proto_leases").scalar_one() == 2


@pytest.mark.parametrize(
    ("where", "content"),
    [("file/state.db", None), ("folder", None), ("file", b"this is no database, it is a letter" * 99)],
)
def test_an_impossible_path_is_a_config_error(tmp_path: Path, where: str, content: bytes | None) -> None:
    (tmp_path / "file").write_bytes(content or b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as refused:
        SqlStore(f"sqlite:///{tmp_path}/{where}").connections()
    assert "state_url" in refused.value.remedy


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://ann:secret@host/shop", "secret", "a:b:secret"]
)
def test_a_url_that_cannot_hold_state_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="state_url") as refused:
        SqlStore(url)
    assert "sqlite:///path/to/state.db" in refused.value.remedy
    assert "secret" not in str(refused.value)


def _started(script: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", script, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
