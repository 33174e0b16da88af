"""Runs one read and collects its evidence. Lines are parsed by the protocol, as in a sync, and numbered from 1."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.certification.reads.read_evidence import OddLines, ReadEvidence, StatePoint, StreamRecords
from dagster_airbyte_proto.certification.reads.schema_fit import SchemaFit
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch
from dagster_airbyte_proto.certification.watching.watched_launcher import WatchedConnector
from dagster_airbyte_proto.errors import ConnectorError, ProtocolViolation
from dagster_airbyte_proto.model import FieldPath, PlannedStream, StreamId
from dagster_airbyte_proto.protocols.conversation import ReadRequest, SourceProtocol, parse_config_file
from dagster_airbyte_proto.protocols.events import (
    BatchEvent,
    ConfigEvent,
    ErrorEvent,
    Event,
    PlainLine,
    RecordLine,
    SchemaEvent,
    StateEvent,
    StatusEvent,
    StreamStatus,
    UnknownEvent,
)
from dagster_airbyte_proto.protocols.raw_json import MemberError, value

_READ_SECONDS = 0.5
_EXIT_SECONDS = 60.0
_MAX_LINE_BYTES = 256 << 20
_MAX_TEXT = 200
_HASH_BITS = (1 << 64) - 1
_DOING = "reading"


class RecordCollector:
    """Collects the evidence of one read, line by line. `take_config` gets a config that it rewrites, at once."""

    def __init__(
        self,
        protocol: SourceProtocol,
        request: ReadRequest,
        watch: SecretWatch,
        take_config: Callable[[ConfigEvent], None],
    ) -> None:
        self._protocol, self._watch, self.take_config = protocol, watch, take_config
        self._planned = {planned.id: planned for planned in request.streams}
        self._aliases = protocol.stream_aliases(request)
        self._fits = {} if protocol.sends_schemas else {
            stream: SchemaFit(planned.stream.json_schema) for stream, planned in self._planned.items()
        }  # fmt: skip
        self._cursors: dict[StreamId, Any] = {}
        self._unstated: dict[StreamId, int] = dict.fromkeys(self._planned, 0)
        self._rest = b""
        self.lines = 0
        self.streams = {stream: StreamRecords() for stream in self._planned}
        self.states: list[StatePoint] = []
        self.statuses: dict[StreamId, StreamStatus] = {}
        self.undeclared, self.unreadable, self.plain = OddLines(), OddLines(), OddLines()
        self.errors, self.without_schema = OddLines(), OddLines()
        self.batches = 0

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Takes a chunk, and pauses after each line."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._rest += rest
            if len(self._rest) > _MAX_LINE_BYTES:
                raise ProtocolViolation(_DOING, f"line {self.lines + 1} has over {_MAX_LINE_BYTES} bytes")
            return
        block, self._rest = self._rest + whole, rest
        may_leak = self._watch.mask.data(block) != block
        for line in block.split(b"\n"):
            self.lines += 1
            self._take_line(line + b"\n", may_leak=may_leak)
            yield

    def finish(self) -> None:
        """Takes a last line without a newline."""
        if self._rest:
            for _ in self.feed(b"\n"):
                pass

    def _take_line(self, line: bytes, *, may_leak: bool) -> None:
        """Takes a line, which has been counted."""
        event = self._protocol.event(line)
        if may_leak and not isinstance(event, ConfigEvent):  # A new config has secrets by its nature.
            self._watch.look(line.decode(errors="replace").rstrip(), f"line {self.lines} of stdout")
        if isinstance(event, RecordLine):
            self._take_record(event)
        elif isinstance(event, StateEvent):
            self._take_state(event)
        elif isinstance(event, SchemaEvent):
            for stream in self._meant(event.stream):
                self._fits[stream] = SchemaFit(event.json_schema)
        else:
            self._take_other(event)

    def _take_other(self, event: Event) -> None:
        if isinstance(event, StatusEvent):
            self.statuses[event.stream] = event.status
        elif isinstance(event, ErrorEvent):
            self.errors.add(self.lines, self._watch.mask.text(event.summary))
        elif isinstance(event, UnknownEvent):
            self.unreadable.add(self.lines, f"{event.kind}: {event.reason}")
        elif isinstance(event, PlainLine):
            if event.line.strip():
                self.plain.add(self.lines, event.shown(_MAX_TEXT))
        elif isinstance(event, ConfigEvent):
            self.take_config(event)
        elif isinstance(event, BatchEvent):
            self.batches += 1

    def _meant(self, stream: StreamId) -> tuple[StreamId, ...]:
        if stream in self._planned:
            return (stream,)
        return tuple(each for each in self._aliases.get(stream, ()) if each in self._planned)

    def _take_record(self, event: RecordLine) -> None:
        meant = self._meant(event.stream)
        if not meant:
            self.undeclared.add(self.lines, f"stream {event.stream}")
            return
        stream = meant[0]
        try:
            data = _member(value(event.line), self._protocol.record_wire.data)
        except MemberError as error:
            self.unreadable.add(self.lines, f"stream {stream}: {error}")
            return
        if not isinstance(data, dict):
            self.unreadable.add(self.lines, f"stream {stream}: its data is no object")
            return
        self._take_data(stream, data)
        records, fit = self.streams[stream], self._fits.get(stream)
        if fit is None:
            self.without_schema.add(self.lines, f"stream {stream}")
            return
        for field, fault, found in fit.misfits(data):
            records.misfits.setdefault(f"{field}: {fault}", OddLines()).add(self.lines, f"{stream}.{field} is {found}")

    def _take_data(self, stream: StreamId, data: Mapping[str, Any]) -> None:
        """Takes the values of one record."""
        records, planned = self.streams[stream], self._planned[stream]
        self._unstated[stream] += 1
        # Missing and null mean the same.
        records.contents.append(_hash({name: item for name, item in data.items() if item is not None}))
        self._note_key(records, planned, data)
        self._note_cursor(records, planned, data)

    def _note_key(self, records: StreamRecords, planned: PlannedStream, data: Mapping[str, Any]) -> None:
        paths = planned.primary_key or planned.stream.primary_key
        if paths:
            key = [_member(data, path) for path in paths]
            records.keys.append(_hash(key))
            missing = [".".join(path) for path, part in zip(paths, key, strict=True) if part is None]
            if missing:
                records.null_keys.add(self.lines, f"stream {planned.id}: {', '.join(missing)} is null")

    def _note_cursor(self, records: StreamRecords, planned: PlannedStream, data: Mapping[str, Any]) -> None:
        path = planned.cursor or planned.stream.cursor
        if path:
            at = _member(data, path)
            records.cursors.append(_hash(at))
            greatest = self._cursors.get(planned.id)
            try:
                is_greater = at is not None and (greatest is None or at > greatest)
            except TypeError:  # Of another type: the newest has to do.
                is_greater = True
            if is_greater:
                self._cursors[planned.id] = at

    def _take_state(self, event: StateEvent) -> None:
        covered = [event.state.stream] if event.state.stream is not None else list(self._unstated)
        counted = sum(self._unstated.get(stream, 0) for stream in covered)
        rows = {stream: len(records.contents) for stream, records in self.streams.items()}
        cursors = {stream: _hash(at) for stream, at in self._cursors.items()}
        self.states.append(
            StatePoint(event.state, self.lines, event.is_provisional, rows, cursors, event.record_count, counted)
        )
        for stream in covered:
            self._unstated[stream] = 0


def run_read(
    connector: WatchedConnector,
    collector: RecordCollector,
    request: ReadRequest,
    *,
    timeout_seconds: float,
    is_enough: Callable[[RecordCollector], bool] = lambda _collector: False,
) -> ReadEvidence:
    """Reads to the end, to the timeout, or until it `is_enough`: then the connector is stopped."""
    error: ConnectorError | None = None
    deadline = time.monotonic() + timeout_seconds
    try:
        if not _feed_all(connector, collector, deadline, is_enough):
            collector.finish()
            if connector.wait(min(_EXIT_SECONDS, max(1.0, deadline - time.monotonic()))) is None:
                error = ConnectorError(_DOING, "it closed its output and did not end")
    except ConnectorError as failure:
        error = failure
    finally:
        connector.stop()
    if (content := connector.rewritten_file()) and (event := parse_config_file(content)):
        collector.take_config(event)
    return ReadEvidence(
        request.streams,
        collector.streams,
        collector.states,
        collector.statuses,
        collector.undeclared,
        collector.unreadable,
        collector.plain,
        collector.errors,
        collector.without_schema,
        collector.batches,
        connector.run,
        error,
    )


def _feed_all(
    connector: WatchedConnector,
    collector: RecordCollector,
    deadline: float,
    is_enough: Callable[[RecordCollector], bool],
) -> bool:
    """Reads to the end. Returns True if it was enough before."""
    while (chunk := connector.read(_READ_SECONDS)) != b"":
        if time.monotonic() > deadline:
            raise ConnectorError(_DOING, "it did not end in time, and was stopped")
        for _ in collector.feed(chunk or b""):
            if is_enough(collector):
                return True
    return False


def _member(found: Any, path: FieldPath) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _hash(found: Any) -> int:
    try:
        text = msgspec.json.encode(found, order="sorted")
    except (OverflowError, msgspec.MsgspecError):
        text = json.dumps(found, sort_keys=True).encode()
    return hash(text) & _HASH_BITS
