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

    @pytest.mark.parametrize("odd", ["select", "1"])
    def test_odd_names_are_names(self, bench: Bench, odd: str) -> None:
        super().test_odd_names_are_names(bench, odd)

    @pytest.mark.parametrize("odd", ["Users", "dot.ted", "b\u00fccher"])
    def test_names_that_are_not_told_apart_from_others_are_refused(self, bench: Bench, odd: str) -> None:
        with pytest.raises(TableError, match="names: snake"):
            bench.writer.prepare(TableSpec(TableName("shop", odd), SCHEMA))
