"""The conformance of Iceberg tables on a real Connect server."""

import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import TableName
from tests.conformance.table_rows import SCHEMA, Bench
from tests.conformance.table_slices import SlicedTableConformance
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_functions_of_connect")]


@pytest.mark.nightly
class TestTables(TableWriterConformance, WitnessConformance, SlicedTableConformance):
    @pytest.fixture
    def bench(self, connected_bench: Bench) -> Bench:
        return connected_bench

    @pytest.mark.parametrize("odd", ["Sp ace, B\u00fccher \u66f8, tick`ed, quo'te\"d", "select", "1"])
    def test_odd_names_are_names(self, bench: Bench, odd: str) -> None:
        super().test_odd_names_are_names(bench, odd)

    def test_a_name_with_a_dot_is_refused(self, bench: Bench) -> None:
        with pytest.raises(TableError, match="names: snake"):
            bench.writer.prepare(TableSpec(TableName("shop", "dot.ted"), SCHEMA))
