"""The conformance of Iceberg tables on a real Connect server."""

from itertools import count
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName, WriteMode
from dagster_airbyte_proto.tables.care import TableCare
from dagster_airbyte_proto.tables.formats import rewinder_of
from dagster_airbyte_proto.tables.iceberg.connect.delegation import check_credentials
from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables
from dagster_airbyte_proto.tables.iceberg.connect.writes import insert
from dagster_airbyte_proto.tables.iceberg.log import History
from tests.conformance.table_care import CaredForTableConformance
from tests.conformance.table_rows import SCHEMA, Bench, names, part, table_name
from tests.conformance.table_slices import SlicedTableConformance
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_functions_of_connect")]


class _RemoteTables(TableWriterConformance, WitnessConformance):
    @pytest.mark.parametrize("odd", ["Sp ace, B\u00fccher \u66f8, tick`ed, quo'te\"d", "select", "1"])
    def test_odd_names_are_names(self, bench: Bench, odd: str) -> None:
        super().test_odd_names_are_names(bench, odd)

    def test_a_name_with_a_dot_is_refused(self, bench: Bench) -> None:
        with pytest.raises(TableError, match="names: snake"):
            bench.writer.prepare(TableSpec(TableName("shop", "dot.ted"), SCHEMA))


@pytest.mark.nightly
class TestTables(_RemoteTables, SlicedTableConformance, CaredForTableConformance):
    @pytest.fixture
    def bench(self, connected_bench: Bench) -> Bench:
        return connected_bench

    def test_a_table_is_taken_back_and_forward_and_nothing_undone_lands_again(
        self,
        bench: Bench,
        care: TableCare,  # noqa: ARG002 - as the suite has it
        target: TableTarget,  # noqa: ARG002
    ) -> None:
        with pytest.raises(ConfigError, match="their rewinds need Spark's own JVM"):
            rewinder_of(bench.writer)


@pytest.mark.nightly
class TestTablesOfARestCatalog(_RemoteTables):
    @pytest.fixture
    def bench(self, rest_connected_bench: Bench) -> Bench:
        return rest_connected_bench


def test_a_catalog_that_vends_credentials_to_its_server_alone_is_refused() -> None:
    settings = {"spark.sql.catalog.lake.header.X-Iceberg-Access-Delegation": "vended-credentials"}
    with pytest.raises(ConfigError, match="come to the Connect server, and not to this process"):
        check_credentials("lake", settings)
    settings["spark.sql.catalog.lake.s3.access-key-id"] = "ada"
    check_credentials("lake", settings)


def test_a_load_that_landed_is_not_refused_where_the_log_cannot_be_read_once_more(
    connected_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its INSERT is refused after its effect, and then the server goes."""
    tables = connected_bench.writer
    assert isinstance(tables, RemoteIcebergTables)
    target = tables.prepare(TableSpec(table_name(), SCHEMA))
    load, table, looks = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]), tables._table(target.name), count(1)
    refresh = table.refresh

    def insert_and_fail(session: SparkSession, *others: Any) -> None:
        insert(session, *others)
        session.table("nowhere").collect()

    def refresh_twice() -> History:
        if next(looks) > 2:
            raise OSError("the server is gone")
        return refresh()

    with monkeypatch.context() as patched:
        patched.setattr("dagster_airbyte_proto.tables.iceberg.connect.tables.insert", insert_and_fail)
        patched.setattr(table, "refresh", refresh_twice)
        assert tables.commit("l1", load).was_there
    assert names(connected_bench.read(target)) == [(1, "a")]
