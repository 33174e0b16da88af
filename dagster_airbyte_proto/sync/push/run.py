"""Runs one push of a connection, from its lease to its report.

1. Acquire the lease, and recover what earlier runs left.
2. For each stream: fold what an earlier run had acknowledged, go on with its plan or make a new one, deliver it, and
   fold what is acknowledged now. A stream that fails leaves the others alone.
3. Report: write the report to the state store, release the lease.
4. Compact the tables that remember the rows, where they are due.
"""

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import msgspec

from dagster_airbyte_proto.checkpoints.logs import states_version
from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.connection import Connection, PushOptions
from dagster_airbyte_proto.connection.stream_names import streams_named
from dagster_airbyte_proto.errors import ConfigError, InternalError, ProtoError, StateConflict, StateUnavailable
from dagster_airbyte_proto.loads.push import PushPosition
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.destination import DestinationProtocol, PushedStream
from dagster_airbyte_proto.protocols.events import SpecEvent
from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
from dagster_airbyte_proto.staging.faults import stream_fault
from dagster_airbyte_proto.sync.commit.auto_compact import DueTable, auto_compact, due_table
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.commit.mounted_warehouse import check_is_mounted
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.connector.destination_catalog import WantedStream, refusals
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.stream_enrichment import enrichers_of_run
from dagster_airbyte_proto.sync.enrichment.transform_state import keep_shared
from dagster_airbyte_proto.sync.lease import LeaseWait, acquire_lease
from dagster_airbyte_proto.sync.push.job_interrupts import JobInterrupts
from dagster_airbyte_proto.sync.push.push_context import DeliveryContext, PushContext, PushRequest
from dagster_airbyte_proto.sync.push.push_stream import push_stream
from dagster_airbyte_proto.sync.push.unknown_rows import rows_left_unknown
from dagster_airbyte_proto.sync.push.written_batches import remove_dead_batches
from dagster_airbyte_proto.sync.push_report import PushedStreamReport, PushReport, failed_push, status_of
from dagster_airbyte_proto.sync.report import SyncStatus, overall_status
from dagster_airbyte_proto.sync.run_end import end_run, failed_behind_streams, noting_failure
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY, RunIdentity, RunTelemetry
from dagster_airbyte_proto.sync.telemetry.sent_metrics import RunSenders
from dagster_airbyte_proto.sync.telemetry.telemetry_choice import installed_telemetry

_EVERYTHING = PushRequest()


def push_connection(
    engine: Engine, connection: Connection, request: PushRequest = _EVERYTHING, options: RunOptions | None = None
) -> PushReport:
    """Runs one push and returns its report. Raises ProtoError for what goes wrong before the first stream."""
    engine.check_session()
    engine.check_staging()
    options = options or RunOptions(threading.Event())
    run_id = options.run_id or new_run_id()
    # A plan sends nothing: it is no push to be counted.
    telemetry = NO_TELEMETRY if request.only_plans else installed_telemetry()
    with telemetry.push(RunIdentity(connection.name, run_id, request.partition_key or "", options.attempt)):
        report = _run_push(engine, connection, request, options._replace(run_id=run_id), telemetry)
        telemetry.pushed(report)
    return report


def _run_push(
    engine: Engine, connection: Connection, request: PushRequest, options: RunOptions, telemetry: RunTelemetry
) -> PushReport:
    streams = _chosen(connection, request)
    _check_landed(connection, request, streams)
    run_id, began_at = options.run_id or new_run_id(), time.monotonic()
    partition = request.partition_key or ""
    # A plan is no push: where it fails, no run was refused.
    folder = engine.settings.logs_folder / connection.name / ("asked" if request.only_plans else "")
    with RunLog(folder, run_id, on_line=options.progress_listener.connector_logged) as log:
        with (
            acquire_lease(
                engine.store,
                connection.name,
                run_id,
                engine.settings.lease_seconds,
                LeaseWait(options.lease_wait_seconds, options.cancel, partial(log.write, "NOTE"), options.clock),
            ) as renewal,
            Committer(engine.store, lambda: engine.tables, renewal.lease, telemetry=telemetry) as committer,
        ):
            reach("run.leased")
            _check_no_sync(engine.store, connection.name)
            with _noting_failure(engine, renewal.lease, log, request):
                recovered = len(committer.recover())
                if not request.is_full:
                    check_is_mounted(engine.store, connection.name, f"airbyte-proto push {connection.name} --full")
                remove_dead_batches(connection)
                destination, refused = _checked_destination(engine, connection, log, streams)
                version_before = None if request.only_plans else states_version(engine.store, connection.name)
                enrichers = enrichers_of_run(engine, connection, log, renewal, options.cancel)
                sync_id = 0 if request.only_plans else _begun(engine.store, renewal.lease, streams, partition)
            meter = telemetry.delivery_meter
            delivery = DeliveryContext(destination, options, renewal, engine.store, sync_id, meter=meter)
            interrupts = JobInterrupts(engine, options.cancel)
            options.progress_listener.run_started(run_id, {})
            context = PushContext(engine, delivery, request, committer, log, interrupts, enrichers)
            reports = {
                str(stream): msgspec.structs.replace(
                    _traced(context, stream, each, telemetry, refused.get(stream)), version_before=version_before
                )
                for stream, each in streams.items()
            }
            report = _report(context, reports, recovered, time.monotonic() - began_at)
            with _noting_failure(engine, renewal.lease, log, request, report):
                destination.save_config(engine.store, renewal.lease)
                if not request.only_plans and all(each.status is SyncStatus.COMPLETE for each in reports.values()):
                    keep_shared(engine.store, renewal.lease, enrichers)
            renewal.check()
            if not request.only_plans:
                end_run(engine, renewal.lease, report, log)
        if not request.only_plans:
            report = _compacted(engine, report, log, options.cancel)
        log.note_end(report.status)
        return report


def _compacted(engine: Engine, report: PushReport, log: RunLog, cancel: threading.Event) -> PushReport:
    """Compacts the tables that remember a push, where they are due. Returns its report with what came of that."""
    try:
        due = _tables_due(engine, report)
    except StateUnavailable as error:  # The push is over. The next one compacts.
        log.write("WARN", str(error))
        return report
    result = auto_compact(engine, due, log, cancel)
    return msgspec.structs.replace(report, warnings=(*report.warnings, *result.warnings))


def _tables_due(engine: Engine, report: PushReport) -> Collection[DueTable]:
    """Returns the tables that a push has written to, and that are due."""
    after = engine.settings.compact_after
    found: dict[TableName, DueTable] = {}
    # A stream rarely has more loads: one of what an earlier run had acknowledged, and one of its own.
    for each in engine.store.loads(report.connection, limit=2 * len(report.streams)):
        if each.load.run_id == report.run_id:
            tables = {part.stream: part.table for part in each.load.parts}
            for done in each.committed:
                name = tables[done.stream]
                due = None if done.totals is None else due_table(name, done.totals, after, has_slices=False)
                if due is not None:
                    found.setdefault(name, due)  # The newest load comes first.
    return found.values()


def _noting_failure(
    engine: Engine, lease: Lease, log: RunLog, request: PushRequest, pushed: PushReport | None = None
) -> AbstractContextManager[None]:
    """Notes in the store why the push ended, if an error ends it in here. A plan is no push. `pushed` is the report of
    one whose streams have ended."""
    if request.only_plans:
        return nullcontext()

    def failed(error: ProtoError) -> PushReport:
        if pushed is not None:
            return failed_behind_streams(pushed, error)
        report = failed_push(lease.connection, lease.run_id, error, str(log.path))
        return msgspec.structs.replace(report, partition=request.partition_key or "")

    return noting_failure(engine, lease, log, failed)


def _report(
    context: PushContext, streams: Mapping[str, PushedStreamReport], recovered_loads: int, seconds: float
) -> PushReport:
    delivery, destination = context.delivery, context.delivery.destination
    statuses = [each.status for each in streams.values()]
    return PushReport(
        connection=delivery.connection.name,
        status=overall_status(statuses, cancelled=delivery.options.cancel.is_set(), connector_failed=False),
        run_id=delivery.lease.run_id,
        recovered_loads=recovered_loads,
        streams=streams,
        seconds=seconds,
        connector=destination.identity,
        is_plan=context.request.only_plans,
        warnings=tuple(destination.warnings),
        notes=tuple(destination.notes),
        log=str(context.log.path),
        partition=context.request.partition_key or "",
    )


def _check_no_sync(store: StateStore, name: str) -> None:
    """Raises ConfigError if the states under this name are those of a sync: a push would put its own in their place."""
    if store.protocol(name) in ("", PUSH):
        return
    codec = state_codec_named(PUSH)
    if any(PushPosition.of(codec.value(stored.state)) is None for stored in store.states(name, partition=None)):
        raise ConfigError(
            f"pushing connection {name}",
            "a sync has this name, and the states of its streams are stored under it",
            remedy=f"Give one of them another `name`, or forget the sync: airbyte-proto state reset {name}.",
        )


def _begun(store: StateStore, lease: Lease, streams: Collection[StreamId], partition: str) -> int:
    """Notes in the store that the push has begun. Returns its sync id."""
    store.note_protocol(lease, PUSH)
    run = store.begin_run(lease, refreshed=(), streams=list(streams), partition=partition)
    reach("run.begun")
    return run.sync_id


def _checked_destination(
    engine: Engine, connection: Connection, log: RunLog, streams: Collection[StreamId]
) -> tuple[Destination, Mapping[StreamId, ConfigError]]:
    """Returns the destination, with the config that it wrote back, and which of these streams it does not take. Raises
    ConfigError if it takes none."""
    destination = engine.destination(connection, log)
    destination.use_stored_config(engine.store)
    # Before its config: that of a destination does not fit a source.
    _raise_if_none_is_left(refused_by_spec(destination), streams)
    destination.check_config()
    refused = refused_streams(destination, streams)
    _raise_if_none_is_left(refused, streams)
    return destination, refused


def _raise_if_none_is_left(refused: Mapping[StreamId, ConfigError], streams: Collection[StreamId]) -> None:
    if streams and all(stream in refused for stream in streams):
        raise next(refused[stream] for stream in streams)


def _chosen(connection: Connection, request: PushRequest) -> Mapping[StreamId, PushOptions]:
    """The streams to push. Raises ConfigError for a connection without a push, and for a stream that it has not."""
    doing = f"pushing connection {connection.name}"
    if connection.push is None:
        kind = "relay" if connection.to is not None else "sync into tables"
        option = " --retry-rejected" if connection.to is not None and request.retries_rejected else ""
        remedy = f"It is a {kind}: run `airbyte-proto sync {connection.origin or connection.name}{option}`."
        raise ConfigError(doing, "it has no `push`", remedy=remedy)
    known = {StreamId.of(name): options for name, options in connection.push.items()}
    if request.streams is None:
        return known
    chosen = {}
    for name in request.streams:
        found = streams_named(name, known)
        if not found:
            raise ConfigError(doing, f"there is no stream {name}", remedy=f"It has {', '.join(map(str, known))}.")
        chosen.update({stream: known[stream] for stream in found})
    return chosen


def _check_landed(connection: Connection, request: PushRequest, streams: Collection[StreamId]) -> None:
    """Raises ConfigError where a number of rows is named, and nobody knows of which stream."""
    if request.unknown_landed is not None and len(streams) > 1:
        raise ConfigError(
            f"pushing connection {connection.name}",
            f"{request.unknown_landed.landed:,} rows are said to have landed, of one of {len(streams)} streams",
            remedy="Name the stream: `--streams`.",
        )


def refused_streams(
    destination: Destination, streams: Collection[StreamId], *, fresh: bool = False
) -> Mapping[StreamId, ConfigError]:
    """Which of these streams the destination does not take, by its spec, and by its catalog if it has one. A `fresh`
    catalog is asked for, else the last one counts."""
    connection = destination.connection
    wanted = {
        stream: WantedStream(
            PushedStream(stream, {}, options.mode, options.key or ()),
            options.options,
            f"options of stream {name} in connection {connection.name}",
        )
        for name, options in (connection.push or {}).items()
        if (stream := StreamId.of(name)) in streams
    }
    return _as_errors(connection, refusals(destination, wanted, fresh=fresh))


def refused_by_spec(destination: Destination) -> Mapping[StreamId, ConfigError]:
    """The streams that the destination does not take by its spec: all of them if it is a source."""
    spec, connection = destination.spec(), destination.connection
    found = {
        StreamId.of(name): _refusal(destination.protocol, spec, options)
        for name, options in (connection.push or {}).items()
    }
    return _as_errors(connection, {stream: reason for stream, reason in found.items() if reason is not None})


def _as_errors(connection: Connection, found: Mapping[StreamId, str | ConfigError]) -> Mapping[StreamId, ConfigError]:
    doing = f"pushing connection {connection.name}"
    return {
        stream: reason if isinstance(reason, ConfigError) else ConfigError(doing, reason, stream=str(stream))
        for stream, reason in found.items()
    }


def _refusal(protocol: DestinationProtocol, spec: SpecEvent, options: PushOptions) -> str | None:
    if options.removes_by_version and not protocol.has_versions:
        return f"removals: version is for Singer targets, and {protocol.name} has no versions: leave it out"
    return protocol.refusal(spec, options.mode)


def _traced(
    context: PushContext,
    stream: StreamId,
    options: PushOptions,
    telemetry: RunTelemetry,
    refusal: ConfigError | None,
) -> PushedStreamReport:
    with telemetry.delivery(context.delivery.connection.name, stream):
        senders = RunSenders(context.enrichers, destination=context.delivery.destination.metrics)
        report = _pushed(context, stream, options, refusal)
        report = msgspec.structs.replace(report, metrics=senders.of_stream(stream))
        telemetry.delivered(report)
    return report


def _pushed(
    context: PushContext, stream: StreamId, options: PushOptions, refusal: ConfigError | None
) -> PushedStreamReport:
    """Pushes one stream. What goes wrong is in its report: the other streams go on."""
    origin = options.table or "a query"
    if context.delivery.options.cancel.is_set():
        return PushedStreamReport(status=SyncStatus.CANCELLED, origin=origin)
    try:
        if refusal is not None:
            raise refusal
        return push_stream(context, stream, options)
    except StateConflict:
        raise
    except Exception as failed:  # noqa: BLE001 - it must not take the other streams down
        error = failed if isinstance(failed, ProtoError) else _unforeseen(stream, failed)
        text = context.delivery.destination.mask.text(str(error))
        context.log.write("ERROR", text)
        # Those of an earlier run are there or not, whatever became of this one.
        unknown = rows_left_unknown(context, stream)
        return PushedStreamReport(
            status=status_of((error,), unknown),
            origin=origin,
            sent=unknown,
            unknown=unknown,
            error=text,
            retryable=error.retryable and not unknown,
        )


def _unforeseen(stream: StreamId, error: Exception) -> InternalError:
    effect = "rows that were not acknowledged are sent by the next push"
    return stream_fault(str(stream), error, "pushing its rows", effect)
