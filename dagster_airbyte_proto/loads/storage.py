"""File systems for the files of tables, opened in this process. Spark opens the same files by a FileIO of its own.

- Users configure S3 once, for the catalog's S3FileIO or for Hadoop's S3A. The same settings are used here.
- Settings that are absent, above all credentials, come from the environment, under the names that these two use.
- A catalog may vend credentials for each table (`vended.py`). They replace the others for the files of that table.
- No setting is logged or stored. An announced load has only the paths of its files.
"""

import threading
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from pyarrow import fs

from dagster_airbyte_proto.loads.vended import CredentialSource, RenewedFileSystem

_CATALOG_CREDENTIALS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_HADOOP_CREDENTIALS = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")

CATALOG_SETTINGS = (
    *_CATALOG_CREDENTIALS,
    "s3.endpoint",
    "s3.path-style-access",
    "client.region",
)
"""The properties of an Iceberg catalog that are read."""

HADOOP_SETTINGS = (
    *_HADOOP_CREDENTIALS,
    "fs.s3a.endpoint",
    "fs.s3a.path.style.access",
    "fs.s3a.endpoint.region",
    "fs.s3a.connection.ssl.enabled",
)
"""The keys of Hadoop's configuration that are read where the catalog has no such property."""

_S3_SCHEMES = frozenset(("s3", "s3a", "s3n"))
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
        self._filesystems: dict[frozenset[tuple[str, str]], fs.FileSystem] = {}

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
        if is_s3(location):
            # Not parsed as a URI: a key or a path may hold blanks and percent signs, which Iceberg takes as they are.
            path = location.partition("://")[2]
            if self._source is None:
                return self._s3_filesystem(self._settings), path
            current = partial(self._filesystem_with_vended, self._source, location)
            return fs.PyFileSystem(RenewedFileSystem(current)), path
        if is_local(location):
            return fs.LocalFileSystem(), without_file_scheme(location)
        # Here too the path of a location is no part of a URI: a blank in it would be an error, and %20 become one.
        scheme, _, rest = location.partition("://")
        place, slash, below = rest.partition("/")
        filesystem, path = fs.FileSystem.from_uri(f"{scheme}://{place}{slash}{quote(below)}")
        return filesystem, path

    def _filesystem_with_vended(self, source: CredentialSource, location: str) -> fs.FileSystem:
        vended, settings = source.settings_at(location), self._settings
        if any(key in vended for key in _CATALOG_CREDENTIALS):
            # Else a session token of ours would be sent with a key that was vended.
            ours = (*_CATALOG_CREDENTIALS, *_HADOOP_CREDENTIALS)
            settings = {key: value for key, value in settings.items() if key not in ours}
        return self._s3_filesystem({**settings, **vended})

    def _s3_filesystem(self, settings: Mapping[str, str]) -> fs.FileSystem:
        """Returns the file system with these settings. Keeps those that were opened last."""
        key = frozenset(settings.items())
        with self._opening:
            self._filesystems[key] = opened = self._filesystems.pop(key, None) or _filesystem_of(settings)
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


def is_s3(location: str) -> bool:
    """True if a location is in S3, or in a store with S3's interface."""
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme in _S3_SCHEMES


def _filesystem_of(settings: Mapping[str, str]) -> fs.FileSystem:
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
