"""Catalogs that vend the credentials of their tables, on Spark Connect.

A REST catalog gives them to its client. On Spark Connect that is the server: it reads and writes files with them, and
tells nobody. The rows of a sync are staged by this process, which so needs credentials of its own.
"""

from collections.abc import Mapping

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.object_stores.known import has_credentials, spark_settings

# The names of headers are in letters of any case.
_HEADERS = ("header.X-Iceberg-Access-Delegation", "header.x-iceberg-access-delegation")
_OWN_KEY = "spark.sql.catalog.{}.s3.access-key-id"


def check_credentials(catalog: str, config: Mapping[str, str]) -> None:
    """Raises ConfigError for a catalog that vends credentials, unless the settings have keys of the store too."""
    headers = [f"spark.sql.catalog.{catalog}.{name}" for name in _HEADERS]
    [delegated, *_] = [*(key for key in headers if config.get(key)), ""]
    if not delegated or has_credentials(spark_settings(config, catalog)):
        return
    key = _OWN_KEY.format(catalog)
    raise ConfigError(
        f"opening catalog {catalog}",
        f"{delegated} has it vend credentials of the store: they come to the Connect server, and not to this process, "
        "which stages the rows",
        remedy=f"Give both sides keys of the store (in S3 {key} and its secret), or take the header out where both "
        "have a role of their own. Or use a session with a JVM: spark.master in the place of spark.remote.",
    )
