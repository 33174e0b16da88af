"""Catalogs that take a request and answer it no more: no wait without an end, and a commit without an answer is
neither refused nor lost."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, TableName, WriteMode
from dagster_airbyte_proto.tables.formats import care_of, rewinder_of
from dagster_airbyte_proto.tables.iceberg.care import rewind
from dagster_airbyte_proto.tables.iceberg.handle import alone
from dagster_airbyte_proto.tables.iceberg.jvm import JavaTable
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_branches import branch_part
from tests.conformance.table_rows import SCHEMA, names, part, table_name
from tests.support.catalogs.silent_proxy import SilentProxy, silent_proxy
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.spark

_PATIENCE_SECONDS = 3
_ICEBERGS_OWN_SECONDS = 180
_WITHOUT_TLS = "sslmode=disable&gssEncMode=disable"
_REST = {"type": "rest", "rest.client.socket-timeout-ms": str(_PATIENCE_SECONDS * 1000)}
_JDBC = {"type": "jdbc", "jdbc.socketTimeout": str(_PATIENCE_SECONDS)}
_UPDATE = b"UPDATE iceberg_tables SET metadata_location"


class Lake:
    """A catalog behind a proxy, with a table that has one load, and the next load of it."""

    def __init__(self, spark: SparkSession, settings: SparkSettings, proxy: SilentProxy) -> None:
        self.proxy, self.spark = proxy, spark
        self.writer = IcebergTables(start_session(settings), settings)
        self.target: TableTarget = self.writer.prepare(TableSpec(table_name(), SCHEMA))
        self.writer.commit("l1", self.part(1))
        self.next = self.part(2)

    def part(self, number: int) -> StagedRows:
        return part(self.target, WriteMode.APPEND, [{"id": number, "name": f"n{number}"}])

    def read(self) -> list[tuple[int, str]]:
        return names([row.asDict(recursive=True) for row in self.spark.table(self.target.qualified).collect()])


def _snapshots(lake: Lake) -> list[object]:
    return [row[0] for row in lake.spark.table(f"{lake.target.qualified}.snapshots").select("snapshot_id").collect()]


def settings_of(settings: SparkSettings, warehouse: str, properties: dict[str, str]) -> SparkSettings:
    catalog = f"c_{uuid4().hex}"
    written = {f"spark.sql.catalog.{catalog}.{key}": value for key, value in properties.items()}
    return settings._replace(catalog=catalog, warehouse=warehouse, config=written)


@pytest.fixture(scope="module")
def warm_catalog_uri(spark: SparkSession, spark_settings: SparkSettings, rest_catalog_uri: str) -> str:
    """A server that has made a table and taken a load. Its first ones take longest: on a busy machine perhaps longer
    than is waited for here."""
    settings = settings_of(spark_settings, "", {"type": "rest", "uri": rest_catalog_uri})
    writer = IcebergTables(start_session(settings), settings)
    target = writer.prepare(TableSpec(table_name(), SCHEMA))
    writer.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "n1"}]))
    return rest_catalog_uri


@pytest.fixture
def rest_lake(spark: SparkSession, spark_settings: SparkSettings, warm_catalog_uri: str) -> Iterator[Lake]:
    with silent_proxy(urlsplit(warm_catalog_uri).port) as proxy:
        properties = {**_REST, "uri": f"http://127.0.0.1:{proxy.port}/"}
        yield Lake(spark, settings_of(spark_settings, "", properties), proxy)


@pytest.fixture
def postgres_lake(
    spark: SparkSession,
    spark_settings: SparkSettings,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lake]:
    with silent_proxy(postgres_server.port) as proxy:
        uri = f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres?user=tester&{_WITHOUT_TLS}"
        warehouse = str(tmp_path_factory.mktemp("silent"))
        yield Lake(spark, settings_of(spark_settings, warehouse, {**_JDBC, "uri": uri}), proxy)


@pytest.mark.everyday("jdbc")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("uri", "properties"),
    [("http://127.0.0.1:{port}/", _REST), (f"jdbc:postgresql://127.0.0.1:{{port}}/lake?{_WITHOUT_TLS}", _JDBC)],
    ids=["rest", "jdbc"],
)
def test_a_server_that_never_answers_is_an_error_in_time(
    spark_settings: SparkSettings, uri: str, properties: dict[str, str]
) -> None:
    with silent_proxy() as silent:
        settings = settings_of(spark_settings, "/nowhere", {**properties, "uri": uri.format(port=silent.port)})
        began = time.monotonic()
        with pytest.raises(ConfigError) as caught:
            IcebergTables(start_session(settings), settings).prepare(TableSpec(table_name(), SCHEMA))
    assert time.monotonic() - began < _ICEBERGS_OWN_SECONDS
    assert "reachable" in caught.value.remedy


@pytest.mark.everyday("True")
@pytest.mark.parametrize("passes_request", [True, False])
def test_a_commit_that_a_rest_server_does_not_answer_is_unknown_and_lands_once(
    rest_lake: Lake, eventually: Callable[[Callable[[], bool]], None], passes_request: bool
) -> None:
    name = rest_lake.target.name
    commit = f"POST /v1/namespaces/{name.namespace}/tables/{name.name} HTTP".encode()
    rest_lake.proxy.fall_silent(commit, passes_request=passes_request)
    with pytest.raises(CommitUnknown, match="Read timed out"):
        rest_lake.writer.commit("l2", rest_lake.next)
    with pytest.raises(Exception, match="timed out"):
        rest_lake.writer.find_load("l2", rest_lake.next)
    rest_lake.proxy.speak()
    if passes_request:
        eventually(lambda: rest_lake.writer.find_load("l2", rest_lake.next) is not None)
    else:
        assert rest_lake.writer.find_load("l2", rest_lake.next) is None
    assert rest_lake.writer.commit("l2", rest_lake.next).was_there is passes_request
    assert rest_lake.read() == [(1, "n1"), (2, "n2")]


@pytest.mark.nightly
def test_a_commit_whose_readers_cannot_be_refreshed_is_unknown_and_lands_once(
    rest_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = rest_lake.spark.table(rest_lake.target.qualified).cache()
    assert cached.count() == 1
    java = rest_lake.writer._iceberg()
    refresh_readers = java.refresh_readers

    def refresh_from_a_silent_server(name: TableName, qualified: str) -> None:
        rest_lake.proxy.fall_silent(b"GET /v1/namespaces/", passes_request=False)
        refresh_readers(name, qualified)

    with monkeypatch.context() as patched:
        patched.setattr(java, "refresh_readers", refresh_from_a_silent_server)
        with pytest.raises(CommitUnknown):
            rest_lake.writer.commit("l2", rest_lake.next)
    rest_lake.proxy.speak()
    cached.unpersist()
    assert rest_lake.writer.find_load("l2", rest_lake.next) is not None
    assert rest_lake.writer.commit("l2", rest_lake.next).was_there
    assert rest_lake.read() == [(1, "n1"), (2, "n2")]


@pytest.mark.everyday("True")
@pytest.mark.postgres
@pytest.mark.parametrize("passes_request", [True, False])
def test_a_commit_that_a_database_does_not_answer_is_unknown_and_lands_once(
    postgres_lake: Lake, passes_request: bool
) -> None:
    postgres_lake.proxy.fall_silent(_UPDATE, passes_request=passes_request)
    with pytest.raises(CommitUnknown):
        postgres_lake.writer.commit("l2", postgres_lake.next)
    postgres_lake.proxy.speak()
    assert postgres_lake.writer.commit("l2", postgres_lake.next).was_there is passes_request
    assert postgres_lake.read() == [(1, "n1"), (2, "n2")]


@pytest.mark.postgres
def test_a_commit_that_landed_keeps_its_manifests_where_its_connection_broke(postgres_lake: Lake) -> None:
    """Iceberg sends the UPDATE again over a new connection, takes its outcome for a refusal, and cleans up after it."""
    postgres_lake.proxy.fall_silent(_UPDATE, passes_request=True, for_good=False)
    assert postgres_lake.writer.commit("l2", postgres_lake.next).was_there
    assert postgres_lake.read() == [(1, "n1"), (2, "n2")]
    postgres_lake.writer.commit("l3", postgres_lake.part(3))
    assert postgres_lake.read() == [(1, "n1"), (2, "n2"), (3, "n3")]


def _refused_late(lake: Lake, act: Callable[[JavaTable], None]) -> None:
    """Has the writer's next change land and be refused. Before the writer reads the log, another process does `act`."""
    table, other = lake.writer._table(lake.target.name), lake.writer._iceberg().load(lake.target.name)
    alone = table.alone

    @contextmanager
    def once() -> Iterator[None]:
        vars(table).pop("alone")
        try:
            with alone():
                yield
        finally:
            act(other)

    vars(table)["alone"] = once
    lake.proxy.fall_silent(_UPDATE, passes_request=True, for_good=False)


@pytest.mark.everyday("append_dedup-merge_on_read")
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("write", "merge"),
    [
        (WriteMode.APPEND, MergeMode.ON_READ),
        (WriteMode.APPEND_DEDUP, MergeMode.ON_READ),
        (WriteMode.APPEND_DEDUP, MergeMode.COPY_ON_WRITE),
    ],
)
def test_a_load_that_landed_and_expired_before_its_writer_looks_keeps_its_files(
    postgres_lake: Lake, write: WriteMode, merge: MergeMode
) -> None:
    lake, name = postgres_lake, postgres_lake.target.name
    lake.writer.commit("l2", part(lake.target, WriteMode.APPEND, [{"id": n, "name": f"n{n}"} for n in (2, 3)]))

    def expire(other: JavaTable) -> None:
        other.change(lake.part(4), other.refresh()).commit()
        older = [str(each.snapshot_id) for each in other.log.snapshots]
        assert care_of(lake.writer).expire(name, older) == len(older) == 3

    _refused_late(lake, expire)
    load = part(lake.target, write, [{"id": 2 if write is WriteMode.APPEND_DEDUP else 5, "name": "new"}])
    assert lake.writer.commit("l3", msgspec.structs.replace(load, merge=merge)).was_there
    lake.spark.catalog.refreshTable(lake.target.qualified)
    found = {2: "n2", 5: "new"} if write is WriteMode.APPEND else {2: "new"}
    assert lake.read() == sorted({1: "n1", 3: "n3", 4: "n4", **found}.items())


@pytest.mark.postgres
def test_a_load_that_landed_and_was_undone_before_its_writer_looks_leaves_a_table_that_expires(
    postgres_lake: Lake,
) -> None:
    lake, name = postgres_lake, postgres_lake.target.name

    def undo(other: JavaTable) -> None:
        other.java.manageSnapshots().rollbackTo(other.metadata().currentSnapshot().parentId()).commit()

    _refused_late(lake, undo)
    assert not lake.writer.commit("l2", lake.next).was_there
    lake.writer.commit("l3", lake.part(3))
    assert care_of(lake.writer).expire(name, [str(each) for each in _snapshots(lake)]) == 3
    assert lake.read() == [(1, "n1"), (2, "n2"), (3, "n3")]


@pytest.mark.postgres
def test_a_load_that_landed_on_a_branch_and_expired_before_its_writer_looks_keeps_its_files(
    postgres_lake: Lake,
) -> None:
    lake = postgres_lake
    lake.writer.commit("l2", branch_part(lake.target, WriteMode.OVERWRITE_DEDUP, [(2, "a"), (3, "a")]))
    last = branch_part(lake.target, WriteMode.OVERWRITE_DEDUP, [(4, "c")], after="l3", publishes=True)

    def publish(other: JavaTable) -> None:
        lake.writer.commit("l4", last)
        other.refresh()
        older = [str(each.snapshot_id) for each in other.log.snapshots]
        assert care_of(lake.writer).expire(lake.target.name, older) > 2

    _refused_late(lake, publish)
    with pytest.raises(TableError, match="branch"):
        lake.writer.commit("l3", branch_part(lake.target, WriteMode.OVERWRITE_DEDUP, [(3, "b")], after="l2"))
    lake.spark.catalog.refreshTable(lake.target.qualified)
    assert lake.read() == [(2, "a"), (3, "b"), (4, "c")]


@pytest.mark.everyday("False")
@pytest.mark.postgres
@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_rollback_keeps_its_manifests_where_its_connection_broke(postgres_lake: Lake, is_emptied: bool) -> None:
    """It is refused, and done again."""
    lake, rewinder = postgres_lake, rewinder_of(postgres_lake.writer)
    name = lake.target.name
    first = rewinder.past(name).current
    lake.writer.commit("l2", lake.next)
    to = None if is_emptied else first
    lake.proxy.fall_silent(_UPDATE, passes_request=True, for_good=False)
    with pytest.raises(TableError, match="has changed since"):
        rewinder.rewind(name, to, seen=rewinder.past(name), version=7)
    assert lake.read() == [(1, "n1"), (2, "n2")]
    assert rewinder.rewind(name, to, seen=rewinder.past(name), version=7)
    assert lake.read() == ([] if is_emptied else [(1, "n1")])
    lake.writer.commit("l3", lake.part(3))
    care = care_of(lake.writer)
    assert care.expire(name, [str(each) for each in _snapshots(lake)]) > 3
    assert lake.read() == [*([] if is_emptied else [(1, "n1")]), (3, "n3")]


@pytest.mark.everyday("True")
@pytest.mark.postgres
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_rollback_whose_connection_broke_when_it_moved_main_is_done(
    postgres_lake: Lake, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """Also if another process lands a load before it looks, on top of it."""
    lake, name, rewinder = postgres_lake, postgres_lake.target.name, rewinder_of(postgres_lake.writer)
    first = rewinder.past(name).current
    lake.writer.commit("l2", lake.next)
    entered = count(1)

    @contextmanager
    def alone_beside_another(table: Any) -> Iterator[None]:
        try:
            with alone(table):
                yield
        finally:
            if next(entered) == 2 and goes_on:
                lake.writer.commit("l3", lake.part(3))

    monkeypatch.setattr(rewind, "alone", alone_beside_another)
    lake.proxy.fall_silent(_UPDATE, passes_request=True, for_good=False, before=1)
    assert rewinder.rewind(name, first, seen=rewinder.past(name), version=7)
    assert lake.read() == [(1, "n1"), *([(3, "n3")] if goes_on else [])]
    assert [row["name"] for row in lake.spark.table(f"{lake.target.qualified}.refs").collect()] == ["main"]
