"""Tables that are named and are not there: what a person may have meant."""

from difflib import get_close_matches

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS

_SHOWN_TABLES = 5


def is_missing_table(error: PySparkException) -> bool:
    return error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"


def where_to_look(session: SparkSession, table: str) -> str:
    """Returns a remedy for a name that is no table: the nearest one of its namespace, or those that are there."""
    namespace, _, name = table.rpartition(".")
    try:
        known = [row["tableName"] for row in session.sql(f"SHOW TABLES IN {namespace}").collect()] if namespace else []
    except (*CALL_ERRORS, PySparkException):  # There is no such namespace, or it is no name at all.
        known = []
    if near := get_close_matches(name, known, n=1):
        return f"Did you mean {namespace}.{near[0]}?"
    if known:
        more = ", …" if len(known) > _SHOWN_TABLES else ""
        return f"{namespace} has {', '.join(sorted(known)[:_SHOWN_TABLES])}{more}."
    return "Correct its name (catalog.namespace.table), or make it first. Is --home right?"
