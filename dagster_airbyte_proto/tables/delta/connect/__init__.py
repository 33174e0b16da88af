"""Delta tables of a Spark Connect server, to which everything goes as SQL and as plans of DataFrames."""

from dagster_airbyte_proto.tables.delta import ABILITIES as _OF_A_JVM

ABILITIES = _OF_A_JVM._replace(has_new_columns_with_rows=False, is_remote=True)
