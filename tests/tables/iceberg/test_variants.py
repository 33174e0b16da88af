"""Columns of VARIANTs, and what comes with them: Iceberg's third format, which has vectors where others have files of
position deletes."""

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.load import BranchPosition
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, WriteMode
from dagster_airbyte_proto.schema.columns import VARIANT
from dagster_airbyte_proto.tables.iceberg.care.compaction import Compaction
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from tests.conformance.table_rows import SCHEMA, Bench, part_of, position_deletes, put, table_name
from tests.conformance.table_writer import TableWriterConformance
from tests.tables.variant_rows import THINGS, shown, upsert, written

pytestmark = pytest.mark.spark


class TestThirdFormat:
    """The conformance of position deletes, as in tables of format 2."""

    @pytest.fixture
    def bench(self, iceberg_bench: Bench) -> Bench:
        return iceberg_bench

    @pytest.fixture
    def target(self, iceberg: IcebergTables) -> TableTarget:
        schema = SCHEMA.append(pa.field("things", pa.list_(VARIANT)))
        return iceberg.prepare(TableSpec(table_name(), schema, ("id",)))

    test_replaced = TableWriterConformance.test_a_replace_takes_out_upserted_rows_and_their_deletes
    test_duplicates = TableWriterConformance.test_position_deletes_take_out_duplicates_of_the_same_load
    test_deletions = TableWriterConformance.test_deletions_leave_nothing_of_their_keys_and_unknown_ones_do_no_harm


def _format(spark: SparkSession, target: TableTarget) -> str:
    return str(dict(query(spark, f"show tblproperties {target.qualified}").rows)["format-version"])


@pytest.mark.everyday("merge_on_read")
@pytest.mark.parametrize("merge", MergeMode)
def test_a_table_that_stands_gets_a_column_of_variants(
    spark: SparkSession, iceberg: IcebergTables, merge: MergeMode
) -> None:
    name = table_name()
    target = iceberg.prepare(TableSpec(name, pa.schema([("id", pa.int64())]), ("id",)))
    older = put(target, pa.table({"id": [1, 1, 2]}, schema=target.schema))
    iceberg.commit("l1", part_of(target, WriteMode.APPEND_DEDUP, older, position_deletes(target, older, 0)))
    assert _format(spark, target) == "2"
    target = iceberg.prepare(TableSpec(name, THINGS, ("id",)))
    assert _format(spark, target) == "3"
    for number, text in enumerate(['{"b":1.50,"a":[]}', '{"a":null}']):
        load = upsert(target, WriteMode.APPEND_DEDUP, [(2, "0"), (2, text), (3, text)])
        iceberg.commit(f"l{number + 2}", msgspec.structs.replace(load, merge=merge))
    expected = [[1, None, None], [2, '{"a":null}', ['{"a":null}']], [3, '{"a":null}', ['{"a":null}']]]
    assert shown(spark, target) == expected
    Compaction(spark, target.qualified).compact()
    assert shown(spark, target) == expected
    assert query(spark, f"select distinct content from {target.qualified}.files").rows == [[0]]


def test_a_generation_brings_variants_with_itsshown(spark: SparkSession, iceberg: IcebergTables) -> None:
    name = table_name()
    texts = pa.schema([("id", pa.int64()), ("thing", pa.string()), ("things", pa.list_(pa.string()))])
    before = iceberg.prepare(TableSpec(name, texts, ("id",)))
    rows = pa.table([pa.array([1]), pa.array(["{}"]), pa.array([["{}"]])], schema=before.schema)
    iceberg.commit("l1", part_of(before, WriteMode.OVERWRITE, written(before, rows)))
    target = iceberg.prepare(TableSpec(name, THINGS, ("id",), replaces=True))
    assert query(spark, f"select thing from {target.qualified}").rows == [["{}"]]
    load = upsert(target, WriteMode.OVERWRITE_DEDUP, [(1, "0"), (1, "[1]")])
    position = BranchPosition("airbyte_proto_1", publishes=True, schema_id=target.schema_id)
    iceberg.commit("l2", msgspec.structs.replace(load, branch_position=position))
    assert shown(spark, target) == [[1, "[1]", ["[1]"]]]
