"""Reads the newest snapshot of a table from the files of its log alone: no JVM, and no row.

Maintenance makes snapshots too. They change no row, so they do not count here: of Iceberg those with the operation
`replace`, of Delta the commits whose files are marked as no change of data.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyarrow import fs

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.object_stores.known import spark_settings
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, folder_name
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_HADOOP = "hadoop"
_VERSION_FILE = re.compile(r"v(?P<version>[0-9]+)(\.gz)?\.metadata\.json")
_DELTA_FILE = re.compile(r"(?P<version>[0-9]{20})\.json")
# A table of a stream has a compaction after some commits at most: more than these in a row are looked at no further.
_MAX_COMMITS = 100

Found = TypeVar("Found")


class SnapshotReader(Protocol):
    """Reads the newest snapshots of tables."""

    def newest_snapshot(self, name: TableName) -> str | None:
        """Returns a text that differs whenever the rows of the table have changed; None for a table that is not there,
        or never had rows. Raises TableError where it cannot be read."""
        ...


class IcebergSnapshots:
    """The SnapshotReader of tables in a `hadoop` catalog, which keeps all that it knows in files."""

    def __init__(self, settings: SparkSettings) -> None:
        self._warehouse = settings.catalog_warehouse.rstrip("/")
        self._storage = Storage(spark_settings(settings.config, settings.catalog))

    @staticmethod
    def can_read(settings: SparkSettings) -> bool:
        """False if the catalog is of a type that only Spark asks."""
        catalog = f"spark.sql.catalog.{settings.catalog}"
        is_custom = f"{catalog}.catalog-impl" in settings.config
        return settings.config.get(f"{catalog}.type", _HADOOP) == _HADOOP and not is_custom

    def newest_snapshot(self, name: TableName) -> str | None:
        metadata = _read(name, lambda: self._metadata(f"{self._warehouse}/{name.namespace}/{name.name}/metadata"))
        if metadata is None:
            return None
        snapshots = {each["snapshot-id"]: each for each in metadata.get("snapshots", ())}
        newest = metadata.get("current-snapshot-id")
        while newest in snapshots and snapshots[newest].get("summary", {}).get("operation") == "replace":
            parent = snapshots[newest].get("parent-snapshot-id")
            if parent not in snapshots:
                break
            newest = parent
        return None if newest in (None, -1) else str(newest)

    def _metadata(self, folder: str) -> Mapping[str, Any] | None:
        """The newest of the table's metadata files. The hint beside them may be old: its writer may have died."""
        filesystem, path = self._storage.at(folder)
        files = {int(match["version"]): match[0] for match in _matches(filesystem, path, _VERSION_FILE)}
        if not files:
            return None
        name = files[max(files)]
        content = _content(filesystem, f"{path}/{name}")
        found: Mapping[str, Any] = json.loads(gzip.decompress(content) if ".gz." in name else content)
        return found


class DeltaSnapshots:
    """The SnapshotReader of Delta tables in the folders of a warehouse."""

    def __init__(self, settings: SparkSettings) -> None:
        self._warehouse = settings.warehouse_location.rstrip("/")

    def newest_snapshot(self, name: TableName) -> str | None:
        folder = "/".join([self._warehouse, *map(folder_name, name), "_delta_log"])
        return _read(name, lambda: self._newest(folder))

    def _newest(self, folder: str) -> str | None:
        filesystem, path = LOCAL.at(folder)
        files = {int(match["version"]): match[0] for match in _matches(filesystem, path, _DELTA_FILE)}
        if not files:
            return None
        newest = sorted(files, reverse=True)
        for version in newest[:_MAX_COMMITS]:
            if _changes_data(_content(filesystem, f"{path}/{files[version]}")):
                return str(version)
        # The commits before were cleaned up, or there never was one that changed data.
        return None if min(files) == 0 else str(newest[-1])


def _changes_data(commit: bytes) -> bool:
    """True if a commit of a Delta log added or removed rows."""
    for line in commit.splitlines():
        action = json.loads(line) if line.strip() else {}
        if any(action.get(kind, {}).get("dataChange") for kind in ("add", "remove")):
            return True
    return False


def _matches(filesystem: fs.FileSystem, path: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    entries = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return (match for entry in entries if (match := pattern.fullmatch(entry.base_name)))


def _content(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_file(path) as opened:
        content: bytes = opened.read()
        return content


def _read(name: TableName, read: Callable[[], Found]) -> Found:
    try:
        return read()
    except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
        raise TableError(f"reading the newest snapshot of {name}", str(error)) from error
