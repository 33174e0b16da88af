"""Names that a person wrote and Spark does not know: where they stand, and what may have been meant."""

from collections.abc import Sequence
from difflib import get_close_matches

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from dagster_airbyte_proto.loads.plan_query import PlannedField
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS
from dagster_airbyte_proto.tables.sql_names import quoted

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


def planned_column(field: PlannedField) -> Column:
    """Returns the column that a field comes from. Raises PySparkException for an expression that cannot be read."""
    if field.sql is not None:
        return f.expr(field.sql)
    return f.lit(field.constant) if field.column is None else f.col(".".join(map(quoted, field.column.split("."))))


def field_at_fault(frame: DataFrame, fields: Sequence[PlannedField]) -> str:
    """Returns the name of the first field that cannot be selected; empty if each of them can, alone."""
    for field in fields:
        try:
            frame.select(planned_column(field))
        except PySparkException:
            return field.name
    return ""
