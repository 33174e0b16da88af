"""Rollbacks whose process dies or sleeps once the states have moved, and tables that refuse to go back."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import LandedTable, Lease, StateChange
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.rollback import roll_back
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance.test_rollback import Lake
from tests.sync.shop import REFRESH

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark, spark_settings)


class SleepyStore(SqlStore):
    """Sleeps once the states of a rollback have moved, until its lease has expired and another run has ended."""

    def __init__(self, url: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(url)
        self._meanwhile = meanwhile

    def rollback(
        self, lease: Lease, version: int, *, who: str, landed: Mapping[StreamId, LandedTable | None] | None = None
    ) -> Sequence[StateChange]:
        changes = super().rollback(lease, version, who=who, landed=landed)
        self.release(lease)
        self._meanwhile()
        return changes


class Died(Exception):
    """The process of a rollback has died."""


@pytest.mark.parametrize("position", [10, None])
def test_a_rollback_that_died_between_state_and_table_is_completed_by_a_repetition(
    lake: Lake, position: int | None
) -> None:
    def die() -> None:
        raise Died

    lake.users(10)
    version = 0 if position is None else lake.version
    lake.users(20)
    settings = lake.engine.settings
    dying = Engine(settings, store=SleepyStore(settings.state_url, die), tables=lake.tables)
    with lake.lease() as lease, pytest.raises(Died):
        roll_back(dying, lease, version, who="ada")
    refused = lake.attempt({"users": {"records": 20}}, {"users": "append"}).streams["users"]
    assert "If the rollback died or failed, run it again" in str(refused.error)
    assert (lake.ids("users"), lake.position()) == (list(range(20)), position)
    assert [each.has_moved for each in lake.roll_back(version).tables] == [True]
    again = lake.roll_back(version)
    assert (again.changes, [each.has_moved for each in again.tables]) == ((), [False])
    lake.users(20)
    assert lake.ids("users") == list(range(20))


def test_a_rollback_that_slept_through_its_lease_undoes_nothing_of_the_next_run(lake: Lake) -> None:
    lake.users(10)
    version = lake.version
    lake.users(20)
    settings = lake.engine.settings

    def refresh() -> None:
        lake.sync({"users": {"records": 30}}, {"users": "append"}, REFRESH)

    sleepy = Engine(settings, store=SleepyStore(settings.state_url, refresh), tables=lake.tables)
    with lake.lease() as lease, pytest.raises(TableError, match="has changed since"):
        roll_back(sleepy, lease, version, who="ada")
    assert lake.position() == 30
    assert lake.ids("users") == list(range(30))


def test_a_table_that_refuses_keeps_no_other_one_from_going_back(lake: Lake) -> None:
    write = {"orders": "append", "users": "append"}
    lake.sync({"orders": {"records": 3}, "users": {"records": 5}}, write)
    version = lake.version
    streams = {"orders": {"records": 6}, "users": {"records": 8}}
    lake.sync(streams, write)
    settings = lake.engine.settings
    orders = SyncRequest(only=["orders"], refresh=True)
    sleepy = Engine(
        settings, store=SleepyStore(settings.state_url, lambda: lake.sync(streams, write, orders)), tables=lake.tables
    )
    with lake.lease() as lease, pytest.raises(TableError, match=r"orders.* has changed since") as refused:
        roll_back(sleepy, lease, version, who="ada")
    assert "The states have moved. Run the rollback again: until then" in refused.value.remedy
    assert lake.ids("users") == list(range(5))
    lake.sync(streams, write)
    assert lake.ids("users") == list(range(8))
