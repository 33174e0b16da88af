"""Rows of one stream on their way to one commit: their files, and the counts that go with them."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.table import DEDUPLICATING, TableTarget
from dagster_airbyte_proto.model import PartitionValue, PlannedStream, SortField, WriteMode
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.files.area import Folder, file_name, make, remove, run_folder
from dagster_airbyte_proto.staging.files.parquet_file import ROW_GROUP_BYTES, OpenFile, field_of
from dagster_airbyte_proto.staging.files.partitions import parted
from dagster_airbyte_proto.staging.files.sorting import Places, moved
from dagster_airbyte_proto.staging.keys.dedup import POSITION_DELETES, Resolution, resolve
from dagster_airbyte_proto.staging.keys.late_rows import LateRowLookup
from dagster_airbyte_proto.staging.keys.ranking import InFiles, InOneFile, Ranking, ranked
from dagster_airbyte_proto.staging.rows.batches import Parsed
from dagster_airbyte_proto.staging.rows.schema_policy import without_withheld
from dagster_airbyte_proto.tables.writer import TableWriter

_MOST_OPEN = 100
_COLUMNS_AT_ONCE = 160
# Of 8 MiB that is 28: what has 32 glibc asks of the system each time anew, which costs what a larger segment saves.
_GREATEST_BREADTH = 3.5
_Partition = tuple[PartitionValue, ...] | None
Table = tuple[Callable[[], TableTarget], Callable[[], TableWriter] | None]


def breadth(columns: Columns) -> float:
    """How many times as large a stream's segments and row groups are as those of a narrow one.

    What is done a column at a time costs 15 µs for each segment and 40 µs for each row group.
    """
    return min(max(1.0, len(columns.top) / _COLUMNS_AT_ONCE), _GREATEST_BREADTH)


class Shelf:
    """Where one stream's files go. The table is asked for, and the folder made, when the first file is due.

    `weight` is what a byte of records comes to once it is written: its share of the file, and of the keys that are kept
    in memory to find duplicates. It is 1 until a file tells.
    """

    def __init__(
        self,
        planned: PlannedStream,
        columns: Columns,
        table: Table,
        run_id: str,
    ) -> None:
        self.restate(planned, columns, table)
        self.resolves_keys = planned.write in DEDUPLICATING
        self.weight = 1.0
        self.is_weighed = False
        self._run_id = run_id
        self._mark = os.urandom(4).hex()
        self._files = 0

    def restate(self, planned: PlannedStream, columns: Columns, table: Table) -> None:
        """From now on files are of these columns, and the table is asked for anew."""
        self.planned = planned
        self.columns = columns
        self._target, tables = table
        self.rivals = LateRowLookup(tables, planned, columns)
        self._place: tuple[Folder, TableTarget] | None = None

    def fitting(self, parsed: Parsed) -> Parsed:
        """Without what the table does not take."""
        target = self._ready()[1]
        if not target.fit.withheld:
            return parsed
        return without_withheld(parsed, target.fit.withheld, self.planned.policy, target.schema)

    def new_file(self) -> OpenFile:
        row_group_bytes = int(ROW_GROUP_BYTES * breadth(self.columns))
        order = self.columns.ordering.sorted
        return self._new("rows", self._ready()[1].schema, order=order, row_group_bytes=row_group_bytes)

    def new_position_deletes(self) -> OpenFile:
        return self._new("positions", POSITION_DELETES, FileContent.POSITION_DELETES)

    def new_equality_deletes(self) -> OpenFile:
        schema = self._ready()[1].schema
        keys = pa.schema([field_of(schema, key) for key in self.columns.keys])
        return self._new("keys", keys, FileContent.EQUALITY_DELETES)

    def remove(self, file: StagedFile) -> None:
        folder = self._ready()[0]
        remove(folder, folder.path + file.path.removeprefix(folder.uri))

    def _new(
        self,
        kind: str,
        schema: pa.Schema,
        content: FileContent = FileContent.ROWS,
        order: Sequence[SortField] = (),
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> OpenFile:
        self._files += 1
        name = file_name(kind, str(self.planned.id), self._mark, self._files)
        return OpenFile(self._ready()[0], name, schema, content, order, row_group_bytes)

    def _ready(self) -> tuple[Folder, TableTarget]:
        if self._place is None:
            target = self._target()
            folder = Folder.at(run_folder(target, self._run_id), target.storage)
            make(folder)
            self._place = folder, target
        return self._place


class Portion:
    """Rows that are committed together or not at all. One of its files is open at the most, or of each partition one:
    of very many partitions those that had rows last."""

    def __init__(self, shelf: Shelf, max_file_bytes: int) -> None:
        self._shelf = shelf
        self._max_file_bytes = max_file_bytes
        self._files: list[StagedFile] = []
        self._open: dict[_Partition, OpenFile] = {}
        self._open_record_bytes = self._open_key_bytes = self._closed_bytes = 0
        self._rankings: list[Ranking] = []
        self._partitions: dict[str, _Partition] = {}
        self._places: dict[str, Places] = {}
        self._rejected: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._rows = 0
        self._changed = 0
        self.lines = 0
        self.record_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Memory that `write_waiting` would free."""
        return sum(file.waiting_bytes for file in self._open.values())

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
        self._open_record_bytes += record_bytes if rows.num_rows else 0
        places = self._written(rows)
        if parsed.batch.num_rows and self._shelf.resolves_keys:
            self._rank(parsed, places)
        self._settle()

    def write_waiting(self) -> None:
        for file in self._open.values():
            file.write_waiting()
        self._weigh()

    def close_files(self) -> None:
        """No row that comes later gets into a file of this portion."""
        for partition in list(self._open):
            self._close(partition)

    def absorb(self, later: "Portion") -> None:
        """Takes over the rows that came right behind. Their open files stay open; ours must be closed."""
        self._files += later._files
        self._open, self._closed_bytes = later._open, later._closed_bytes
        self._open_record_bytes, self._open_key_bytes = later._open_record_bytes, later._open_key_bytes
        self._rankings += later._rankings
        self._partitions |= later._partitions
        self._places |= later._places
        self._rejected.update(later._rejected)
        self._ignored.update(later._ignored)
        self._rows += later._rows
        self._changed += later._changed
        self.lines += later.lines
        self.record_bytes += later.record_bytes

    def staged(self, branch: str | None = None, sources: tuple[str, ...] = ()) -> StagedRows:
        """Closes what is open and describes it all. The files are the caller's from now on. On a `branch` lie other
        rows of its generation, which it comes behind and may upsert. The rows came from `sources`, among others."""
        self.close_files()
        planned, columns = self._shelf.planned, self._shelf.columns
        resolution = self._stage_deletes(branch) if self._shelf.resolves_keys and self._rankings else None
        return StagedRows(
            stream=planned.id,
            table=planned.table,
            write=planned.write,
            generation_id=planned.generation_id,
            files=tuple(self._files),
            keys=columns.keys,
            emitted=self.lines,
            rows=self._rows,
            duplicates=resolution.losers.num_rows if resolution else 0,
            deleted=resolution.deleted if resolution else 0,
            changed=self._changed,
            rejected=dict(self._rejected),
            ignored_fields=dict(self._ignored),
            record_bytes=self.record_bytes,
            slice=planned.slice,
            partitioned_by=tuple(map(str, columns.partitioning)),
            newest=resolution.newest if resolution else None,
            merge=planned.merge,
            sources=sources,
        )

    def drop(self) -> None:
        """Removes all its files."""
        for open_file in self._open.values():
            open_file.abandon()
        for file in self._files:
            self._shelf.remove(file)
        self._files, self._open = [], {}

    def _written(self, rows: pa.RecordBatch) -> InOneFile | InFiles:
        """Writes rows where they belong. Where each of them lies."""
        fields = self._shelf.columns.partitioning
        if not rows.num_rows:
            return InOneFile("", 0)
        if not fields:
            return self._write(None, rows)
        files: list[str] = []
        owners, positions = np.empty(rows.num_rows, np.int64), np.empty(rows.num_rows, np.int64)
        for partition, which in parted(rows, fields):
            place = self._write(partition, rows.take(pa.array(which)))
            owners[which], positions[which] = len(files), np.arange(len(which)) + place.first_position
            files.append(place.file)
        return InFiles(files, owners, positions)

    def _write(self, partition: _Partition, rows: pa.RecordBatch) -> InOneFile:
        if partition in self._open and self._open[partition].is_full:
            self._close(partition)
        file = self._open.pop(partition, None)
        if file is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            file = self._shelf.new_file()
        self._open[partition] = file  # Last in line to be closed for another.
        place = InOneFile(file.uri, file.rows)
        if partition is not None:
            self._partitions[file.uri] = partition
        file.write(rows)
        return place

    def _settle(self) -> None:
        if not self._shelf.is_weighed:  # What is not weighed counts whole, and would close the first load early.
            self.write_waiting()
        if not self.waiting_bytes:
            self._weigh()
        for partition in [at for at, file in self._open.items() if self._is_done(file)]:
            self._close(partition)

    def _is_done(self, file: OpenFile) -> bool:
        return file.is_full or file.size_bytes >= self._max_file_bytes

    def _close(self, partition: _Partition) -> None:
        closed = self._open[partition].close()
        if (places := self._open[partition].places) is not None and self._shelf.resolves_keys:
            self._places[closed.path] = places
        self._files.append(msgspec.structs.replace(closed, partition=partition) if partition is not None else closed)
        del self._open[partition]  # Not before: `drop` must find a file that the disk did not let us close.
        self._closed_bytes += closed.size_bytes
        if not self._open:
            self._weigh()
            self._open_record_bytes = self._open_key_bytes = self._closed_bytes = 0

    def _rank(self, parsed: Parsed, places: InOneFile | InFiles) -> None:
        order = ranked(parsed.batch, self._shelf.columns)
        spread = places if parsed.gone is None else InFiles.without(parsed.gone, places)
        self._rankings.append(Ranking(order, spread, parsed.deletions))
        self._open_key_bytes += order.nbytes

    def _weigh(self) -> None:
        """Learns from the open files, all rows of which are written, and those that were closed beside them."""
        if self._open_record_bytes:
            size_bytes = self._closed_bytes + sum(file.size_bytes for file in self._open.values())
            self._shelf.weight = (size_bytes + self._open_key_bytes) / self._open_record_bytes
            self._shelf.is_weighed = True

    def _stage_deletes(self, branch: str | None) -> Resolution:
        shelf = self._shelf
        rivals = shelf.rivals if branch is None else shelf.rivals.on(branch)
        resolution = resolve(self._rankings, shelf.columns, rivals, keeps_deleted=shelf.planned.keeps_deleted)
        if self._places and resolution.losers.num_rows:
            resolution = resolution._replace(losers=moved(resolution.losers, self._places))
        for partition, losers in self._by_partition(resolution.losers):
            self._stage(shelf.new_position_deletes(), losers, partition)
        # A replacement leaves no older row to delete, but those of its own generation.
        reaches_older_rows = branch is not None or shelf.planned.write is not WriteMode.OVERWRITE_DEDUP
        if resolution.keys.num_rows and reaches_older_rows:
            # Of no partition: a key is deleted wherever its older row lies.
            self._stage(shelf.new_equality_deletes(), resolution.keys, None)
        return resolution

    def _by_partition(self, losers: pa.Table) -> Iterator[tuple[_Partition, pa.Table]]:
        """A file of position deletes speaks of files of one partition."""
        if not losers.num_rows:
            return
        if not self._shelf.columns.partitioning:
            yield None, losers
            return
        files = losers.column("file_path").combine_chunks().dictionary_encode()
        partitions = [self._partitions[path] for path in files.dictionary.to_pylist()]
        for partition in dict.fromkeys(partitions):
            its = [number for number, each in enumerate(partitions) if each == partition]
            yield partition, losers.filter(pc.is_in(files.indices, pa.array(its, files.indices.type)))

    def _stage(self, file: OpenFile, rows: pa.Table, partition: _Partition) -> None:
        self._open[partition] = file  # Where `drop` finds it should the disk fail.
        file.write(rows)
        self._close(partition)
