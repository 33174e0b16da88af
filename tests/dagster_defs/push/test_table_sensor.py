"""The sensor that pushes a table once it has a new snapshot, on real tables."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import (
    ConfigError,
    Connection,
    SparkSessionResource,
    SparkTableIOManager,
    build_push_assets,
    build_table_sensor,
)
from dagster_airbyte_proto.tables.spark import session as spark_sessions
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.dagster_defs.support.saved import NO_CONNECTOR
from tests.sync.push.pushed_table import FORMAT, PushedTable, person

_PEOPLE, _BUYERS = dg.AssetKey(["crm", "contacts"]), dg.AssetKey(["crm", "buyers"])


def _pushes(**push: Any) -> dg.AssetsDefinition:
    return build_push_assets(Connection.model_validate({"name": "crm", "connector": NO_CONNECTOR, "push": push}))


class Ticks:
    """A sensor, ticked with the cursor that it left."""

    def __init__(self, sensor: dg.SensorDefinition, io_manager: SparkTableIOManager) -> None:
        self._sensor, self._io_manager = sensor, io_manager
        self.cursor: str | None = None

    def requested(self) -> list[dg.AssetKey]:
        """The assets that the next tick requests."""
        resources = {"io_manager": self._io_manager}
        with dg.build_sensor_context(
            cursor=self.cursor, resources=resources, instance=dg.DagsterInstance.ephemeral()
        ) as context:
            found = self._sensor.evaluate_tick(context)
        self.cursor = found.cursor
        return [key for request in found.run_requests or () for key in request.asset_selection or ()]


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_sessions, "start_session", refuse)


def _manager(settings: SparkSettings) -> SparkTableIOManager:
    resource = SparkSessionResource(
        warehouse=settings.warehouse,
        catalog=settings.catalog,
        format=settings.format,
        spark_config=dict(settings.config),
    )
    return SparkTableIOManager(spark=resource)


@pytest.mark.usefixtures("no_jvm")
def test_streams_of_a_table_with_a_new_snapshot_are_requested(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    manager = _manager(SparkSettings(str(table.home / "warehouse"), format=FORMAT))
    read = {"from": "lake.shop.people", "key": ["id"]}
    query = {"sql": "SELECT 1 AS id", "key": ["id"]}
    pushes = _pushes(contacts=read, buyers=query)
    ticks = Ticks(build_table_sensor(pushes, tables={"buyers": ["lake.shop.others", "lake.shop.people"]}), manager)
    assert ticks.requested() == []  # there is no table yet
    table.fill([person(1)])
    assert ticks.requested() == [_PEOPLE, _BUYERS]
    assert ticks.requested() == []
    table.fill([person(1), person(2)])
    assert ticks.requested() == [_PEOPLE, _BUYERS]
    assert ticks.requested() == []


@pytest.mark.usefixtures("no_jvm")
def test_a_table_that_cannot_be_read_is_looked_at_again(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(1)])
    manager = _manager(SparkSettings(str(table.home / "warehouse"), format=FORMAT))
    ticks = Ticks(build_table_sensor(_pushes(contacts={"from": "shop.people", "key": ["id"]})), manager)
    assert ticks.requested() == [_PEOPLE]
    log = table.home / "warehouse" / "shop" / "people" / "log"
    log.rename(log.with_name("away"))
    log.write_text("no folder")
    assert ticks.requested() == []
    log.unlink()
    log.with_name("away").rename(log)
    assert ticks.requested() == []


def test_there_has_to_be_a_table_to_watch() -> None:
    query = {"sql": "SELECT 1 AS id", "key": ["id"]}
    with pytest.raises(ConfigError, match="its streams read queries alone"):
        build_table_sensor(_pushes(buyers=query))
    with pytest.raises(ConfigError, match="`tables` names contacts"):
        build_table_sensor(_pushes(buyers=query), tables={"contacts": ["shop.people"]})


@pytest.fixture(params=["iceberg", "delta"])
def real(request: pytest.FixtureRequest, spark: SparkSession, spark_settings: SparkSettings) -> "Iterator[RealTable]":
    settings = spark_settings
    if request.param == "delta":
        warehouse = f"{spark_settings.warehouse}-delta"
        settings = settings._replace(catalog="spark_catalog", format="delta", warehouse=warehouse)
    yield RealTable(spark, settings)


class RealTable:
    """A table that Spark makes, where ours lie."""

    def __init__(self, spark: SparkSession, settings: SparkSettings) -> None:
        self.settings, self.name = settings, f"{settings.catalog}.watched.people"
        self.sql: Callable[[str], Any] = spark.sql
        self.sql(f"CREATE DATABASE IF NOT EXISTS {settings.catalog}.watched")
        self.sql(f"DROP TABLE IF EXISTS {self.name}")
        place = f"LOCATION '{settings.warehouse}/watched/people'" if settings.format == "delta" else ""
        self.sql(f"CREATE TABLE {self.name} (id INT) USING {settings.format} {place}")

    def compact(self) -> None:
        if self.settings.format == "delta":
            self.sql(f"OPTIMIZE {self.name}")
        else:
            self.sql(
                f"CALL {self.settings.catalog}.system.rewrite_data_files(table => 'watched.people',"
                " options => map('rewrite-all', 'true'))"
            )


@pytest.mark.everyday("iceberg")
@pytest.mark.spark
@pytest.mark.usefixtures("no_jvm")
def test_only_a_change_of_rows_is_a_new_snapshot(real: RealTable) -> None:
    ticks = Ticks(build_table_sensor(_pushes(contacts={"from": real.name, "key": ["id"]})), _manager(real.settings))
    assert ticks.requested() == []  # it is empty
    for number in (1, 2):
        real.sql(f"INSERT INTO {real.name} VALUES ({number})")
        assert ticks.requested() == [_PEOPLE]
    real.compact()
    assert ticks.requested() == []
    real.sql(f"ALTER TABLE {real.name} SET TBLPROPERTIES ('a' = 'b')")
    assert ticks.requested() == []
    real.sql(f"DELETE FROM {real.name} WHERE id = 1")
    assert ticks.requested() == [_PEOPLE]


@pytest.mark.spark
def test_a_catalog_of_another_type_is_asked_by_spark(
    spark: SparkSession, spark_settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = RealTable(spark, spark_settings)
    config = {**spark_settings.config, "spark.sql.catalog.lake.catalog-impl": "a.custom.Catalog"}
    monkeypatch.setattr(SparkSessionResource, "spark_session", property(lambda _: spark))
    manager = _manager(spark_settings._replace(config=config))
    assert manager.newest_snapshot(table.name) is None
    table.sql(f"INSERT INTO {table.name} VALUES (1)")
    assert manager.newest_snapshot(table.name) == _manager(spark_settings).newest_snapshot(table.name)
