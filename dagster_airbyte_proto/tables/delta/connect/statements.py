"""Statements that create and change a Delta table. Tables are named by their folders."""

from collections.abc import Iterator, Sequence

from dagster_airbyte_proto.schema.evolution import EvolutionDecision, IcebergSchema
from dagster_airbyte_proto.tables.delta.actions import TABLE_PROPERTIES, widened_columns
from dagster_airbyte_proto.tables.spark.column_sql import column_changes, column_list
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

# SQL refuses properties that Delta does not know, which Spark's writer of files heeds all the same.
_PROPERTIES = {key: value for key, value in TABLE_PROPERTIES.items() if not key.startswith("delta.parquet.")}


def create_table(table: str, columns: IcebergSchema, comment: str, partitioned_by: Sequence[str]) -> str:
    """Returns the statement for a new table, which gives its columns ids as those of a session with a JVM have them."""
    properties = ", ".join(f"{text_literal(key)} = {text_literal(value)}" for key, value in _PROPERTIES.items())
    return " ".join(
        (
            f"create table if not exists {table} ({column_list(columns)}) using delta",
            f"partitioned by ({', '.join(map(quoted, partitioned_by))})" if partitioned_by else "",
            f"comment {text_literal(comment)}" if comment else "",
            f"tblproperties ({properties})",
        )
    )


def change_columns(table: str, existing: IcebergSchema, decision: EvolutionDecision) -> Iterator[str]:
    """Yields the statements after which the table has the decided columns: each is a commit of its own."""
    for old, new in decision.renames:
        yield f"alter table {table} rename column {quoted(old)} to {quoted(new)}"
    if any(widened_columns(existing, decision.columns)):
        yield f"alter table {table} set tblproperties ('delta.enableTypeWidening' = 'true')"
    names = dict(decision.renames)
    renamed = {
        **existing,
        "fields": [{**each, "name": names.get(each["name"], each["name"])} for each in existing["fields"]],
    }
    for change in column_changes(renamed, decision.columns):
        yield f"alter table {table} {change}"
