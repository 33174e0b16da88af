"""How the files of tables are reached from this process, where Spark reaches them by a FileIO of its own.

What a user wrote for the catalog's S3FileIO, or for Hadoop's S3A, is said once and serves here too. What is left unsaid
(credentials, above all) comes from the environment, by the same names as there. None of it is shown, nor written down:
an announced load has the paths of its files and nothing else.
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
"""What is asked of an Iceberg catalog's properties."""

HADOOP_SETTINGS = (
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.endpoint",
    "fs.s3a.path.style.access",
    "fs.s3a.endpoint.region",
    "fs.s3a.connection.ssl.enabled",
)
"""What is asked of Hadoop's configuration, where the catalog says nothing."""

_S3_SCHEMES = frozenset(("s3", "s3a", "s3n"))


class Storage:
    """The file systems behind locations, by their schemes. Threads may share it."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {key: value for key, value in (settings or {}).items() if value}
        self._opening = threading.Lock()
        self._s3: fs.FileSystem | None = None

    def at(self, location: str) -> tuple[fs.FileSystem, str]:
        """The file system of a location, and the path there. Raises OSError or ValueError for a kind that is not known.

        Nothing is asked of the other side yet.
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
"""Where no settings are needed: this machine's disk."""


def is_local(location: str) -> bool:
    """Whether a location is on this machine's disk, as its file systems have it."""
    return "://" not in location or location.startswith("file:")


def without_file_scheme(location: str) -> str:
    """A location or path as everything here writes it: `file:/a` and `file:///a` are `/a`, all else is as it was."""
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def is_s3(location: str) -> bool:
    """Whether a location is in S3, or in what answers as S3 does."""
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme in _S3_SCHEMES


def _opened(settings: Mapping[str, str]) -> fs.FileSystem:
    def said(*keys: str) -> str | None:
        return next((settings[key] for key in keys if key in settings), None)

    endpoint = said("s3.endpoint", "fs.s3a.endpoint")
    scheme, separator, host = (endpoint or "").partition("://")
    if not separator:
        scheme, host = ("http" if said("fs.s3a.connection.ssl.enabled") == "false" else "https"), scheme
    is_path_style = said("s3.path-style-access", "fs.s3a.path.style.access") == "true"
    return fs.S3FileSystem(
        access_key=said("s3.access-key-id", "fs.s3a.access.key"),
        secret_key=said("s3.secret-access-key", "fs.s3a.secret.key"),
        session_token=said("s3.session-token", "fs.s3a.session.token"),
        region=said("client.region", "fs.s3a.endpoint.region"),
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme,
        force_virtual_addressing=bool(host) and not is_path_style,
        # Parts that are written behind our back pile up in memory without bound where the store is slow.
        background_writes=False,
        # A file of a few megabytes is one request instead of three.
        allow_delayed_open=True,
    )
