"""States and tables rolled back together: real syncs into real Iceberg tables, a rollback, and syncs from there."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.load import CommittedRows, Load
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.settings import CompactAfter, Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.maintenance.rollback import Rollback, roll_back
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing.fake_source import command
from tests.sync.shop import EVERYTHING, REFRESH

pytestmark = pytest.mark.spark


class Lake:
    """A connection into tables of the test session, in its own namespace. Every state ends a load, and no sync compacts
    tables."""

    def __init__(self, folder: Path, session: SparkSession, settings: SparkSettings) -> None:
        self.name = f"shop_{uuid.uuid4().hex[:8]}"
        self.tables = (DeltaTables if settings.format == "delta" else IcebergTables)(session, settings)
        uncared = {"compact_after": CompactAfter(delete_files=0, small_files=0)}
        self.engine = Engine(Settings.load(folder / "home").model_copy(update=uncared), tables=self.tables)
        (folder / "home").mkdir()
        self.more: dict[str, Any] = {}
        self._folder = folder
        self._session = session

    def sync(
        self, streams: Mapping[str, Any], write: Mapping[str, Any], wanted: SyncRequest = EVERYTHING
    ) -> SyncReport:
        report = self.attempt(streams, write, wanted)
        assert report.status is SyncStatus.COMPLETE, report
        return report

    def attempt(
        self, streams: Mapping[str, Any], write: Mapping[str, Any], wanted: SyncRequest = EVERYTHING
    ) -> SyncReport:
        """`write` has the write mode of each stream, or all its options. `more` has more keys of the connection."""
        scenario = self._folder / "scenario.json"
        scenario.write_text(json.dumps({"streams": streams, "state_every": 5}))
        written = {
            "name": self.name,
            "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command(scenario)}},
            "config": {"scenario": str(scenario)},
            "streams": {name: {"write": said} if isinstance(said, str) else said for name, said in write.items()},
            "load": {"max_bytes": 1},
            **self.more,
        }
        file = self._folder / "shop.yaml"
        file.write_text(yaml.safe_dump(written))
        return sync_connection(self.engine, Connection.from_file(file), wanted)

    def users(self, records: int, write: str = "append") -> SyncReport:
        return self.sync({"users": {"records": records}}, {"users": write})

    def roll_back(self, version: int) -> Rollback:
        with self.lease() as lease:
            return roll_back(self.engine, lease, version, who="ada")

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        with acquire_lease(self.engine.store, self.name, "by-hand", 30) as keeper:
            yield keeper.lease

    @property
    def version(self) -> int:
        return self.engine.store.history(self.name, limit=1)[0].version

    def ids(self, stream: str) -> list[int]:
        """The values of every row, in order."""
        table = f"{self.tables.catalog}.{self.name}.{stream}"
        rows = query(self._session, f"select id from {table} order by id").rows
        return [row[0] for row in rows]

    def position(self, stream: str = "users") -> int | None:
        found = [each.state for each in self.engine.store.states(self.name) if each.state.stream == StreamId.of(stream)]
        return json.loads(found[0].message)["stream"]["stream_state"]["next"] if found else None


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark, spark_settings)


def version_at(lake: Lake, position: int) -> int:
    """The version at which `users` had a position."""
    for change in lake.engine.store.history(lake.name):
        if change.state and json.loads(change.state.message)["stream"]["stream_state"]["next"] == position:
            return change.version
    raise AssertionError(position)


def test_rows_and_state_are_those_of_the_version_and_the_next_sync_continues_from_there(lake: Lake) -> None:
    lake.users(10)
    version = lake.version
    lake.users(25)
    done = lake.roll_back(version)
    assert [change.why for change in done.changes] == ["rollback"]
    assert [(str(each.table), each.has_moved) for each in done.tables] == [(f"{lake.name}.users", True)]
    assert (lake.ids("users"), lake.position()) == (list(range(10)), 10)
    report = lake.users(30)
    assert report.streams["users"].emitted == 20
    assert lake.ids("users") == list(range(30))


def test_a_rollback_goes_back_to_the_middle_of_a_sync(lake: Lake) -> None:
    lake.users(20)
    lake.roll_back(version_at(lake, 15))
    assert (lake.ids("users"), lake.position()) == (list(range(15)), 15)
    lake.users(20)
    assert lake.ids("users") == list(range(20))


def test_upserts_are_undone_and_sent_again(lake: Lake) -> None:
    streams = {"users": {"records": 12, "keys": 4}}
    lake.sync(streams, {"users": "append_dedup"})
    lake.roll_back(version_at(lake, 10))
    assert lake.ids("users") == [6, 7, 8, 9]
    lake.sync(streams, {"users": "append_dedup"})
    assert lake.ids("users") == [8, 9, 10, 11]


def test_a_rollback_to_the_beginning_leaves_neither_rows_nor_states(lake: Lake) -> None:
    lake.users(10)
    assert [each.snapshot_id for each in lake.roll_back(0).tables] == [None]
    assert (lake.ids("users"), lake.position()) == ([], None)
    lake.users(10)
    assert lake.ids("users") == list(range(10))


def test_a_rollback_can_be_undone(lake: Lake) -> None:
    lake.users(10)
    first = lake.version
    lake.users(20)
    second = lake.version
    lake.roll_back(first)
    third = lake.version
    lake.users(13)
    for version, rows in ((second, 20), (third, 10), (first, 10), (second, 20)):
        lake.roll_back(version)
        assert (lake.ids("users"), lake.position()) == (list(range(rows)), rows), version
    assert lake.users(22).streams["users"].emitted == 2
    assert lake.ids("users") == list(range(22))


def test_a_stream_without_state_is_rolled_back_with_the_others(lake: Lake) -> None:
    """Its refreshes belong to the version that was current when they landed."""
    write = {"users": "append", "orders": "overwrite"}
    lake.sync({"users": {"records": 5}, "orders": {"records": 3}}, write)
    version = lake.version
    lake.sync({"users": {"records": 8}, "orders": {"records": 7}}, write)
    lake.roll_back(version)
    assert (lake.ids("users"), lake.ids("orders")) == (list(range(5)), list(range(3)))


def test_a_refresh_that_ended_at_the_same_state_is_undone_and_done_again(lake: Lake) -> None:
    """The state is the same before and after, and the table is not."""
    lake.users(10)
    first = lake.version
    lake.sync({"users": {"records": 10}}, {"users": "append"}, REFRESH)
    second = lake.version
    lake.roll_back(first)
    assert lake.users(12).streams["users"].emitted == 2
    assert lake.ids("users") == list(range(12))
    lake.roll_back(second)
    assert (lake.ids("users"), lake.position()) == (list(range(10)), 10)
    lake.users(12)
    assert lake.ids("users") == list(range(12))


def test_rows_of_a_full_refresh_that_is_back_are_not_read_again_on_top_of_it(lake: Lake) -> None:
    streams = {"users": {"records": 5}, "orders": {"records": 3}}
    appended = {"users": "append", "orders": {"read": "incremental", "write": "append"}}
    lake.sync(streams, {"users": "append", "orders": "overwrite"})
    version = lake.version
    lake.sync(streams, appended, REFRESH)
    lake.roll_back(version)
    refused = lake.attempt(streams, appended).streams["orders"]
    assert "moved no state, so the connector sends its rows again" in str(refused.error)
    assert lake.ids("orders") == list(range(3))
    lake.sync(streams, appended, REFRESH)
    assert lake.ids("orders") == list(range(3))


def test_a_state_that_is_back_goes_on_in_its_own_table_alone(lake: Lake) -> None:
    streams, renamed = {"users": {"records": 5}}, {"users": {"write": "append", "rename": "people"}}
    lake.sync(streams, {"users": "append"})
    version = lake.version
    lake.sync(streams, renamed, REFRESH)
    lake.roll_back(version)
    streams = {"users": {"records": 8}}
    refused = lake.attempt(streams, renamed).streams["users"]
    assert "it is not the table that the state was made with" in str(refused.error)
    lake.sync(streams, {"users": "append"})
    assert (lake.ids("users"), lake.ids("people")) == (list(range(8)), [])


def test_a_table_that_is_gone_prevents_no_rollback_that_leaves_it_as_it_was(lake: Lake, spark: SparkSession) -> None:
    renamed = {"users": {"write": "append", "rename": "people"}}
    lake.users(5)
    first = lake.version
    lake.sync({"users": {"records": 5}}, renamed, REFRESH)
    second = lake.version
    lake.sync({"users": {"records": 8}}, renamed)
    query(spark, f"drop table lake.{lake.name}.users")
    lake.roll_back(second)
    assert (lake.ids("people"), lake.position()) == (list(range(5)), 5)
    lake.sync({"users": {"records": 8}}, renamed)
    assert lake.ids("people") == list(range(8))
    lake.roll_back(first)
    assert lake.ids("people") == []
    assert "there is no such table" in str(
        lake.attempt({"users": {"records": 8}}, {"users": "append"}).streams["users"].error
    )


def test_a_table_that_was_dropped_is_made_again_after_a_rollback_to_no_rows(lake: Lake, spark: SparkSession) -> None:
    lake.users(5)
    query(spark, f"drop table lake.{lake.name}.users")
    lake.roll_back(0)
    lake.users(8)
    assert lake.ids("users") == list(range(8))


def test_another_connection_of_a_table_notices_that_its_rows_were_undone(lake: Lake) -> None:
    lake.users(10)
    lake.more = {"name": f"{lake.name}_other", "destination": {"namespace": lake.name}}
    lake.users(3)
    lake.more = {}
    lake.roll_back(0)
    lake.more = {"name": f"{lake.name}_other", "destination": {"namespace": lake.name}}
    refused = lake.attempt({"users": {"records": 4}}, {"users": "append"}).streams["users"]
    assert "it was set back to before load" in str(refused.error)


def test_a_rollback_to_the_current_version_changes_nothing(lake: Lake) -> None:
    lake.users(10)
    assert lake.roll_back(lake.version) == Rollback((), ())
    assert lake.ids("users") == list(range(10))


def test_a_snapshot_that_expired_is_refused_before_anything_moves(lake: Lake, spark: SparkSession) -> None:
    lake.users(10)
    version = lake.version
    lake.users(20)
    query(
        spark,
        f"call lake.system.expire_snapshots(table => '{lake.name}.users', older_than => timestamp '2999-01-01',"
        " retain_last => 1)",
    )
    with pytest.raises(ConfigError, match="it has expired"):
        lake.roll_back(version)
    assert (lake.ids("users"), lake.position()) == (list(range(20)), 20)


def test_a_rollback_is_refused_while_a_load_is_unfinished(lake: Lake) -> None:
    lake.users(10)
    with lake.lease() as lease:
        lake.engine.store.announce(lease, Load("l1", lake.name, lease.run_id, (), ()))
    with pytest.raises(ConfigError, match="announced and not finished"):
        lake.roll_back(0)
    assert lake.ids("users") == list(range(10))


def test_rows_that_a_table_had_before_the_first_load_stay(lake: Lake, spark: SparkSession) -> None:
    spark.sql(f"create namespace lake.{lake.name}")
    spark.range(100, 103).writeTo(f"lake.{lake.name}.users").using("iceberg").create()
    lake.users(5)
    for _ in range(2):
        lake.roll_back(0)
        assert lake.ids("users") == [100, 101, 102]
        lake.users(5)
        assert lake.ids("users") == [*range(5), 100, 101, 102]


class InterleavingStore(SqlStore):
    """Has another run come and go once, after a load has landed and before its states move."""

    def __init__(self, url: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(url)
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def promote(self, lease: Lease, load: Load, states: Sequence[State], committed: Sequence[CommittedRows]) -> None:
        if self._meanwhile:
            self._meanwhile.pop()()
        super().promote(lease, load, states, committed)


def test_runs_of_partitions_that_interleave_are_undone_whole_or_not_at_all(lake: Lake, spark: SparkSession) -> None:
    def sync(partition: str) -> None:
        lake.sync({"users": {"records": 4}}, {"users": "append"}, SyncRequest(slice=Slice(partition)))

    def partitions() -> list[str]:
        table = f"lake.{lake.name}.users"
        return [row[0] for row in query(spark, f"select distinct _airbyte_partition from {table} order by 1").rows]

    def other_run() -> None:
        lake.engine = plain
        sync("b")

    sync("first")
    version, plain = lake.version, lake.engine
    store = InterleavingStore(plain.settings.state_url, other_run)
    lake.engine = Engine(plain.settings, store=store, tables=lake.tables)
    sync("a")
    with pytest.raises(ConfigError, match=r"runs of partitions \(a, b\) landed in table") as refused:
        lake.roll_back(version + 1)
    assert f"Name version {version} or {version + 2}" in refused.value.remedy
    assert partitions() == ["a", "b", "first"]
    for target, there in ((version, ["first"]), (version + 2, ["a", "b", "first"]), (version, ["first"])):
        lake.roll_back(target)
        assert partitions() == there
        assert [each.partition for each in plain.store.states(lake.name, partition=None)] == there
