"""Stages the rows of all streams between the connector and the tables: raw lines or Arrow batches in, Parquet out.

- A stage belongs to one thread.
- Rows are kept per stream until they are cut. `mark` sets the point up to which a cut takes them: where a state stands.
- Memory is bounded by `StageLimits.held_bytes` and a segment or two. Above it, the streams that hold most are written
  to files.
- A stream needs no table target before its rows must be written: that is when a segment is full, or memory is. Then it
  is in `awaiting_target`. The caller gives it one with `set_target` before it adds the next chunk, so that memory stays
  bounded by the limit and a chunk. A cut and a flush need the target too (`needs_target`).
- A transform that fails, or an exception that nobody foresaw, fails one stream: it is in `faults`, its rows that are
  not cut are dropped, and later ones are only counted. The caller must then let no state of the stream move, nor one
  that it shares.
- `discard` and `close` delete the files that no `cut` has returned. The files of a cut belong to the caller.
"""

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.errors import ProtoError, TransformError
from dagster_airbyte_proto.loads.bounded_counts import add_stream_counts
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.staging.faults import staging_fault, transform_fault
from dagster_airbyte_proto.staging.files.open_part import SourceRejection
from dagster_airbyte_proto.staging.files.stream_files import width_factor
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.keys.dedup import NONE_LATE, LateRows, StagedKeys
from dagster_airbyte_proto.staging.lines.demux import Lines, RecordLines
from dagster_airbyte_proto.staging.lines.record_parser import namespace_of
from dagster_airbyte_proto.staging.stream_stage import StreamStage


def _most_open_files() -> int:
    """A quarter of the files that this process may have open (`ulimit -n`): other stages, connectors and stores need
    some too."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if most == resource.RLIM_INFINITY else max(100, most // 4)


class StageLimits(NamedTuple):
    """Limits of a stage.

    `segment_bytes` of one stream are parsed at once, or more for a stream with many columns. At most `held_bytes` are
    kept in memory, over all streams. A file of `file_bytes` is closed. With more than `open_files` those of the streams
    that were written least recently are closed.
    """

    segment_bytes: int = 8 << 20
    held_bytes: int = 128 << 20
    file_bytes: int = 128 << 20
    open_files: int = _most_open_files()


_MAX_ROUTES = 10_000
_MEMORY_RELIEF_STEPS: Final[Sequence[tuple[Callable[[StreamStage], int], Callable[[StreamStage], None]]]] = (
    (attrgetter("waiting_bytes"), StreamStage.write_waiting),
    (attrgetter("memory_bytes"), StreamStage.flush_marked),
    (attrgetter("memory_bytes"), StreamStage.flush),
)


class Stage:
    """Takes record lines, and returns them in staged files up to the last mark. Raises StagingError when a write fails.

    `marked_bytes` estimates the size of a cut of all streams: not as the rows came, but as they are written.
    """

    def __init__(
        self,
        streams: Sequence[StreamInput],
        run: RunInput,
        *,
        limits: StageLimits = StageLimits(),  # noqa: B008  # a tuple, and frozen
    ) -> None:
        self._record_wire = run.record_wire
        self._limits = limits
        self._other_names = run.other_names
        began_at = time.time_ns() // 1000
        self._streams = {
            each.planned.id: StreamStage(each, run, began_at=began_at, max_file_bytes=limits.file_bytes)
            for each in streams
        }
        self._segment_bytes = {
            each.planned.id: int(limits.segment_bytes * width_factor(each.columns)) for each in streams
        }
        self._by_name: dict[str, list[StreamId]] = {}
        for stream in self._streams:
            self._by_name.setdefault(stream.name, []).append(stream)
        self._routes: dict[tuple[bytes, bytes | None], tuple[StreamId, ...]] = {}
        self._unconfigured: Counter[StreamId] = Counter()
        self._awaiting_target: dict[StreamId, None] = {}
        self._memory_bytes = 0
        self._open_files: dict[StreamId, int] = {}  # The stream that changed last is the last.
        self._faults: dict[StreamId, ProtoError] = {}
        self.marked_bytes = 0

    @property
    def unconfigured(self) -> Mapping[StreamId, int]:
        """The number of records of each stream that the connection does not have. They do not land."""
        return sum((stage.foreign for stage in self._streams.values()), self._unconfigured)

    @property
    def faults(self) -> Mapping[StreamId, ProtoError]:
        """The streams whose rows our own code failed on, or a transform."""
        return self._faults

    @property
    def awaiting_target(self) -> Sequence[StreamId]:
        """The streams whose rows must be written now, and that have no table target."""
        return tuple(self._awaiting_target)

    def needs_target(self, stream: StreamId) -> bool:
        """True when the stream has rows that cannot be cut or flushed because it has no table target."""
        return self._streams[stream].needs_target

    def set_target(self, stream: StreamId, target: TableTarget) -> None:
        """Gives a stream its table target, and writes the rows that waited for it."""
        self._awaiting_target.pop(stream, None)
        if stream in self._faults:
            return
        self._streams[stream].set_target(target)
        self._write_full(stream, self._streams[stream])

    def add(self, record_lines: RecordLines) -> int:
        """Adds lines from the demux. Returns the number of records."""
        route = self._route(record_lines.stream, record_lines.namespace)
        if len(route) == 1:
            self._add(route[0], record_lines.lines, record_lines.records)
        else:
            self._add_line_by_line(route, record_lines.lines)
        return record_lines.records

    def add_batch(self, stream: StreamId, batch: pa.RecordBatch) -> int:
        """Adds a valid batch of a stream whose connector sends Arrow. Returns the number of its rows.

        All rows of a stream come in batches, or none. A field that the stream's schema declares differently is cast to
        its column; values that do not fit are null, with an entry in the row's changes. Raises ConnectorError for a
        batch that the stream's policy refuses: nothing of it is added.
        """
        stream, rows = self.planned_id(stream), int(batch.num_rows)
        stage = self._streams.get(stream)
        if stage is None:
            add_stream_counts(self._unconfigured, {stream: rows})
        elif stream in self._faults:
            stage.count_only(rows, int(batch.nbytes))
        elif rows:
            with self._changing(stage):
                stage.add_batch(batch)
            self._write_full(stream, stage)
        return rows

    def reject(self, stream: StreamId, record: str, reason: str, kind: str) -> None:
        """Adds a record that the source rejected to a planned stream whose connector sends Arrow.

        Raises ConnectorError where the stream's policy is to fail.
        """
        stage = self._streams[stream]
        if stream in self._faults:
            stage.count_only(1, len(record))
            return
        with self._changing(stage):
            stage.reject(record, reason, kind)
        self._write_full(stream, stage)

    def take_rejected(self, stream: StreamId) -> Sequence[SourceRejection]:
        """Returns the records that the source rejected among the rows of the last cut, once."""
        return self._streams[stream].take_rejected()

    def stream_of(self, stream: bytes, namespace: bytes | None) -> StreamId | None:
        """Returns the stream of records with this head; None if the head does not decide it."""
        route = self._route(stream, namespace)
        return route[0] if len(route) == 1 else None

    def add_line(self, stream: StreamId, line: bytes) -> None:
        """Adds a record that the protocol read itself, with or without its newline."""
        self._add(self.planned_id(stream), line if line.endswith(b"\n") else line + b"\n", 1)

    def add_file(self, stream: StreamId, url: str, pieces: Iterable[tuple[bytes, int]]) -> int:
        """Adds the record lines of one of the connector's files, in pieces with their number of records.

        Returns the number of records. A file without records does not become a source of the part.
        """
        stage = self._streams[stream]
        records = 0
        for lines, count in pieces:
            self._add(stream, lines, count)
            records += count
        if records:
            stage.note_source(url)
        return records

    def planned_id(self, stream: StreamId) -> StreamId:
        """Returns the planned id of a stream that a record calls so; the name itself if none or several match."""
        candidates = self.candidates_for(stream)
        return candidates[0] if len(candidates) == 1 else stream

    def candidates_for(self, stream: StreamId) -> tuple[StreamId, ...]:
        """Returns the planned streams that a record with this stream name may belong to."""
        return (stream,) if stream in self._streams else self._other_names.get(stream, ())

    def flush(self, stream: StreamId) -> None:
        """Writes all held rows of the stream to files. It must not need a target."""
        stage = self._streams[stream]
        with self._changing(stage):
            stage.flush()

    def change_columns(self, given: StreamInput) -> None:
        """Gives the stream's next rows other columns, and the table target for these.

        The rows so far must be flushed, and stay as they are. So the stream's key must stay the same.
        """
        stage = self._streams[given.planned.id]
        with self._changing(stage):
            stage.change_columns(given.planned, given.columns, given.target, given.hash_key)

    def mark(self, stream: StreamId) -> None:
        """Marks the position of a state: all rows of the stream so far may be committed."""
        stage = self._streams[stream]
        self.marked_bytes -= stage.marked_bytes
        stage.mark()
        self.marked_bytes += stage.marked_bytes

    def marked_keys(self, stream: StreamId) -> StagedKeys | None:
        """Returns the keys of the rows that the next cut takes; None if it takes none, or the stream has no keys.

        The late ones among them are an argument of the cut. The stream must not need a target.
        """
        stage = self._streams[stream]
        with self._changing(stage):
            return stage.marked_keys()
        return None

    def cut(
        self, stream: StreamId, late_rows: LateRows = NONE_LATE, *, follows_on_branch: bool = False
    ) -> StagedRows | None:
        """Closes the stream's files up to its last mark and returns them; None if no row came before it.

        The part takes out the `late_rows` among `marked_keys`, where nothing was added or marked in between. Without
        them, a row that comes later counts as newer. A cut that `follows_on_branch` comes after earlier rows of its
        generation, which are on a branch of the table. The stream must not need a target.
        """
        stage = self._streams[stream]
        with self._changing(stage):
            return stage.cut(late_rows, follows_on_branch=follows_on_branch)
        return None

    def uncut_bytes(self, stream: StreamId) -> int:
        """Estimates the size of a cut if all rows so far were marked."""
        return self._streams[stream].uncut_bytes

    def discard(self, stream: StreamId) -> int:
        """Drops all rows of the stream that are not cut, and deletes their files. Returns the number of rows."""
        self._awaiting_target.pop(stream, None)
        stage = self._streams[stream]
        with self._changing(stage):
            return stage.discard()
        return 0

    def emitted(self, stream: StreamId) -> int:
        """Returns the number of records of the stream so far."""
        return self._streams[stream].emitted

    def received_bytes(self, stream: StreamId) -> int:
        """Returns the bytes of the stream's records so far."""
        return self._streams[stream].received_bytes

    def close_old_files(self) -> None:
        """Closes the files that have been open for as long as their storage allows. To be called now and then: when the
        next row of a stream comes, the credentials of its file may have expired."""
        for stage in self._streams.values():
            if stage.has_old_files:
                with self._changing(stage):
                    stage.close_old_files()

    def close(self) -> None:
        """Deletes all files that no cut has returned. Safe to call twice."""
        for stream in self._streams:
            self.discard(stream)

    def _route(self, stream: bytes, namespace: bytes | None) -> tuple[StreamId, ...]:
        """Returns the stream of a line with this head; if the head does not decide it, all candidates."""
        route = self._routes.get((stream, namespace))
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = self._routes[stream, namespace] = self._find_route(stream, namespace)
        return route

    def _find_route(self, stream: bytes, namespace: bytes | None) -> tuple[StreamId, ...]:
        name = _text(stream) or ""
        if namespace is not None:
            return (self.planned_id(StreamId.of(name, _text(namespace))),)
        return tuple(self._by_name.get(name, ())) or (self.planned_id(StreamId.of(name)),)

    def _add(self, stream: StreamId, lines: Lines, count: int) -> None:
        stage = self._streams.get(stream)
        if stage is None:
            add_stream_counts(self._unconfigured, {stream: count})
            return
        if stream in self._faults:
            stage.count_only(count, len(lines))
            return
        stage.add(lines, count)
        self._memory_bytes += len(lines)
        self._write_full(stream, stage)

    def _write_full(self, stream: StreamId, stage: StreamStage) -> None:
        """Writes rows of the stream if it holds a segment, and of the streams that hold most if memory is full."""
        if stage.held_bytes >= self._segment_bytes[stream]:
            if stage.needs_target:
                self._awaiting_target[stream] = None
            else:
                with self._changing(stage):
                    stage.flush_segment()
                self._close_surplus_files()
        if self._memory_bytes > self._limits.held_bytes and not self._awaiting_target:
            self._free_memory()

    def _add_line_by_line(self, candidates: Sequence[StreamId], lines: Lines) -> None:
        for line in bytes(lines).split(b"\n")[:-1]:
            try:
                namespace = namespace_of(line, self._record_wire)
            except ValueError:
                stream = candidates[0]  # Not JSON: whichever stream gets it rejects it, with a reason.
            else:
                stream = StreamId.of(candidates[0].name, namespace)
            self._add(stream, line + b"\n", 1)

    def _free_memory(self) -> None:
        """Frees memory down to half of the limit, so that the next lines do not reach the limit again at once."""
        # First the rows that are parsed already. Then the lines before a mark; last those after it, for which a stream
        # must begin another file.
        for frees, step in _MEMORY_RELIEF_STEPS:
            for stage in sorted(self._streams.values(), key=frees, reverse=True):
                if self._memory_bytes <= self._limits.held_bytes // 2:
                    return
                if stage.needs_target:
                    continue
                with self._changing(stage):
                    step(stage)
                self._close_surplus_files()
        awaited_bytes = 0
        for stream, stage in sorted(self._streams.items(), key=lambda each: each[1].memory_bytes, reverse=True):
            if self._memory_bytes - awaited_bytes <= self._limits.held_bytes // 2:
                return
            if stage.needs_target:
                self._awaiting_target[stream] = None
                awaited_bytes += stage.memory_bytes

    @contextmanager
    def _changing(self, stage: StreamStage) -> Iterator[None]:
        """Updates the totals of all streams after a change of one stream. An exception that nobody foresaw ends up in
        `faults`."""
        self._memory_bytes -= stage.memory_bytes
        self.marked_bytes -= stage.marked_bytes
        try:
            yield
        except TransformError as error:
            self._fail(stage, transform_fault(str(stage.stream), error))
        except (ProtoError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - it must not take the other streams down; the caller fails this one
            self._fail(stage, staging_fault(str(stage.stream), error))
        finally:
            self._memory_bytes += stage.memory_bytes
            self.marked_bytes += stage.marked_bytes
            self._open_files.pop(stage.stream, None)
            if stage.open_files:
                self._open_files[stage.stream] = stage.open_files

    def _close_surplus_files(self) -> None:
        while len(self._open_files) > 1 and sum(self._open_files.values()) > self._limits.open_files:
            stage = self._streams[next(iter(self._open_files))]
            with self._changing(stage):
                stage.close_files()

    def _fail(self, stage: StreamStage, fault: ProtoError) -> None:
        self._faults.setdefault(stage.stream, fault)
        self._awaiting_target.pop(stage.stream, None)
        with suppress(Exception):  # What stays of its files is an orphan, which the next run removes.
            stage.discard()


def _text(raw: bytes) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str | None)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return raw.decode(errors="replace")
