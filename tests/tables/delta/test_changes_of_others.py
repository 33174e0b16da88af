"""Delta tables that others change while their loads go on: columns under other names, and rows of the same keys."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import SCHEMA, Reader, before_commit, names, part, table_name

pytestmark = pytest.mark.spark


def test_a_column_comes_again_under_the_name_of_one_that_was_renamed_or_dropped(
    spark: SparkSession, delta: DeltaTables
) -> None:
    spec = TableSpec(table_name(), pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int64())]))
    first = delta.prepare(spec)
    delta.commit("l1", part(first, WriteMode.APPEND, [{"id": 1, "name": "a", "n": 5}]))
    spark.sql(f"alter table {first.qualified} rename column name to called")
    spark.sql(f"alter table {first.qualified} drop column n")
    second = delta.prepare(spec)
    assert second.schema.names == ["id", "called", "name", "n"]
    delta.commit("l2", part(second, WriteMode.APPEND, [{"id": 2, "name": "b", "n": 7}]))
    found = query(spark, f"select id, called, name, n from {first.qualified} order by id").rows
    assert found == [[1, "a", None, None], [2, None, "b", 7]]
    # The old file has no null in the column that was dropped, and is read all the same.
    assert query(spark, f"select id from {first.qualified} where n is null").rows == [[1]]


def test_a_column_that_is_renamed_between_staging_and_an_upsert_is_not_filled_with_nulls(
    spark: SparkSession, delta: DeltaTables, iceberg_rows: Reader
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    delta.commit("l1", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "a"}]))
    upsert = part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "b"}])
    appended = part(target, WriteMode.APPEND, [{"id": 2, "name": "c"}])
    spark.sql(f"alter table {target.qualified} rename column name to called")
    with pytest.raises(TableError, match="column name was renamed to called"):
        delta.commit("l2", upsert)
    delta.commit("l3", appended)  # by reference: readers find its columns by their ids
    assert sorted((row["id"], row["called"]) for row in iceberg_rows(target)) == [(1, "a"), (2, "c")]


def test_a_row_that_comes_into_an_empty_table_meanwhile_is_replaced_by_its_key(
    spark: SparkSession, delta: DeltaTables, delta_settings: SparkSettings, iceberg_rows: Reader
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    others, theirs = DeltaTables(spark, delta_settings), part(target, WriteMode.APPEND, [{"id": 1, "name": "theirs"}])

    def land_theirs() -> None:
        others.commit("l2", theirs)

    before_commit(land_theirs)
    assert not delta.commit("l1", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "ours"}])).was_there
    assert names(iceberg_rows(target)) == [(1, "ours")]


def test_a_refresh_without_a_column_lands_where_delta_keeps_a_change_feed(
    spark: SparkSession, delta: DeltaTables
) -> None:
    name, before = table_name(), pa.schema([("id", pa.int64()), ("gone", pa.string()), ("old", pa.string())])
    first = delta.prepare(TableSpec(name, before))
    spark.sql(f"alter table {first.qualified} set tblproperties ('delta.enableChangeDataFeed' = 'true')")
    delta.commit("l1", part(first, WriteMode.APPEND, [{"id": 1, "gone": "g", "old": "o"}]))
    rules, after = EvolutionRules(formerly={"new": "old"}), pa.schema([("id", pa.int64()), ("new", pa.string())])
    second = delta.prepare(TableSpec(name, after, evolution_rules=rules, replaces=True))
    assert (second.schema.names, second.schema_id) == (["id", "gone", "new"], None)
    delta.commit("l2", part(second, WriteMode.OVERWRITE, [{"id": 2, "new": "n"}]))
    assert query(spark, f"select id, gone, new from {first.qualified}").rows == [[2, None, "n"]]
