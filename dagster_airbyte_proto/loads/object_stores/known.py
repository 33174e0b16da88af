"""The object stores that are known, and the settings that are read for them."""

from collections.abc import Iterable, Mapping

from dagster_airbyte_proto.loads.object_stores.adls import Adls
from dagster_airbyte_proto.loads.object_stores.gcs import Gcs
from dagster_airbyte_proto.loads.object_stores.s3 import S3
from dagster_airbyte_proto.loads.object_stores.store import ObjectStore, is_named, scheme_of

_STORES: tuple[ObjectStore, ...] = (S3(), Gcs(), Adls())
_CATALOG_SETTINGS = tuple(name for store in _STORES for name in store.catalog_settings)
HADOOP_SETTINGS = tuple(name for store in _STORES for name in store.hadoop_settings)
"""The keys of Hadoop's configuration that are read where a catalog has no such property. One that ends with a dot
stands for all that begin so."""

_CREDENTIALS = tuple(name for store in _STORES for name in store.credentials)
_TOKENS = tuple(name for store in _STORES for name in store.tokens)
_EXPIRIES = tuple(store.expiry for store in _STORES)


def store_of(location: str) -> ObjectStore | None:
    """Returns the object store of a location; None if it is in none that is known."""
    scheme = scheme_of(location)
    return next((store for store in _STORES if scheme in store.schemes), None)


def is_in_object_store(location: str) -> bool:
    """True if a location is in an object store, which has no folders."""
    return store_of(location) is not None


def catalog_settings(properties: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Selects what is read of an Iceberg catalog's properties: it has secrets of its own, which stay where they are."""
    return {name: value for name, value in properties if value and is_named(name, _CATALOG_SETTINGS)}


def spark_settings(config: Mapping[str, str], catalog: str) -> dict[str, str]:
    """Selects what is read of a session's configuration: of one catalog, and of Hadoop."""
    of_hadoop = _below("spark.hadoop.", config)
    return {
        **catalog_settings(_below(f"spark.sql.catalog.{catalog}.", config)),
        **{name: value for name, value in of_hadoop if value and is_named(name, HADOOP_SETTINGS)},
    }


def _below(prefix: str, config: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(key.removeprefix(prefix), value) for key, value in config.items() if key.startswith(prefix)]


def has_credentials(settings: Iterable[str]) -> bool:
    """True if credentials of an object store are among these settings."""
    return any(is_named(name, _CREDENTIALS) for name in settings)


def expiry_times(properties: Iterable[tuple[str, str]]) -> list[float]:
    """Returns the times, in seconds since 1970, at which vended credentials expire by these settings."""
    return [int(value) / 1000 for name, value in properties if value and is_named(name, _EXPIRIES)]


def has_token(settings: Iterable[str]) -> bool:
    """True if credentials among these settings are good for a limited time, whether or not they say for how long."""
    return any(is_named(name, _TOKENS) for name in settings)
