"""The writes of a certification: to objects of its own, always with the same rows, each by a process of its own."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.certification.evidence import Reply
from dagster_airbyte_proto.certification.watching.watched_launcher import WatchedConnector
from dagster_airbyte_proto.certification.watching.watched_program import WatchedProgram
from dagster_airbyte_proto.certification.writes.fitting_rows import fitting_rows, no_fitting_rows
from dagster_airbyte_proto.certification.writes.scratch_rows import (
    KEY,
    KINDS,
    PLAIN,
    long_batch_rows,
    long_rows,
    misfit_rows,
    plain_rows,
    typed_rows,
)
from dagster_airbyte_proto.certification.writes.write_evidence import TypeWrite, WriteEvidence
from dagster_airbyte_proto.certification.writes.writing import Ending, ScratchWriter, WriteScript
from dagster_airbyte_proto.checkpoints.kept_values import Asset, ValueStore
from dagster_airbyte_proto.encoding.arrow_frames import stream_columns
from dagster_airbyte_proto.encoding.json_types import json_schema
from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.destination import PushedStream, WriteRequest
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.push.content.stream_encoder import StreamEncoder
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.sync.state_server.served_values import served_values

_BATCHES, _BATCH_ROWS = 5, 4
_FIRST_ROWS = {Ending.CUT: 101, Ending.CANCELLED: 201}
_FIRST_LONG_ROW = 1001


class Writes(NamedTuple):
    """The writes that were made."""

    empty: Reply[WriteEvidence]
    first: Reply[WriteEvidence]
    again: Reply[WriteEvidence]
    all_types: Reply[WriteEvidence]
    types: tuple[TypeWrite, ...]
    misfit: Reply[WriteEvidence]
    cut: Reply[WriteEvidence]
    cancelled: Reply[WriteEvidence]
    long: Reply[WriteEvidence]


class WriteTarget(NamedTuple):
    """The objects to write to, in one mode and by these keys.

    A destination with objects of its own has a `row_schema` for the rows of the one that is named, and `options`.
    """

    objects: tuple[str, ...]
    mode: PushMode
    keys: tuple[str, ...] = KEY
    has_objects: bool = False
    row_schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = {}

    @property
    def takes_any_rows(self) -> bool:
        return len(self.objects) > 1


class WriteSeries:
    """Writes to one destination. The values that it keeps are served from the store, and never saved."""

    def __init__(self, watched: WatchedProgram[Destination], target: WriteTarget, values: ValueStore) -> None:
        self._watched, self._target, self._values = watched, target, values
        self._settle_seconds = 0.0

    def run(self) -> Writes:
        reply = self._watched.reply
        empty = reply("write without rows", lambda: self._write(WriteScript()))
        # A process that has nothing to do takes as long as it needs to start and to end.
        self._settle_seconds = empty.answer.run.seconds if empty.answer else 0.0
        first = reply("write", self._first)
        if first.answer is None or not first.answer.ended_well:
            found = first.error.found if first.error else "the first write failed"
            missing: Reply[WriteEvidence] = Reply(None, ConnectorError("writing to the destination", found))
            return Writes(empty, first, missing, missing, (), missing, missing, missing, missing)
        if not self._target.takes_any_rows:
            return self._of_own_rows(empty, first)
        again = reply("second write of the same rows", self._plain)
        all_types = reply("write of all kinds of values", lambda: self._typed(KINDS))
        types = () if _went_well(all_types, first.answer) else self._each_type(reply)
        if self._watched.connector.protocol.takes_batches:
            # A batch says what its columns are, and it is the host that frames it and ends the process.
            none = Reply[WriteEvidence](None)
            return Writes(empty, first, again, all_types, types, none, none, none, reply("long write", self._long))
        misfit = reply("write of a row that does not fit its schema", self._misfit)
        cut = reply("write that ends in the middle of a line", lambda: self._ending(Ending.CUT))
        cancelled = reply("cancelled write", lambda: self._ending(Ending.CANCELLED))
        long = reply("long write", self._long)
        return Writes(empty, first, again, all_types, types, misfit, cut, cancelled, long)

    def _of_own_rows(self, empty: Reply[WriteEvidence], first: Reply[WriteEvidence]) -> Writes:
        """The further writes to an object with fields of its own."""
        reply, none = self._watched.reply, Reply[WriteEvidence](None)
        again = reply("second write of the same rows", self._plain)
        cut = reply("write that ends in the middle of a line", lambda: self._ending(Ending.CUT))
        cancelled = reply("cancelled write", lambda: self._ending(Ending.CANCELLED))
        return Writes(empty, first, again, none, (), none, cut, cancelled, reply("long write", self._long))

    def _each_type(self, reply: Callable[..., Reply[WriteEvidence]]) -> tuple[TypeWrite, ...]:
        """Writes each kind of value by itself, since all of them together did not go well."""
        return tuple(
            TypeWrite(kind, reply(f"write of {kind}", lambda kind=kind: self._typed((kind,)))) for kind in KINDS
        )

    def _first(self) -> WriteEvidence:
        """The write that shows when states come back: a slow start must not look like states at the end alone."""
        return self._write(WriteScript(self._plain_batches(), settle_seconds=self._settle_seconds))

    def _plain(self) -> WriteEvidence:
        return self._write(WriteScript(self._plain_batches()))

    def _typed(self, kinds: tuple[str, ...]) -> WriteEvidence:
        rows = typed_rows(kinds)
        return self._write(WriteScript([rows]), rows.schema, self._target.objects[1])

    def _misfit(self) -> WriteEvidence:
        return self._write(WriteScript([misfit_rows()]), PLAIN, self._target.objects[2])

    def _ending(self, ending: Ending) -> WriteEvidence:
        settle = self._settle_seconds if ending is Ending.CANCELLED else 0.0
        # Rows of their own: where the second write of the same rows failed, these need not.
        return self._write(WriteScript(self._plain_batches(_FIRST_ROWS[ending]), ending, settle))

    def _long(self) -> WriteEvidence:
        count = self._watched.options.scratch.rows
        step = long_batch_rows(count)
        if self._target.row_schema is None:
            return self._write(WriteScript(long_rows(_FIRST_LONG_ROW, count, step)))
        starts = range(0, count, step)
        return self._write(
            WriteScript(self._rows(_FIRST_LONG_ROW + start, min(step, count - start)) for start in starts)
        )

    def _plain_batches(self, first: int = 1) -> list[pa.RecordBatch]:
        return [self._rows(first + number * _BATCH_ROWS, _BATCH_ROWS) for number in range(_BATCHES)]

    def _rows(self, start: int, count: int) -> pa.RecordBatch:
        schema = self._target.row_schema
        return plain_rows(start, count) if schema is None else fitting_rows(schema, start, count)

    def _write(self, script: WriteScript, schema: pa.Schema | None = None, name: str = "") -> WriteEvidence:
        destination = self._watched.connector
        protocol = destination.protocol
        stream = self._stream(schema or self._rows(1, 1).schema, name or self._target.objects[0])
        request = WriteRequest(destination.config.current, stream, 1, f"certify.{stream.id}")
        # Before the launch: nobody would end a process that has no writer.
        writer = ScratchWriter(destination, request, self._encoder(stream))
        seconds = self._watched.options.bounds.write_seconds
        asset = Asset(destination.connection.name, stream.id)
        with served_values(destination, self._values, asset, lambda: None) as served:
            running = destination.connector.launch(protocol.write(request), served.variables)
            assert isinstance(running, WatchedConnector), "it is launched by the watched launcher"
            return writer.run(running, script._replace(bound_seconds=seconds))

    def _encoder(self, stream: PushedStream) -> StreamEncoder:
        protocol = self._watched.connector.protocol
        try:
            return StreamEncoder(protocol, stream, RowRules(protocol.omits_nulls, schema=self._target.row_schema))
        except ConfigError as error:
            if isinstance(error.__cause__, ImportError):  # A package of ours is missing.
                raise
            raise no_fitting_rows(error.found) from error

    def _stream(self, schema: pa.Schema, name: str) -> PushedStream:
        protocol, target = self._watched.connector.protocol, self._target
        keys = () if target.mode is PushMode.APPEND else target.keys
        return PushedStream(
            StreamId.of(name),
            json_schema(schema, protocol.dialect, keys),
            target.mode,
            keys,
            has_object=target.has_objects,
            options=target.options,
            columns=stream_columns(schema) if protocol.takes_batches else (),
        )


def _went_well(reply: Reply[WriteEvidence], first: WriteEvidence) -> bool:
    """True if all rows were taken, and proved if those of the first write were."""
    write = reply.answer
    if write is None or not write.ended_well or write.rejected_rows or write.refused or write.loses_rows(first):
        return False
    return write.proves_all or not first.proves_all
