"""The log of a table in a folder: its entries, and the table that they add up to."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.loads.load import BranchPosition, FileContent, HighWaterMark, StagedFile
from dagster_airbyte_proto.loads.table import Freshness
from dagster_airbyte_proto.model import REPLACING, WriteMode
from dagster_airbyte_proto.schema.evolution import IcebergSchema


class LogEntry(msgspec.Struct, frozen=True):
    """One change of a table: new columns, a load, or the end of a branch. Written to the log as JSON.

    Columns that are `only_proposed` are not the table's yet. They are known by the number of their entry, until a load
    of the generation that brings them is published. The first entry gives the table its identity.
    """

    columns: IcebergSchema | None = None
    last_column_id: int = 0
    slice_column: str | None = None
    load_id: str | None = None
    write: WriteMode = WriteMode.APPEND
    files: tuple[StagedFile, ...] = ()
    keys: tuple[str, ...] = ()
    slice: str | None = None
    high_water_mark: HighWaterMark | None = msgspec.field(default=None, name="newest")
    branch_position: BranchPosition | None = msgspec.field(default=None, name="aside")
    dropped_branch: str | None = msgspec.field(default=None, name="dropped")
    only_proposed: bool = msgspec.field(default=False, name="generation")
    connection: str = ""
    table_id: str = ""


ENTRY_DECODER = msgspec.json.Decoder(LogEntry)


class NumberedEntry(NamedTuple):
    """An entry of the log and its number, which is the age of its files."""

    number: int
    entry: LogEntry


class LogSnapshot(NamedTuple):
    """A table as of an entry of its log.

    `live` are the entries whose files readers see, `branches` those of each branch. `loads` are all loads that ever
    landed. `known_columns` are all columns that the table had or that were proposed, by the numbers of their entries.
    `entry_id` tells the file of the entry from another one of its name: while it stands, so do the entries before it.
    """

    number: int
    columns: IcebergSchema
    last_column_id: int
    slice_column: str | None
    live: tuple[NumberedEntry, ...]
    loads: dict[str, NumberedEntry]
    branches: Mapping[str, tuple[NumberedEntry, ...]]
    known_columns: Mapping[int, IcebergSchema]
    table_id: str = ""
    entry_id: tuple[int, int] | None = None

    def shows(self, load_id: str) -> bool:
        """True if readers see the rows of a load."""
        return any(landed.entry.load_id == load_id for landed in reversed(self.live))

    def newest_load(self, connection: str) -> str | None:
        """Returns the last load of a connection that readers see; None if there is none."""
        shown = (landed.entry for landed in reversed(self.live) if landed.entry.connection == connection)
        return next((entry.load_id for entry in shown), None)

    @property
    def freshness(self) -> Freshness:
        if not self.live:
            return Freshness(has_rows=False)
        last = self.live[-1]
        return Freshness(bool(self.count_rows(FileContent.ROWS)), str(last.number), last.entry.high_water_mark)

    @property
    def rows(self) -> int | None:
        """The number of rows, as in an Iceberg summary: None where equality deletes leave it open."""
        if self.count_rows(FileContent.EQUALITY_DELETES):
            return None
        return self.count_rows(FileContent.ROWS) - self.count_rows(FileContent.POSITION_DELETES)

    def count_rows(self, content: FileContent) -> int:
        return sum(file.rows for _, file in self.files(content))

    def files(self, content: FileContent) -> Iterator[tuple[NumberedEntry, StagedFile]]:
        for landed in self.live:
            yield from ((landed, file) for file in landed.entry.files if file.content is content)

    def with_entry(self, number: int, entry: LogEntry) -> "LogSnapshot":
        """Returns the snapshot once `entry` is in the log."""
        if entry.dropped_branch is not None:
            return self._replace(number=number, branches=self._branches_without(entry.dropped_branch))
        if entry.load_id is None:
            columns = entry.columns or {}
            return self._replace(
                number=number,
                columns=self.columns if entry.only_proposed else columns,
                known_columns={**self.known_columns, number: columns},
                last_column_id=entry.last_column_id,
                slice_column=entry.slice_column,
                table_id=self.table_id or entry.table_id,
            )
        landed = NumberedEntry(number, entry)
        after = self._replace(number=number, loads={**self.loads, entry.load_id: landed})
        if entry.branch_position is not None:
            return after._with_branch_entry(entry.branch_position, landed)
        live = self.live_outside(entry.slice) if entry.write in REPLACING else self.live
        return after._replace(live=(*live, landed))

    def of_branch(self, branch: str | None) -> "LogSnapshot":
        """Returns the snapshot that a reader of a branch would have. Without a branch it is the one of all readers."""
        if branch is None:
            return self
        return self._replace(live=self.branches.get(branch, ()), columns=self.columns_of(self.branch_schema_id(branch)))

    def branch_schema_id(self, branch: str) -> int | None:
        """Returns the number of the columns of a branch's loads. None where they are the table's own."""
        landed = self.branches.get(branch, ())
        position = landed[-1].entry.branch_position if landed else None
        return position.schema_id if position else None

    def columns_of(self, schema_id: int | None) -> IcebergSchema:
        return self.columns if schema_id is None else self.known_columns[schema_id]

    def last_load(self, branch: str) -> str | None:
        """Returns the last load of a branch. None where there is no such branch."""
        landed = self.branches.get(branch, ())
        return landed[-1].entry.load_id if landed else None

    def _with_branch_entry(self, position: BranchPosition, landed: NumberedEntry) -> "LogSnapshot":
        older = self.branches.get(position.branch, ()) if position.after is not None else ()
        others = self._branches_without(position.branch)
        if position.publishes:
            return self._replace(live=(*older, landed), branches=others, columns=self.columns_of(position.schema_id))
        return self._replace(branches={**others, position.branch: (*older, landed)})

    def _branches_without(self, dropped: str) -> Mapping[str, tuple[NumberedEntry, ...]]:
        return {name: landed for name, landed in self.branches.items() if name != dropped}

    def live_outside(self, replaced: str | None) -> tuple[NumberedEntry, ...]:
        """Returns the entries that stay when a load replaces a slice, or everything for None."""
        return () if replaced is None else tuple(landed for landed in self.live if landed.entry.slice != replaced)


NO_TABLE = LogSnapshot(0, {"type": "struct", "fields": []}, 0, None, (), {}, {}, {})
