"""The table of types is what the code does, and each of its rows goes through a sync to Spark."""

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.fidelity.lines import offer_lines, record_line
from tests.support.types_table import CHOICES, PAGE, ROWS, page
from tests.sync.conftest import OpenShop


def test_the_page_has_the_table_as_it_is() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "python -m tests.support.types_table writes it anew"


@pytest.mark.spark
@pytest.mark.parametrize("number", range(len(CHOICES)), ids=["usual", "structs"])
def test_each_row_of_the_table_goes_through_to_spark(
    number: int, shop: OpenShop, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    stream = f"types{number}"
    texts = {f"c{at}": [*(text for text, _ in row.lands), *row.nulled] for at, row in enumerate(ROWS)}
    longest = max(map(len, texts.values()))
    records = [{name: some[at] for name, some in texts.items() if at < len(some)} for at in range(longest)]
    place = shop(read="full_refresh", write="overwrite")
    properties = {f"c{at}": row.schema for at, row in enumerate(ROWS)}
    output = b"".join(record_line(stream, record) for record in records)
    offer_lines(place, stream, properties, output, types=msgspec.to_builtins(CHOICES[number]))
    engine = Engine(Settings.load(place.home), tables=IcebergTables(spark, spark_settings))

    told = sync_connection(engine, Connection.from_file(place.connection_file)).streams[stream]

    shown = ", ".join(f"cast(c{at} as string)" for at in range(len(ROWS)))
    noted = "transform(_airbyte_meta.changes, c -> c.field)"
    found = spark.sql(f"select {shown}, {noted} from {told.table} order by _airbyte_raw_id").toArrow()
    rows = [list(row.values()) for row in found.rename_columns(list(map(str, range(len(ROWS) + 1)))).to_pylist()]
    assert len(rows) == longest
    for at, row in enumerate(ROWS):
        landed = [None if each == "NULL" else each.split("|")[: number + 1][-1] for _, each in row.lands]
        assert [each[at] for each in rows][: len(landed)] == landed, row.name
        is_noted = [any(field.split(".")[0] == f"c{at}" for field in each[-1]) for each in rows]
        nulled = range(len(landed), len(landed) + len(row.nulled))
        assert [position for position, each in enumerate(is_noted) if each] == list(nulled), row.name
