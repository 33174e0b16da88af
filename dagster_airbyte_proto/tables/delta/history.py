"""The commits of a Delta table, read from the files of its log without Spark.

Each commit is a version of the table, and the table can go back to it as long as the version's files are there. Expiry
commits a marker (`OLDEST_KEPT`): the versions before that one are gone, whatever the log still says of them. Only Delta
itself shortens the log.
"""

import base64
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from dagster_airbyte_proto.loads.load import HighWaterMark, StagedRows
from dagster_airbyte_proto.loads.table import Freshness
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.part_checks import high_water_mark_after

# Keys of the user metadata in our commits.
COMPACTION = "airbyte-proto.compaction"
OLDEST_KEPT = "airbyte-proto.kept-from"
CONNECTION = "airbyte-proto.connection"
HIGH_WATER_MARK = "airbyte-proto.newest"
REWOUND_TO = "airbyte-proto.rewound-to"
NOTHING = "nothing"
TABLE_ROWS = "airbyte-proto.table-rows"
REWOUND_AT = "airbyte-proto.rewound-at-version"

_SEARCHED_COMMITS = 100
_COMMIT_FILE = re.compile(r"(\d{20})\.json")
# A UUID of 16 bytes in base 85: five letters for each four bytes.
_UUID_CHARACTERS = 20
# Delta writes the ids of files in ZeroMQ's alphabet (Z85); Python's base 85 is the same code in another alphabet.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85, _TO_Z85 = str.maketrans(_Z85, _B85), str.maketrans(_B85, _Z85)


def to_z85(coded: str) -> str:
    """Translates text in Python's base 85 into the alphabet of Delta."""
    return coded.translate(_TO_Z85)


class DeletionVector(msgspec.Struct, frozen=True, rename="camel"):
    """The descriptor of a deletion vector: the deleted rows of a file, inline, or the place where they are stored."""

    storage_type: str = "i"
    path_or_inline: str = msgspec.field(default="", name="pathOrInlineDv")
    cardinality: int = 0
    offset: int | None = None

    @property
    def path(self) -> str | None:
        """Its file, relative to the table's folder. None where it is inline, or given by an absolute path."""
        if self.storage_type != "u":
            return None
        coded = self.path_or_inline[-_UUID_CHARACTERS:]
        named = uuid.UUID(bytes=base64.b85decode(coded.translate(_FROM_Z85)))
        folder = self.path_or_inline[:-_UUID_CHARACTERS]
        return f"{folder}/deletion_vector_{named}.bin" if folder else f"deletion_vector_{named}.bin"


class LoggedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file in an `add` or `remove` action of the log."""

    path: str
    size: int | None = None
    stats: str | None = None
    data_change: bool = True
    partition_values: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None

    @property
    def stored_rows(self) -> int | None:
        """The rows in the file, deleted ones included. None where the log has no statistics of it."""
        found = json.loads(self.stats or "{}").get("numRecords")
        return None if found is None else int(found)

    @property
    def deleted_rows(self) -> int:
        return self.deletion_vector.cardinality if self.deletion_vector else 0

    @property
    def rows(self) -> int | None:
        """The rows that readers see. None where the log has no statistics of the file."""
        stored = self.stored_rows
        return None if stored is None else stored - self.deleted_rows

    @property
    def identity(self) -> tuple[str, str, int | None]:
        """Tells the log's entries apart: the same file with another deletion vector is another entry."""
        vector = self.deletion_vector
        return (self.path, vector.path_or_inline, vector.offset) if vector else (self.path, "", None)

    @property
    def paths(self) -> Iterator[str]:
        """The paths of the file and of its deletion vector, relative to the table's folder.

        Absolute paths are left out: another writer put those files there, outside of the table's folder.
        """
        if ":" not in self.path and not self.path.startswith("/"):
            yield unquote(self.path)
        if self.deletion_vector and (path := self.deletion_vector.path):
            yield path


class _CommitInfo(msgspec.Struct, frozen=True, rename="camel"):
    timestamp: int = 0
    in_commit_timestamp: int | None = None
    operation: str = ""
    operation_parameters: Mapping[str, Any] = {}
    user_metadata: str | None = None
    read_version: int | None = None


class _Transaction(msgspec.Struct, frozen=True, rename="camel"):
    app_id: str
    version: int


class _Action(msgspec.Struct, frozen=True, rename="camel"):
    add: LoggedFile | None = None
    remove: LoggedFile | None = None
    commit_info: msgspec.Raw = msgspec.Raw(b"null")
    txn: _Transaction | None = None


class _LastCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    """Delta's note of the newest checkpoint."""

    version: int
    parts: int | None = None
    v2_checkpoint: Mapping[str, Any] | None = None

    @property
    def is_one_file(self) -> bool:
        """False for a checkpoint in parts, or of the second kind, whose name has a UUID."""
        return self.parts is None and self.v2_checkpoint is None


_ACTION, _COMMIT_INFO = msgspec.json.Decoder(_Action), msgspec.json.Decoder(_CommitInfo)
_LAST_CHECKPOINT = msgspec.json.Decoder(_LastCheckpoint)
_NEWEST = msgspec.json.Decoder(HighWaterMark)


class Commit(msgspec.Struct, frozen=True):
    """One version of the table: the files that it added and removed, and what its writer says of it."""

    version: int
    info: _CommitInfo
    added: tuple[LoggedFile, ...]
    removed: tuple[LoggedFile, ...]

    @property
    def committed_at(self) -> datetime:
        milliseconds = self.info.in_commit_timestamp or self.info.timestamp
        return datetime.fromtimestamp(milliseconds / 1000, UTC)

    @property
    def user_metadata(self) -> Mapping[str, str]:
        """Our properties in the commit. Empty for a commit of another writer."""
        try:
            found = json.loads(self.info.user_metadata or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def high_water_mark(self) -> HighWaterMark | None:
        """The newest values of the table's rows, if the commit says so and no other commit came in between."""
        text = self.user_metadata.get(HIGH_WATER_MARK)
        is_exact = self.info.read_version == self.version - 1
        return _NEWEST.decode(text) if text and is_exact else None

    @property
    def version_before(self) -> int | None:
        """The version whose rows this one goes on from: the last one, or that which it restores. None if it restores a
        time of day.
        """
        if self.info.operation != "RESTORE":
            return self.version - 1
        restored = str(self.info.operation_parameters.get("version"))
        return int(restored) if restored.isdecimal() else None

    @property
    def changes_rows(self) -> bool:
        """False for a compaction, which only rewrites files, and for a commit that touches none."""
        return any(file.data_change for file in (*self.added, *self.removed))

    @property
    def row_counts(self) -> tuple[int, int, int]:
        """The rows added with files, the rows removed with files, and the rows deleted in files that stay."""
        before = {file.path: file.deleted_rows for file in self.removed}
        after = {file.path for file in self.added}
        added = sum(file.rows or 0 for file in self.added if file.path not in before)
        deleted = sum(file.deleted_rows - before[file.path] for file in self.added if file.path in before)
        removed = sum(file.rows or 0 for file in self.removed if file.path not in after)
        return added, removed, deleted


def parse_add_action(action: str) -> LoggedFile:
    """Returns the file of an `add` action, given as JSON."""
    found = _ACTION.decode(action).add
    if found is None:
        raise ValueError(f"no add action: {action!r}")
    return found


def read_commit(storage: fs.FileSystem, folder: str, version: int) -> Commit | None:
    """Reads one version of the log in a folder. None where the log no longer has it."""
    try:
        with storage.open_input_stream(f"{folder}/{version:020}.json") as stream:
            return _commit(version, stream.read().splitlines())
    except FileNotFoundError:
        return None


class NewestLoad(NamedTuple):
    """The last load of a connection in a log, None where the newest commits have none; and whether all were read, back
    to where the table had no rows."""

    load_id: str | None
    is_whole: bool


def newest_load(log: tuple[fs.FileSystem, str], version: int, connection: str) -> NewestLoad:
    """Looks for the last load of a connection up to a version. Loads that a RESTORE has undone are passed over."""
    # As a rule it is the newest commit or the one before it: the others are compactions and expiries.
    for commit in _shown_commits(log, version):
        if commit is None:
            return NewestLoad(None, is_whole=False)
        if commit.user_metadata.get(CONNECTION) == connection:
            return NewestLoad(commit.user_metadata.get(LOAD_ID), is_whole=False)
    return NewestLoad(None, is_whole=True)


def shows_load(log: tuple[fs.FileSystem, str], version: int, load_id: str) -> bool:
    """False if readers surely do not see the rows of a load up to a version: it was undone, or has never landed."""
    return any(
        commit is None or commit.user_metadata.get(LOAD_ID) == load_id for commit in _shown_commits(log, version)
    )


def commit_of_load(log: tuple[fs.FileSystem, str], version: int, load_id: str) -> Commit | None:
    """Returns the newest commit of a load up to a version, if it is among the last ones."""
    for each in range(version, max(-1, version - _SEARCHED_COMMITS), -1):
        if (commit := read_commit(*log, each)) is None or commit.user_metadata.get(LOAD_ID) == load_id:
            return commit
    return None


def _shown_commits(log: tuple[fs.FileSystem, str], version: int) -> Iterator[Commit | None]:
    """Yields the commits up to a version whose rows readers see, newest first, back to where the table had no rows.

    What a RESTORE has undone is passed over. Where nobody knows what was before, it ends with None.
    """
    for _ in range(_SEARCHED_COMMITS):
        if version < 0:
            return
        if (commit := read_commit(*log, version)) is None:
            break
        yield commit
        if commit.user_metadata.get(REWOUND_TO) == NOTHING:
            return
        if (before := commit.version_before) is None:
            break
        version = before
    yield None


class LoadLookup(NamedTuple):
    """The answer of a log about a load: the version in its `txn` action, None if it lacks the load."""

    version: int | None


def look_up_load(log: tuple[fs.FileSystem, str], version: int, load_id: str) -> LoadLookup | None:
    """Looks for a load in a log up to a version: in the newest checkpoint and the commits after it, as a rule ten at
    the most. Returns None where these files do not say it, or cannot be read: nothing is known then."""
    files, folder = log
    try:
        checkpoint = _last_checkpoint(files, folder)
        if not checkpoint.is_one_file:
            return None
        found = None
        if checkpoint.version >= 0:
            found = _load_in_checkpoint(files, f"{folder}/{checkpoint.version:020}.checkpoint.parquet", load_id)
        for each in range(checkpoint.version + 1, version + 1):
            with files.open_input_stream(f"{folder}/{each:020}.json") as stream:
                actions = (_ACTION.decode(line).txn for line in stream.read().splitlines() if b'"txn"' in line)
                found = next((action.version for action in actions if action and action.app_id == load_id), found)
    except (OSError, KeyError, pa.ArrowException, msgspec.MsgspecError):
        return None
    return LoadLookup(found)


def _last_checkpoint(files: fs.FileSystem, folder: str) -> _LastCheckpoint:
    """Returns the note of the newest checkpoint; one of a version -1 where there is none."""
    try:
        with files.open_input_stream(f"{folder}/_last_checkpoint") as stream:
            return _LAST_CHECKPOINT.decode(stream.read())
    except FileNotFoundError:
        return _LastCheckpoint(-1)


def _load_in_checkpoint(files: fs.FileSystem, path: str, load_id: str) -> int | None:
    with files.open_input_file(path) as opened:
        loads = pq.ParquetFile(opened).read(columns=["txn"]).column("txn")
    versions = pc.struct_field(loads, "version").filter(pc.equal(pc.struct_field(loads, "appId"), load_id))
    return int(versions[-1].as_py()) if len(versions) else None


def load_metadata(
    load_id: str, part: StagedRows, labels: Mapping[str, str], log: tuple[fs.FileSystem, str], version: int
) -> dict[str, str]:
    """Returns the user metadata of the commit of a part on top of this version of the table. `log` is the folder of its
    log, with the filesystem that has it."""
    found = {LOAD_ID: load_id, "airbyte-proto.stream": str(part.stream)}
    found |= {f"airbyte-proto.{key}": value for key, value in labels.items()}
    found |= {CONNECTION: part.connection} if part.connection else {}
    if part.high_water_mark is not None and (mark := high_water_mark_after(part, logged_freshness(log, version))):
        found[HIGH_WATER_MARK] = msgspec.json.encode(mark).decode()
    return found


def logged_freshness(log: tuple[fs.FileSystem, str], version: int) -> Freshness:
    """Returns what the last commit that changed rows says of them; `has_rows` is not filled in.

    As a rule that is the last commit. Compactions and expiries after it change no row.
    """
    for each in range(version, -1, -1):
        if (commit := read_commit(*log, each)) is None:
            break
        if commit.changes_rows:
            return Freshness(False, str(each), commit.high_water_mark)
    return Freshness(False)


def read_commits(storage: fs.FileSystem, folder: str) -> Iterator[Commit]:
    """Reads the versions that the log has, oldest first."""
    found = storage.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    for version in sorted(int(match[1]) for info in found if (match := _COMMIT_FILE.fullmatch(info.base_name))):
        if (commit := read_commit(storage, folder, version)) is not None:
            yield commit


def kept_commits(all_commits: Sequence[Commit]) -> Sequence[Commit]:
    """Returns the commits that were not expired."""
    since = oldest_kept_version(all_commits)
    return [commit for commit in all_commits if commit.version >= since]


def oldest_kept_version(all_commits: Iterable[Commit]) -> int:
    """Returns the oldest version that the last expiry kept; 0 where there was none."""
    return max((int(commit.user_metadata.get(OLDEST_KEPT, "0")) for commit in all_commits), default=0)


def referenced_paths(all_commits: Iterable[Commit], since: int, current: Iterable[LoggedFile]) -> set[str]:
    """Returns the paths of all files that the versions from `since` on need. The table has the `current` files now.

    A file that a version had and the table no longer has was removed by a later commit.
    """
    later = (commit for commit in all_commits if commit.version > since)
    changed = (file for commit in later for file in (*commit.added, *commit.removed))
    return {path for files in (current, changed) for file in files for path in file.paths}


def _commit(version: int, lines: Sequence[bytes]) -> Commit:
    actions = [_ACTION.decode(line) for line in lines if line]
    infos = (_commit_info(action.commit_info) for action in actions)
    info = next((each for each in infos if each is not None), _CommitInfo())
    added = tuple(action.add for action in actions if action.add)
    return Commit(version, info, added, tuple(action.remove for action in actions if action.remove))


def _commit_info(raw: msgspec.Raw) -> _CommitInfo | None:
    """Returns a writer's word about its commit; None for any JSON that we cannot read, which the protocol allows."""
    try:
        return _COMMIT_INFO.decode(raw)
    except msgspec.MsgspecError:
        return None
