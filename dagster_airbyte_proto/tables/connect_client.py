"""Opens a session on a Spark Connect server."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.remote_sessions import REMOTE
from dagster_airbyte_proto.tables.spark.jvm.errors import first_line, log_no_raised_errors
from dagster_airbyte_proto.tables.spark.settings import SparkSettings


def connect(settings: SparkSettings) -> SparkSession:
    """Returns the process's session on the server that `spark.remote` names.

    Of the other settings only those of catalogs are sent: the rest is the server's own. Raises ConfigError if no server
    answers, or the client's packages are missing.
    """
    doing, url = "connecting to Spark", settings.config[REMOTE]
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
        for key, value in settings.config.items():
            if key.startswith("spark.sql.catalog."):
                session.conf.set(key, value)
    except ImportError as error:  # pyspark's own is of this class too
        remedy = 'Install the extra: pip install "dagster_airbyte_proto[connect]".'
        raise ConfigError(doing, first_line(error), remedy=remedy) from error
    except PySparkException as error:
        remedy = f"Does the server that {REMOTE} names run, and may this machine reach it?"
        raise ConfigError(doing, first_line(error), remedy=remedy) from error
    log_no_raised_errors()
    return session
