"""One stream's way from raw lines to files, cut only where a mark stands.

The rows of a stream stand in a line: those in `_ready` (files that end at the last mark), those in `_beyond` (files of
rows behind it), those in `_held` (raw lines in memory), of which the first `_marked_chunks` are before the mark. At
most one of `_beyond` and the marked part of `_held` has rows: a mark covers everything that came before it. Rows behind
the mark never share a file with rows before it, so that a cut can hand over whole files; a later mark covers the file.
"""

import math
import os
import time
from collections import Counter

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.wire import RecordShape
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.files.open_part import Portion, Shelf, Table
from dagster_airbyte_proto.staging.lines.demux import Lines
from dagster_airbyte_proto.staging.rows.batches import SegmentParser


class StreamStage:
    """Takes a stream's lines; hands over what is marked."""

    def __init__(
        self,
        shelf: Shelf,
        shape: RecordShape,
        *,
        sync_id: int,
        max_file_bytes: int,
        began_at: int = 0,
        hash_key: str = "",
    ) -> None:
        self._shelf = shelf
        self._shape = shape
        self._sync_id = sync_id
        self._began_at = began_at
        self._held_since = began_at
        self._max_file_bytes = max_file_bytes
        self._parser = self._new_parser(hash_key)
        self._ready: Portion | None = None
        self._beyond: Portion | None = None
        self._held: list[Lines] = []
        self._marked_chunks = 0
        self._held_marked_bytes = 0
        self._held_marked_lines = 0
        self._held_lines = 0
        self._unmarked_bytes = 0
        self._marked_record_bytes = 0
        self._sources: list[str] = []
        self._marked_sources = 0
        self.held_bytes = 0
        self.emitted = 0
        self.received_bytes = 0
        self.foreign: Counter[StreamId] = Counter()

    @property
    def memory_bytes(self) -> int:
        """What `flush` would free."""
        return self.held_bytes + self.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """What `write_waiting` would free."""
        return sum(part.waiting_bytes for part in (self._ready, self._beyond) if part)

    @property
    def marked_bytes(self) -> int:
        """About what `cut` would hand over. Changes also when writing shows how much records shrink."""
        return math.ceil(self._marked_record_bytes * self._shelf.weight)

    @property
    def uncut_bytes(self) -> int:
        """About what `cut` would hand over if everything so far were marked."""
        return math.ceil((self._marked_record_bytes + self._unmarked_bytes) * self._shelf.weight)

    def restate(self, planned: PlannedStream, columns: Columns, table: Table, hash_key: str) -> None:
        """What comes from now on is of these columns. Nothing may be held."""
        for part in (self._ready, self._beyond):
            if part is not None:
                part.close_files()
        self._shelf.restate(planned, columns, table)
        self._parser = self._new_parser(hash_key)

    def add(self, lines: Lines, count: int) -> None:
        """Whole record lines, each with its newline, and how many they are."""
        size = len(lines)
        if not self._held:
            self._held_since = _now()
        self._held.append(lines)
        self._held_lines += count
        self.held_bytes += size
        self._unmarked_bytes += size
        self.emitted += count
        self.received_bytes += size

    def note_source(self, url: str) -> None:
        """All that was in this file has been added."""
        self._sources.append(url)

    def mark(self) -> None:
        """Everything so far may be committed."""
        self._marked_sources = len(self._sources)
        if not self._unmarked_bytes:
            return
        if self._beyond is not None:
            self._ready, self._beyond = self._joined(self._ready, self._beyond), None
        self._marked_chunks = len(self._held)
        self._held_marked_bytes, self._held_marked_lines = self.held_bytes, self._held_lines
        self._marked_record_bytes += self._unmarked_bytes
        self._unmarked_bytes = 0

    def flush_segment(self) -> None:
        """Writes the marked lines; the others too where they are the bulk."""
        if self._held_marked_bytes * 2 >= self.held_bytes:
            self._write_marked()
        else:
            self._write_all()

    def write_waiting(self) -> None:
        """Writes the rows that are parsed, and frees their memory."""
        for part in (self._ready, self._beyond):
            if part is not None:
                part.write_waiting()

    def flush_marked(self) -> None:
        """Writes what is held before the mark too."""
        self._write_marked()
        self.write_waiting()

    def flush(self) -> None:
        """Writes all that is held, and frees its memory."""
        self._write_all()
        self.write_waiting()

    def cut(self, branch: str | None = None) -> StagedRows | None:
        """Closes the files up to the last mark and hands them over; None when no row stands before it. On a `branch`
        lie rows of the same generation that were handed over before."""
        self._write_marked()
        if self._ready is None:
            return None
        staged = self._ready.staged(branch, tuple(self._sources[: self._marked_sources]))
        del self._sources[: self._marked_sources]
        self._ready = None
        self._marked_record_bytes = self._marked_sources = 0
        return staged

    def discard(self) -> int:
        """Drops everything that is not cut. How many rows."""
        dropped = self._held_lines
        for part in (self._ready, self._beyond):
            if part is not None:
                dropped += part.lines
                part.drop()
        self._ready = self._beyond = None
        self._take(len(self._held))
        self._marked_record_bytes = self._unmarked_bytes = self._marked_sources = 0
        self._sources.clear()
        return dropped

    def _new_parser(self, hash_key: str) -> SegmentParser:
        shelf = self._shelf
        return SegmentParser(
            shelf.planned,
            shelf.columns,
            self._shape,
            sync_id=self._sync_id,
            seed=os.urandom(9),
            hash_key=hash_key,
            began_at=self._began_at,
        )

    def _write_marked(self) -> None:
        if not self._marked_chunks:
            return
        if self._ready is None:
            self._ready = Portion(self._shelf, self._max_file_bytes)
        self._write(self._ready, self._marked_chunks)

    def _write_all(self) -> None:
        self._write_marked()
        if not self._held:
            return
        if self._beyond is None:
            if self._ready is not None:
                self._ready.close_files()
            self._beyond = Portion(self._shelf, self._max_file_bytes)
        self._write(self._beyond, len(self._held))

    def _write(self, part: Portion, chunks: int) -> None:
        segment, lines = self._take(chunks)
        now = _now()
        parsed = self._parser.parse(segment, lines, now, self._held_since)
        self._held_since = now  # What is still held came before, and is to be told as later than what is read.
        self.foreign.update(parsed.foreign)
        part.write(parsed, lines, len(segment))

    def _take(self, chunks: int) -> tuple[bytes, int]:
        """Lets go of the first chunks held: of all before the mark, or of all."""
        segment = b"".join(self._held[:chunks])
        lines = self._held_marked_lines if chunks == self._marked_chunks else self._held_lines
        del self._held[:chunks]
        self._held_lines -= lines
        self.held_bytes -= len(segment)
        self._marked_chunks = self._held_marked_bytes = self._held_marked_lines = 0
        return segment, lines

    @staticmethod
    def _joined(ready: Portion | None, beyond: Portion) -> Portion:
        if ready is None:
            return beyond
        ready.absorb(beyond)
        return ready


def _now() -> int:
    return time.time_ns() // 1000
