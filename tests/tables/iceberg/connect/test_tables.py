"""The conformance of Iceberg tables on a real Connect server."""

import pytest

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import TableCare
from dagster_airbyte_proto.tables.formats import rewinder_of
from dagster_airbyte_proto.tables.iceberg.connect.delegation import check_credentials
from tests.conformance.table_care import CaredForTableConformance
from tests.conformance.table_rows import SCHEMA, Bench
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
        check_credentials("lake", settings.get)
    settings["spark.sql.catalog.lake.s3.access-key-id"] = "ada"
    check_credentials("lake", settings.get)
