"""The log of a folder table: its entries, and what a table is by them."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.loads.load import Aside, FileContent, Newest, StagedFile
from dagster_airbyte_proto.loads.table import REPLACING, Standing
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.schema.evolution import Columns


class Entry(msgspec.Struct, frozen=True):
    """One step of a table's life: new columns, or a load, or the end of a branch that is `dropped`.

    Columns for a `generation` alone are not yet the table's: those of its loads are known by the number of this entry.
    """

    columns: Columns | None = None
    last_column_id: int = 0
    slice_column: str | None = None
    load_id: str | None = None
    write: WriteMode = WriteMode.APPEND
    files: tuple[StagedFile, ...] = ()
    keys: tuple[str, ...] = ()
    slice: str | None = None
    newest: Newest | None = None
    aside: Aside | None = None
    dropped: str | None = None
    generation: bool = False


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
ENTRY = msgspec.json.Decoder(Entry)


class Numbered(NamedTuple):
    """An entry of the log, with its place."""

    number: int
    entry: Entry


class View(NamedTuple):
    """A table as its log has it: what is in now, what lies aside by branch, and every load that ever went in. `known`
    are all columns that it ever had or that a generation is to bring, by the numbers of their entries."""

    number: int
    columns: Columns
    last_column_id: int
    slice_column: str | None
    live: tuple[Numbered, ...]
    loads: dict[str, Numbered]
    branches: Mapping[str, tuple[Numbered, ...]]
    known: Mapping[int, Columns]

    @property
    def standing(self) -> Standing:
        if not self.live:
            return Standing(has_rows=False)
        last = self.live[-1]
        return Standing(bool(self.count(FileContent.ROWS)), str(last.number), last.entry.newest)

    @property
    def rows(self) -> int | None:
        """As Iceberg's summary has it: None where equality deletes leave it open."""
        if self.count(FileContent.EQUALITY_DELETES):
            return None
        return self.count(FileContent.ROWS) - self.count(FileContent.POSITION_DELETES)

    def count(self, content: FileContent) -> int:
        return sum(file.rows for _, file in self.files(content))

    def files(self, content: FileContent) -> Iterator[tuple[Numbered, StagedFile]]:
        for landed in self.live:
            yield from ((landed, file) for file in landed.entry.files if file.content is content)

    def after(self, number: int, entry: Entry) -> "View":
        """The view once `entry` is in."""
        if entry.dropped is not None:
            return self._replace(number=number, branches=self._branches_but(entry.dropped))
        if entry.load_id is None:
            columns = entry.columns or {}
            return self._replace(
                number=number,
                columns=self.columns if entry.generation else columns,
                known={**self.known, number: columns},
                last_column_id=entry.last_column_id,
                slice_column=entry.slice_column,
            )
        landed = Numbered(number, entry)
        after = self._replace(number=number, loads={**self.loads, entry.load_id: landed})
        if entry.aside is not None:
            return after._aside(entry.aside, landed)
        live = self.beside(entry.slice) if entry.write in REPLACING else self.live
        return after._replace(live=(*live, landed))

    def on(self, branch: str | None) -> "View":
        """The view that a reader of a branch would have; without one it is what all readers have."""
        if branch is None:
            return self
        return self._replace(live=self.branches.get(branch, ()), columns=self.columns_of(self.begun(branch)))

    def begun(self, branch: str) -> int | None:
        """The number of the columns that the loads of a branch have; None where they are the table's own."""
        landed = self.branches.get(branch, ())
        return landed[-1].entry.aside.schema_id if landed and landed[-1].entry.aside else None

    def columns_of(self, schema_id: int | None) -> Columns:
        return self.columns if schema_id is None else self.known[schema_id]

    def newest(self, branch: str) -> str | None:
        """The load that came last on a branch, if there is one of that name."""
        landed = self.branches.get(branch, ())
        return landed[-1].entry.load_id if landed else None

    def _aside(self, aside: Aside, landed: Numbered) -> "View":
        older = self.branches.get(aside.branch, ()) if aside.after is not None else ()
        others = self._branches_but(aside.branch)
        if aside.publishes:
            return self._replace(live=(*older, landed), branches=others, columns=self.columns_of(aside.schema_id))
        return self._replace(branches={**others, aside.branch: (*older, landed)})

    def _branches_but(self, dropped: str) -> Mapping[str, tuple[Numbered, ...]]:
        return {name: landed for name, landed in self.branches.items() if name != dropped}

    def beside(self, replaced: str | None) -> tuple[Numbered, ...]:
        """What a replacement of a slice, or of everything, leaves."""
        return () if replaced is None else tuple(landed for landed in self.live if landed.entry.slice != replaced)


NOTHING = View(0, {"type": "struct", "fields": []}, 0, None, (), {}, {}, {})
