"""Reads all of a connector's output into a prepared sync, with its loads committed beside it."""

from functools import partial
from typing import NamedTuple

from dagster_airbyte_proto.connection import DockerLaunch
from dagster_airbyte_proto.errors import InternalError, ProtoError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.sync.commit.commit_scheduler import CommitScheduler
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.preparation import PreparedSync
from dagster_airbyte_proto.sync.read.pull import Pull, PullContext
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.sync_context import SyncContext


class ReadOutcome(NamedTuple):
    """A reading that is over. `fatal` ended the sync as a whole."""

    pull: Pull
    fatal: ProtoError | None = None


def read_connector(context: SyncContext, plan: SyncPlan, prepared: PreparedSync) -> ReadOutcome:
    """Starts the connector and reads it to its end. Raises what goes wrong before it runs.

    No load, table or file is at work any more when this returns or raises.
    """
    context.options.progress_listener.run_started(context.lease.run_id, prepared.runs)
    pull = _pull(context, plan, prepared)
    connector: RunningConnector | None = None
    try:
        if not context.protocol.sends_schemas:
            prepared.targets.expect(prepared.runs)
        connector = context.source.connector.launch(context.protocol.read(plan.read_request))
        pull.run(connector)
    except InternalError:
        raise
    except ProtoError as error:
        if connector is None:  # It never ran, so there is nothing to report.
            raise
        return ReadOutcome(pull, error)
    finally:
        prepared.loader.shutdown()
        prepared.targets.close()
        prepared.stage.close()
    return ReadOutcome(pull)


def _pull(context: SyncContext, plan: SyncPlan, prepared: PreparedSync) -> Pull:
    scheduler = CommitScheduler(
        prepared.runs, (prepared.stage, prepared.ledger, prepared.loader), prepared.targets, context.profiles
    )
    may_read_files = not isinstance(context.source.connection.connector.launch, DockerLaunch)
    pull_context = PullContext(
        context.log,
        context.is_cancelled,
        context.save_config,
        context.options.progress_listener.progressed,
        prepared.schema_updates.apply,
        may_read_files,
        partial(_notify_commit_listener, context, plan, prepared),
        prepared.targets.start,
    )
    return Pull(context.protocol, prepared.runs, (prepared.stage, scheduler), pull_context, context.options.timeouts)


def _notify_commit_listener(context: SyncContext, plan: SyncPlan, prepared: PreparedSync) -> None:
    last = prepared.loader.last_landed
    parts = {part.stream: part for part in last.load.parts} if last else {}
    context.options.commit_listener.committed(
        [
            CommittedStream(
                stream,
                run.planned.table,
                run.report(context.protocol, context.source.mask, before_promotion=True),
                last.load.load_id if last and stream in parts else None,
                parts.get(stream),
                context.source.identity,
                run.planned,
                run.location,
                plan.read_request.sync_id,
                run.missing_columns,
            )
            for stream, run in prepared.runs.items()
            if run.status is SyncStatus.COMPLETE
        ]
    )
