"""Writes a part into an Iceberg table: Spark reads the staged files and writes their rows in files of its own."""

from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.tables.spark.staged_part import StagedPart, rows_to_write


def insert(session: SparkSession, table: str, staged: StagedPart, base: int | None, labels: Mapping[str, str]) -> None:
    """Adds the part's rows, in the place of all rows or those of its slice if it replaces them.

    It is refused if any rows came in since the snapshot `base`. An append replaces the rows for which `false` is true:
    Spark's append has no such fence.
    """
    # It needs packages that only a client of Spark Connect has.
    from pyspark.sql.connect.functions import expr

    replaced = (staged.slice_predicate or "true") if staged.part.write in REPLACING else "false"
    writer = rows_to_write(session, staged).writeTo(table).option("isolation-level", "serializable")
    for key, value in labels.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    if base is not None:
        writer = writer.option("validate-from-snapshot-id", str(base))
    writer.overwrite(expr(replaced))
