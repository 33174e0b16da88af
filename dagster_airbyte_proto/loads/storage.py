"""File systems for the files of tables, opened in this process. Spark opens the same files by a FileIO of its own.

- Users configure an object store once, for the catalog's FileIO or for Hadoop. The same settings are used here.
- Settings that are absent, above all credentials, come from the environment, under the names that these two use.
- A catalog may vend credentials for each table (`vended.py`). They replace the others for the files of that table.
- No setting is logged or stored. An announced load has only the paths of its files.
"""

import math
import threading
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from pyarrow import fs

from dagster_airbyte_proto.loads.object_stores.known import store_of
from dagster_airbyte_proto.loads.object_stores.store import ObjectStore, is_named
from dagster_airbyte_proto.loads.vended import MOST_OPEN_SECONDS, CredentialSource, RenewedFileSystem

# More than a sync writes at a time. Each has a pool of connections of its own.
_MAX_OPENED = 32


class Storage:
    """Finds the file system of a location by its scheme. Threads may share it.

    With a `source` of vended credentials, those apply to the files of their table. A copy in another process has no
    source of its own: it uses the settings alone, or the source that it is given there.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, source: CredentialSource | None = None) -> None:
        self._settings = {key: value for key, value in (settings or {}).items() if value}
        self._source = source
        self._opening = threading.Lock()
        self._filesystems: dict[tuple[ObjectStore, str, frozenset[tuple[str, str]]], fs.FileSystem] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._settings.items())))

    @property
    def settings(self) -> Mapping[str, str]:
        return self._settings

    @property
    def source(self) -> CredentialSource | None:
        return self._source

    def __reduce__(self) -> tuple[type["Storage"], tuple[Mapping[str, str]]]:
        """Pickles the settings alone: another process opens its own file systems."""
        return Storage, (self._settings,)

    def at(self, location: str) -> tuple[fs.FileSystem, str]:
        """Returns the file system of a location, and the path in it. Does not connect to anything yet.

        Raises OSError or ValueError for an unknown scheme.
        """
        if store := store_of(location):
            path, host = store.take_apart(location)
            if self._source is None:
                return self._opened(store, self._settings, host), path
            current = partial(self._opened_with_vended, store, self._source, location)
            return fs.PyFileSystem(RenewedFileSystem(current)), path
        if is_local(location):
            return fs.LocalFileSystem(), without_file_scheme(location)
        # Here too the path of a location is no part of a URI: a blank in it would be an error, and %20 become one.
        scheme, _, rest = location.partition("://")
        place, slash, below = rest.partition("/")
        filesystem, path = fs.FileSystem.from_uri(f"{scheme}://{place}{slash}{quote(below)}")
        return filesystem, path

    def most_open_seconds(self, location: str) -> float:
        """Returns for how long a file there may be open while it is written. Raises OSError if the catalog does."""
        store = store_of(location)
        if store is None or self._source is None:
            return math.inf
        vended = self._source.settings_at(location)
        return MOST_OPEN_SECONDS if any(is_named(key, store.credentials) for key in vended) else math.inf

    def _opened_with_vended(self, store: ObjectStore, source: CredentialSource, location: str) -> fs.FileSystem:
        vended, settings = source.settings_at(location), self._settings
        if any(is_named(key, store.credentials) for key in vended):
            settings = {key: value for key, value in settings.items() if not is_named(key, store.credentials)}
        return self._opened(store, {**settings, **vended}, store.take_apart(location).host)

    def _opened(self, store: ObjectStore, settings: Mapping[str, str], host: str) -> fs.FileSystem:
        """Returns the file system with these settings. Keeps those that were opened last."""
        key = store, host, frozenset(settings.items())
        with self._opening:
            self._filesystems[key] = opened = self._filesystems.pop(key, None) or store.open(settings, host)
            if len(self._filesystems) > _MAX_OPENED:
                self._filesystems.pop(next(iter(self._filesystems)))
            return opened


LOCAL = Storage()
"""The storage of tables on this machine's disk, which needs no settings."""


def is_local(location: str) -> bool:
    """True if a location is a path of this machine's file systems."""
    return "://" not in location or location.startswith("file:")


def without_file_scheme(location: str) -> str:
    """Returns `/a` for `file:/a` and `file:///a`, and any other location or path unchanged.

    Paths are compared as text all over the package, so every local one has to be written in this way.
    """
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def folder_name(name: str) -> str:
    """Returns a table's name as a folder's: escapes slashes, zero bytes, and names of dots alone."""
    safe = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return safe.replace(".", "%2E") if not safe.strip(".") else safe
