"""Writes parts into a Delta table by a Spark job: upserts, and any deletes in a table without deletion vectors.

- Delta has neither equality deletes nor files of position deletes.
- One MERGE deletes the rows of the keys and inserts the rows of the part.
- Delta keeps the load id as it does for files by reference, and does nothing for a load that it has already.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.load import FileContent
from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.tables.delta.preparation import WidenedColumns
from dagster_airbyte_proto.tables.spark.columns import spark_type
from dagster_airbyte_proto.tables.spark.staged_part import SOURCE, TARGET, StagedPart, merge_source, rows_to_write
from dagster_airbyte_proto.tables.sql_names import quoted


class CommitLabels(NamedTuple):
    """Delta keeps these in the commit: `load_id` and `version` as the transaction that is not to be repeated."""

    load_id: str
    version: int
    user_metadata: Mapping[str, str]


def run_write_job(session: SparkSession, location: str, staged: StagedPart, labels: CommitLabels) -> None:
    """Writes the part into the table at `location`, or nothing if that has the load already. Does not say which."""
    # A session of its own: a MERGE has no options, and takes the load id from the settings of the session.
    own = session.newSession()
    if staged.paths(FileContent.EQUALITY_DELETES):
        own.conf.set("spark.databricks.delta.write.txnAppId", labels.load_id)
        own.conf.set("spark.databricks.delta.write.txnVersion", str(labels.version))
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(labels.user_metadata))
        _merge(own, location, staged)
    else:
        write_rows(own, location, staged, labels)


def write_rows(session: SparkSession, location: str, staged: StagedPart, labels: CommitLabels) -> None:
    """Adds the part's rows, in the place of all rows or those of its slice if it replaces them."""
    replaces = staged.part.write in REPLACING
    writer = rows_to_write(session, staged).write.format("delta").mode("overwrite" if replaces else "append")
    writer = (
        writer.option("txnAppId", labels.load_id)
        .option("txnVersion", labels.version)
        .option("userMetadata", json.dumps(labels.user_metadata))
    )
    if staged.slice_predicate and replaces:
        writer = writer.option("replaceWhere", staged.slice_predicate)
    writer.save(location)


def widen(session: SparkSession, table: str, widened: WidenedColumns) -> None:
    """Widens the types of columns, each in a commit of its own."""
    session.sql(f"alter table {table} set tblproperties ('delta.enableTypeWidening' = 'true')")
    for path, kind in widened:
        column = ".".join(map(quoted, path))
        session.sql(f"alter table {table} alter column {column} type {spark_type(kind, lambda _: {})}")


def _merge(session: SparkSession, location: str, staged: StagedPart) -> None:
    source = merge_source(session, staged)
    tables: Any = session._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]  # a session has a JVM
    table = tables.forPath(session._jsparkSession, location).alias(TARGET)
    merge = table.merge(source.frame.alias(SOURCE)._jdf, source.matches)
    merge.whenMatched().delete().whenNotMatched(source.inserted).insertExpr(source.values).execute()
