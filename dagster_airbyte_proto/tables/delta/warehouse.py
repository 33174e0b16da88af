"""The places where Delta tables may lie, whose tables they may be, and their names in SQL."""

from typing import TYPE_CHECKING

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.storage import folder_name, is_local
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.sql_names import is_catalog_name, qualified, quoted, text_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_BY_COLUMN_ID = "its columns have no ids that files could carry (delta.columnMapping.mode is not id): others made it"


def check_is_local(warehouse: str) -> None:
    """Raises ConfigError for a warehouse in an object store.

    On S3 Delta first looks whether a version exists and then writes it, under a lock of its own process only: so two
    processes can write the same version. Other object stores were not tried.
    """
    if not is_local(warehouse):
        raise ConfigError(
            "opening Delta tables",
            f"{warehouse} is no local folder: in an object store two processes that commit the same version of a Delta "
            "table would both believe that it is theirs, and the rows of one would be lost",
            remedy="Set catalog: {format: iceberg} in the settings with a catalog of type jdbc or rest, whose tables "
            "may lie in object stores, or keep the warehouse on a local disk.",
        )


def table_location(warehouse: str, name: TableName) -> str:
    """Returns the folder of a table."""
    return "/".join([warehouse.rstrip("/"), *map(folder_name, name)])


def by_folder(location: str) -> str:
    """Returns a table's name in SQL, whether a catalog knows it or not."""
    return f"delta.{quoted(location)}"


def sql_name(catalog: str, name: TableName, location: str) -> str:
    """Returns a table's name in SQL: its folder where the catalog does not take the name."""
    return qualified(catalog, name) if is_catalog_name(name) else by_folder(location)


def register(session: "SparkSession", catalog: str, name: TableName, location: str) -> None:
    """Makes a table known by its name to the catalog."""
    from dagster_airbyte_proto.tables.spark.jvm.errors import SESSION_ERRORS, Failure, failure_of  # Needs Spark.

    above = text_literal(location.rpartition("/")[0])
    table = sql_name(catalog, name, location)
    for statement in (
        f"create namespace if not exists {catalog}.{quoted(name.namespace)} location {above}",
        f"create table if not exists {table} using delta location {text_literal(location)}",
    ):
        try:
            session.sql(statement)
        except SESSION_ERRORS as error:
            # Delta looks whether it exists and makes it then: another writer came in between.
            if failure_of(error) is not Failure.EXISTS:
                raise
