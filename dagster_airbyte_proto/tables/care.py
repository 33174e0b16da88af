"""What the care of tables is: looking at one, compacting it, and letting go of what nobody needs any more.

Nothing here moves a row that a reader sees. Which snapshots may go is decided in `sync/maintenance/care.py`, which
knows the states.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.column_ids import arrow_schema
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.folder.tables import FolderTables

SMALL_SHARE = 0.75
"""A file is small below this share of the size that the table's files are written to. Iceberg compacts by the same."""

_FOLDER_TARGET_BYTES = 128 << 20


class TableFacts(NamedTuple):
    """A table as it is now. `columns` have their types in SQL, `slices` counts those that hold rows."""

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


class Change(NamedTuple):
    """One snapshot. `removed_rows` went with their files; `deletes` are the rows of delete files that came in, each of
    which takes out any number. `stream` is that of a connection's load. `rewound_at` is the version of the states at
    which the table was taken back to it."""

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
    """All snapshots in the order in which they came in, and which of them readers were shown, from when on."""

    changes: tuple[Change, ...]
    shown: tuple[tuple[datetime, str], ...]
    current: str | None


class Rewinding(NamedTuple):
    """A table was taken back, at a version of its connection's states; since then it was `snapshot_id`."""

    version: int
    snapshot_id: str


class TablePast(NamedTuple):
    """What a table is, and can be taken back to: its snapshots in the order in which they came, earlier rewindings."""

    current: str | None
    snapshots: tuple[str, ...]
    rewindings: tuple[Rewinding, ...]


class Rewinder(Protocol):
    """Raises TableError when a table is not there, or refuses."""

    def past(self, name: TableName) -> TablePast: ...

    def rewind(self, name: TableName, snapshot_id: str | None, *, seen: TablePast, version: int) -> bool:
        """Readers see the rows of the snapshot from now on, or none for None. False when they did already.

        Refused when the table has changed since it was `seen`. What was undone is kept until its snapshots expire: the
        table can be taken forward to it again.
        """
        ...


class Compacted(NamedTuple):
    """`attempts` is more than one where other writers changed the table meanwhile."""

    rewritten_files: int = 0
    written_files: int = 0
    removed_delete_files: int = 0
    attempts: int = 1


class TableCare(Protocol):
    """Raises TableError for a table that is not there or refuses, ConfigError for what the format has not."""

    def names(self) -> Sequence[TableName]:
        """Every table of the catalog."""
        ...

    def facts(self, name: TableName) -> TableFacts: ...

    def history(self, name: TableName) -> TableHistory: ...

    def compact(self, name: TableName) -> Compacted:
        """Puts small files together and applies every delete file that stands. Syncs may commit meanwhile."""
        ...

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        """Lets go of snapshots but the current one and those of tags and branches, and of the files that only they
        have. How many."""
        ...

    def remove_orphans(self, name: TableName, *, before: datetime, but: "Untouchable") -> tuple[str, ...]:
        """Removes files of the data folder that no snapshot has and that were written before; which."""
        ...


class Untouchable(NamedTuple):
    """Staged files that may still be committed, by their paths, and by the runs in whose folders (`run-<id>`) they lie.

    A run that is at work may have staged what nothing is written of yet.
    """

    paths: frozenset[str] = frozenset()
    run_ids: frozenset[str] = frozenset()


class FolderCare:
    """Tables as folders can be looked at. They keep every entry and every file for ever."""

    def __init__(self, tables: FolderTables, format_name: str = "folder") -> None:
        self._tables = tables
        self._format = format_name

    def names(self) -> Sequence[TableName]:
        return self._tables.names()

    def facts(self, name: TableName) -> TableFacts:
        view = self._tables.view(name)
        files = [file for _, entry in view.live for file in entry.files]
        rows = [file for file in files if file.content is FileContent.ROWS]
        schema = arrow_schema(view.columns)
        return TableFacts(
            table=str(name),
            format=self._format,
            rows=self._tables.rows(name).num_rows if view.rows is None else view.rows,
            files=len(rows),
            small_files=sum(file.size_bytes < SMALL_SHARE * _FOLDER_TARGET_BYTES for file in rows),
            delete_files=len(files) - len(rows),
            size_bytes=sum(file.size_bytes for file in files),
            snapshots=len(view.loads),
            last_load=next(reversed(view.loads), None),
            last_load_at=None,
            partitioned_by=view.slice_column,
            slices=len({entry.slice for _, entry in view.live if entry.slice is not None}),
            columns=tuple((field.name, str(field.type)) for field in schema),
        )

    def history(self, name: TableName) -> TableHistory:
        changes = tuple(
            Change(str(number), None, entry.write.value, *_counts(entry.files), load_id=entry.load_id)
            for number, entry in self._tables.view(name).loads.values()
        )
        return TableHistory(changes, (), changes[-1].snapshot_id if changes else None)

    def compact(self, name: TableName) -> Compacted:
        raise self._without(f"compacting table {name}")

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        raise self._without(f"expiring {len(snapshot_ids)} snapshots of table {name}")

    def remove_orphans(self, name: TableName, *, before: datetime, but: Untouchable) -> tuple[str, ...]:
        raise self._without(f"removing files of table {name} that lie there since {before}, but {len(but.paths)}")

    def _without(self, doing: str) -> ConfigError:
        return ConfigError(
            doing,
            f"tables of the format {self._format} have no snapshots to go back to, and are read as they are",
            remedy="Set catalog: {format: iceberg, or delta} in the settings for tables that are cared for.",
        )


def _counts(files: Sequence[StagedFile]) -> tuple[int, int, int]:
    added = sum(file.rows for file in files if file.content is FileContent.ROWS)
    return added, 0, sum(file.rows for file in files) - added
