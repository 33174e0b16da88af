"""The interface for the care of tables: inspect, compact, expire snapshots, remove orphan files, rewind.

- Only `TableRewinder` changes the rows that a reader sees.
- `sync/maintenance/care.py` decides which snapshots may be expired, because it knows the states.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.model import TableName

SMALL_SHARE = 0.75
"""A file is small below this share of the table's target file size, as in Iceberg's own compaction."""


class TableFacts(NamedTuple):
    """A table as it is now. `columns` have SQL types. `slices` counts the slices that have rows."""

    table: str
    format: str
    rows: int
    files: int
    small_files: int
    delete_files: int
    size_bytes: int
    snapshots: int
    last_load: str | None
    last_load_at: datetime | None
    partitioned_by: str | None
    slices: int
    columns: tuple[tuple[str, str], ...]


class SnapshotChange(NamedTuple):
    """One snapshot in a table's history.

    `removed_rows` counts the rows of removed data files. `deletes` counts the rows of added delete files; each of them
    may delete any number of rows. `stream` is set if the snapshot is a load of a connection. `rewound_at` is the
    version of the states at which the table was rewound to this snapshot.
    """

    snapshot_id: str
    at: datetime | None
    operation: str
    added_rows: int
    removed_rows: int
    deletes: int
    load_id: str | None = None
    parent_id: str | None = None
    rewound_at: int | None = None
    stream: str | None = None


class TableHistory(NamedTuple):
    """All snapshots of a table, oldest first, and the snapshots that readers saw, each with the time from which on."""

    changes: tuple[SnapshotChange, ...]
    shown: tuple[tuple[datetime, str], ...]
    current: str | None


class PastRewind(NamedTuple):
    """An earlier rewind of a table, at a version of its connection's states. `snapshot_id` is the snapshot it made,
    `target` the one that it went to, None for no rows."""

    version: int
    snapshot_id: str
    target: str | None


class ShownSnapshot(NamedTuple):
    """A snapshot that readers saw, and the connection whose load it is; None for that of another program."""

    snapshot_id: str
    connection: str | None


class TablePast(NamedTuple):
    """A table's current snapshot, the snapshots to which it can be rewound (oldest first), and its earlier rewinds.

    The rewinds come by version, and those of one version in their order: a table without states has them all at one.

    `shown` are the snapshots that readers saw, oldest first. It is empty where the log does not tell all of them.
    """

    current: str | None
    snapshots: tuple[str, ...]
    rewinds: tuple[PastRewind, ...]
    shown: tuple[ShownSnapshot, ...] = ()

    def snapshot_before(self, connection: str) -> str | None:
        """The snapshot that readers saw before the first load of a connection: rows of others are in it. None if there
        was none, or if nobody knows."""
        first = next((number for number, each in enumerate(self.shown) if each.connection == connection), 0)
        return self.shown[first - 1].snapshot_id if first else None


class TableRewinder(Protocol):
    """Takes tables back to older snapshots. Raises TableError if a table does not exist or refuses the change."""

    def past(self, name: TableName) -> TablePast: ...

    def rewind(self, name: TableName, snapshot_id: str | None, *, seen: TablePast, version: int) -> bool:
        """Shows readers the rows of a snapshot, or no rows for None. Returns False if they see exactly these already.

        Raises TableError if the table has changed since it was `seen`. The snapshots that were undone stay until they
        expire, so the table can be moved forward to them again.
        """
        ...


class CompactionResult(NamedTuple):
    """The result of a compaction. `attempts` is above one if other writers changed the table at the same time."""

    rewritten_files: int = 0
    written_files: int = 0
    removed_delete_files: int = 0
    attempts: int = 1


class TableCare(Protocol):
    """Inspects and maintains the tables of one catalog.

    Raises TableError if a table does not exist or refuses a change, ConfigError for what the format does not support.
    """

    def names(self) -> Sequence[TableName]:
        """Returns every table of the catalog."""
        ...

    def facts(self, name: TableName) -> TableFacts: ...

    def history(self, name: TableName) -> TableHistory: ...

    def compact(self, name: TableName, *, keeps_deletes: bool = False) -> CompactionResult:
        """Merges small files and applies all delete files. Syncs may commit at the same time.

        If it `keeps_deletes`, no file is written again because few of its rows are deleted.
        """
        ...

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        """Expires snapshots and deletes the files that only they have. Returns the number of expired snapshots.

        The current snapshot and those of tags and branches are kept, even if they are among `snapshot_ids`.
        """
        ...

    def remove_orphans(self, name: TableName, *, before: datetime, protected: "ProtectedFiles") -> tuple[str, ...]:
        """Deletes files of the data folder that are in no snapshot and older than `before`. Returns their paths."""
        ...


class ProtectedFiles(NamedTuple):
    """Staged files that may still be committed: single paths, and all files in the folders (`run-<id>`) of some runs.

    Runs are listed because a run at work may have staged files that no stored load names yet.
    """

    paths: frozenset[str] = frozenset()
    run_ids: frozenset[str] = frozenset()
