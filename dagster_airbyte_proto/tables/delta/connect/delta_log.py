"""The log of a Delta table, read from its files: the version, the columns, and the loads that the table holds.

- A version is a file of JSON lines. Delta deletes old ones once a checkpoint, a Parquet file, has all that they say.
- The loads are `txn` actions. All of them count, however old: they are in the checkpoints too.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq
from pyarrow import fs

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.tables.delta.actions import TableMetadata

_COMMIT = re.compile(r"(?P<version>\d{20})\.json")
# Of one file, of one of several (part and number of parts), or with the rows of files in others (a UUID).
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint(\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.[0-9a-f-]{36})?\.parquet"
)


class _Transaction(msgspec.Struct, frozen=True, rename="camel"):
    app_id: str
    version: int


class _Action(msgspec.Struct, frozen=True, rename="camel"):
    meta_data: TableMetadata | None = None
    txn: _Transaction | None = None


_ACTION = msgspec.json.Decoder(_Action)


class DeltaLog(NamedTuple):
    """A table at a version. `loads` has for each load a version that its commit does not come before.

    `written_ns` is the time of the version's file: a file of that version with another time is of another table, which
    has this one's place by now.
    """

    version: int
    metadata: TableMetadata
    loads: Mapping[str, int]
    written_ns: int | None = None


def read_log(files: fs.FileSystem, folder: str, known: DeltaLog | None = None) -> DeltaLog | None:
    """Reads the log in a folder as it is now, from the `known` version on where the log goes on from there.

    Returns None where there is no table.
    """
    listed = {found.base_name: found for found in files.get_file_info(fs.FileSelector(folder, allow_not_found=True))}
    commits = {int(found["version"]): listed[name].mtime_ns for name in listed if (found := _COMMIT.fullmatch(name))}
    newest = max(commits, default=-1)
    if newest < 0:
        return None
    if known is None or newest < known.version or not _is_of_same_table(commits, known, newest):
        known = _newest_checkpoint(files, folder, list(listed), newest)
        if not _goes_on(commits, known.version, newest):
            remedy = "Was something deleted from its folder _delta_log by hand?"
            raise TableError("reading the log of a table", f"versions of {folder} are missing", remedy=remedy)
    metadata, loads = known.metadata, dict(known.loads)
    for version in range(known.version + 1, newest + 1):
        with files.open_input_stream(f"{folder}/{version:020}.json") as stream:
            for action in map(_ACTION.decode, filter(None, stream.read().splitlines())):
                metadata = action.meta_data or metadata
                if action.txn is not None:
                    loads[action.txn.app_id] = action.txn.version
    return DeltaLog(newest, metadata, loads, commits[newest])


def _is_of_same_table(commits: Mapping[int, int | None], known: DeltaLog, newest: int) -> bool:
    """True if the log goes on from the known version. Delta deletes old files: then nobody can tell the version's."""
    is_known_one = commits.get(known.version, known.written_ns) == known.written_ns
    return is_known_one and _goes_on(commits, known.version, newest)


def _goes_on(commits: Collection[int], version: int, newest: int) -> bool:
    return all(each in commits for each in range(version + 1, newest + 1))


def _newest_checkpoint(files: fs.FileSystem, folder: str, names: list[str], newest: int) -> DeltaLog:
    """Returns what the newest whole checkpoint says; an empty table before version 0 where there is none."""
    found: dict[int, list[str]] = {}
    wanted: dict[int, int] = {}
    for name in sorted(names):
        if (match := _CHECKPOINT.fullmatch(name)) and int(match["version"]) <= newest:
            version = int(match["version"])
            found.setdefault(version, []).append(name)
            wanted[version] = int(match["parts"] or 1)
    whole = [version for version, parts in found.items() if len(parts) >= wanted[version]]
    if not whole:
        return DeltaLog(-1, TableMetadata(), {})
    metadata, loads = TableMetadata(), {}
    for name in found[max(whole)]:
        for row in _rows(files, f"{folder}/{name}"):
            if row.get("metaData"):
                metadata = _metadata(row["metaData"])
            if row.get("txn"):
                loads[str(row["txn"]["appId"])] = int(row["txn"]["version"])
    return DeltaLog(max(whole), metadata, loads)


def _rows(files: fs.FileSystem, path: str) -> Iterator[Mapping[str, Any]]:
    with files.open_input_file(path) as opened:
        yield from pq.ParquetFile(opened).read(columns=["metaData", "txn"]).to_pylist(maps_as_pydicts="lossy")


def _metadata(row: Mapping[str, Any]) -> TableMetadata:
    known = {name: value for name, value in row.items() if value is not None}
    return msgspec.convert(known, TableMetadata)
