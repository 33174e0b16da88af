"""Writes a part into a Delta table of a Connect server: Spark reads the staged files and writes their rows again.

The load is the application id of Delta's transaction, as where there is a JVM. A commit of a load that the table has,
of its version or a later one, is skipped without a word, and one of a load that came in meanwhile is refused.
"""

import json

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.load import FileContent
from dagster_airbyte_proto.tables.delta.jobs import CommitLabels, write_rows
from dagster_airbyte_proto.tables.delta.warehouse import by_folder
from dagster_airbyte_proto.tables.spark.session_copies import copy_with
from dagster_airbyte_proto.tables.spark.staged_part import StagedPart, merge_by_sql


def write_part(session: SparkSession, location: str, staged: StagedPart, labels: CommitLabels) -> None:
    """Adds the part's rows, in the place of all rows or those of its slice if it replaces them, or merges them."""
    if not staged.paths(FileContent.EQUALITY_DELETES):
        write_rows(session, location, staged, labels)
        return
    # A MERGE has no options, and takes them from the settings of its session.
    settings = {
        "spark.databricks.delta.write.txnAppId": labels.load_id,
        "spark.databricks.delta.write.txnVersion": str(labels.version),
        "spark.databricks.delta.commitInfo.userMetadata": json.dumps(labels.user_metadata),
    }
    with copy_with(session, settings) as own:
        merge_by_sql(own, by_folder(location), staged)
