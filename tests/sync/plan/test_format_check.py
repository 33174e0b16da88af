"""A stream that the tables' format cannot take is refused before anything is started; any other can be read."""

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH

PARQUET = {"catalog": {"format": "parquet"}}
USERS = {"streams": {"users": {"records": 25}}, "state_every": 5}


def test_a_mode_that_plain_parquet_has_not_is_refused_with_the_ways_out(shop: OpenShop) -> None:
    place = shop(write="append_dedup", settings=PARQUET)
    place.modes["*"]["primary_key"] = ["id"]
    with pytest.raises(ConfigError) as refused:
        place.sync_of(USERS)
    assert refused.value.stream == "users"
    assert refused.value.found == "tables of the format parquet have no write mode append_dedup"
    assert refused.value.remedy.startswith("Use write: append or write: overwrite for the stream, or set catalog: {")
    assert "format: iceberg" in refused.value.remedy
    assert not (place.home / "warehouse").exists()


def test_a_partition_of_plain_parquet_is_refused(shop: OpenShop) -> None:
    place = shop(settings=PARQUET)
    with pytest.raises(ConfigError, match="parquet have none"):
        place.sync_of(USERS, SyncRequest(slice=Slice("monday")))
    assert not (place.home / "warehouse").exists()


def test_copies_on_write_are_of_iceberg_alone(shop: OpenShop) -> None:
    place = shop(write="append_dedup", settings={"catalog": {"format": "delta"}})
    place.modes["*"] |= {"primary_key": ["id"], "merge": "copy_on_write"}
    with pytest.raises(ConfigError) as refused:
        place.sync_of(USERS)
    assert refused.value.found == "tables of the format delta have no merge: copy_on_write"
    assert refused.value.remedy == "Leave it out, or set catalog: {format: iceberg} in the settings."


def test_partitions_that_delta_has_not_are_refused_with_what_it_has(shop: OpenShop) -> None:
    place = shop(settings={"catalog": {"format": "delta"}})
    place.modes["*"]["partition_by"] = ["id", "day(updated_at)", "bucket(4, id)"]
    with pytest.raises(ConfigError) as refused:
        place.sync_of(USERS)
    assert refused.value.found.endswith("by the values of columns, and not by day(updated_at) and bucket(4, id)")
    assert refused.value.remedy.startswith("Name a column that has few values, such as a date, or leave it out, or set")
    assert "format: iceberg" in refused.value.remedy


def test_delta_tables_in_an_object_store_are_refused_with_the_reason() -> None:
    settings = SparkSettings("s3a://bucket/ware house", catalog="spark_catalog", format="delta")
    with pytest.raises(ConfigError, match="would both believe that it is theirs") as refused:
        DeltaTables(lambda: pytest.fail("a session was started"), settings)
    assert "format: iceberg" in refused.value.remedy


def test_a_refresh_of_plain_parquet_replaces_its_rows(shop: OpenShop) -> None:
    place = shop(settings=PARQUET)
    for wanted in (SyncRequest(), REFRESH):
        assert place.sync_of(USERS, wanted).status == "complete"
    rows = pq.read_table(place.home / "warehouse" / "shop" / "users" / "current")
    assert sorted(rows["id"].to_pylist()) == list(range(25))


@pytest.mark.spark
def test_plain_parquet_is_queried_by_name(spark: SparkSession, shop: OpenShop) -> None:
    place = shop(settings=PARQUET)
    report = place.sync_of(USERS)
    assert report.streams["users"].table == "spark_catalog.shop.users"
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        assert engine.query("select count(*), max(id) from shop.users").rows == [[25, 24]]
    spark.sql("drop table spark_catalog.shop.users")
