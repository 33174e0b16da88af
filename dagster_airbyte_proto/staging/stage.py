"""All streams' rows between the connector and the tables: raw lines in, staged Parquet files out.

Belongs to one thread. Memory is bounded by `StageLimits.held_bytes` and a segment or two: past it the streams that hold
most are written out. Whatever is not handed over by `cut` is removed by `discard` or `close`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.wire import RecordShape
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.files.open_part import Shelf, breadth
from dagster_airbyte_proto.staging.lines.demux import Lines, Run
from dagster_airbyte_proto.staging.lines.record_parser import namespace_of
from dagster_airbyte_proto.staging.stream_stage import StreamStage
from dagster_airbyte_proto.tables.writer import TableWriter


class StreamInput(NamedTuple):
    """A stream to stage. `target` is called when its first rows are written, and may block until the table is there.

    Private columns are hashed with the `hash_key`. `tables` are asked for newer rows of a key; without them what comes
    later counts as newer.
    """

    planned: PlannedStream
    columns: Columns
    target: Callable[[], TableTarget]
    hash_key: str = ""
    tables: Callable[[], TableWriter] | None = None


class StageLimits(NamedTuple):
    """`segment_bytes` of one stream are parsed at once, more where it is wide; `held_bytes` are kept in memory over
    all streams."""

    segment_bytes: int = 8 << 20
    held_bytes: int = 128 << 20
    file_bytes: int = 128 << 20


_RELIEFS: Final[Sequence[tuple[Callable[[StreamStage], int], Callable[[StreamStage], None]]]] = (
    (attrgetter("waiting_bytes"), StreamStage.write_waiting),
    (attrgetter("memory_bytes"), StreamStage.flush_marked),
    (attrgetter("memory_bytes"), StreamStage.flush),
)


class Stage:
    """Takes record lines, marks where states stand, and cuts only there. Raises StagingError when the disk refuses.

    Records may call streams by `other_names` than they are planned. `marked_bytes` is about what a cut of all streams
    would hand over: not as it came but as it is written.
    """

    def __init__(
        self,
        streams: Sequence[StreamInput],
        shape: RecordShape,
        *,
        run_id: str,
        sync_id: int,
        other_names: Mapping[StreamId, tuple[StreamId, ...]] = MappingProxyType({}),
        limits: StageLimits = StageLimits(),  # noqa: B008  # a tuple, and frozen
    ) -> None:
        self._shape = shape
        self._limits = limits
        self._other_names = other_names
        began_at = time.time_ns() // 1000
        self._streams = {
            each.planned.id: StreamStage(
                Shelf(each.planned, each.columns, (each.target, each.tables), run_id),
                shape,
                sync_id=sync_id,
                max_file_bytes=limits.file_bytes,
                began_at=began_at,
                hash_key=each.hash_key,
            )
            for each in streams
        }
        self._segment_bytes = {each.planned.id: int(limits.segment_bytes * breadth(each.columns)) for each in streams}
        self._by_name: dict[str, list[StreamId]] = {}
        for stream in self._streams:
            self._by_name.setdefault(stream.name, []).append(stream)
        self._routes: dict[tuple[bytes, bytes | None], tuple[StreamId, ...]] = {}
        self._unconfigured: Counter[StreamId] = Counter()
        self._memory_bytes = 0
        self.marked_bytes = 0

    @property
    def unconfigured(self) -> Mapping[StreamId, int]:
        """Records of streams that are not ours: counted, not landed."""
        return sum((stage.foreign for stage in self._streams.values()), self._unconfigured)

    def add(self, run: Run) -> int:
        """A run from the demux. How many records it has."""
        route = self._route(run.stream, run.namespace)
        if len(route) == 1:
            self._add(route[0], run.lines, run.records)
        else:
            self._add_line_by_line(route, run.lines)
        return run.records

    def stream_of(self, stream: bytes, namespace: bytes | None) -> StreamId | None:
        """Of which stream records are whose heads say so; None where a head does not tell."""
        route = self._route(stream, namespace)
        return route[0] if len(route) == 1 else None

    def add_line(self, stream: StreamId, line: bytes) -> None:
        """A record that the protocol read by itself, with its newline or without."""
        self._add(self.planned(stream), line if line.endswith(b"\n") else line + b"\n", 1)

    def add_file(self, stream: StreamId, url: str, pieces: Iterable[tuple[bytes, int]]) -> int:
        """The record lines of a file of the connector's, and how many each piece has. How many records it has: one that
        has none is not told of as a source."""
        stage = self._streams[stream]
        records = 0
        for lines, count in pieces:
            self._add(stream, lines, count)
            records += count
        if records:
            stage.note_source(url)
        return records

    def planned(self, stream: StreamId) -> StreamId:
        """What a stream is planned as that a record calls so; the name itself where none is, or several might be."""
        meant = self.meant_by(stream)
        return meant[0] if len(meant) == 1 else stream

    def meant_by(self, stream: StreamId) -> tuple[StreamId, ...]:
        """The streams that a record which calls its stream so may be of."""
        return (stream,) if stream in self._streams else self._other_names.get(stream, ())

    def flush(self, stream: StreamId) -> None:
        """Writes all rows of the stream that are held."""
        stage = self._streams[stream]
        with self._measured(stage):
            stage.flush()

    def restate(self, given: StreamInput) -> None:
        """From now on the stream's rows are of these columns, and go where its table now wants them. Those so far,
        which must be flushed, stay as they are: its key must be the same then."""
        stage = self._streams[given.planned.id]
        with self._measured(stage):
            stage.restate(given.planned, given.columns, (given.target, given.tables), given.hash_key)

    def mark(self, stream: StreamId) -> None:
        """A state stands here: all rows of the stream so far may be committed."""
        stage = self._streams[stream]
        self.marked_bytes -= stage.marked_bytes
        stage.mark()
        self.marked_bytes += stage.marked_bytes

    def cut(self, stream: StreamId, branch: str | None = None) -> StagedRows | None:
        """Closes the stream's files up to its last mark and hands them over; None when no row stands before it.

        On a `branch` of the table lie rows of its generation that were handed over before: among them, and not in what
        readers see, the newest of each key is found.
        """
        stage = self._streams[stream]
        with self._measured(stage):
            return stage.cut(branch)

    def uncut_bytes(self, stream: StreamId) -> int:
        """About what a cut would hand over if all rows so far were marked."""
        return self._streams[stream].uncut_bytes

    def discard(self, stream: StreamId) -> int:
        """Drops all rows of the stream that are not cut, and their files. How many rows."""
        stage = self._streams[stream]
        with self._measured(stage):
            return stage.discard()

    def emitted(self, stream: StreamId) -> int:
        """How many records of the stream came so far."""
        return self._streams[stream].emitted

    def received_bytes(self, stream: StreamId) -> int:
        """How many bytes of records of the stream came so far."""
        return self._streams[stream].received_bytes

    def close(self) -> None:
        """Removes all files that were not handed over. Safe to call twice."""
        for stream in self._streams:
            self.discard(stream)

    def _route(self, stream: bytes, namespace: bytes | None) -> tuple[StreamId, ...]:
        """The stream; or, where the line's head does not tell, all that it may be."""
        route = self._routes.get((stream, namespace))
        if route is None:
            route = self._routes[stream, namespace] = self._found_route(stream, namespace)
        return route

    def _found_route(self, stream: bytes, namespace: bytes | None) -> tuple[StreamId, ...]:
        name = _text(stream) or ""
        if namespace is not None:
            return (self.planned(StreamId.of(name, _text(namespace))),)
        return tuple(self._by_name.get(name, ())) or (self.planned(StreamId.of(name)),)

    def _add(self, stream: StreamId, lines: Lines, count: int) -> None:
        stage = self._streams.get(stream)
        if stage is None:
            self._unconfigured[stream] += count
            return
        stage.add(lines, count)
        self._memory_bytes += len(lines)
        if stage.held_bytes >= self._segment_bytes[stream]:
            with self._measured(stage):
                stage.flush_segment()
        if self._memory_bytes > self._limits.held_bytes:
            self._relieve()

    def _add_line_by_line(self, candidates: Sequence[StreamId], lines: Lines) -> None:
        for line in bytes(lines).split(b"\n")[:-1]:
            try:
                namespace = namespace_of(line, self._shape)
            except ValueError:
                stream = candidates[0]  # No JSON: any of them will reject it, with a reason.
            else:
                stream = StreamId.of(candidates[0].name, namespace)
            self._add(stream, line + b"\n", 1)

    def _relieve(self) -> None:
        """Down to half the budget, so that it is not due again at once. Rows that only wait to be written go first; of
        the lines those before a mark, for those behind it begin another file."""
        for frees, step in _RELIEFS:
            for stage in sorted(self._streams.values(), key=frees, reverse=True):
                if self._memory_bytes <= self._limits.held_bytes // 2:
                    return
                with self._measured(stage):
                    step(stage)

    @contextmanager
    def _measured(self, stage: StreamStage) -> Iterator[None]:
        """Keeps the sums over all streams right while one of them changes."""
        self._memory_bytes -= stage.memory_bytes
        self.marked_bytes -= stage.marked_bytes
        try:
            yield
        finally:
            self._memory_bytes += stage.memory_bytes
            self.marked_bytes += stage.marked_bytes


def _text(raw: bytes) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str | None)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return raw.decode(errors="replace")
