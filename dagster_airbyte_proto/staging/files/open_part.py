"""The files and counts of the rows of one stream that are committed together."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.loads.bounded_counts import add_field_counts
from dagster_airbyte_proto.loads.load import StagedFile, StagedRows, TransformState
from dagster_airbyte_proto.model import PartitionValue, WriteMode
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.partitions import split_by_partition
from dagster_airbyte_proto.staging.files.sorting import SortedPositions, move_positions
from dagster_airbyte_proto.staging.files.stream_files import StreamFiles
from dagster_airbyte_proto.staging.keys.dedup import (
    NONE_LATE,
    KeyResolution,
    LateRows,
    StagedKeys,
    resolve_keys,
    staged_keys,
)
from dagster_airbyte_proto.staging.keys.ranking import Ranking, RowsInFiles, RowsInOneFile, ranking_columns
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch
from dagster_airbyte_proto.staging.values.changes import field_text

_MAX_REJECTED_BYTES = 64 << 20
# Files that are written have descriptors, and buffers in an object store. The rows of other partitions wait in memory.
_MAX_OPEN_FILES = 100
# With so many partitions a batch has few rows, and takes some hundred bytes a column even so.
_MAX_WAITING_BATCHES = 2000
REJECTED_BY_CONNECTOR = "rejected by the connector"
_Partition = tuple[PartitionValue, ...] | None


class SourceRejection(NamedTuple):
    """A record that the source rejected. It is None where it was too large to keep."""

    record: str | None
    reason: str
    kind: str
    at_microseconds: int


class OpenPart:
    """A part that is being written: rows that are committed together or not at all.

    At most one of its files is written at a time, or one for each partition; with very many partitions, for those that
    had rows most recently. `transform_states` are those of the stream's transforms after its last rows.
    """

    def __init__(self, stream_files: StreamFiles, max_file_bytes: int) -> None:
        self._stream_files = stream_files
        self._max_file_bytes = max_file_bytes
        self._files: list[StagedFile] = []
        self._open: dict[_Partition, OpenFile] = {}
        self._open_record_bytes = self._open_key_bytes = self._closed_bytes = 0
        self._waiting_batches = 0
        self._rankings: list[Ranking] = []
        self._keys: StagedKeys | None = None
        self._partitions: dict[str, _Partition] = {}
        self._sorted_positions: dict[str, SortedPositions] = {}
        self._rejected: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._nulled: Counter[str] = Counter()
        self._rows = 0
        self._changed = self._added = 0
        self.rejected_records: list[SourceRejection] = []
        self._rejected_bytes = 0
        self.lines = 0
        self.record_bytes = 0
        self.transform_states: tuple[TransformState, ...] = ()

    @property
    def waiting_bytes(self) -> int:
        """The memory that `write_waiting` would free."""
        return sum(file.waiting_bytes for file in self._open.values())

    def write(self, parsed: ParsedBatch, lines: int, record_bytes: int) -> None:
        """Adds a parsed segment with its number of lines and bytes."""
        if parsed.batch.num_rows:
            parsed = self._stream_files.fit_to_table(parsed)
        self.lines += lines
        self.record_bytes += record_bytes
        self._rejected.update(parsed.rejected)
        add_field_counts(self._ignored, parsed.ignored)
        self._changed += parsed.changed
        self._added += parsed.added
        if parsed.nulled:
            add_field_counts(self._nulled, _by_column(parsed.nulled, self._stream_files.columns))
        rows = parsed.landing_rows
        self._rows += rows.num_rows
        self._open_record_bytes += record_bytes if rows.num_rows else 0
        locations = self._write_rows(rows)
        if parsed.batch.num_rows and self._stream_files.resolves_keys:
            self._add_ranking(parsed, locations)
        self._close_full_files()

    def reject(self, rejected: SourceRejection) -> None:
        """Counts a record that the source rejected, and keeps it if there is room."""
        size = len(rejected.record or "")
        self.lines += 1
        self.record_bytes += size
        self._rejected[f"{REJECTED_BY_CONNECTOR}: {rejected.kind}"] += 1
        self._rejected_bytes += size
        has_room = self._rejected_bytes <= _MAX_REJECTED_BYTES
        self.rejected_records.append(rejected if has_room else rejected._replace(record=None))

    def write_waiting(self) -> None:
        """Writes the rows that wait for a row group, and frees their memory."""
        self._write_all_waiting()
        self._measure_written_ratio()

    @property
    def open_files(self) -> int:
        return sum(file.is_written for file in self._open.values())

    @property
    def has_old_files(self) -> bool:
        return any(file.is_full for file in self._open.values())

    def close_old_files(self) -> None:
        """Closes the files that have been open for as long as their storage allows, before another row comes."""
        for partition in [at for at, file in self._open.items() if file.is_full]:
            self._close_file(partition)

    def close_files(self) -> None:
        """Closes the open files, so that no later row gets into them."""
        for partition in list(self._open):
            self._close_file(partition)

    def append_part(self, later: "OpenPart") -> None:
        """Takes over the part with the next rows. Its open files stay open; the own files must be closed."""
        self._files += later._files
        self._open, self._closed_bytes = later._open, later._closed_bytes
        self._waiting_batches = later._waiting_batches
        self._open_record_bytes, self._open_key_bytes = later._open_record_bytes, later._open_key_bytes
        self._rankings += later._rankings
        self._keys = None
        self._partitions |= later._partitions
        self._sorted_positions |= later._sorted_positions
        self._rejected.update(later._rejected)
        add_field_counts(self._ignored, later._ignored)
        add_field_counts(self._nulled, later._nulled)
        self._rows += later._rows
        self._changed += later._changed
        self._added += later._added
        self.lines += later.lines
        self.record_bytes += later.record_bytes
        self.transform_states = later.transform_states or self.transform_states
        self.rejected_records += later.rejected_records
        self._rejected_bytes += later._rejected_bytes

    def keys(self) -> StagedKeys | None:
        """Returns the keys of all rows so far; None if the rows have no keys."""
        if self._keys is None and self._rankings:
            self._keys = staged_keys(self._stream_files.planned, self._stream_files.columns, self._rankings)
        return self._keys

    def finish(
        self, late_rows: LateRows = NONE_LATE, sources: tuple[str, ...] = (), *, follows_on_branch: bool = False
    ) -> StagedRows:
        """Closes the open files and returns the part as staged rows. The files now belong to the caller.

        A part that `follows_on_branch` may upsert earlier rows of its generation, which are on a branch of the table.
        `sources` are the connector's files that held some of the rows.
        """
        self.close_files()
        planned, columns = self._stream_files.planned, self._stream_files.columns
        keys = self.keys()
        resolution = None if keys is None else self._stage_deletes(keys, late_rows, follows_on_branch=follows_on_branch)
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
            added=self._added,
            rejected=dict(self._rejected),
            ignored_fields=dict(self._ignored),
            nulled=dict(self._nulled),
            record_bytes=self.record_bytes,
            slice=planned.slice,
            partitioned_by=tuple(map(str, columns.partitioning)),
            high_water_mark=resolution.high_water_mark if resolution else None,
            merge=planned.merge,
            sources=sources,
            transform_states=self.transform_states,
        )

    def discard(self) -> None:
        """Deletes all files of the part."""
        for open_file in self._open.values():
            open_file.discard()
        for file in self._files:
            self._stream_files.remove_staged(file)
        self._files, self._open = [], {}

    def _write_rows(self, rows: pa.RecordBatch) -> RowsInOneFile | RowsInFiles:
        """Writes rows to the files of their partitions. Returns the file and position of each."""
        fields = self._stream_files.columns.partitioning
        if not rows.num_rows:
            return RowsInOneFile("", 0)
        if not fields:
            return self._write_partition(None, rows)
        files: list[str] = []
        owners, positions = np.empty(rows.num_rows, np.int64), np.empty(rows.num_rows, np.int64)
        for partition, which in split_by_partition(rows, fields):
            place = self._write_partition(partition, rows.take(pa.array(which)))
            owners[which], positions[which] = len(files), np.arange(len(which)) + place.first_position
            files.append(place.file)
        return RowsInFiles(files, owners, positions)

    def _write_partition(self, partition: _Partition, rows: pa.RecordBatch) -> RowsInOneFile:
        if partition in self._open and self._open[partition].is_full:
            self._close_file(partition)
        file = self._open.pop(partition, None) or self._stream_files.new_file()
        self._open[partition] = file  # Moved to the end: the first ones are closed when too many are open.
        place = RowsInOneFile(file.uri, file.rows)
        if partition is not None:
            self._partitions[file.uri] = partition
        file.write(rows)
        self._waiting_batches += 1
        if self._waiting_batches > _MAX_WAITING_BATCHES and len(self._open) > _MAX_OPEN_FILES:
            self._write_all_waiting()
        return place

    def _write_all_waiting(self) -> None:
        """Of more files than may be open it closes those that had rows least recently."""
        surplus = len(self._open) - _MAX_OPEN_FILES
        for number, partition in enumerate([*self._open]):
            if number < surplus:
                self._close_file(partition)
            else:
                self._open[partition].write_waiting()
        self._waiting_batches = 0

    def _close_full_files(self) -> None:
        if (
            not self._stream_files.has_written_ratio
        ):  # Unmeasured bytes count in full, and would end the first load early.
            self.write_waiting()
        if not self.waiting_bytes:
            self._measure_written_ratio()
        for partition in [at for at, file in self._open.items() if self._is_full(file)]:
            self._close_file(partition)
        written = [at for at, file in self._open.items() if file.is_written]
        for partition in written[:-_MAX_OPEN_FILES]:
            self._close_file(partition)

    def _is_full(self, file: OpenFile) -> bool:
        return file.is_full or file.size_bytes >= self._max_file_bytes

    def _close_file(self, partition: _Partition) -> None:
        closed = self._open[partition].close()
        if (places := self._open[partition].sorted_positions) is not None and self._stream_files.resolves_keys:
            self._sorted_positions[closed.path] = places
        self._files.append(msgspec.structs.replace(closed, partition=partition) if partition is not None else closed)
        del self._open[partition]  # Only now: `discard` must find a file whose close failed.
        self._closed_bytes += closed.size_bytes
        if not self._open:
            self._measure_written_ratio()
            self._open_record_bytes = self._open_key_bytes = self._closed_bytes = 0

    def _add_ranking(self, parsed: ParsedBatch, locations: RowsInOneFile | RowsInFiles) -> None:
        order = ranking_columns(parsed.batch, self._stream_files.columns)
        if parsed.filtered_out is not None:
            locations = RowsInFiles.without_removed(parsed.filtered_out, locations)
        self._keys = None
        self._rankings.append(Ranking(order, locations, parsed.deletions))
        self._open_key_bytes += order.nbytes

    def _measure_written_ratio(self) -> None:
        """Measures the ratio from the open files, whose rows are all written, and those closed since none was open."""
        if self._open_record_bytes:
            size_bytes = self._closed_bytes + sum(file.size_bytes for file in self._open.values())
            self._stream_files.written_ratio = (size_bytes + self._open_key_bytes) / self._open_record_bytes
            self._stream_files.has_written_ratio = True

    def _stage_deletes(self, keys: StagedKeys, late_rows: LateRows, *, follows_on_branch: bool) -> KeyResolution:
        stream_files = self._stream_files
        resolution = resolve_keys(self._rankings, keys, late_rows)
        if self._sorted_positions and resolution.losers.num_rows:
            resolution = resolution._replace(losers=move_positions(resolution.losers, self._sorted_positions))
        for partition, losers in self._split_by_partition(resolution.losers):
            self._write_deletes(stream_files.new_position_deletes(), losers, partition)
        # A part that replaces all rows leaves no older row to delete, except rows of its own generation on the branch.
        reaches_older_rows = follows_on_branch or stream_files.planned.write is not WriteMode.OVERWRITE_DEDUP
        if resolution.keys.num_rows and reaches_older_rows:
            # No partition: a key is deleted in whichever partition its older row is.
            self._write_deletes(stream_files.new_equality_deletes(), resolution.keys, None)
        return resolution

    def _split_by_partition(self, losers: pa.Table) -> Iterator[tuple[_Partition, pa.Table]]:
        """Splits position deletes by partition: one delete file refers to data files of one partition only."""
        if not losers.num_rows:
            return
        if not self._stream_files.columns.partitioning:
            yield None, losers
            return
        files = losers.column("file_path").combine_chunks().dictionary_encode()
        partitions = [self._partitions[path] for path in files.dictionary.to_pylist()]
        for partition in dict.fromkeys(partitions):
            numbers = [number for number, each in enumerate(partitions) if each == partition]
            yield partition, losers.filter(pc.is_in(files.indices, pa.array(numbers, files.indices.type)))

    def _write_deletes(self, file: OpenFile, rows: pa.Table, partition: _Partition) -> None:
        self._open[partition] = file  # So that `discard` finds it if the write fails.
        file.write(rows)
        self._close_file(partition)


def _by_column(counts: Mapping[str, int], columns: Columns) -> Counter[str]:
    """Counts by column what is counted by the path in the record. A path may end inside of the column's values."""
    names = {field_text(column.path, columns.all): column.name for column in columns.all}
    found: Counter[str] = Counter()
    for path, count in counts.items():
        outer = path
        while outer and outer not in names:
            outer = outer.rpartition(".")[0]
        # Without a column of the stream it is the time of emission, which has a metadata column.
        if outer:
            found[names[outer]] += count
    return found
