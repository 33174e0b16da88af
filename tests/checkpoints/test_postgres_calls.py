"""Calls of the state store to a PostgreSQL server that does not answer."""

import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from dagster_airbyte_proto.checkpoints import postgres_calls
from dagster_airbyte_proto.checkpoints.postgres_calls import BoundedConnection
from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import ConfigError, StateUnavailable
from tests.support.postgres import PostgresServer


def test_a_call_without_an_answer_ends_and_the_next_one_has_a_new_connection(postgres_server: PostgresServer) -> None:
    database = Database(postgres_server.new_store())
    with pytest.raises(StateUnavailable, match="sent no answer"), database.write() as tx:
        connection = tx.connection.driver_connection
        assert isinstance(connection, BoundedConnection), "else it would wait for ever"
        connection.silent_seconds = 0.3
        tx.exec_driver_sql("SELECT pg_sleep(60)")
    assert isinstance(connection, BoundedConnection)
    assert connection.closed
    with database.read() as tx:
        assert tx.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_nothing_is_prepared_that_another_session_of_the_server_does_not_know(postgres_server: PostgresServer) -> None:
    store = SqlStore(postgres_server.new_store())
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    for _ in range(10):
        store.renew(lease, 60)
        # As behind a pooler, which gives each transaction to another session. The driver does not see it in here.
        with store._database.write() as tx:
            tx.exec_driver_sql("DO $$ BEGIN DEALLOCATE ALL; END $$")
    assert [each.run_id for each in store.current_leases("shop")] == ["run-1"]


def test_what_the_server_refuses_for_the_moment_is_told_by_its_cause(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_store()
    database = Database(url)
    with pytest.raises(StateUnavailable, match="statement timeout") as slow, database.write() as tx:
        tx.exec_driver_sql("SET LOCAL statement_timeout = '1ms'")
        tx.exec_driver_sql("SELECT pg_sleep(10)")
    assert "statement_timeout" in slow.value.remedy
    with database.write() as held:
        held.exec_driver_sql("CREATE TABLE held (id int)")
    with database.write() as held, pytest.raises(StateUnavailable, match="lock timeout") as locked:
        held.exec_driver_sql("LOCK TABLE held")
        with Database(url).write() as tx:
            tx.exec_driver_sql("SET LOCAL lock_timeout = '1ms'")
            tx.exec_driver_sql("LOCK TABLE held")
    assert "pg_stat_activity" in locked.value.remedy


def test_writers_wait_for_each_other_whatever_level_of_isolation_is_the_servers_default(
    postgres_server: PostgresServer,
) -> None:
    url = f"{postgres_server.new_store()}%20-cdefault_transaction_isolation%3Dserializable"
    store = SqlStore(url)
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    with ThreadPoolExecutor() as pool:
        with Database(url).write() as before:
            before.exec_driver_sql("UPDATE airbyte_proto_connections SET sync_id = sync_id + 1")
            waiting = pool.submit(store.note_protocol, lease, "airbyte")
            _wait_for_waiting_call(postgres_server)
        waiting.result()
    assert store.protocol("shop") == "airbyte"


@pytest.mark.parametrize(("default", "level"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
def test_what_is_committed_is_on_the_disk_also_of_a_server_that_would_answer_before(
    default: str, level: str, postgres_server: PostgresServer
) -> None:
    with Database(f"{postgres_server.new_store()}%20-csynchronous_commit%3D{default}").write() as tx:
        assert tx.exec_driver_sql("SHOW synchronous_commit").scalar_one() == level


def _wait_for_waiting_call(server: PostgresServer) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'"
    deadline = time.monotonic() + 60
    while server.ask(query) == "0":
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.05)


def test_a_server_without_a_free_connection_is_told_as_one(postgres_server: PostgresServer) -> None:
    postgres_server.ask("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    url = postgres_server.new_store().replace("tester@", "crowded@")
    with pytest.raises(StateUnavailable, match="too many connections") as refused, Database(url).read():
        pass
    assert "max_connections" in refused.value.remedy


@pytest.fixture
def database_name(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a database that can be closed to everybody while the server runs."""
    name = f"d{uuid4().hex}"
    postgres_server.ask(f"CREATE DATABASE {name}")
    yield name
    postgres_server.ask(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_server_that_was_there_is_waited_for_and_then_not_for_ever(
    postgres_server: PostgresServer, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shut_everybody_out() -> None:
        postgres_server.ask(f"ALTER DATABASE {database_name} ALLOW_CONNECTIONS false")
        open_ones = f"FROM pg_stat_activity WHERE datname = '{database_name}'"
        postgres_server.ask(f"SELECT pg_terminate_backend(pid, 10000) {open_ones}")

    url = postgres_server.new_store().partition("&options=")[0].replace("@/postgres", f"@/{database_name}")
    store = SqlStore(url)
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    shut_everybody_out()
    with pytest.raises(StateUnavailable, match="not currently accepting connections"):
        SqlStore(url).connections()  # Its first connection: the URL may be wrong.
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(store.note_protocol, lease, "airbyte")
        with pytest.raises(TimeoutError):
            waiting.result(1)
        postgres_server.ask(f"ALTER DATABASE {database_name} ALLOW_CONNECTIONS true")
        waiting.result(60)
    assert store.protocol("shop") == "airbyte"

    monkeypatch.setattr(postgres_calls, "_AWAY_SECONDS", 0.1)
    shut_everybody_out()
    with pytest.raises(StateUnavailable, match="not currently accepting connections"):
        store.connections()


def test_a_server_that_only_reads_may_be_tried_again_or_is_not_let_in(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_store()
    SqlStore(url).connections()
    reading = url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    with pytest.raises(StateUnavailable, match="read-only") as refused:
        SqlStore(reading).acquire("shop", run_id="run-1", holder="one", seconds=60)
    assert "target_session_attrs=read-write" in refused.value.remedy
    with pytest.raises(StateUnavailable, match="read-only"):
        SqlStore(_with(reading, "target_session_attrs=read-write")).connections()


def test_a_url_says_when_statements_are_prepared(postgres_server: PostgresServer) -> None:
    def prepared(url: str) -> int:
        with Database(url).read() as tx:
            for _ in range(3):
                tx.exec_driver_sql("SELECT 1")
            return int(tx.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar_one())

    url = postgres_server.new_store()
    assert prepared(url) == prepared(_with(url, "prepare_threshold=none")) == 0
    assert prepared(_with(url, "prepare_threshold=0")) > 0
    with pytest.raises(ConfigError, match="prepare_threshold is no whole number"):
        prepared(_with(url, "prepare_threshold=often"))
    with pytest.raises(ConfigError, match="it sets autocommit, "):
        prepared(_with(url, "autocommit=true"))


def _with(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


@pytest.mark.parametrize("rest", ["half@secret@host/shop", "half@secret/shop@host/shop", "secret", "half:secret"])
def test_no_part_of_a_password_is_in_the_error_of_a_url(rest: str) -> None:
    with pytest.raises(ConfigError, match="state_url") as refused:
        Database(f"postgresql://ann:{rest}")
    assert "secret" not in "".join(traceback.format_exception(refused.value))


def test_the_name_of_a_user_may_have_a_sign_that_ends_a_password() -> None:
    assert str(Database("postgresql://ann@server:secret@host/shop")).endswith(":***@host/shop")
