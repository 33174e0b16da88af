"""0.0 and -0.0 are one key in the tables of every format, also in rows that landed as two."""

from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import MergeMode, WriteMode
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.tables.spark.session import query
from tests.conformance.table_rows import table_name
from tests.staging.conftest import landed, plan, record

pytestmark = pytest.mark.spark

_PROPERTIES = {"k": {"type": "number"}, "at": {"type": "integer"}}


@pytest.mark.parametrize(
    ("format_name", "merge"),
    [
        ("iceberg", MergeMode.POSITIONS),
        ("iceberg", MergeMode.EQUALITY_DELETES),
        ("iceberg", MergeMode.COPY_ON_WRITE),
        ("delta", MergeMode.ON_READ),
    ],
)
@pytest.mark.everyday("iceberg-positions")
def test_a_key_of_zero_replaces_rows_of_either_sign(
    spark: SparkSession, request: pytest.FixtureRequest, format_name: str, merge: MergeMode
) -> None:
    tables: Any = request.getfixturevalue(format_name)
    appended = plan(_PROPERTIES, name=table_name().name)
    merged = msgspec.structs.replace(appended, write=WriteMode.APPEND_DEDUP, primary_key=(("k",),), cursor=("at",))
    merged = msgspec.structs.replace(merged, merge=merge)
    spelled = ["0.0", "-0.0", "-0.0", "0", "1"]
    rows = [record(f'{{"k":{zero},"at":{at}}}') for at, zero in enumerate(spelled)]
    landed(tables, appended, [rows[:2]], "before")
    parts = landed(tables, merged, [rows[3:], rows[2:3]])
    assert [part.duplicates for part in parts] == [0, 1], "the second comes late"
    columns = table_columns(merged)
    target = tables.prepare(TableSpec(merged.table, columns.schema, columns.keys))
    assert query(spark, f"select at from {target.qualified} order by at").rows == [[3], [4]]
