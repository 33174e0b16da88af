"""The credentials that a REST catalog vends with its tables, as the FileIO of a loaded table (Java's) has them.

- The catalog sends settings of the object store with each table that it creates or loads: settings for the table as a
  whole, or for prefixes of locations.
- A loaded table keeps what came with it. Its FileIO renews the credentials by itself only if the server names an
  endpoint for that. So we load the table again, for our files and for the commits, when half of their life is over:
  a file that is opened last thing before is still written with credentials that are good.
- The catalog's cached copy must be dropped before a table is loaded. Else Iceberg sends the copy's ETag, and a server
  that answers that nothing has changed sends no new credentials.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.object_stores.known import catalog_settings, expiry_times, has_token
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, Failure, failure_of, first_line
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items

NEVER = math.inf
_HOLDERS = "org.apache.iceberg.io.SupportsStorageCredentials"
# The shortest life that AWS gives to session tokens, for a server that sends none.
_SHORTEST_LIFE_SECONDS = 900.0
# For a server whose clock is behind ours: its credentials seem to have expired.
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, repr=False, slots=True)
class _Vended:
    """The settings that came with a table: each for locations that begin with a prefix, the longest first."""

    name: TableName
    locations: tuple[str, ...]
    settings: tuple[tuple[str, Mapping[str, str]], ...]
    renew_at: float
    expires_at: float

    def covers(self, location: str) -> bool:
        return any(location == each or location.startswith(f"{each}/") for each in self.locations)

    def settings_at(self, location: str) -> Mapping[str, str]:
        return next((found for prefix, found in self.settings if location.startswith(prefix)), {})


class VendedCredentials:
    """The CredentialSource of the tables of one REST catalog.

    `load` loads a table, and calls `note` with it. `names` lists the catalog's tables: by them it finds the table of a
    file if no table was loaded yet that the file could belong to, as when the next run removes the files of a dead one.
    """

    def __init__(self, load: Callable[[TableName], object], names: Callable[[], Iterable[TableName]]) -> None:
        self._load, self._names = load, names
        self._renewing = threading.RLock()
        self._tables: dict[TableName, _Vended] = {}
        self._strangers: set[PurePosixPath] = set()

    def note(self, name: TableName, table: Any) -> float:
        """Notes what came with a table that was just loaded. Returns the time when it has to be loaded again."""
        found = _vended(name, table)
        self._tables[name] = found
        return found.renew_at

    def settings_at(self, location: str) -> Mapping[str, str]:
        vended = self._table_at(location)
        if vended is not None and vended.renew_at <= time.time():
            vended = self._renewed(vended)
        return vended.settings_at(location) if vended else {}

    def _table_at(self, location: str) -> _Vended | None:
        folder = PurePosixPath(location).parent
        if (found := self._known(location)) or folder in self._strangers:
            return found
        with self._renewing:
            try:
                if found := self._loaded_for(location):
                    return found
            except CALL_ERRORS as error:
                raise OSError(f"looking for the table of {location}: {first_line(error)}") from error
            self._strangers.add(folder)
        return None

    def _loaded_for(self, location: str) -> _Vended | None:
        """Loads tables until a file belongs to one: first those whose name is in its path."""
        try:
            names = sorted(self._names(), key=lambda name: name.name not in location)
        except CALL_ERRORS as error:
            if failure_of(error) is not Failure.NOT_ALLOWED:
                raise
            return None
        for name in names:
            if name in self._tables:
                continue
            try:
                self._load(name)
            except CALL_ERRORS as error:
                # Dropped since, or not ours to see.
                if failure_of(error) not in (Failure.MISSING_TABLE, Failure.NOT_ALLOWED):
                    raise
            if found := self._known(location):
                return found
        return None

    def _known(self, location: str) -> _Vended | None:
        return next((each for each in tuple(self._tables.values()) if each.covers(location)), None)

    def _renewed(self, vended: _Vended) -> _Vended:
        with self._renewing:
            now = self._tables[vended.name]
            if now.renew_at > time.time():  # Another thread has done it.
                return now
            try:
                self._load(vended.name)
            except CALL_ERRORS as error:
                if now.expires_at > time.time():
                    return now
                raise OSError(f"renewing the credentials of table {vended.name}: {first_line(error)}") from error
            return self._tables[vended.name]


def vended_credentials(
    session: SparkSession, catalog: str, load: Callable[[TableName], object]
) -> VendedCredentials | None:
    """Returns the source of a catalog's vended credentials; None if the catalog is not of a kind that vends any."""
    key = f"spark.sql.catalog.{catalog}"
    kind, implementation = session.conf.get(f"{key}.type", None), session.conf.get(f"{key}.catalog-impl", None)
    if kind != "rest" and not (implementation or "").endswith(".RESTCatalog"):
        return None
    java = session._jsparkSession.sessionState().catalogManager().catalog(catalog)
    return VendedCredentials(load, partial(_table_names, java))


def _table_names(catalog: Any) -> Iterator[TableName]:
    """Yields the names of a catalog's tables (Spark's catalog, of Java)."""
    for levels in catalog.listNamespaces():
        if len(levels) == 1:
            for each in catalog.listTables(levels):
                yield TableName(str(levels[0]), str(each.name()))


def _vended(name: TableName, table: Any) -> _Vended:
    io, data_path = table.io(), table.properties().get("write.data.path")
    locations = [str(place).rstrip("/") for place in (table.location(), data_path) if place is not None]
    sent = {"": _properties(io.properties())}
    if _holds_credentials(io):
        for each in java_items(io.credentials()):
            sent[str(each.prefix())] = {**sent[""], **_properties(each.config())}
    expires_at = min(map(_expiry, sent.values()))
    now = time.time()
    renew_at = expires_at if expires_at is NEVER else now + max((expires_at - now) / 2, _LEAST_SECONDS)
    # The properties have secrets of the catalog too, which stay where they are.
    found = {prefix: catalog_settings(properties.items()) for prefix, properties in sent.items()}
    by_prefix = sorted(found.items(), key=lambda item: len(item[0]), reverse=True)
    return _Vended(name, tuple(locations), tuple(by_prefix), renew_at, expires_at)


def _properties(java_map: Any) -> dict[str, str]:
    return {str(entry.getKey()): str(entry.getValue()) for entry in java_items(java_map.entrySet())}


def _expiry(properties: Mapping[str, str]) -> float:
    """The time when the credentials among these properties expire."""
    if times := expiry_times(properties.items()):
        return min(times)
    return time.time() + _SHORTEST_LIFE_SECONDS if has_token(properties) else NEVER


def _holds_credentials(io: Any) -> bool:
    """True if a FileIO has credentials for prefixes."""
    kind = io.getClass()
    return bool(kind.getClassLoader().loadClass(_HOLDERS).isInstance(io))
