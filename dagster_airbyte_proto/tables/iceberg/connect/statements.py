"""Statements that create and change an Iceberg table."""

from collections.abc import Iterator, Sequence

from dagster_airbyte_proto.loads.column_ids import has_type
from dagster_airbyte_proto.model import PartitionField, SortField
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.tables.iceberg.log import TableLog
from dagster_airbyte_proto.tables.iceberg.preparation import RequestedTable
from dagster_airbyte_proto.tables.spark.column_sql import column_changes, column_list
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

_FORMAT_VERSION = "format-version"
_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


def create_table(table: str, requested: RequestedTable) -> str:
    """Returns the statement for a new table. Raises TableError for a type that Spark SQL has not."""
    fields = [_partition_field(field) for field in requested.partitioning]
    if requested.slice_column is not None:
        fields = [quoted(requested.slice_column)]
    oldest = "3" if has_type(requested.columns, "variant") else "2"
    properties = {**_PROPERTIES, _FORMAT_VERSION: oldest, **requested.properties}
    comment = properties.pop("comment", "")
    return " ".join(
        (
            f"create table {table} ({column_list(requested.columns)}) using iceberg",
            f"partitioned by ({', '.join(fields)})" if fields else "",
            f"comment {text_literal(comment)}" if comment else "",
            f"tblproperties ({', '.join(f'{text_literal(k)} = {text_literal(v)}' for k, v in properties.items())})",
        )
    )


def rename_columns(table: str, renames: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yields a statement for each column (old name, new name)."""
    return (f"alter table {table} rename column {quoted(old)} to {quoted(new)}" for old, new in renames)


def change_columns(table: str, existing: IcebergSchema, wanted: IcebergSchema) -> Iterator[str]:
    """Yields the statements after which the table has all `wanted` columns: each adds columns, widens one, or allows
    it to be null."""
    if has_type(wanted, "variant") and not has_type(existing, "variant"):
        yield f"alter table {table} set tblproperties ('{_FORMAT_VERSION}' = '3')"
    for change in column_changes(existing, wanted):
        yield f"alter table {table} {change}"


def evolve(table: str, log: TableLog, wanted: IcebergSchema) -> Iterator[str]:
    """Yields the statements after which an existing table has all `wanted` columns.

    Its owner may have named columns that identify its rows, as Flink does for a primary key: those may not be null.
    """
    changes = list(change_columns(table, log.columns, wanted))
    schema = next(each for each in log.schemas if each["schema-id"] == log.current_schema_id)
    identifying = schema.get("identifier-field-ids") or ()
    if changes and identifying:
        names = (name for number, name in _names(schema["fields"]) if number in identifying)
        yield f"alter table {table} drop identifier fields {', '.join(names)}"
    yield from changes


def order_by(table: str, fields: Sequence[SortField]) -> str:
    """Returns the statement that sorts the rows of each file from now on."""
    terms = (
        f"{quoted(field.column)} {'desc nulls last' if field.is_descending else 'asc nulls first'}" for field in fields
    )
    return f"alter table {table} write locally ordered by {', '.join(terms)}"


def _names(fields: Sequence[IcebergSchema], above: str = "") -> Iterator[tuple[int, str]]:
    """Yields the id and the name of each column and of the members of structs, as SQL writes them."""
    for field in fields:
        name = f"{above}{quoted(str(field['name']))}"
        yield field["id"], name
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _names(field["type"]["fields"], f"{name}.")


def _partition_field(field: PartitionField) -> str:
    if field.transform == "identity":
        return quoted(field.column)
    return f"{field.transform}({f'{field.width}, ' if field.width else ''}{quoted(field.column)})"


def procedure_call(catalog: str, procedure: str, table: str, **arguments: str) -> str:
    """Returns the call of one of Iceberg's procedures for a table. The arguments are texts of SQL."""
    name = table.removeprefix(f"{quoted(catalog)}.")
    given = {"table": text_literal(name), **arguments}
    return f"call {quoted(catalog)}.system.{procedure}({', '.join(f'{key} => {text}' for key, text in given.items())})"
