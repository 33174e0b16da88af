"""Iceberg tables of a Spark Connect server, to which everything goes as SQL and as plans of DataFrames."""

from dagster_airbyte_proto.model import MergeMode
from dagster_airbyte_proto.tables.iceberg import ABILITIES as _OF_A_JVM

ABILITIES = _OF_A_JVM._replace(
    # Spark's MERGE leaves the positions of the old rows. Nothing in SQL adds a file of equality deletes.
    merges=frozenset((MergeMode.ON_READ, MergeMode.POSITIONS)),
    has_clustering=False,
    has_new_columns_with_rows=False,
    is_remote=True,
)
