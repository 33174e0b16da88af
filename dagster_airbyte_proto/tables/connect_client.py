"""Opens a session on a Spark Connect server."""

from collections.abc import Mapping
from urllib.parse import quote

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.tables.remote_sessions import REMOTE, TOKEN, tokens_of
from dagster_airbyte_proto.tables.spark.jvm.errors import first_line, log_no_raised_errors
from dagster_airbyte_proto.tables.spark.settings import SparkSettings


def connect(settings: SparkSettings) -> SparkSession:
    """Returns the process's session on the server that `spark.remote` names.

    Of the other settings only those of catalogs are sent: the rest is the server's own. Raises ConfigError if no server
    answers, it refuses the token, or the client's packages are missing.
    """
    doing, mask = "connecting to Spark", Mask(tokens_of(settings.config))
    try:
        session = SparkSession.builder.remote(url_with_token(settings.config)).getOrCreate()
        for key, value in settings.config.items():
            if key.startswith("spark.sql.catalog."):
                session.conf.set(key, value)
    except ImportError as error:  # pyspark's own is of this class too
        remedy = 'Install the extra: pip install "dagster_airbyte_proto[connect]".'
        raise ConfigError(doing, first_line(error), remedy=remedy) from error
    except (PySparkException, ValueError) as error:  # the second one for a port that is no number
        said = first_line(error)
        found = mask.text(said)  # A URL that pyspark cannot read is in its message.
        remedy = f"Does the server that {REMOTE} names run, may this machine reach it, and is {TOKEN} the server's?"
        raise ConfigError(doing, found, remedy=remedy) from (error if found == said else None)
    log_no_raised_errors()
    return session


def url_with_token(config: Mapping[str, str]) -> str:
    """Returns the URL that carries the token, if the settings have one.

    pyspark's own parameter for a token demands TLS of every server that is not on `localhost`, and Spark's server has
    none. So without TLS the token is the header that the server looks for, which any parameter can be.
    """
    url, token = config[REMOTE], quote(config.get(TOKEN, ""), safe="")
    if not token:
        return url
    server, _, parameters = url.partition(";")
    is_encrypted = "use_ssl=true" in parameters.lower().split(";")
    parameters += f"{';' if parameters else ''}{'token=' if is_encrypted else 'authorization=Bearer%20'}{token}"
    return f"{server.rstrip('/')}/;{parameters}"
