"""File systems for the files of tables, opened in this process. Spark opens the same files by a FileIO of its own.

- Users configure S3 once, for the catalog's S3FileIO or for Hadoop's S3A. The same settings are used here.
- Settings that are absent, above all credentials, come from the environment, under the names that these two use.
- No setting is logged or stored. An announced load has only the paths of its files.
"""

import threading
from collections.abc import Mapping

from pyarrow import fs

CATALOG_SETTINGS = (
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
    "s3.endpoint",
    "s3.path-style-access",
    "client.region",
)
"""The properties of an Iceberg catalog that are read."""

HADOOP_SETTINGS = (
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.endpoint",
    "fs.s3a.path.style.access",
    "fs.s3a.endpoint.region",
    "fs.s3a.connection.ssl.enabled",
)
"""The keys of Hadoop's configuration that are read where the catalog has no such property."""

_S3_SCHEMES = frozenset(("s3", "s3a", "s3n"))


class Storage:
    """Finds the file system of a location by its scheme. Threads may share it."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {key: value for key, value in (settings or {}).items() if value}
        self._opening = threading.Lock()
        self._s3: fs.FileSystem | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._settings.items())))

    @property
    def settings(self) -> Mapping[str, str]:
        return self._settings

    def __reduce__(self) -> tuple[type["Storage"], tuple[Mapping[str, str]]]:
        """Pickles the settings alone: another process opens its own file systems."""
        return Storage, (self._settings,)

    def at(self, location: str) -> tuple[fs.FileSystem, str]:
        """Returns the file system of a location, and the path in it. Does not connect to anything yet.

        Raises OSError or ValueError for an unknown scheme.
        """
        if is_s3(location):
            # Not parsed as a URI: a key or a path may hold blanks and percent signs, which Iceberg takes as they are.
            return self._s3_filesystem(), location.partition("://")[2]
        if is_local(location):
            return fs.LocalFileSystem(), without_file_scheme(location)
        filesystem, path = fs.FileSystem.from_uri(location)
        return filesystem, path

    def _s3_filesystem(self) -> fs.FileSystem:
        with self._opening:
            if self._s3 is None:
                self._s3 = _opened(self._settings)
            return self._s3


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


def is_s3(location: str) -> bool:
    """True if a location is in S3, or in a store with S3's interface."""
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme in _S3_SCHEMES


def _opened(settings: Mapping[str, str]) -> fs.FileSystem:
    def setting(*keys: str) -> str | None:
        return next((settings[key] for key in keys if key in settings), None)

    endpoint = setting("s3.endpoint", "fs.s3a.endpoint")
    scheme, separator, host = (endpoint or "").partition("://")
    if not separator:
        scheme, host = ("http" if setting("fs.s3a.connection.ssl.enabled") == "false" else "https"), scheme
    is_path_style = setting("s3.path-style-access", "fs.s3a.path.style.access") == "true"
    return fs.S3FileSystem(
        access_key=setting("s3.access-key-id", "fs.s3a.access.key"),
        secret_key=setting("s3.secret-access-key", "fs.s3a.secret.key"),
        session_token=setting("s3.session-token", "fs.s3a.session.token"),
        region=setting("client.region", "fs.s3a.endpoint.region"),
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme,
        force_virtual_addressing=bool(host) and not is_path_style,
        # With writes in the background, data piles up in memory without bound when the store is slow.
        background_writes=False,
        # With it a file of a few megabytes takes one request instead of three.
        allow_delayed_open=True,
    )
