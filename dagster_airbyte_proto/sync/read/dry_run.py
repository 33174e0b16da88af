"""A dry run of a sync: the connector reads, and nothing lands. The first rows of each stream are as its table would get
them.

- The request says that it is a dry run, and how many records are wanted. One that sends more is stopped.
- Rows go through the same staging as those of a sync, into a folder that is removed: columns, types, shaping, queries
  and rules are those of the connection. A transform by another connector gets no row, and neither do those behind it.
- No state, table or kept value changes, and no lease is taken.
"""

import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import ComponentSpec, EnrichmentSpec, PlannedStream, StreamId
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.protocols.events import ErrorEvent, LogEvent, RejectedRecordEvent
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.arrow.batch_demux import ArrowContent, BatchDemux
from dagster_airbyte_proto.staging.arrow.ipc_messages import record_batches
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.connector.opened_connector import opened_source
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.resume import selected_fields, states_to_resume
from dagster_airbyte_proto.sync.plan.stream_plan import ChosenStreams, SyncRequest, plan_streams
from dagster_airbyte_proto.sync.read.batch_policies import batch_policy
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.transforms.landed_columns import landed_columns

_DOING = "reading without landing anything"
_READ_SECONDS = 0.25


class SampledStream(msgspec.Struct, frozen=True, kw_only=True):
    """The first rows of a stream, as its table would get them, and the counts of the records that they came from."""

    status: SyncStatus
    table: str
    emitted: int = 0
    changed: int = 0
    rejections: Mapping[str, int] = {}
    samples: list[Mapping[str, Any]] = []
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return value


def dry_run(
    engine: Engine, connection: Connection, request: SyncRequest, records: int, cancel: threading.Event
) -> Mapping[str, SampledStream]:
    """Reads at most so many records of each stream. Raises ProtoError for what goes wrong before the connector runs."""
    values = request.slice.template_values if request.slice else {}
    with opened_source(engine, connection, values) as source:
        if not source.protocol.sends_batches:
            raise ConfigError(
                _DOING,
                f"{source.protocol.name} connectors have no dry run",
                remedy="Leave out --plan. It is for Rapidbyte sources.",
            )
        source.check_config()
        catalog = source.catalog()
        stored = [each.state for each in engine.store.states(connection.name, partition=request.partition)]
        chosen = plan_streams(connection, catalog, request)
        shaped, faults = _shaped(chosen)
        states = () if request.starts_over else states_to_resume([each.planned for each in shaped.values()], stored)
        read = ReadRequest(source.config.current, (), states, 0, catalog.streams, dry_run_records=records)
        sampled: dict[str, SampledStream] = {}
        for each in chosen.planned:
            if each.id in faults:
                sampled[str(each.id)] = _refused(source, each, faults[each.id])
            elif not cancel.is_set():
                sampled[str(each.id)] = _sampled(source, shaped[each.id], read, cancel)
        return sampled


class _ToSample(NamedTuple):
    """A stream and the columns of its rows, before any transform by a connector."""

    planned: PlannedStream
    columns: Columns


def _shaped(chosen: ChosenStreams) -> tuple[dict[StreamId, _ToSample], dict[StreamId, ConfigError]]:
    """Returns the streams that can be read, and the errors of the others. Raises the first one if none can be."""
    shaped: dict[StreamId, _ToSample] = {}
    faults = dict(chosen.faults)
    for planned in map(_without_connectors, chosen.sound):
        try:
            shaped[planned.id] = _ToSample(planned, landed_columns(planned))
        except ConfigError as error:
            faults[planned.id] = error
    if not shaped:
        raise next(iter(faults.values()))
    return shaped, faults


def _without_connectors(planned: PlannedStream) -> PlannedStream:
    kept = takewhile(lambda each: not isinstance(each, ComponentSpec | EnrichmentSpec), planned.transforms)
    return msgspec.structs.replace(planned, transforms=tuple(kept))


def _sampled(source: Source, shaped: _ToSample, read: ReadRequest, cancel: threading.Event) -> SampledStream:
    planned, columns = shaped
    request = read._replace(streams=(planned,), fields=selected_fields({planned.id: columns}))
    with tempfile.TemporaryDirectory(prefix="dry-run-") as folder:
        policy = batch_policy(source.connection, planned, request.fields.get(planned.id))
        target = TableTarget(planned.table, columns.schema, folder, str(planned.table))
        stage = Stage(
            [StreamInput(planned, columns, target, source.hash_key() if _hashes(planned) else "", (), policy)],
            RunInput(source.protocol.record_wire, "dry-run", sync_id=0),
        )
        error: ProtoError | None = None
        try:
            running = source.connector.launch(source.protocol.read(request))
            with closing(_output(source, running, cancel)) as chunks:
                _read_into(stage, planned, source, chunks, request.dry_run_records or 0)
            stage.mark(planned.id)
            part = stage.cut(planned.id)
            error = stage.faults.get(planned.id)
        except ConnectorError as found:
            error, part = found, None
        return _report(source, planned, part, stage.emitted(planned.id), error)


def _refused(source: Source, planned: PlannedStream, error: ConfigError) -> SampledStream:
    text = source.mask.text(str(error))
    return SampledStream(status=SyncStatus.FAILED, table=str(planned.table), error=text)


def _hashes(planned: PlannedStream) -> bool:
    return planned.shaping is not None and bool(planned.shaping.hashed)


def _output(source: Source, running: RunningConnector, cancel: threading.Event) -> Generator[bytes]:
    """Yields its output until it ends. It is stopped when nobody takes more."""
    try:
        while not cancel.is_set() and (chunk := running.read(_READ_SECONDS)) != b"":
            if chunk:
                yield chunk
        report = running.wait(_READ_SECONDS)
        if report is not None and not report.ended_cleanly and not cancel.is_set():
            raise ConnectorError(_DOING, f"the connector {source.mask.text(report.how_it_ended_and_why)}")
    finally:
        running.stop()


def _read_into(stage: Stage, planned: PlannedStream, source: Source, chunks: Iterator[bytes], records: int) -> None:
    """Adds its records to the stage. Raises ConnectorError if the connector reports an error."""
    demux = BatchDemux()
    for chunk in chunks:
        for each in demux.feed(chunk):
            if isinstance(each, ArrowContent):
                for batch in record_batches(each.content, each.stream):
                    stage.add_batch(planned.id, batch.slice(0, records - stage.emitted(planned.id)))
            else:
                _take_line(stage, planned, source, each)
        if stage.emitted(planned.id) >= records:
            return


def _take_line(stage: Stage, planned: PlannedStream, source: Source, line: bytes) -> None:
    event = source.protocol.event(line)
    if isinstance(event, ErrorEvent):
        raise ConnectorError(_DOING, source.mask.text(event.summary), stream=str(planned.id))
    if isinstance(event, RejectedRecordEvent):
        stage.reject(planned.id, event.record, source.mask.text(event.reason), event.kind)
    elif isinstance(event, LogEvent):
        source.log.write(event.level, event.message)


def _report(
    source: Source, planned: PlannedStream, part: StagedRows | None, emitted: int, error: ProtoError | None
) -> SampledStream:
    return SampledStream(
        status=SyncStatus.COMPLETE if error is None else SyncStatus.FAILED,
        table=str(planned.table),
        emitted=emitted,
        changed=part.changed if part else 0,
        rejections=part.rejected if part else {},
        samples=[source.mask.value(row) for row in _rows(part)] if part else [],
        error=None if error is None else source.mask.text(str(error)),
    )


def _rows(part: StagedRows) -> Sequence[Mapping[str, Any]]:
    paths = [file.path for file in part.files if file.content is FileContent.ROWS]
    return [row for path in paths for row in _shown(pq.ParquetFile(path).read())]


def _shown(rows: pa.Table) -> Iterable[Mapping[str, Any]]:
    shown: list[Mapping[str, Any]] = rows.select([name for name in rows.schema.names if not _is_own(name)]).to_pylist()
    return shown


def _is_own(name: str) -> bool:
    return name.startswith(("_airbyte_", "_ab_"))
