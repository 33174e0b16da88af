"""Limits of the waits for a catalog's server or database. Settings of the catalog come before them.

- A REST server: Iceberg's HTTP client waits three minutes for a connection, and three for each answer.
- A database: most JDBC drivers wait for an answer for ever. A server that is gone without a word (a lost machine, a
  firewall that drops packets) would then hold a sync, and its lease, until somebody kills it.

A commit that got no answer in time has an unknown outcome, which costs its run. So the limit on silence is far above
the time of the slowest commit that we know of.
"""

from collections.abc import Mapping

CONNECT_SECONDS = 10
SILENCE_SECONDS = 60

# The properties of drivers and what they count in, by the scheme of the JDBC URL. PostgreSQL's two were tried; those of
# the others are as their documentation has them.
_IN_SECONDS, _IN_MILLISECONDS = 1, 1000
_MYSQL = {
    "connectTimeout": CONNECT_SECONDS * _IN_MILLISECONDS,
    "socketTimeout": SILENCE_SECONDS * _IN_MILLISECONDS,
}
_DRIVERS: Mapping[str, Mapping[str, int]] = {
    "postgresql": {
        "connectTimeout": CONNECT_SECONDS * _IN_SECONDS,
        "socketTimeout": SILENCE_SECONDS * _IN_SECONDS,
    },
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlserver": {
        "loginTimeout": CONNECT_SECONDS * _IN_SECONDS,
        "socketTimeout": SILENCE_SECONDS * _IN_MILLISECONDS,
    },
}
_REST = {
    "rest.client.connection-timeout-ms": CONNECT_SECONDS * _IN_MILLISECONDS,
    "rest.client.socket-timeout-ms": SILENCE_SECONDS * _IN_MILLISECONDS,
}


def catalog_timeouts(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the limits for a catalog with these properties, as properties of it. None for other kinds of catalogs."""
    kind, implementation = properties.get("type", "").lower(), properties.get("catalog-impl", "")
    if kind == "rest" or implementation.endswith(".RESTCatalog"):
        return {name: str(value) for name, value in _REST.items()}
    if kind == "jdbc" or implementation.endswith(".JdbcCatalog"):
        uri = properties.get("uri", "").lower()
        driver = uri.removeprefix("jdbc:").partition(":")[0]
        # Some drivers let such a property win over the same one in the URL.
        limits = {name: value for name, value in _DRIVERS.get(driver, {}).items() if f"{name.lower()}=" not in uri}
        return {f"jdbc.{name}": str(value) for name, value in limits.items()}
    return {}
