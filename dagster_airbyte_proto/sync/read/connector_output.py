"""Reads all of a connector's output into a prepared sync, with its loads committed beside it."""

from typing import NamedTuple

from dagster_airbyte_proto.errors import InternalError, ProtoError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.sync.commit.commit_scheduler import CommitScheduler
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.preparation import PreparedSync
from dagster_airbyte_proto.sync.read.commit_reporter import CommitReporter
from dagster_airbyte_proto.sync.read.pull import Pull
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
    scheduler = CommitScheduler(prepared, context.profiles)
    pull = Pull(context, prepared, scheduler, CommitReporter(context, plan, prepared))
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
