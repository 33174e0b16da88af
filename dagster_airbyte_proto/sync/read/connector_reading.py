"""Reads all of a connector's output into a prepared sync, with its loads committed beside it."""

import json
from typing import NamedTuple

from dagster_airbyte_proto.errors import InternalError, ProtoError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.protocols.conversation import encode_config
from dagster_airbyte_proto.sync.landing.commit_scheduler import CommitScheduler
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.read.preparation import PreparedSync
from dagster_airbyte_proto.sync.read.pull import Pull
from dagster_airbyte_proto.sync.sync_context import SyncContext


class ReadOutcome(NamedTuple):
    """A reading that is over. `fatal` ended it as a whole."""

    pull: Pull
    fatal: ProtoError | None = None


def read_connector(context: SyncContext, plan: SyncPlan, prepared: PreparedSync) -> ReadOutcome:
    """Starts the connector and reads it to its end. Raises what goes wrong before it runs, unless others run beside it.

    On return the last load has landed, and its states have not moved. No load, table or file is at work any more when
    this returns or raises.
    """
    scheduler = CommitScheduler(prepared.runs, prepared.steps, prepared.loader, prepared.targets, context.profiles)
    given_config = json.loads(encode_config(plan.read_request.config))
    pull = Pull(context, prepared, scheduler, given_config)
    connector: RunningConnector | None = None
    try:
        if not context.protocol.sends_schemas:
            prepared.targets.expect(prepared.runs)
        connector = context.source.connector.launch(context.protocol.read(plan.read_request))
        pull.run(connector)
    except InternalError:
        raise
    except ProtoError as error:
        if connector is None and not context.is_group:  # It never ran, so there is nothing to report.
            raise
        return ReadOutcome(pull, error)
    finally:
        close_prepared(prepared)
    return ReadOutcome(pull)


def close_prepared(prepared: PreparedSync) -> None:
    """Ends the commit, the tables and the files that are at work, and removes the files that no load has. May be called
    twice."""
    prepared.loader.shutdown()
    prepared.targets.close()
    prepared.stage.close()
