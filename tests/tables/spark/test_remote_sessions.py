"""Sessions of Spark Connect are refused where a JVM is needed, before a connector starts. No server runs here."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from dagster_pyspark import LazyPySparkResource

from dagster_airbyte_proto import Connection, SparkSessionResource, SparkTableIOManager, sync, sync_all
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import MergeMode
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync import engine as engine_module
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push import push
from dagster_airbyte_proto.tables.connect_client import check_same_server, url_with_token
from dagster_airbyte_proto.tables.formats import FORMAT_NAMES, find_format, rewinder_of
from dagster_airbyte_proto.tables.iceberg.connect.catalog_settings import check_catalog
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.support.connect_server import run_alone
from tests.support.needs import require_spark_connect

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


def test_staging_with_credentials_that_come_to_the_server_alone_is_refused_before_a_connector_starts(
    tmp_path: Path, started: Path, connection: Callable[[str], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test may have started a JVM in this process, which is refused first.
    monkeypatch.setattr(engine_module, "check_one_kind", lambda *_, **__: None)
    header = {"spark.sql.catalog.lake.header.X-Iceberg-Access-Delegation": "vended-credentials"}
    keys = {"spark.sql.catalog.lake.s3.access-key-id": "ada", "spark.sql.catalog.lake.s3.secret-access-key": "horse"}
    settings = tmp_path / "vending.yaml"
    settings.write_text(json.dumps({"spark": {**_REMOTE, **header}}))
    refused = "they come to the Connect server, and not to this process"
    with pytest.raises(ConfigError, match=refused) as error:
        sync(connection("streams: [users]"), home=tmp_path, settings=settings)
    assert "spark.sql.catalog.lake.s3.access-key-id" in error.value.remedy
    with pytest.raises(ConfigError, match=refused):
        push(connection("push: {users: {from: lake.s.t, key: [id], mode: upsert}}"), home=tmp_path, settings=settings)
    assert not started.exists()
    settings.write_text(json.dumps({"spark": {**_REMOTE, **header, **keys}}))
    with Engine(Settings.load(tmp_path, settings)) as engine:
        engine.check_staging()


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


@pytest.mark.parametrize("more", ["", "/", "/;user_id=ada", "/;user_id=ada;use_ssl=true"])
def test_a_token_is_sent_as_the_server_looks_for_it_and_needs_tls_only_where_the_url_does(more: str) -> None:
    require_spark_connect()
    from pyspark.sql.connect.client import DefaultChannelBuilder

    token = "a;b=c d"
    url = url_with_token({"spark.remote": f"sc://spark:15002{more}", "spark.connect.authenticate.token": token})
    channel = DefaultChannelBuilder(url)
    assert channel.endpoint == "spark:15002"
    assert channel.userId == ("ada" if "ada" in more else None)
    if channel.use_ssl:
        assert channel.token == token
    else:
        assert (channel.secure, [*channel.metadata()]) == (False, [("authorization", f"Bearer {token}")])


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("sc://:15002", "correct-horse"),
        ("sc://localhost:15x", "correct-horse"),
        ("sc://localhost:15002/;token=correct-horse==", ""),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_token(url: str, token: str) -> None:
    require_spark_connect()
    refused = run_alone(
        "from dagster_airbyte_proto import SparkSessionResource\n"
        f"token = {{'spark.connect.authenticate.token': '{token}'}}\n"
        f"SparkSessionResource(remote='{url}', spark_config=token).spark_session"
    )
    assert "ConfigError: connecting to Spark" in refused.stderr
    assert "correct-horse" not in refused.stderr


def test_a_frame_of_another_server_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be written to the table of that name on its own server."""
    require_spark_connect()
    from pyspark.sql.connect.session import SparkSession as RemoteSparkSession

    monkeypatch.setattr(RemoteSparkSession, "_default_session", None)
    monkeypatch.setattr(RemoteSparkSession, "_active_session", threading.local())
    urls = ("sc://127.0.0.1:1", "sc://127.0.0.1:1/;authorization=renewed", "sc://127.0.0.1:2", "sc://127.0.0.1:1/;a=b")
    here, same, *others = sessions = [RemoteSparkSession.builder.remote(url).create() for url in urls]
    try:
        check_same_server("writing", same.range(3), here)
        for other in others:
            with pytest.raises(ConfigError, match="another Spark server"):
                check_same_server("writing", other.range(3), here)
    finally:
        for each in sessions:  # Else Python looks for their servers at its end.
            each.client.close()


@pytest.mark.parametrize(("code", "is_forgotten"), [("UNAUTHENTICATED", True), ("PERMISSION_DENIED", False)])
def test_what_a_server_refuses_is_named_by_its_own_words(
    monkeypatch: pytest.MonkeyPatch, code: str, is_forgotten: bool
) -> None:
    """A session of the user's goes with its token alone, and not because it may not read a setting."""
    require_spark_connect()
    grpc: Any = import_module("grpc")  # has no types
    from pyspark.sql.connect.session import SparkSession as RemoteSparkSession

    def refuse(_request: bytes, call: Any) -> bytes:
        call.abort(grpc.StatusCode[code], "no token")
        return b""

    class Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]  # its base has no type
        def service(self, _details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(refuse)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Refusing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # Another test of this process may have left its session: pyspark would give that one to whoever wants one.
    monkeypatch.setattr(RemoteSparkSession, "_default_session", None)
    monkeypatch.setattr(RemoteSparkSession, "_active_session", threading.local())
    session: Any = RemoteSparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    try:
        with pytest.raises(ConfigError) as refused:
            check_catalog(session, "lake")
        assert session.is_stopped == is_forgotten
    finally:
        session.release_session_on_close = False
        session.stop()
        server.stop(None)
    assert refused.value.found == f"no token ({code})"
    assert "spark.connect.authenticate.token" in refused.value.remedy
