"""The conformance of Delta tables on a real Connect server, and what sessions with and without a JVM share."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, TableError
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.tables.delta.connect.tables import RemoteDeltaTables
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.formats import care_of, rewinder_of
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import SCHEMA, Bench, Row, before_commit, names, part, table_name
from tests.conformance.table_slices import SlicedTableConformance
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance
from tests.support.connect_server import Connect, ConnectServer

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.usefixtures("_functions_of_connect")]


@pytest.fixture(scope="module")
def settings(connect_server: ConnectServer) -> SparkSettings:
    folder = connect_server.warehouse.parent / "del ta"
    return SparkSettings(str(folder), catalog="spark_catalog", format="delta")


@pytest.fixture(scope="module")
def bench(connect: Connect, settings: SparkSettings) -> Bench:
    reader = connect()

    def read(target: TableTarget) -> list[Row]:
        return [row.asDict(recursive=True) for row in reader.table(target.qualified).collect()]

    labels = {"connection": "shop", "run-id": "r1"}
    return Bench(RemoteDeltaTables(connect(), settings, labels=labels), RemoteDeltaTables(connect(), settings), read)


class TestTables(TableWriterConformance, WitnessConformance, SlicedTableConformance):
    """Loads that append, upsert and replace rows, and slices."""


class _SessionThatStopsReading:
    """A session that reads no table once something was committed."""

    def __init__(self, session: SparkSession) -> None:
        self._session, self._has_committed = session, False

    def reach(self, point: str) -> None:
        self._has_committed = self._has_committed or point == "table.committed"

    def __getattr__(self, name: str) -> Any:
        if name == "read" and self._has_committed:
            raise PySparkException("the server went down")
        return getattr(self._session, name)


def test_an_error_while_the_rows_of_a_landed_load_are_counted_is_no_refusal(
    bench: Bench, connect: Connect, settings: SparkSettings
) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA))
    load, session = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]), _SessionThatStopsReading(connect())
    tables = RemoteDeltaTables(session, settings)  # type: ignore[arg-type]  # a stand-in
    points.arm(session.reach)
    try:
        with pytest.raises(CommitUnknown, match="the server went down"):
            tables.commit("l1", load)
        with pytest.raises(CommitUnknown, match="the server went down"):
            tables.commit("l1", load)
    finally:
        points.arm(None)
    assert bench.other.find_load("l1", load) is not None
    assert bench.other.commit("l1", load).was_there
    assert names(bench.read(target)) == [(1, "a")]


def test_what_needs_a_jvm_is_refused(bench: Bench) -> None:
    for made in (care_of, rewinder_of):
        with pytest.raises(ConfigError, match="need Spark's own JVM"):
            made(bench.writer)


def test_a_table_of_the_servers_catalog_in_another_folder_is_refused(
    bench: Bench, connect: Connect, connect_server: ConnectServer
) -> None:
    name, other = table_name(), connect_server.warehouse.parent / "elsewhere"
    session = connect()
    session.sql("create namespace if not exists spark_catalog.shop")
    session.sql(f"create table spark_catalog.{name} (id bigint) using delta location '{other}'")
    with pytest.raises(TableError, match=f"the server has a table of this name in {other}"):
        bench.writer.prepare(TableSpec(name, SCHEMA))


def test_a_table_is_one_for_sessions_with_a_jvm_and_without(
    delta: DeltaTables, delta_settings: SparkSettings, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteDeltaTables(connect(), delta_settings, labels={"connection": "shop"})

    def on(writer: DeltaTables | RemoteDeltaTables) -> DeltaTables | RemoteDeltaTables:
        """A process has pyspark's functions for one kind of session or the other, as this variable says."""
        if writer is remote:
            monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        else:
            monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
        return writer

    for first, second in ((delta, remote), (remote, delta)):
        spec = TableSpec(table_name(), SCHEMA, ("id",))
        target = on(first).prepare(spec)
        load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        assert not on(first).commit("l1", load).was_there
        assert on(second).prepare(spec).schema.equals(target.schema, check_metadata=True)
        assert on(second).commit("l1", load).was_there
        upsert = part(target, WriteMode.APPEND_DEDUP, [{"id": 2, "name": "c"}, {"id": 3, "name": "d"}])
        assert not on(second).commit("l2", upsert).was_there
        assert on(first).commit("l2", upsert).was_there
        third = on(first).commit("l3", part(target, WriteMode.APPEND, [{"id": 4, "name": "e"}]))
        assert (third.was_there, third.table_rows) == (False, 4)
        assert (witness := on(second).witness(target.name, "shop")) and witness.newest_load == "l3"
        on(remote)
        found = connect().read.format("delta").load(target.location).collect()
        assert names([row.asDict() for row in found]) == [(1, "a"), (2, "c"), (3, "d"), (4, "e")]


def test_files_that_a_session_with_a_jvm_lands_meanwhile_stay_in_the_table(
    delta: DeltaTables, delta_settings: SparkSettings, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteDeltaTables(connect(), delta_settings)
    target = remote.prepare(TableSpec(table_name(), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])

    def land_by_reference() -> None:
        monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
        assert not delta.commit("l1", load).was_there
        monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")

    before_commit(land_by_reference)
    assert remote.commit("l1", load).was_there
    assert all(Path(file.path).exists() for file in load.files)
    found = connect().read.format("delta").load(target.location).collect()
    assert names([row.asDict() for row in found]) == [(1, "a")]


def test_a_row_that_comes_into_an_empty_table_meanwhile_is_replaced_by_its_key(bench: Bench) -> None:
    target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    theirs = part(target, WriteMode.APPEND, [{"id": 1, "name": "theirs"}])

    def land_theirs() -> None:
        bench.other.commit("l2", theirs)

    before_commit(land_theirs)
    assert not bench.writer.commit("l1", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "ours"}])).was_there
    assert names(bench.read(target)) == [(1, "ours")]
