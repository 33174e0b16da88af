"""Sessions of Spark Connect are refused where a JVM is needed, before a connector starts. No server runs here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from dagster_pyspark import LazyPySparkResource

from dagster_airbyte_proto import Connection, SparkSessionResource, SparkTableIOManager, sync, sync_all
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import MergeMode
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push import push
from dagster_airbyte_proto.tables.formats import FORMAT_NAMES, find_format, rewinder_of
from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_REMOTE = {"spark.remote": "sc://127.0.0.1:1"}
_REFUSED = "the session is one of Spark Connect"


class RemoteSession:
    """As pyspark's own, it has no handle on a JVM."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"[JVM_ATTRIBUTE_NOT_SUPPORTED] {name}")


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Of tables that no Connect server takes."""
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps({"spark": _REMOTE, "catalog": {"format": "parquet"}}))
    return file


@pytest.fixture
def iceberg_settings(tmp_path: Path) -> Path:
    file = tmp_path / "iceberg.yaml"
    file.write_text(json.dumps({"spark": _REMOTE}))
    return file


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """The file that the connector makes once it is started."""
    return tmp_path / "started"


@pytest.fixture
def connection(tmp_path: Path, started: Path) -> Callable[[str], Connection]:
    def connect(rest: str) -> Connection:
        file = tmp_path / "shop.yaml"
        launch = json.dumps({"kind": "local", "command": ["touch", str(started)]})
        file.write_text(f"connector: {{protocol: airbyte, launch: {launch}}}\n{rest}\n")
        return Connection.from_file(file)

    return connect


def test_a_sync_into_other_tables_is_refused_before_its_connector_starts(
    tmp_path: Path, settings: Path, started: Path, connection: Callable[[str], Connection]
) -> None:
    with pytest.raises(ConfigError, match=_REFUSED) as refused:
        sync(connection("streams: [users]"), home=tmp_path, settings=settings)
    assert "spark.master" in str(refused.value)
    with Engine(Settings.load(tmp_path, settings)) as engine, pytest.raises(ConfigError, match=_REFUSED):
        engine.query("select 1")
    assert not started.exists()


def test_work_on_executors_is_refused_before_its_connector_starts(
    tmp_path: Path, iceberg_settings: Path, started: Path, connection: Callable[[str], Connection]
) -> None:
    with pytest.raises(ConfigError, match=_REFUSED):
        sync(connection("run_on: executors"), home=tmp_path, settings=iceberg_settings)
    with pytest.raises(ConfigError, match=_REFUSED):
        sync_all([connection("streams: [users]")], RemoteSession(), home=tmp_path)
    assert not started.exists()


def test_a_push_is_refused_before_its_connector_starts(
    tmp_path: Path, settings: Path, started: Path, connection: Callable[[str], Connection]
) -> None:
    pushed = connection("push: {users: {from: lake.shop.users, key: [id], mode: upsert}}")
    with pytest.raises(ConfigError, match=_REFUSED):
        push(pushed, home=tmp_path, settings=settings)
    assert not started.exists()


def test_the_rewind_of_tables_is_refused(tmp_path: Path) -> None:
    tables = find_format("iceberg").open_tables(SparkSettings(str(tmp_path), config=_REMOTE))
    with pytest.raises(ConfigError, match=_REFUSED):
        rewinder_of(tables)


@pytest.mark.parametrize("name", [name for name in FORMAT_NAMES if name != "parquet"])
def test_tables_that_need_a_jvm_refuse_a_session_that_turns_out_to_be_remote(tmp_path: Path, name: str) -> None:
    tables = find_format(name).open_tables(SparkSettings(str(tmp_path)), cast(Any, RemoteSession))
    for _ in range(2):
        with pytest.raises(ConfigError, match=_REFUSED):
            tables.open_session()


def test_the_io_manager_refuses_by_the_config_and_starts_nothing() -> None:
    io_manager = SparkTableIOManager(spark=SparkSessionResource(remote=_REMOTE["spark.remote"], format="parquet"))
    with pytest.raises(ConfigError, match=_REFUSED):
        io_manager.tables({})


@pytest.mark.parametrize("resource", [SparkSessionResource, LazyPySparkResource])
def test_the_io_manager_knows_a_remote_session_by_the_config(resource: type[LazyPySparkResource]) -> None:
    tables = SparkTableIOManager(spark=resource(spark_config=_REMOTE)).tables({})
    assert tables.abilities.is_remote


def test_merges_that_no_statement_makes_are_refused_by_name(tmp_path: Path, iceberg_settings: Path) -> None:
    with Engine(Settings.load(tmp_path, iceberg_settings)) as engine:
        assert MergeMode.EQUALITY_DELETES not in engine.abilities.merges
        assert MergeMode.POSITIONS in engine.abilities.merges
