"""Rows of one stream on their way to one commit: their files, and the counts that go with them."""

import os
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from dagster_airbyte_proto.model import FileContent, PlannedStream, StagedFile, StagedRows, WriteMode
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.area import Folder, file_name, make, remove, run_folder
from dagster_airbyte_proto.staging.batches import Parsed
from dagster_airbyte_proto.staging.dedup import POSITION_DELETES, resolve
from dagster_airbyte_proto.staging.parquet import OpenFile, field_of
from dagster_airbyte_proto.staging.ranking import InFiles, InOneFile, Ranking, ranked
from dagster_airbyte_proto.staging.withheld import without_withheld
from dagster_airbyte_proto.tables.writer import DEDUPLICATING, TableTarget


class Shelf:
    """Where one stream's files go. The table is asked for, and the folder made, when the first file is due.

    `weight` is what a byte of records comes to once it is written: its share of the file, and of the keys that are kept
    in memory to find duplicates. It is 1 until a file tells.
    """

    def __init__(
        self, planned: PlannedStream, columns: Columns, target: Callable[[], TableTarget], run_id: str
    ) -> None:
        self.planned = planned
        self.columns = columns
        self.resolves_keys = planned.write in DEDUPLICATING
        self.weight = 1.0
        self.is_weighed = False
        self._target = target
        self._run_id = run_id
        self._place: tuple[Folder, TableTarget] | None = None
        self._mark = os.urandom(4).hex()
        self._files = 0

    def fitting(self, parsed: Parsed) -> Parsed:
        """Without what the table does not take."""
        target = self._ready()[1]
        if not target.fit.withheld:
            return parsed
        return without_withheld(parsed, target.fit.withheld, self.planned.policy, target.schema)

    def new_file(self) -> OpenFile:
        return self._new("rows", self._ready()[1].schema, FileContent.ROWS)

    def new_position_deletes(self) -> OpenFile:
        return self._new("positions", POSITION_DELETES, FileContent.POSITION_DELETES)

    def new_equality_deletes(self) -> OpenFile:
        schema = self._ready()[1].schema
        keys = pa.schema([field_of(schema, key) for key in self.columns.keys])
        return self._new("keys", keys, FileContent.EQUALITY_DELETES)

    def remove(self, file: StagedFile) -> None:
        folder = self._ready()[0]
        remove(folder, folder.path + file.path.removeprefix(folder.uri))

    def _new(self, kind: str, schema: pa.Schema, content: FileContent) -> OpenFile:
        self._files += 1
        name = file_name(kind, str(self.planned.id), self._mark, self._files)
        return OpenFile(self._ready()[0], name, schema, content)

    def _ready(self) -> tuple[Folder, TableTarget]:
        if self._place is None:
            target = self._target()
            folder = Folder.at(run_folder(target, self._run_id))
            make(folder)
            self._place = folder, target
        return self._place


class Portion:
    """Rows that are committed together or not at all. At most one of its files is open."""

    def __init__(self, shelf: Shelf, max_file_bytes: int) -> None:
        self._shelf = shelf
        self._max_file_bytes = max_file_bytes
        self._files: list[StagedFile] = []
        self._open: OpenFile | None = None
        self._open_record_bytes = self._open_key_bytes = 0
        self._rankings: list[Ranking] = []
        self._rejected: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._rows = 0
        self._changed = 0
        self.lines = 0
        self.record_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Memory that `write_waiting` would free."""
        return self._open.waiting_bytes if self._open else 0

    def write(self, parsed: Parsed, lines: int, record_bytes: int) -> None:
        """Adds a parsed segment of so many lines and bytes."""
        if parsed.batch.num_rows:
            parsed = self._shelf.fitting(parsed)
        self.lines += lines
        self.record_bytes += record_bytes
        self._rejected.update(parsed.rejected)
        self._ignored.update(parsed.ignored)
        self._changed += parsed.changed
        rows = parsed.rows
        self._rows += rows.num_rows
        if rows.num_rows and self._open is None:
            self._open = self._shelf.new_file()
        if parsed.batch.num_rows and self._shelf.resolves_keys:
            self._rank(parsed)
        if self._open is not None and rows.num_rows:
            self._write_rows(self._open, rows, record_bytes)

    def write_waiting(self) -> None:
        if self._open is not None:
            self._open.write_waiting()
            self._weigh(self._open.size_bytes)

    def close_file(self) -> None:
        """No row that comes later gets into a file of this portion."""
        if self._open is not None:
            file = self._open.close()
            self._files.append(file)
            self._weigh(file.size_bytes)
            self._open = None  # Not before: `drop` must find a file that the disk did not let us close.
            self._open_record_bytes = self._open_key_bytes = 0

    def absorb(self, later: "Portion") -> None:
        """Takes over the rows that came right behind. Their open file stays open; ours must be closed."""
        self._files += later._files
        self._open = later._open
        self._open_record_bytes, self._open_key_bytes = later._open_record_bytes, later._open_key_bytes
        self._rankings += later._rankings
        self._rejected.update(later._rejected)
        self._ignored.update(later._ignored)
        self._rows += later._rows
        self._changed += later._changed
        self.lines += later.lines
        self.record_bytes += later.record_bytes

    def staged(self) -> StagedRows:
        """Closes what is open and describes it all. The files are the caller's from now on."""
        self.close_file()
        planned, columns = self._shelf.planned, self._shelf.columns
        duplicates, deleted = self._stage_deletes() if self._shelf.resolves_keys and self._rankings else (0, 0)
        return StagedRows(
            stream=planned.id,
            table=planned.table,
            write=planned.write,
            generation_id=planned.generation_id,
            files=tuple(self._files),
            keys=columns.keys,
            emitted=self.lines,
            rows=self._rows,
            duplicates=duplicates,
            deleted=deleted,
            changed=self._changed,
            rejected=dict(self._rejected),
            ignored_fields=dict(self._ignored),
            record_bytes=self.record_bytes,
            slice=planned.slice,
        )

    def drop(self) -> None:
        """Removes all its files."""
        if self._open is not None:
            self._open.abandon()
        for file in self._files:
            self._shelf.remove(file)
        self._files, self._open = [], None

    def _rank(self, parsed: Parsed) -> None:
        order = ranked(parsed.batch, self._shelf.columns)
        place = InOneFile("", 0) if self._open is None else InOneFile(self._open.uri, self._open.rows)
        places = place if parsed.gone is None else InFiles.without(parsed.gone, place)
        self._rankings.append(Ranking(order, places, parsed.deletions))
        self._open_key_bytes += order.nbytes

    def _write_rows(self, file: OpenFile, rows: pa.RecordBatch, record_bytes: int) -> None:
        file.write(rows)
        self._open_record_bytes += record_bytes
        if not self._shelf.is_weighed:  # What is not weighed counts whole, and would close the first load early.
            file.write_waiting()
        if not file.waiting_bytes:
            self._weigh(file.size_bytes)
        if file.size_bytes >= self._max_file_bytes:
            self.close_file()

    def _weigh(self, size_bytes: int) -> None:
        """Learns from the open file, all rows of which are written."""
        if self._open_record_bytes:
            self._shelf.weight = (size_bytes + self._open_key_bytes) / self._open_record_bytes
            self._shelf.is_weighed = True

    def _stage_deletes(self) -> tuple[int, int]:
        """How many rows are taken out again, and how many keys are deleted."""
        keeps_deleted = self._shelf.planned.keeps_deleted
        resolution = resolve(self._rankings, self._shelf.columns, keeps_deleted=keeps_deleted)
        if resolution.losers.num_rows:
            self._stage(self._shelf.new_position_deletes(), resolution.losers)
        if self._shelf.planned.write is not WriteMode.OVERWRITE_DEDUP:  # which leaves no older row to delete
            self._stage(self._shelf.new_equality_deletes(), resolution.keys)
        return len(resolution.losers), resolution.deleted

    def _stage(self, file: OpenFile, rows: pa.Table) -> None:
        self._open = file  # Where `drop` finds it should the disk fail.
        file.write(rows)
        self.close_file()
