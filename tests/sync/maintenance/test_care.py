"""Compaction and expiry of real tables: afterwards syncs recover, roll back and go on."""

import os
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.checkpoints.slot import Slot
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import Lease, LoadStatus, LoggedLoad, StateStore
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, StateConflict
from dagster_airbyte_proto.loads.load import CommittedRows, Load
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import State, StateScope, StreamId, TableName, WriteMode
from dagster_airbyte_proto.settings import CompactAfter
from dagster_airbyte_proto.staging.files.staging_folder import run_staging_folder, staging_id
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.maintenance.care import CareOptions, care_for_table, clean, expirable_snapshots
from dagster_airbyte_proto.sync.maintenance.table_rollback import roll_back_table
from dagster_airbyte_proto.tables.care import (
    CompactionResult,
    ProtectedFiles,
    SnapshotChange,
    TableCare,
    TableHistory,
)
from dagster_airbyte_proto.tables.formats import care_of
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import part
from tests.sync.maintenance.test_rollback import Lake, version_at

DAY = 86400.0
USERS = StreamId.of("users")
IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark, spark_settings)


def table(lake: Lake) -> TableName:
    return TableName(lake.name, "users")


def tidy(lake: Lake, *, since: datetime | None = None) -> int:
    """Compacts the table, then expires what a rollback to that moment does not need. Returns how many snapshots."""
    store, care = lake.engine.store, care_of(lake.tables)
    care.compact(table(lake))
    keep = (datetime.now(UTC) - since).total_seconds() if since else 0.0
    return clean(store, care, table(lake), keep_seconds=keep, orphan_seconds=3 * DAY).snapshots


def test_a_compaction_whose_outcome_is_unknown_stops_the_care_of_its_table_alone(tmp_path: Path) -> None:
    class Losing:
        def compact(self, name: TableName) -> CompactionResult:
            raise CommitUnknown(f"compacting {name}", "the JVM is gone")

    with closing(SqlStore(f"sqlite:///{tmp_path}/state.db")) as store:
        care: TableCare = Losing()  # type: ignore[assignment]  # it gets no further
        name = TableName("shop", "users")
        done = care_for_table(store, care, name, CareOptions())
    assert (done.compacted, done.cleanup, type(done.error)) == (None, None, CommitUnknown)


@pytest.mark.nightly
@pytest.mark.spark
def test_a_rollback_reaches_versions_of_the_keep_time_and_no_older_one(lake: Lake) -> None:
    """At the beginning of the keep time readers saw a compaction. A rollback goes back to the load before it."""
    lake.users(15)
    old = lake.version
    lake.users(30)
    kept = lake.version
    assert care_of(lake.tables).compact(table(lake)).rewritten_files == 6
    since = datetime.now(UTC)
    lake.users(35)
    assert tidy(lake, since=since) == 5
    assert lake.ids("users") == list(range(35))
    with pytest.raises(ConfigError, match="has expired"):
        lake.roll_back(old)
    assert lake.roll_back(kept).tables[0].has_moved
    assert (lake.ids("users"), lake.position()) == (list(range(30)), 30)
    lake.users(35)
    assert lake.ids("users") == list(range(35))


@pytest.mark.nightly
@pytest.mark.spark
def test_a_rollback_can_be_undone_after_expiry_within_the_keep_time(lake: Lake) -> None:
    lake.users(10)
    first = lake.version
    lake.users(20)
    since = datetime.now(UTC)
    second = lake.version
    lake.roll_back(first)
    assert tidy(lake, since=since) > 0
    lake.roll_back(second)
    assert lake.ids("users") == list(range(20))


@pytest.mark.nightly
@pytest.mark.spark
def test_upserts_continue_correctly_between_compactions_and_expiries(lake: Lake) -> None:
    for records in (12, 24):
        report = lake.sync({"users": {"records": records, "keys": 4}}, {"users": "append_dedup"})
        assert report.streams["users"].emitted == 12
        tidy(lake)
        assert lake.ids("users") == list(range(records - 4, records))
    facts = care_of(lake.tables).facts(table(lake))
    assert (facts.delete_files, facts.rows) == (0, 4)


@contextmanager
def announced(lake: Lake, load_id: str) -> Iterator[tuple[Load, Lease]]:
    """A load that has landed, and whose run died before it promoted the load."""
    target = lake.tables.prepare(TableSpec(table(lake), IDS))
    staged = msgspec.structs.replace(part(target, WriteMode.APPEND, [{"id": 1000}]), emitted=1, rows=1)
    state = State(StateScope.STREAM, b'{"type":"STREAM","stream":{"stream_state":{"next":7}}}', USERS)
    with lake.lease() as lease:
        load = Load(load_id, lake.name, lease.run_id, (staged,), (state,))
        lake.engine.store.announce(lease, load)
        assert not lake.tables.commit(load_id, staged).was_there
        yield load, lease


@pytest.mark.spark
def test_an_announced_load_lands_once_whatever_care_its_table_gets_meanwhile(lake: Lake) -> None:
    lake.users(10)
    with announced(lake, "by-hand-1") as (_, lease):
        target = lake.tables.prepare(TableSpec(table(lake), IDS))
        for number in range(5):
            lake.tables.commit(f"other-{number}", part(target, WriteMode.APPEND, [{"id": 2000 + number}]))
        tidy(lake)
        assert tidy(lake) == 0
        with Committer(lake.engine.store, lambda: lake.tables, lease) as committer:
            [outcome] = committer.recover()
    assert outcome.committed[0].was_there
    assert lake.ids("users").count(1000) == 1
    assert tidy(lake) > 0
    assert lake.ids("users").count(1000) == 1


@pytest.mark.spark
def test_files_of_dead_loads_are_removed_and_those_that_may_be_committed_stay(lake: Lake) -> None:
    lake.users(10)
    folder = Path(lake.tables.prepare(TableSpec(table(lake), IDS)).location) / "data"
    long_ago = (datetime.now(UTC) - timedelta(days=9)).timestamp()
    dead, live = folder / "run-dead" / "rows.parquet", folder / "run-by-hand" / "rows.parquet"
    for path in (dead, live):
        path.parent.mkdir()
        path.write_bytes(b"rows")
        os.utime(path, (long_ago, long_ago))
    store, care = lake.engine.store, care_of(lake.tables)
    with lake.lease():
        gone = clean(store, care, table(lake), keep_seconds=DAY, orphan_seconds=3 * DAY)
    assert list(gone.orphans) == [str(dead)]
    assert (dead.exists(), live.exists()) == (False, True)
    gone = clean(store, care, table(lake), keep_seconds=DAY, orphan_seconds=3 * DAY)
    assert list(gone.orphans) == [str(live)]
    assert lake.ids("users") == list(range(10))
    with pytest.raises(ConfigError, match="may belong to running writers"):
        clean(store, care, table(lake), keep_seconds=DAY, orphan_seconds=60.0)


@pytest.mark.spark
def test_a_table_that_a_connection_writes_rolls_back_only_with_its_states(lake: Lake) -> None:
    lake.users(20)
    care, store = care_of(lake.tables), lake.engine.store
    assert store.loaded_tables(lake.name) == [table(lake)]
    third = care.history(table(lake)).changes[2].snapshot_id
    with pytest.raises(ConfigError) as refused:
        roll_back_table(lake.engine, care, table(lake), third)
    version = version_at(lake, 15)
    assert f"airbyte-proto state rollback {lake.name} --to {version} --tables" in refused.value.remedy
    lake.roll_back(version)
    assert lake.ids("users") == list(range(15))
    current = care.history(table(lake)).current
    assert current is not None
    lake.users(20)
    with pytest.raises(ConfigError) as refused:
        roll_back_table(lake.engine, care, table(lake), current)
    lake.roll_back(int(refused.value.remedy.split("--to ")[1].split()[0]))
    assert lake.ids("users") == list(range(15))
    with pytest.raises(ConfigError, match="has no such snapshot"):
        roll_back_table(lake.engine, care, table(lake), "42")


@pytest.mark.nightly
@pytest.mark.spark
def test_delta_tables_are_compacted_expired_and_rolled_back_with_their_states(
    tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    settings = spark_settings._replace(catalog="spark_catalog", format="delta", warehouse=str(tmp_path / "del ta"))
    lake = Lake(tmp_path, spark, settings)
    care, store = care_of(lake.tables), lake.engine.store
    after = CompactAfter(delete_files=0, small_files=4)
    lake.engine.settings = lake.engine.settings.model_copy(update={"compact_after": after})
    assert lake.users(10).compacted == ()
    old = lake.version
    assert lake.users(25).compacted == (f"{lake.name}.users",)
    assert (care.names(), care.facts(table(lake)).files) == ([table(lake)], 1)
    lake.users(30)
    kept, since = lake.version, datetime.now(UTC)
    lake.users(35)
    with announced(lake, "by-hand-1") as (_, lease):
        assert tidy(lake, since=since) > 0
        with Committer(store, lambda: lake.tables, lease) as committer:
            [outcome] = committer.recover()
    assert outcome.committed[0].was_there
    assert lake.ids("users") == [*range(35), 1000]
    with pytest.raises(ConfigError, match="has expired"):
        lake.roll_back(old)
    third = care.history(table(lake)).changes[0].snapshot_id
    with pytest.raises(ConfigError, match=f"connection {lake.name} writes it|no version of its states"):
        roll_back_table(lake.engine, care, table(lake), third)
    assert lake.roll_back(kept).tables[0].has_moved
    assert (lake.ids("users"), lake.position()) == (list(range(30)), 30)
    lake.users(35)
    assert lake.ids("users") == list(range(35))


@pytest.mark.spark
def test_a_table_of_no_connection_rolls_back_alone(lake: Lake, spark: SparkSession) -> None:
    name = TableName(lake.name, "by_hand")
    spark.sql(f"create namespace lake.{lake.name}")
    spark.range(3).writeTo(f"lake.{name}").using("iceberg").create()
    spark.range(5).writeTo(f"lake.{name}").append()
    care = care_of(lake.tables)
    first = care.history(name).changes[0].snapshot_id
    assert roll_back_table(lake.engine, care, name, first)
    assert not roll_back_table(lake.engine, care, name, first)
    assert care.facts(name).rows == 3


@pytest.mark.spark
def test_the_table_of_a_stream_that_is_read_whole_rolls_back_alone(lake: Lake) -> None:
    def sync(records: int) -> None:
        lake.sync({"users": {"records": records}}, {"users": {"read": "full_refresh", "write": "overwrite"}})

    sync(5)
    sync(8)
    name, care, store = table(lake), care_of(lake.tables), lake.engine.store
    first = care.history(name).shown[0][1]
    with pytest.raises(ConfigError, match="there are no versions to go back to"):
        lake.roll_back(1)
    with lake.lease() as lease:
        with pytest.raises(StateConflict):
            roll_back_table(lake.engine, care, name, first)
        load = Load("l1", lake.name, lease.run_id, (), ())
        store.announce(lease, load)
    with pytest.raises(ConfigError, match="announced and not finished"):
        roll_back_table(lake.engine, care, name, first)
    with lake.lease() as lease:
        store.promote(lease, load, (), ())
    assert roll_back_table(lake.engine, care, name, first)
    assert not roll_back_table(lake.engine, care, name, first)
    assert lake.ids("users") == list(range(5))
    sync(9)
    assert lake.ids("users") == list(range(9))


class Landing(NamedTuple):
    """A load of a connection: when its snapshot came, and when it ended, in days ago; still announced for None."""

    load_id: str
    came: float
    ended: float | None


NOW = datetime(2026, 6, 1, tzinfo=UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


class Days:
    """A store whose clock is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.at = NOW
        self.store: StateStore = SqlStore(f"sqlite:///{folder / 'state.db'}", clock=lambda: self.at)

    def land(self, *landings: Landing, connection: str = "shop") -> None:
        for load_id, came, ended in landings:
            self.at = ago(came)
            lease = self.store.acquire(connection, run_id="r", holder="h", seconds=1)
            load = Load(load_id, connection, "r", (), ())
            self.store.announce(lease, load)
            if ended is not None:
                self.at = ago(ended)
                self.store.promote(lease, load, (), [CommittedRows(USERS, load_id, was_there=False)])
            self.store.release(lease)

    def gone(self, changes: Mapping[str, float], *, keep: float = 7) -> list[str]:
        """The snapshots that expire. A snapshot has the name of its load, if it has one."""
        made = tuple(SnapshotChange(each, ago(days), "append", 1, 0, 0, load_id=each) for each, days in changes.items())
        history = TableHistory(made, tuple((ago(days), each) for each, days in changes.items()), [*changes][-1])
        return sorted(expirable_snapshots(history, self.store, ago(keep)))


@pytest.fixture
def days(tmp_path: Path) -> Days:
    return Days(tmp_path)


def test_the_snapshot_shown_at_the_beginning_of_the_keep_time_and_all_later_ones_stay(days: Days) -> None:
    assert days.gone({"a": 30, "b": 20, "c": 8, "d": 2}) == ["a", "b"]
    assert days.gone({"a": 3, "b": 2}) == []
    assert days.gone({"a": 30}) == []
    assert days.gone({"a": 30, "b": 20}, keep=0) == ["a"]


def test_the_load_before_the_keep_time_stays_while_its_connection_is_in_use(days: Days) -> None:
    days.land(Landing("l1", 30, 30), Landing("l2", 20, 20))
    log = {"l1": 30.0, "l2": 20.0, "compaction": 10.0, "other": 8.0}
    assert days.gone(log) == ["compaction", "l1", "l2"]
    days.land(Landing("l3", 1, 1))
    assert days.gone({**log, "l3": 1}) == ["l1"]


def test_an_announced_load_protects_all_later_snapshots(days: Days) -> None:
    days.land(Landing("l1", 30, 30), Landing("l2", 29, None), connection="other")
    days.land(Landing("s1", 20, 20), Landing("s2", 3, 3))
    assert days.gone({"l1": 30, "l2": 29, "s1": 20, "s2": 3}) == ["l1"]


def test_a_load_that_landed_before_the_keep_time_and_ended_in_it_stays(days: Days) -> None:
    days.land(Landing("l1", 30, 30), Landing("l2", 20, 2))
    assert days.gone({"l1": 30, "l2": 20, "compaction": 19, "another": 10}, keep=7) == []
    days.land(Landing("l3", 1, 1))
    assert days.gone({"l0": 40, "l1": 30, "l2": 20, "l3": 1}, keep=1.5) == ["l0", "l1"]


class _WatchedLoad(Load, frozen=True, weakref=True):
    """A load of which it is known whether anybody still has it."""


class _LongLog(SqlStore):
    """A store that has each load, and notes how many of them somebody had at once."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._read, self.most_at_once = weakref.WeakSet[_WatchedLoad](), 0

    def load(self, load_id: str) -> LoggedLoad:
        load = _WatchedLoad(load_id, "shop", "r", (), ())
        self._read.add(load)
        self.most_at_once = max(self.most_at_once, len(self._read))
        return LoggedLoad(load, LoadStatus.DONE, ago(20), ago(20))


def test_the_loads_of_a_table_are_looked_at_one_by_one(days: Days, tmp_path: Path) -> None:
    days.store = store = _LongLog(f"sqlite:///{tmp_path / 'state.db'}")
    assert len(days.gone({f"l{number}": 20 - number / 100 for number in range(500)})) == 499
    assert store.most_at_once <= 2


class _CareOfNothing:
    """The care of a table without snapshots, which notes what its orphans are not."""

    protected = ProtectedFiles()

    def history(self, name: TableName) -> TableHistory:  # noqa: ARG002 - as TableCare has it
        return TableHistory((), (), None)

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:  # noqa: ARG002
        return len(snapshot_ids)

    def remove_orphans(
        self,
        name: TableName,  # noqa: ARG002
        *,
        before: datetime,  # noqa: ARG002
        protected: ProtectedFiles,
    ) -> tuple[str, ...]:
        self.protected = protected
        return ()


def test_the_files_of_a_partition_at_work_are_no_orphans(tmp_path: Path) -> None:
    care, target = _CareOfNothing(), TableTarget(TableName("shop", "users"), IDS, "/users", "shop.users")
    with closing(SqlStore(f"sqlite:///{tmp_path / 'state.db'}")) as store:
        leases = [
            store.acquire("shop", run_id="backfill", holder="h", seconds=60, slot=Slot(key, 2)) for key in ("a", "b")
        ]
        clean(store, cast(TableCare, care), target.name, keep_seconds=DAY, orphan_seconds=DAY)
    folders = {run_staging_folder(target, staging_id("backfill", each.fence)) for each in leases}
    of_older_release = {"/users/data/run-backfill"}
    assert {f"/users/data/run-{each}" for each in care.protected.run_ids} == folders | of_older_release
    assert len(folders) == 2
