import threading
from pathlib import Path

import dagster as dg
import pyspark
import pytest
from dagster_pyspark import LazyPySparkResource

from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.tables.spark import session
from dagster_airbyte_proto.tables.spark.jvm import starts
from dagster_airbyte_proto.tables.spark.settings import SparkSettings


def _opened(resource: SparkSessionResource) -> SparkSettings:
    with dg.build_resources({"spark": resource}) as resources:
        settings: SparkSettings = resources.spark.settings
        return settings


def test_without_a_warehouse_it_is_the_command_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AIRBYTE_PROTO_HOME", raising=False)
    assert _opened(SparkSessionResource()).warehouse_location == str(tmp_path / ".airbyte-proto" / "warehouse")
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", "/home/of/tables")
    assert _opened(SparkSessionResource()).warehouse_location == "/home/of/tables/warehouse"


def test_settings_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE", "s3://bucket/lake")
    monkeypatch.setenv("SECRET", "hidden")
    settings = _opened(
        SparkSessionResource(
            warehouse=dg.EnvVar("WAREHOUSE"), spark_config={"spark.hadoop.fs.s3a.secret.key": dg.EnvVar("SECRET")}
        )
    )
    assert settings.warehouse == "s3://bucket/lake"
    assert settings.config["spark.hadoop.fs.s3a.secret.key"] == "hidden"


def test_it_goes_where_dagsters_own_resource_is_asked_for() -> None:
    @dg.asset
    def rows(spark: LazyPySparkResource) -> None:
        assert isinstance(spark, SparkSessionResource)

    assert dg.materialize([rows], resources={"spark": SparkSessionResource()}).success


def test_jars_take_the_place_of_a_download() -> None:
    assert _opened(SparkSessionResource(jars=["/a.jar", "/b.jar"])).config["spark.jars"] == "/a.jar,/b.jar"


def test_a_start_of_spark_ends_with_the_resource_that_waits_for_it_and_with_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, killed = threading.Event(), threading.Event()

    def start(_: SparkSettings) -> None:
        with starts.one_start_at_a_time():
            begun.set()
            assert killed.wait(60)

    monkeypatch.setattr(session, "start_session", start)
    monkeypatch.setattr(starts, "_kill_child_jvms", killed.set)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    with dg.build_resources({"spark": SparkSessionResource()}) as resources:
        waiting = threading.Thread(target=lambda: resources.spark.spark_session)
        waiting.start()
        assert begun.wait(60)
        with dg.build_resources({"spark": SparkSessionResource()}):
            pass
        assert not killed.is_set()
    assert killed.is_set()
    waiting.join(60)
    assert not waiting.is_alive()
