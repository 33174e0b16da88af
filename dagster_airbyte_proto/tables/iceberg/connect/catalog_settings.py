"""A catalog of a Connect server, as the settings of the session tell of it."""

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.object_stores.known import spark_settings
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.tables.connect_client import forget_if_useless
from dagster_airbyte_proto.tables.remote_sessions import TOKEN
from dagster_airbyte_proto.tables.spark.jvm.errors import REMOTE_ERRORS, first_line


def check_catalog(session: SparkSession, catalog: str) -> str:
    """Returns the warehouse of a catalog of the server. Raises ConfigError if it has none of that name."""
    doing, key = f"opening catalog {catalog}", f"spark.sql.catalog.{catalog}"
    try:
        kind, warehouse = session.conf.get(key, None), session.conf.get(f"{key}.warehouse", None)
        own_type = session.conf.get(f"{key}.type", None)
    except REMOTE_ERRORS as error:
        forget_if_useless(session, error)  # One of a resource of the user's was not opened by us.
        remedy = f"Does the Connect server still run, and is {TOKEN} in the settings the token that it demands?"
        raise ConfigError(doing, first_line(error), remedy=remedy) from error
    if kind is None:
        remedy = f"Start the server with {key}, an Iceberg catalog, or set it under `spark` in the settings."
        raise ConfigError(doing, f"the Connect server has no {key}", remedy=remedy)
    if own_type == "hadoop":
        remedy = f"Give the server another one: {key}.type of jdbc, rest, hive or glue."
        raise ConfigError(
            doing, "it is of type hadoop, whose commits are exclusive on one machine alone", remedy=remedy
        )
    return warehouse or ""


def remote_storage(session: SparkSession, catalog: str) -> Storage:
    """Returns the server's settings for object stores, of its catalog and of Hadoop, as far as it tells them."""
    return Storage(spark_settings(session.conf.getAll, catalog))
