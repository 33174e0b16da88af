"""The version of the states that belongs to each load."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.slot import Slot
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import StateChange
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.maintenance.landed_loads import VersionTimes
from dagster_airbyte_proto.sync.maintenance.rollback import _check_order, version_before_newest_run
from dagster_airbyte_proto.tables.care import TablePast
from tests.conformance.state_store.fixtures import USERS, HandClock, committed_users, load_of, stream_state


def test_a_load_belongs_to_the_version_that_it_made_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = HandClock()
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", clock=clock)
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    for name, seconds in (("a", 0), ("b", 1800), ("c", -2700)):
        clock.advance(seconds)
        load = load_of(name, stream_state(USERS, name))
        store.announce(lease, load)
        store.promote(lease, load, load.states, [committed_users()])
    versions = VersionTimes(store, "shop")
    assert {each.load.load_id: versions.of(each) for each in store.loads("shop")} == {"a": 1, "b": 2, "c": 3}


def test_a_load_without_a_state_belongs_to_the_version_before_it_or_to_the_first_one_of_its_run(tmp_path: Path) -> None:
    clock = HandClock()
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", clock=clock)
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    for name, run_id, has_state in (
        ("a", "1", True),
        ("b", "2", False),
        ("c", "2", True),
        ("d", "2", False),
        ("e", "3", False),
    ):
        clock.advance(1)
        load = load_of(name, *([stream_state(USERS, name)] if has_state else []), run_id=run_id)
        store.announce(lease, load)
        store.promote(lease, load, load.states, [committed_users()])
    versions = VersionTimes(store, "shop")
    assert {each.load.load_id: versions.of(each) for each in store.loads("shop")} == {
        "a": 1, "b": 2, "c": 2, "d": 2, "e": 2
    }  # fmt: skip


def test_a_load_without_a_state_belongs_to_its_run_also_where_runs_of_partitions_interleave(tmp_path: Path) -> None:
    clock = HandClock()
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", clock=clock)
    leases = {
        key: store.acquire("shop", run_id=key, holder="one", seconds=60, slot=Slot(key, 2)) for key in ("one", "two")
    }
    for name, key, has_state in (("a", "one", False), ("b", "two", True), ("c", "one", True), ("d", "two", False)):
        clock.advance(1)
        load = load_of(name, *([stream_state(USERS, name)] if has_state else []), run_id=key)
        store.announce(leases[key], load, partition=key)
        store.promote(leases[key], load, load.states, [committed_users()])
    versions = VersionTimes(store, "shop")
    assert {each.load.load_id: versions.of(each) for each in store.loads("shop")} == {"a": 2, "b": 1, "c": 2, "d": 2}


class _LargeStates(SqlStore):
    """A store whose past states do not fit into the memory."""

    def history(
        self, connection: str, *, limit: int = 100, partition: str | None = None, with_states: bool = True
    ) -> Sequence[StateChange]:
        assert not with_states
        return super().history(connection, limit=limit, partition=partition, with_states=with_states)


def test_a_rollback_finds_its_versions_without_the_states_of_a_long_history(tmp_path: Path) -> None:
    store = _LargeStates(f"sqlite:///{tmp_path}/state.db")
    lease = store.acquire("shop", run_id="run-1", holder="one", seconds=60)
    for name in ("a", "b"):
        load = load_of(name, stream_state(USERS, name), run_id=name)
        store.announce(lease, load)
        store.promote(lease, load, load.states, [committed_users()])
    newest, _ = store.history("shop", with_states=False)
    assert (newest.version, newest.stream, newest.state, newest.why) == (2, USERS, None, "sync")
    assert VersionTimes(store, "shop").numbers == [1, 2]
    assert version_before_newest_run(store, "shop") == 1


class _SlicedTable:
    """A table of which no snapshot has the rows of three versions."""

    name, past = TableName("shop", "users"), TablePast(None, (), ())
    looks = 0

    def mixed(self, version: int) -> list[SimpleNamespace]:
        self.looks += 1
        return [SimpleNamespace(entry=SimpleNamespace(partition="a"))] if 500 <= version < 503 else []


def test_of_many_versions_those_beside_a_refused_one_are_looked_at() -> None:
    table, versions = _SlicedTable(), SimpleNamespace(numbers=range(1, 1001))
    tables: Any = [table]
    of_connection: Any = versions
    with pytest.raises(ConfigError) as refused:
        _check_order(tables, of_connection, 501, "rolling back")
    assert "Name version 499 or 503" in refused.value.remedy
    assert table.looks < 10
