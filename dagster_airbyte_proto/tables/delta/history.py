"""The commits of a Delta table, read from the files of its log without Spark: what each did, and what it names.

A table's versions are all that it was, as long as their files are there. What was let go of is marked in the log by a
commit of its own (`KEPT_FROM`): the versions before that one can not be gone back to, whatever the log still says of
them. The log itself is Delta's to shorten.
"""

import base64
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec
from pyarrow import fs

from dagster_airbyte_proto.loads.load import Newest

COMPACTION = "airbyte-proto.compaction"
KEPT_FROM = "airbyte-proto.kept-from"
LOAD_ID = "airbyte-proto.load-id"
NEWEST = "airbyte-proto.newest"
REWOUND_TO = "airbyte-proto.rewound-to"
ROWS = "airbyte-proto.table-rows"
VERSION = "airbyte-proto.rewound-at-version"

_COMMIT_FILE = re.compile(r"(\d{20})\.json")
_UUID_CHARACTERS = 20
# Delta writes ids of files as ZeroMQ does (Z85); Python knows the same code by other letters.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85, _TO_Z85 = str.maketrans(_Z85, _B85), str.maketrans(_B85, _Z85)


def to_z85(coded: str) -> str:
    """What Python codes with 85 letters, in Delta's letters."""
    return coded.translate(_TO_Z85)


class DeletionVector(msgspec.Struct, frozen=True, rename="camel"):
    """Which rows of a file are deleted, or where that is written."""

    storage_type: str = "i"
    path_or_inline: str = msgspec.field(default="", name="pathOrInlineDv")
    cardinality: int = 0
    offset: int | None = None

    @property
    def path(self) -> str | None:
        """Its file, from the table's folder on. None where it is in no such file."""
        if self.storage_type != "u":
            return None
        coded = self.path_or_inline[-_UUID_CHARACTERS:]
        named = uuid.UUID(bytes=base64.b85decode(coded.translate(_FROM_Z85)))
        folder = self.path_or_inline[:-_UUID_CHARACTERS]
        return f"{folder}/deletion_vector_{named}.bin" if folder else f"deletion_vector_{named}.bin"


class File(msgspec.Struct, frozen=True, rename="camel"):
    """A file as the log tells that it came or went."""

    path: str
    size: int | None = None
    stats: str | None = None
    data_change: bool = True
    partition_values: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None

    @property
    def stored_rows(self) -> int | None:
        """Those in the file, deleted ones too. None where the log does not tell."""
        found = json.loads(self.stats or "{}").get("numRecords")
        return None if found is None else int(found)

    @property
    def deleted_rows(self) -> int:
        return self.deletion_vector.cardinality if self.deletion_vector else 0

    @property
    def rows(self) -> int | None:
        """Those that readers find."""
        stored = self.stored_rows
        return None if stored is None else stored - self.deleted_rows

    @property
    def identity(self) -> tuple[str, str, int | None]:
        """One file with other deletes is another to the log."""
        vector = self.deletion_vector
        return (self.path, vector.path_or_inline, vector.offset) if vector else (self.path, "", None)

    @property
    def paths(self) -> Iterator[str]:
        """What lies on the storage for it, from the table's folder on; what others keep elsewhere is not told."""
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


class _Action(msgspec.Struct, frozen=True, rename="camel"):
    add: File | None = None
    remove: File | None = None
    commit_info: _CommitInfo | None = None


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_ACTION = msgspec.json.Decoder(_Action)
_NEWEST = msgspec.json.Decoder(Newest)


class Commit(msgspec.Struct, frozen=True):
    """One version: what came, what went, and what its maker says of it."""

    version: int
    info: _CommitInfo
    added: tuple[File, ...]
    removed: tuple[File, ...]

    @property
    def at(self) -> datetime:
        milliseconds = self.info.in_commit_timestamp or self.info.timestamp
        return datetime.fromtimestamp(milliseconds / 1000, UTC)

    @property
    def told(self) -> Mapping[str, str]:
        """What we told with it; nothing where it is none of ours."""
        try:
            found = json.loads(self.info.user_metadata or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def newest(self) -> Newest | None:
        """How new the table's rows are at the most, if who made the commit said so, and no other came in between."""
        text = self.told.get(NEWEST)
        is_as_told = self.info.read_version == self.version - 1
        return _NEWEST.decode(text) if text and is_as_told else None

    @property
    def changes_rows(self) -> bool:
        """Not where files are only written anew, or none is touched."""
        return any(file.data_change for file in (*self.added, *self.removed))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows that came with files, that went with theirs, and that were deleted in files which stay."""
        before = {file.path: file.deleted_rows for file in self.removed}
        after = {file.path for file in self.added}
        came = sum(file.rows or 0 for file in self.added if file.path not in before)
        deleted = sum(file.deleted_rows - before[file.path] for file in self.added if file.path in before)
        went = sum(file.rows or 0 for file in self.removed if file.path not in after)
        return came, went, deleted


def file_of(action: str) -> File:
    """The file of an `add` action."""
    found = _ACTION.decode(action).add
    if found is None:
        raise ValueError(f"no add action: {action!r}")
    return found


def commit_at(storage: fs.FileSystem, folder: str, version: int) -> Commit | None:
    """One version of the log in a folder; None where the log has it no longer."""
    try:
        with storage.open_input_stream(f"{folder}/{version:020}.json") as stream:
            return _commit(version, stream.read().splitlines())
    except FileNotFoundError:
        return None


def commits(storage: fs.FileSystem, folder: str) -> Iterator[Commit]:
    """Those that the log has, oldest first."""
    found = storage.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    for version in sorted(int(match[1]) for info in found if (match := _COMMIT_FILE.fullmatch(info.base_name))):
        if (commit := commit_at(storage, folder, version)) is not None:
            yield commit


def kept(all_commits: Sequence[Commit]) -> Sequence[Commit]:
    """Those that nobody let go of."""
    since = kept_from(all_commits)
    return [commit for commit in all_commits if commit.version >= since]


def kept_from(all_commits: Iterable[Commit]) -> int:
    """The oldest version that was kept when versions were let go of."""
    return max((int(commit.told.get(KEPT_FROM, "0")) for commit in all_commits), default=0)


def needed(all_commits: Iterable[Commit], since: int, current: Iterable[File]) -> set[str]:
    """What lies on the storage for any version from one on, where a table has the `current` files now: what a version
    had, and the table has no more, was taken out later."""
    later = (commit for commit in all_commits if commit.version > since)
    changed = (file for commit in later for file in (*commit.added, *commit.removed))
    return {path for files in (current, changed) for file in files for path in file.paths}


def _commit(version: int, lines: Sequence[bytes]) -> Commit:
    actions = [_ACTION.decode(line) for line in lines if line]
    info = next((action.commit_info for action in actions if action.commit_info), _CommitInfo())
    added = tuple(action.add for action in actions if action.add)
    return Commit(version, info, added, tuple(action.remove for action in actions if action.remove))
