"""The files of an Iceberg table that nobody needs.

Those in its data folder are a frame with the columns and paths that Iceberg expects: Iceberg itself finds out which of
them no snapshot has. Those of its metadata are found here.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pyspark
from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.loads.object_stores.known import is_in_object_store
from dagster_airbyte_proto.loads.storage import Storage, without_file_scheme
from dagster_airbyte_proto.tables.care import ProtectedFiles
from dagster_airbyte_proto.tables.iceberg.log import FullTableLog, TableLog
from dagster_airbyte_proto.tables.sql_names import text_literal

_METADATA_FILE = re.compile(r"([0-9]+)-.*\.metadata\.json")
# Of a catalog of type `hadoop`, or of any other.
_NUMBERED_FILE = re.compile(r"(?:v([0-9]+)(?:\.gz)?|([0-9]+)-.*)\.metadata\.json")


def removable_files(
    session: SparkSession, storage: Storage, location: str, protected: ProtectedFiles
) -> DataFrame | None:
    """Returns the files that no run may still commit. None if the table has no data folder."""
    is_in_store = is_in_object_store(location)
    listed = _in_store(session, storage, location) if is_in_store else _on_disk(session, location)
    return None if listed is None else _without_protected(listed, location, protected)


def may_be_shared(storage: Storage, log: TableLog) -> bool:
    """True if the folder of a table may be that of another one too.

    Most catalogs leave a table that is renamed in its folder, and give the same folder to the next one of that name.
    Then it has the metadata files of both. Each table numbers its own, and names the last hundred but for the current.
    """
    filesystem, place = storage.at(log.location)
    listed = filesystem.get_file_info(fs.FileSelector(f"{place}/metadata", allow_not_found=True))
    numbers = {info.base_name: int(found[1]) for info in listed if (found := _METADATA_FILE.fullmatch(info.base_name))}
    named = {file.metadata_file.rpartition("/")[2] for file in log.metadata_log}
    oldest = min((number for name, number in numbers.items() if name in named), default=0)
    unnamed = [name for name, number in numbers.items() if name not in named and number >= oldest]
    return len(unnamed) > 1 or len(set(numbers.values())) < len(numbers)


def remove_old_metadata(storage: Storage, log: FullTableLog, before: datetime) -> tuple[str, ...]:
    """Deletes the metadata files from before a time that the log of the table names no more. Returns their paths.

    Each commit writes one with all snapshots, and Iceberg leaves it for ever: with a commit each minute, and the
    snapshots of a week, gigabytes a day. The first one stays: by those of two tables `may_be_shared` knows of both.
    """
    if log.properties.get("gc.enabled", "true").lower() != "true":
        # Others may name them, as branches of a Nessie catalog do. Iceberg itself removes nothing then, either.
        return ()
    filesystem, place = storage.at(f"{log.location}/metadata")
    listed = filesystem.get_file_info(fs.FileSelector(place, allow_not_found=True))
    found = {info.base_name: _NUMBERED_FILE.fullmatch(info.base_name) for info in listed}
    numbers = {name: int(match[1] or match[2]) for name, match in found.items() if match}
    named = {file.metadata_file.rpartition("/")[2] for file in log.metadata_log}
    first, oldest = min(numbers.values(), default=0), min((numbers[each] for each in named & numbers.keys()), default=0)
    superseded = {name for name, number in numbers.items() if first < number < oldest}
    until = before.astimezone(UTC)
    old = sorted(info.base_name for info in listed if info.base_name in superseded and info.mtime < until)
    removed = []
    for name in old:
        with suppress(OSError):  # One that may not be deleted here does no harm.
            filesystem.delete_file(f"{place}/{name}")
            removed.append(f"{log.location}/metadata/{name}")
    return tuple(removed)


def _in_store(session: SparkSession, storage: Storage, location: str) -> DataFrame | None:
    """As `_on_disk`, for an object store: the table's FileIO opens it, but Hadoop may have no file system for it."""
    filesystem, place = storage.at(location)
    found = filesystem.get_file_info(fs.FileSelector(f"{place}/data", allow_not_found=True, recursive=True))
    files = [info for info in found if info.is_file]
    paths = [location + info.path.removeprefix(place) for info in files]
    times = pa.array([info.mtime_ns // 1000 for info in files], pa.timestamp("us", "UTC"))
    return session.createDataFrame(pa.table({"file_path": paths, "last_modified": times})) if files else None


def _on_disk(session: SparkSession, location: str) -> DataFrame | None:
    place = without_file_scheme(location)
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    # Without this option a name with `*` or `?` would be read as a pattern.
    found = reader.option("__globPaths__", "false")
    path = "regexp_replace(path, '^file:/+', '/')"
    if place.startswith("/"):
        path = f"concat({text_literal(location)}, substring({path}, {len(place) + 1}))"
    try:
        files = found.load(f"{location}/data").selectExpr(f"{path} as file_path", "modificationTime as last_modified")
        _ = files.schema  # A session of Spark Connect looks for the folder only then.
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return files


def _without_protected(files: DataFrame, location: str, protected: ProtectedFiles) -> DataFrame:
    place = without_file_scheme(location)
    for run_id in protected.run_ids:
        files = files.filter(f"not startswith(file_path, {text_literal(f'{location}/data/run-{run_id}/')})")
    if not protected.paths:
        return files
    staged = [(location + path.removeprefix(place),) for path in map(without_file_scheme, protected.paths)]
    kept = files.sparkSession.createDataFrame(staged, "file_path string")
    return files.join(kept, "file_path", "left_anti")
