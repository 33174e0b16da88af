"""Registers plain Parquet tables in the session's catalog, which forgets them with the session.

A table is registered with the folder of its current version, so a query that runs while others commit reads that
version to its end. Register the table again before the next query.
"""

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
from dagster_airbyte_proto.tables.spark.columns import spark_schema
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, first_line
from dagster_airbyte_proto.tables.sql_names import is_catalog_name, qualified, text_literal

_CATALOG = "spark_catalog"


def register(session: SparkSession, tables: ParquetTables, only: TableName | None = None) -> None:
    """Registers all tables, or only one. Tables whose names the catalog does not take are reached by path only."""
    for name in tables.names() if only is None else [only]:
        if is_catalog_name(name):
            try:
                _register(session, tables, name)
            except CALL_ERRORS as error:
                raise TableError(f"registering table {name} in the session's catalog", first_line(error)) from error


def _register(session: SparkSession, tables: ParquetTables, name: TableName) -> None:
    table = qualified(_CATALOG, name)
    schema = StructType.fromJson(spark_schema(tables.folders.snapshot(name).columns))
    place = f"file://{tables.current_folder(name)}"
    if session.catalog.tableExists(table):
        if session.read.table(table).schema == schema:
            session.sql(f"alter table {table} set location {text_literal(place)}")
            return
        session.sql(f"drop table {table}")
    above = text_literal(str(tables.folders.folder(name).parent))
    session.sql(f"create namespace if not exists {table.rpartition('.')[0]} location {above}")
    session.catalog.createTable(table, place, source="parquet", schema=schema)
