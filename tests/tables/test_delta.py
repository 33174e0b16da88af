import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName, WriteMode
from dagster_airbyte_proto.tables.delta import DeltaTables
from dagster_airbyte_proto.tables.spark import SparkSettings, query
from dagster_airbyte_proto.tables.writer import TableSpec
from tests.conformance.table_care import CaredForTableConformance
from tests.conformance.table_slices import SlicedTableConformance
from tests.conformance.table_writer import SCHEMA, Bench, Reader, TableWriterConformance, names, part, table_name

pytestmark = pytest.mark.spark


class TestDeltaTables(TableWriterConformance, SlicedTableConformance, CaredForTableConformance):
    @pytest.fixture
    def bench(
        self, delta: DeltaTables, spark: SparkSession, delta_settings: SparkSettings, iceberg_rows: Reader
    ) -> Bench:
        return Bench(delta, DeltaTables(spark, delta_settings), iceberg_rows)


def test_a_table_tells_of_its_loads_and_keeps_its_columns_through_a_rename(
    spark: SparkSession, delta: DeltaTables, iceberg_rows: Reader
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA, comment="people"))
    delta.commit("l1", part(target, WriteMode.APPEND, [{"id": i, "name": "a"} for i in range(3)]))
    told = spark.sql(f"describe history {target.qualified}").where("version = 1").first()
    assert told is not None
    assert json.loads(told["userMetadata"]) == {
        "airbyte-proto.load-id": "l1",
        "airbyte-proto.stream": "users",
        "airbyte-proto.connection": "shop",
        "airbyte-proto.run-id": "r1",
        "airbyte-proto.table-rows": "3",
    }
    described = {row[0]: row for row in query(spark, f"describe table extended {target.qualified}").rows}
    assert described["id"] == ["id", "bigint", "who it is"]
    assert described["Comment"][1] == "people"
    # By the bounds of its files, which Delta takes from us.
    assert query(spark, f"select id from {target.qualified} where id > 1").rows == [[2]]
    assert query(spark, f"select id from {target.qualified} where id > 2 or name > 'b'").rows == []

    spark.sql(f"alter table {target.qualified} rename column name to called")
    schema = pa.schema([("id", pa.int64()), ("called", pa.string())])
    again = delta.prepare(TableSpec(target.name, schema))
    assert again.schema.names == ["id", "called", "_airbyte_meta"]
    delta.commit("l2", part(again, WriteMode.OVERWRITE, [{"id": 9, "called": "b"}]))
    assert [(row["id"], row["called"]) for row in iceberg_rows(again)] == [(9, "b")]


def test_tables_of_the_warehouse_are_known_by_name_and_those_of_others_are_refused(
    spark: SparkSession, delta_settings: SparkSettings
) -> None:
    settings = delta_settings._replace(warehouse=f"{delta_settings.warehouse}/other")
    tables = DeltaTables(spark, settings)
    made = tables.prepare(TableSpec(TableName("pond", "fish"), SCHEMA))
    tables.commit("l1", part(made, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    spark.sql("drop table spark_catalog.pond.fish")
    tables.register_all()
    assert names([row.asDict(recursive=True) for row in spark.table("pond.fish").collect()]) == [(1, "a")]
    spark.range(3).write.format("delta").save(f"{settings.warehouse}/pond/frogs")
    with pytest.raises(TableError, match="others made it"):
        tables.prepare(TableSpec(TableName("pond", "frogs"), SCHEMA))
