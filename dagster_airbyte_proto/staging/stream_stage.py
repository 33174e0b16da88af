"""Stages the rows of one stream: from raw lines, or Arrow batches, to files, cut only at marks.

The rows of a stream are in three places, in the order in which they came:

1. `_marked_part`: files of rows up to the last mark.
2. `_unmarked_part`: files of rows after it.
3. `_held_chunks`: raw lines or batches in memory. The first `_marked_chunks` of them came before the last mark.

Invariants:

- A mark covers everything before it. So `_unmarked_part` has rows, or `_held_chunks` has marked lines, never both.
- Rows after the mark never share a file with rows before it: a cut returns whole files. A later mark then covers the
  whole file.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.loads.bounded_counts import add_stream_counts
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.files.open_part import OpenPart, SourceRejection
from dagster_airbyte_proto.staging.files.rejections_file import stage_rejections
from dagster_airbyte_proto.staging.files.stream_files import StreamFiles
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.keys.dedup import LateRows, StagedKeys
from dagster_airbyte_proto.staging.lines.demux import Lines
from dagster_airbyte_proto.staging.rows.metadata import RowOrigin
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch, SegmentParser
from dagster_airbyte_proto.staging.rows.transformed_rows import RowTransformer
from dagster_airbyte_proto.transforms.transform_choice import transform_chain

_PARSED_ROWS = 1 << 17


class StreamStage:
    """Takes the lines or the batches of one stream, and returns the marked rows in staged files."""

    def __init__(self, given: StreamInput, run: RunInput, *, began_at: int, max_file_bytes: int) -> None:
        self._stream_files = StreamFiles(given.planned, given.columns, given.target, run.run_id)
        self._run = run
        self._transform_states = given.transform_states
        self._batch_policy = given.batch_policy
        self._began_at = began_at
        self._held_since = began_at
        self._max_file_bytes = max_file_bytes
        self._transformer: RowTransformer | None = None
        self._parser, self._transformer = self._new_parser(given.hash_key), self._new_transformer()
        self._marked_part: OpenPart | None = None
        self._unmarked_part: OpenPart | None = None
        self._held_chunks: list[Any] = []  # Lines; or batches, and rejected records between them.
        self._marked_chunks = 0
        self._held_marked_bytes = 0
        self._held_marked_lines = 0
        self._held_lines = 0
        self._unmarked_bytes = 0
        self._marked_record_bytes = 0
        self._cut_rejected: list[SourceRejection] = []
        self._sources: list[str] = []
        self._marked_sources = 0
        self.held_bytes = 0
        self.emitted = 0
        self.received_bytes = 0
        self.foreign: Counter[StreamId] = Counter()

    @property
    def stream(self) -> StreamId:
        return self._stream_files.planned.id

    @property
    def memory_bytes(self) -> int:
        """The memory that `flush` would free."""
        return self.held_bytes + self.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """The memory that `write_waiting` would free."""
        return sum(part.waiting_bytes for part in (self._marked_part, self._unmarked_part) if part)

    @property
    def marked_bytes(self) -> int:
        """The estimated size of a cut. It also changes when written files show how much records shrink."""
        return math.ceil(self._marked_record_bytes * self._stream_files.written_ratio)

    @property
    def uncut_bytes(self) -> int:
        """The estimated size of a cut if everything so far were marked."""
        return math.ceil((self._marked_record_bytes + self._unmarked_bytes) * self._stream_files.written_ratio)

    def change_columns(
        self, planned: PlannedStream, columns: Columns, target: TableTarget | None, hash_key: str
    ) -> None:
        """Gives the next rows other columns. No line may be held."""
        self.close_files()
        self._finish_transforms()
        self._stream_files.change_columns(planned, columns, target)
        self._parser, self._transformer = self._new_parser(hash_key), self._new_transformer()

    @property
    def needs_target(self) -> bool:
        """True when rows cannot be cut because their table's target is not known."""
        has_rows = self._marked_part or self._unmarked_part or self._held_chunks
        return self._stream_files.target is None and bool(has_rows)

    def set_target(self, target: TableTarget) -> None:
        """Sets the target for the held lines and the next ones."""
        self._stream_files.target = target

    def add(self, lines: Lines, count: int) -> None:
        """Adds whole record lines, each with its newline. `count` is their number."""
        self._hold(lines, count, len(lines))

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Adds a valid batch of a connector that sends Arrow. Raises ConnectorError if its policy refuses it."""
        if self._batch_policy is not None:
            batch = self._batch_policy.applied(batch)
        # A batch of nothing but nulls may have no bytes, and bytes say that there is something to mark, and to write.
        self._hold(batch, batch.num_rows, max(batch.nbytes, batch.num_rows))

    def reject(self, record: str, reason: str, kind: str) -> None:
        """Adds a record that the source rejected, in the place where it came. Raises ConnectorError as `add_batch`."""
        if self._batch_policy is not None:
            self._batch_policy.check_rejected(reason)
        self._hold(SourceRejection(record or None, reason, kind, _now()), 1, max(len(record), 1))

    def take_rejected(self) -> list[SourceRejection]:
        """Returns the records that the source rejected among the rows of the last cut, once."""
        taken, self._cut_rejected = self._cut_rejected, []
        return taken

    def _hold(self, chunk: Lines | pa.RecordBatch | SourceRejection, count: int, size: int) -> None:
        if not self._held_chunks:
            self._held_since = _now()
        self._held_chunks.append(chunk)
        self._held_lines += count
        self.held_bytes += size
        self._unmarked_bytes += size
        self.count_only(count, size)

    def count_only(self, count: int, size: int) -> None:
        """Counts records that are dropped."""
        self.emitted += count
        self.received_bytes += size

    def note_source(self, url: str) -> None:
        """Notes that all records of this file of the connector's have been added."""
        self._sources.append(url)

    def mark(self) -> None:
        """Marks everything so far: it may be committed."""
        self._marked_sources = len(self._sources)
        if not self._unmarked_bytes:
            return
        if self._unmarked_part is not None:
            self._marked_part, self._unmarked_part = self._join(self._marked_part, self._unmarked_part), None
        self._marked_chunks = len(self._held_chunks)
        self._held_marked_bytes, self._held_marked_lines = self.held_bytes, self._held_lines
        self._marked_record_bytes += self._unmarked_bytes
        self._unmarked_bytes = 0

    def flush_segment(self) -> None:
        """Writes the marked lines. If they are less than half of the held bytes, writes all lines."""
        if self._held_marked_bytes * 2 >= self.held_bytes:
            self._write_marked()
        else:
            self._write_all()

    def write_waiting(self) -> None:
        """Writes the parsed rows that wait for a row group, and frees their memory."""
        for part in (self._marked_part, self._unmarked_part):
            if part is not None:
                part.write_waiting()

    @property
    def has_old_files(self) -> bool:
        return any(part.has_old_files for part in (self._marked_part, self._unmarked_part) if part)

    def close_old_files(self) -> None:
        """Closes the files that have been open for as long as their storage allows."""
        for part in (self._marked_part, self._unmarked_part):
            if part is not None:
                part.close_old_files()

    @property
    def open_files(self) -> int:
        return sum(part.open_files for part in (self._marked_part, self._unmarked_part) if part)

    def close_files(self) -> None:
        """Closes the open files. The next rows get another one."""
        for part in (self._marked_part, self._unmarked_part):
            if part is not None:
                part.close_files()

    def flush_marked(self) -> None:
        """Writes the held lines before the mark, and the parsed rows."""
        self._write_marked()
        self.write_waiting()

    def flush(self) -> None:
        """Writes all held lines and the parsed rows, and frees their memory."""
        self._write_all()
        self.write_waiting()

    def marked_keys(self) -> StagedKeys | None:
        """Writes the held lines before the mark, and returns the keys of all rows before it; None without keys."""
        self._write_marked()
        return None if self._marked_part is None else self._marked_part.keys()

    def cut(self, late_rows: LateRows, *, follows_on_branch: bool) -> StagedRows | None:
        """Closes the files up to the last mark and returns them; None if no row came before it."""
        self._write_marked()
        if self._marked_part is None:
            return None
        if self._unmarked_part is None:
            self._finish_transforms()
        sources = tuple(self._sources[: self._marked_sources])
        staged = self._marked_part.finish(late_rows, sources, follows_on_branch=follows_on_branch)
        self._cut_rejected = self._marked_part.rejected_records
        if self._cut_rejected and self._stream_files.planned.relay is not None:
            file = stage_rejections(self._stream_files, self.take_rejected())
            staged = msgspec.structs.replace(staged, files=(*staged.files, file))
        del self._sources[: self._marked_sources]
        self._marked_part = None
        self._marked_record_bytes = self._marked_sources = 0
        return staged

    def discard(self) -> int:
        """Drops everything that is not cut. Returns the number of rows."""
        parts = [part for part in (self._marked_part, self._unmarked_part) if part is not None]
        dropped = self._held_lines + sum(part.lines for part in parts)
        self._marked_part = self._unmarked_part = None
        self._take_chunks(len(self._held_chunks))
        self._marked_record_bytes = self._unmarked_bytes = self._marked_sources = 0
        self._sources.clear()
        if self._transformer is not None:
            self._transformer.discard()
        for part in parts:
            part.discard()
        return dropped

    def _new_parser(self, hash_key: str) -> SegmentParser:
        stream_files = self._stream_files
        return SegmentParser(
            stream_files.planned,
            stream_files.columns.as_parsed,
            self._run.record_wire,
            RowOrigin(self._run.sync_id, os.urandom(9), self._began_at),
            hash_key=hash_key,
        )

    def _new_transformer(self) -> RowTransformer | None:
        planned, columns = self._stream_files.planned, self._stream_files.columns
        if not planned.transforms:
            return None
        # Where columns change between rows the transforms stay: a rule remembers which values it has seen.
        before = self._transformer
        chain = (
            before.chain
            if before is not None
            else transform_chain(planned.transforms, self._run.enrichers, self._transform_states, planned.id)
        )
        return RowTransformer(planned, columns, chain)

    def _transformed(self, parsed: ParsedBatch) -> ParsedBatch:
        if self._transformer is None:
            return parsed
        transformed = self._transformer.transform(parsed)
        self._transform_states = self._transformer.states
        return transformed

    def _finish_transforms(self) -> None:
        """Ends the processes of the transforms, which live no longer than a part: so the part has their whole states,
        and no row of it lands that another would still follow."""
        if self._transformer is None:
            return
        self._transformer.finish()
        self._transform_states = self._transformer.states
        last = self._unmarked_part or self._marked_part
        if last is not None:
            last.transform_states = self._transform_states

    def _write_marked(self) -> None:
        if not self._marked_chunks:
            return
        if self._marked_part is None:
            self._marked_part = OpenPart(self._stream_files, self._max_file_bytes)
        self._write(self._marked_part, self._marked_chunks)

    def _write_all(self) -> None:
        self._write_marked()
        if not self._held_chunks:
            return
        if self._unmarked_part is None:
            if self._marked_part is not None:
                self._marked_part.close_files()
                self._finish_transforms()
            self._unmarked_part = OpenPart(self._stream_files, self._max_file_bytes)
        self._write(self._unmarked_part, len(self._held_chunks))

    def _write(self, part: OpenPart, chunks: int) -> None:
        self._stream_files.known_target()  # First: an error must not lose the lines.
        taken, lines, size = self._take_chunks(chunks)
        now = _now()
        if isinstance(taken[0], pa.RecordBatch | SourceRejection):
            for batch in taken:
                if isinstance(batch, SourceRejection):
                    part.reject(batch)
                    continue
                for rows in _slices(batch):
                    parsed = self._transformed(self._parser.parse_batch(rows, now, self._held_since))
                    part.write(parsed, rows.num_rows, batch.nbytes * rows.num_rows // batch.num_rows)
        else:
            parsed = self._parser.parse(b"".join(taken), lines, now, self._held_since)
            add_stream_counts(self.foreign, parsed.foreign)
            part.write(self._transformed(parsed), lines, size)
        # Not the states of now: rows after a mark may be transformed before its part is cut.
        part.transform_states = self._transform_states
        self._held_since = now  # Lines still held came earlier, but must get later times than the rows just parsed.

    def _take_chunks(self, chunks: int) -> tuple[list[Any], int, int]:
        """Removes the first held chunks: all before the mark, or all. Returns them with their lines and bytes."""
        taken = self._held_chunks[:chunks]
        is_marked = chunks == self._marked_chunks
        lines, size = (
            (self._held_marked_lines, self._held_marked_bytes) if is_marked else (self._held_lines, self.held_bytes)
        )
        del self._held_chunks[:chunks]
        self._held_lines -= lines
        self.held_bytes -= size
        self._marked_chunks = self._held_marked_bytes = self._held_marked_lines = 0
        return taken, lines, size

    @staticmethod
    def _join(marked: OpenPart | None, unmarked: OpenPart) -> OpenPart:
        if marked is None:
            return unmarked
        marked.append_part(unmarked)
        return marked


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a batch as they are parsed at once: a null of a few bits may become eight bytes."""
    for start in range(0, batch.num_rows, _PARSED_ROWS):
        yield batch.slice(start, _PARSED_ROWS)


def _now() -> int:
    return time.time_ns() // 1000
