"""One sync from its lease to its report, in the process that stages its records: the driver, or an executor's task.

1. Acquire the lease, and recover what earlier runs left. A relay does so once it is known how records are shaped today.
2. Plan: choose the streams, check the config, number the run, decide which states and generations it continues.
   A relay then ends the loads of rejected records that earlier runs announced, and sends rejected records again, if
   that is requested.
3. Read: start the connector and stage its records, while loads are committed beside it. Several of its processes may
   read some of the streams each (`parallel`).
4. Report: write the report to the state store, release the lease.

An error of step 1, 2 or 4 is raised, and so is one that keeps the connector from starting. Any other of step 3 is in
the report, because some loads may be committed. The state store gets a report of each run that got its lease, also of
one that such an error ended. One that finds a push under its name gets none: the runs of that name are those of the
push.
"""

import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.slot import WHOLE, Slot
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.connection import PARTITIONS_AT_ONCE
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.loads.push import PushPosition
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
from dagster_airbyte_proto.sync.commit.auto_compact import DueTable, auto_compact, tables_due
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.commit.mounted_warehouse import check_is_mounted
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.transform_state import keep_shared
from dagster_airbyte_proto.sync.lease import LeaseWait, acquire_lease
from dagster_airbyte_proto.sync.plan.stream_groups import last_report
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.plan.stream_profiles import StreamProfiles
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan, plan_sync
from dagster_airbyte_proto.sync.read.preparation import open_tables_early
from dagster_airbyte_proto.sync.read.pull import Pull
from dagster_airbyte_proto.sync.read.stream_reading import StreamReading, read_streams, runs_in_order, shares_state
from dagster_airbyte_proto.sync.relay.announced_loads import goes_to_destination, recover_loads, recover_resends
from dagster_airbyte_proto.sync.relay.relay_engine import LeasedRun, destination_of_run, engine_of_run
from dagster_airbyte_proto.sync.relay.resend import Resent, check_retries, resend_rejections
from dagster_airbyte_proto.sync.report import (
    ConnectorReport,
    Seconds,
    SyncReport,
    SyncStatus,
    failed_report,
    overall_status,
    sum_of_lines,
)
from dagster_airbyte_proto.sync.run_end import end_run, failed_behind_streams, noting_failure
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.state_server.component_values import Kept, changed_values, source_changes
from dagster_airbyte_proto.sync.stream_run import StreamStates, nulled_texts, refused_report, stream_report
from dagster_airbyte_proto.sync.sync_context import SyncContext
from dagster_airbyte_proto.sync.telemetry.run_telemetry import RunTelemetry
from dagster_airbyte_proto.transforms.transform_choice import NO_ENRICHERS, Enrichers


class FinishedSync(NamedTuple):
    """A finished sync, whose lease is released, and the tables that it has left due to be compacted."""

    report: SyncReport
    due: tuple[DueTable, ...] = ()


class SyncOptions(NamedTuple):
    """The options of one sync, and what listens to it. `options` have a run id."""

    options: RunOptions
    log: RunLog
    telemetry: RunTelemetry


def sync_leased(
    engine: Engine, connection: Connection, request: SyncRequest, sync_options: SyncOptions
) -> FinishedSync:
    """Runs one sync under a lease of its own. Raises ProtoError for what goes wrong before the connector runs."""
    options, log, telemetry = sync_options
    check_retries(request, connection.name, is_relay=connection.to is not None)
    with (
        acquire_lease(
            engine.store,
            connection.name,
            options.run_id or "",
            engine.settings.lease_seconds,
            _lease_wait(options, log),
            slot=_slot(engine, connection, request),
        ) as renewal,
        ExitStack() as opened,
    ):
        reach("run.leased")
        _check_no_push(engine, connection)
        with _noting_failure(engine, renewal.lease, log, request):
            run = LeasedRun(options, renewal, log, telemetry.delivery_meter)
            destination = destination_of_run(engine, connection, log)
            enrichers = _enrichers(run, engine, connection)
            engine = engine_of_run(engine, destination, run, retries_unknown=request.retries_unknown)
            committer = Committer(
                engine.store, lambda: engine.tables, renewal.lease, partition=request.partition, telemetry=telemetry
            )
            opened.enter_context(committer)
            recovered = len(committer.recover(goes_to_destination) if destination else committer.recover())
            if not request.refresh:
                check_is_mounted(engine.store, connection.name, _refresh_command(connection, request))
            source = engine.source(connection, log, request.slice.template_values if request.slice else {})
            profiles = StreamProfiles(engine.store, renewal.lease, log)
            context = SyncContext(
                engine, source, request, options, renewal, committer, profiles, log, destination, enrichers
            )
        return _sync(context, recovered)


def _noting_failure(engine: Engine, lease: Lease, log: RunLog, request: SyncRequest) -> AbstractContextManager[None]:
    """Notes in the store why the run ended, if an error ends it in here."""

    def failed(error: ProtoError) -> SyncReport:
        report = failed_report(lease.connection, lease.run_id, error, str(log.path))
        return msgspec.structs.replace(
            report,
            partition=request.partition,
            shared_state=bool(last_report(engine.store, lease.connection).get("shared_state")),
        )

    return noting_failure(engine, lease, log, failed)


def _refresh_command(connection: Connection, request: SyncRequest) -> str:
    command = f"airbyte-proto sync {connection.name} --refresh"
    return f"{command} --partition {shlex.quote(request.slice.key)}" if request.slice else command


def _check_no_push(engine: Engine, connection: Connection) -> None:
    """Raises ConfigError if the states under this name are positions of a push: a source would take them for its."""
    name = connection.name
    if engine.store.protocol(name) != PUSH:
        return
    values = (state_codec_named(PUSH).value(stored.state) for stored in engine.store.states(name, partition=None))
    if any(PushPosition.of(value) for value in values):
        raise ConfigError(
            f"syncing connection {name}",
            "a push has this name, and the positions of its streams are stored under it",
            remedy=f"Give one of them another `name`, or forget the push: airbyte-proto state reset {name}.",
        )


def _enrichers(run: LeasedRun, engine: Engine, connection: Connection) -> Enrichers:
    if not connection.transforms:
        return NO_ENRICHERS
    # It takes a while to import.
    from dagster_airbyte_proto.sync.enrichment.stream_enrichment import enrichers_of_run

    return enrichers_of_run(engine, connection, run.log, run.renewal, run.options.cancel)


def compacted_report(engine: Engine, finished: FinishedSync, log: RunLog, cancel: threading.Event) -> SyncReport:
    """Compacts the tables that a finished sync has left due. Returns its report with what came of that."""
    result = auto_compact(engine, finished.due, log, cancel)
    warnings = (*finished.report.warnings, *result.warnings)
    return msgspec.structs.replace(finished.report, warnings=warnings, compacted=result.compacted)


def _lease_wait(options: RunOptions, log: RunLog) -> LeaseWait:
    return LeaseWait(options.lease_wait_seconds, options.cancel, partial(log.write, "NOTE"), options.clock)


def _slot(engine: Engine, connection: Connection, request: SyncRequest) -> Slot:
    """The part of the connection that the run needs for itself.

    A connector that rewrites its config hands tokens on from run to run: two at once would invalidate each other's.
    """
    if request.slice is None or connection.to is not None:
        return WHOLE
    rewrites_config = engine.store.stored_config(connection.name) is not None
    return Slot(request.partition, 1 if rewrites_config else connection.parallel or PARTITIONS_AT_ONCE)


def _sync(context: SyncContext, recovered_loads: int) -> FinishedSync:
    """The steps of one run that holds its connection."""
    started_at = time.monotonic()
    with _noting_failure(context.engine, context.lease, context.log, context.request):
        open_tables_early(context)
        recovered_loads += recover_loads(context)
        plan = plan_sync(context)
        recovered_loads += recover_resends(context, plan)
        resent = resend_rejections(context, plan)
        readings = read_streams(context, plan)
        report = _report(context, plan, readings, resent)
    latest = {stream: schema for each in readings for stream, schema in each.prepared.schema_updates.latest.items()}
    schemas = {**plan.stored_schemas, **latest}
    seconds = msgspec.structs.replace(report.seconds, total=time.monotonic() - started_at)
    report = msgspec.structs.replace(report, recovered_loads=recovered_loads, seconds=seconds)
    failed = partial(failed_behind_streams, report)
    with noting_failure(context.engine, context.lease, context.log, failed):
        if schemas != plan.stored_schemas:
            context.source.keep_stream_schemas(schemas.values())
        # If the store did not answer when the connector rewrote its config: the token in the old one may be invalid.
        context.source.save_config(context.store, context.lease)
        if report.status is SyncStatus.COMPLETE:
            kept = {scope: values for each in readings for scope, values in each.pull.kept.items()}
            # A value that the source only got is not its word: its destination may have put another one since.
            _keep_values(context, changed_values(plan.read_request.kept, kept))
    context.renewal.check()
    end_run(context.engine, context.lease, report, context.log)
    runs = runs_in_order(plan, [each.prepared for each in readings]).values()
    due = tables_due(runs, context.engine.settings.compact_after) if not context.destination else ()
    return FinishedSync(report, tuple(due))


def _report(
    context: SyncContext, plan: SyncPlan, readings: Sequence[StreamReading], resent: Mapping[StreamId, Resent]
) -> SyncReport:
    source, pulls = context.source, [each.pull for each in readings]
    runs = runs_in_order(plan, [each.prepared for each in readings]).values()
    states = StreamStates(context.protocol.states, len(runs))
    fatal = [each.fatal for each in readings if each.fatal is not None]
    streams = {
        **{str(planned.id): refused_report(planned, error, source.mask) for planned, error in plan.refused},
        **{
            str(run.planned.id): stream_report(run, states, source.mask, metrics=context.metrics(run.planned.id))
            for run in runs
        },
    }
    for stream, found in resent.items():
        streams[str(stream)] = found.in_report(streams[str(stream)], source.mask)
    statuses = [stream.status for stream in streams.values()]
    failed = bool(fatal) or any(each.errors or each.exit is None or not each.exit.ended_cleanly for each in pulls)
    loaders = [each.prepared.loader for each in readings]
    return SyncReport(
        connection=context.connection,
        status=overall_status(statuses, cancelled=any(each.was_cancelled for each in pulls), connector_failed=failed),
        run_id=context.lease.run_id,
        recovered_loads=0,
        streams=streams,
        loads=sum(each.committed_loads for each in loaders),
        lines=sum_of_lines([each.lines for each in pulls]),
        connector=_connector_report(source, pulls),
        seconds=Seconds(
            0.0,
            sum(each.seconds_waiting for each in pulls),
            sum(each.seconds_staging for each in pulls),
            sum(each.seconds_committing for each in loaders),
        ),
        error=source.mask.text(str(fatal[0])) if fatal else None,
        warnings=_warnings(context, readings),
        partition=context.request.partition,
        log=str(context.log.path),
        processes=len(readings),
        shared_state=shares_state(context, readings),
    )


def _connector_report(source: Source, pulls: Sequence[Pull]) -> ConnectorReport:
    """The end of the connector: of several processes, that of the first one that failed."""
    ended = next((each.exit for each in pulls if each.exit is None or not each.exit.ended_cleanly), pulls[0].exit)
    exits = [each.exit.seconds for each in pulls if each.exit is not None]
    return ConnectorReport(
        exit_code=ended.code if ended else None,
        seconds=max(exits, default=0.0),
        signal=ended.signal if ended else None,
        errors=tuple(source.mask.text(error) for each in pulls for error in each.errors),
        version=source.identity,
        metrics=source.metrics.of_run,
    )


def _warnings(context: SyncContext, readings: Sequence[StreamReading]) -> tuple[str, ...]:
    mask, error = context.source.mask, context.log.write_error
    of_readings = (warning for each in readings for warning in (*each.pull.warnings, *each.prepared.warnings))
    return (
        *context.profiles.warnings,
        *(mask.text(warning) for warning in dict.fromkeys(of_readings)),
        *((mask.text(f"the log is incomplete: {error}"),) if error else ()),
        *(text for each in readings for run in each.prepared.runs.values() for text in nulled_texts(run)),
        *(context.destination.warnings if context.destination else ()),
    )


def _keep_values(context: SyncContext, kept: Kept) -> None:
    """Keeps what connectors keep beside their states: it belongs to no rows, so it waited for the end of the run."""
    store, connection = context.engine.store, context.connection
    for asset, changes in source_changes(store, connection, kept) if kept else ():
        store.keep_values(context.lease, asset, changes)
    keep_shared(store, context.lease, context.enrichers)
