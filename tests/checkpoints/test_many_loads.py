"""The store of a connection with very many runs, loads, folders, partitions and past values.

What each sync reads does not grow with them.
"""

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, update
from sqlalchemy.engine import Engine
from sqlalchemy.pool import Pool

from dagster_airbyte_proto.checkpoints.kept_values import Asset, KeptValue, ValueChanges, stored_key
from dagster_airbyte_proto.checkpoints.logs import loads_newest_first
from dagster_airbyte_proto.checkpoints.sql import loads as sql_loads
from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.load_json import load_to_json
from dagster_airbyte_proto.checkpoints.sql.schema import (
    connections,
    deliveries,
    kept_values,
    landed_tables,
    loads,
    runs,
    states,
)
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, Lease
from tests.conformance.state_store.fixtures import USERS, committed_users, load_of, stream_state
from tests.conformance.state_store.kept_value_tests import plan_of

_LONG_AGO = datetime.now(UTC) - timedelta(days=9)
_MANY = 20_000
_VALUE = ("transform", "clean", "checkpoint")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def store(url: str) -> SqlStore:
    return SqlStore(url)


@pytest.fixture
def lease(store: SqlStore) -> Lease:
    return store.acquire("shop", run_id="run-1", holder="one", seconds=60)


def _log(url: str, numbers: range, ended_at: datetime, *, needed: bool = False) -> None:
    """Puts loads that have ended into the log; if they are `needed`, each is the last one of a partition."""
    logged: dict[str, Any] = {"connection": "shop", "run_id": "run-0", "fence": 1, "status": "done", "reason": ""}
    logged |= {"announced_at": ended_at, "ended_at": ended_at, "committed": "[]", "ending": "promoted"}
    rows = [
        {**logged, "load_id": f"l{number}", "partition_key": str(number), "body": load_to_json(load_of(f"l{number}"))}
        for number in numbers
    ]
    landed = {"connection": "shop", "namespace": "", "stream": "users", "table_id": "t", "write_mode": "append"}
    with Database(url).write() as tx:
        tx.execute(insert(loads), rows)
        if needed:
            tables = [{key: row[key] for key in ("load_id", "partition_key")} for row in rows]
            tx.execute(insert(landed_tables), [{**landed, **row, "is_covered": 1} for row in tables])


def _steps(call: Callable[[], object]) -> int:
    """Returns how many steps SQLite takes for a call, in hundreds."""
    steps: list[None] = []

    def watch(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_progress_handler(lambda: steps.append(None), 100)

    event.listen(Pool, "connect", watch)
    try:
        call()
    finally:
        event.remove(Pool, "connect", watch)
    return len(steps)


def test_the_newest_loads_are_found_without_a_look_at_all_others(url: str, store: SqlStore, lease: Lease) -> None:
    _log(url, range(10_000), datetime.now(UTC))
    store.announce(lease, load_of("open"))
    assert [each.load.load_id for each in store.loads("shop", limit=3)] == ["open", "l9999", "l9998"]
    assert len(store.loads("shop", limit=NO_LIMIT)) == 10_001
    assert _steps(lambda: store.loads("shop", limit=3)) < 100
    middle = store.loads("shop", limit=5000)[-1].number
    assert _steps(lambda: store.loads("shop", limit=3, before=middle)) < 100
    assert _steps(lambda: store.prune_history(lease, days=7)) < 400


@pytest.mark.usefixtures("lease")
def test_a_log_is_read_page_by_page(url: str, store: SqlStore) -> None:
    _log(url, range(1000), datetime.now(UTC))
    found = loads_newest_first(store, "shop")
    assert _steps(lambda: next(found)) < 100
    assert [each.load.load_id for each in found] == [f"l{number}" for number in reversed(range(999))]


def test_what_is_read_of_one_stream_does_not_grow_with_the_others(url: str, store: SqlStore, lease: Lease) -> None:
    row = {"connection": "shop", "namespace": "", "run_id": "run-0", "changed_at": _LONG_AGO}
    delivery = {**row, "plan_id": "p", "body": "{}", "announced": 0, "acknowledged": 0, "attempts": 0}
    state = {**row, "partition_key": "", "scope": "stream", "message": b"{}", "version": 1}
    with Database(url).write() as tx:
        tx.execute(insert(deliveries), [{**delivery, "stream": str(number)} for number in range(_MANY)])
        tx.execute(insert(states), [{**state, "stream": str(number)} for number in range(_MANY)])
    store.seal_plan(lease, plan_of())
    calls: list[Callable[[], object]] = [
        lambda: store.deliveries("shop", USERS),
        lambda: store.states("shop", stream=USERS),
    ]
    assert [_steps(call) < 100 for call in calls] == [True] * len(calls)
    assert [each.plan for each in store.deliveries("shop", USERS).values()] == [plan_of()]


def test_a_run_reads_no_others(url: str, store: SqlStore, lease: Lease) -> None:
    now = datetime.now(UTC)
    logged = {"connection": "shop", "holder": "one", "started_at": now, "ended_at": now, "report": "{}"}
    older = [
        {**logged, "sync_id": -number, "fence": -number, "run_id": f"run-{-number}", "status": "failed"}
        for number in range(10_000)
    ]
    with Database(url).write() as tx:
        tx.execute(insert(runs), [*older, {**older[0], "sync_id": -10_000, "fence": -10_000, "status": "complete"}])
    calls: list[Callable[[], object]] = [
        lambda: store.begin_run(lease, refreshed=[], streams=[USERS]),
        lambda: store.end_run(lease, status="complete", report="{}"),
        lambda: store.reports("shop", "run-1"),
        lambda: store.run_holders("shop", "run-1"),
        lambda: store.prune_history(lease, days=7),
        lambda: store.runs("shop", limit=3),
    ]
    assert [_steps(call) < 100 for call in calls] == [True] * len(calls)
    assert [run.run_id for run in store.runs("shop", limit=3)] == ["run-1", "run-0", "run--1"]


def test_loads_that_partitions_need_do_not_keep_those_behind_them(
    url: str, store: SqlStore, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_loads, "_MAX_PRUNED", 20)
    monkeypatch.setattr(sql_loads, "_PAGE", 10)
    _log(url, range(100), _LONG_AGO, needed=True)
    _log(url, range(100, 130), _LONG_AGO)
    _log(url, range(130, 150), datetime.now(UTC))
    for count in (130, 120):
        store.prune_history(lease, days=7)
        assert [each.load.load_id for each in store.loads("shop", limit=20)] == [f"l{n}" for n in range(149, 129, -1)]
        assert len(store.loads("shop", limit=NO_LIMIT)) == count
    left = [each.load.load_id for each in store.loads("shop", limit=NO_LIMIT)]
    assert set(left) >= {f"l{number}" for number in range(100)}


def test_a_folder_is_noted_without_a_look_at_those_of_other_streams(store: SqlStore, lease: Lease) -> None:
    folders = [f"/lake/{number}/data/run-1" for number in range(_MANY)]
    store.note_folders(lease, folders)
    assert _steps(lambda: store.note_folders(lease, ["/lake/new/data/run-1"])) < 100
    store.note_folders(lease, folders[:1])
    store.release(lease)
    later = store.acquire("shop", run_id="run-2", holder="two", seconds=60)
    assert len(store.unfinished_folders(later)) == _MANY + 1


@pytest.fixture
def partitions(url: str, lease: Lease) -> list[str]:
    """Partitions of which each has a state, and a table in which its last load landed."""
    keys = [str(number) for number in range(_MANY)]
    stream = {"connection": lease.connection, "namespace": "", "stream": "users"}
    landed = {**stream, "table_id": "t", "load_id": "before", "write_mode": "append", "is_covered": 1}
    state = {**stream, "scope": "stream", "message": b"{}", "version": 1, "changed_at": _LONG_AGO, "run_id": "run-0"}
    with Database(url).write() as tx:
        tx.execute(insert(landed_tables), [{**landed, "partition_key": key} for key in keys])
        tx.execute(insert(states), [{**state, "partition_key": key} for key in keys])
    return keys


def test_a_run_of_one_partition_reads_nothing_of_the_others(
    store: SqlStore, lease: Lease, partitions: list[str]
) -> None:
    key, load = partitions[7], load_of("one", stream_state(USERS, "1"))
    store.announce(lease, load, partition=key)
    calls: list[Callable[[], object]] = [
        lambda: store.states("shop", partition=key),
        lambda: store.landed_tables("shop", partition=key),
        lambda: store.promote(lease, load, load.states, [committed_users()]),
        lambda: store.prune_history(lease, days=7),
    ]
    assert [_steps(call) < 100 for call in calls] == [True] * len(calls)
    assert [each.state.message for each in store.states("shop", partition=key)] == [b"1"]


def test_a_value_is_found_without_a_look_at_those_of_before(url: str, store: SqlStore, lease: Lease) -> None:
    row = {"connection": "shop", "namespace": "", "stream": "users", "partition_key": "", "key": stored_key(_VALUE)}
    past = [{**row, "since": number, "until": number + 1, "value": b"0"} for number in range(_MANY)]
    with Database(url).write() as tx:
        tx.execute(insert(kept_values), [*past, {**row, "since": _MANY, "until": None, "value": b"1"}])
        tx.execute(update(connections).values(version=_MANY))
    asset = Asset("shop", USERS)
    calls: list[Callable[[], object]] = [
        lambda: store.kept_value(asset, _VALUE),
        lambda: list(store.kept_values(asset, _VALUE[:1])),
        lambda: store.count_kept_values(asset),
        lambda: store.prune_history(lease, days=7),
        lambda: store.keep_values(lease, asset, ValueChanges({_VALUE: b"2"})),
    ]
    assert [_steps(call) < 100 for call in calls] == [True] * len(calls)
    assert list(store.kept_values(asset)) == [KeptValue(_VALUE, b"2")]


def test_a_load_of_one_partition_reads_the_states_of_no_other(store: SqlStore, lease: Lease) -> None:
    statements: list[str] = []

    def watch(_tx: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    for partition in ("monday", "tuesday"):
        load = load_of(partition, stream_state(USERS, partition))
        store.announce(lease, load, partition=partition)
        event.listen(Engine, "before_cursor_execute", watch)
        try:
            store.promote(lease, load, load.states, [])
        finally:
            event.remove(Engine, "before_cursor_execute", watch)
    read = [each for each in statements if each.startswith("SELECT") and "FROM airbyte_proto_states" in each]
    assert read and all("partition_key = ?" in each and "message" not in each for each in read)
    assert {each.partition for each in store.states("shop", partition=None)} == {"monday", "tuesday"}
