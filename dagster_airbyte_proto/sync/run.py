"""Runs one sync of a connection: here, or as a task of a Spark cluster, as the connection says (`run_on`).

A sync is run under its lease (`leased_sync.py`). After that, and without the lease, the tables that have grown slow to
read are compacted.
"""

import threading
from collections.abc import Sequence

from dagster_airbyte_proto.checkpoints.slot import slot_by_hand
from dagster_airbyte_proto.checkpoints.store import LoggedLoad
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.leased_sync import SyncOptions, compacted_report, sync_leased
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.relay.relay_engine import check_needs_no_destination
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.telemetry.run_telemetry import RunIdentity
from dagster_airbyte_proto.sync.telemetry.telemetry_choice import installed_telemetry

_EVERYTHING = SyncRequest()


def sync_connection(
    engine: Engine, connection: Connection, request: SyncRequest = _EVERYTHING, options: RunOptions | None = None
) -> SyncReport:
    """Runs one sync and returns its report. Raises ProtoError for what goes wrong before the connector runs."""
    on_executor = (connection.run_on or engine.settings.run_on) == "executors" and connection.to is None
    if on_executor:
        engine.check_has_jvm(f"syncing connection {connection.name} on an executor", "tasks on executors")
    if connection.to is None:
        engine.check_session()
        engine.check_staging()
    options = options or RunOptions(threading.Event())
    run_id = options.run_id or new_run_id()
    telemetry = installed_telemetry()
    with (
        telemetry.sync(RunIdentity(connection.name, run_id, request.partition, options.attempt)),
        RunLog(
            engine.settings.logs_folder / connection.name, run_id, on_line=options.progress_listener.connector_logged
        ) as log,
    ):
        measured = options._replace(progress_listener=telemetry.following(options.progress_listener), run_id=run_id)
        sync_options = SyncOptions(measured, log, telemetry)
        if on_executor:
            # TLS and the like, which other syncs do without.
            from dagster_airbyte_proto.sync.cluster.cluster_sync import sync_on_executor

            finished = sync_on_executor(engine, connection, request, sync_options)
        else:
            finished = sync_leased(engine, connection, request, sync_options)
        report = compacted_report(engine, finished, log, options.cancel)
        telemetry.ended(report)
        log.note_end(report.status, report.error_lines())
    return report


def recover_connection(engine: Engine, name: str, partition: str = "") -> Sequence[LoggedLoad]:
    """Recovers a connection without a sync: ends the loads that dead runs announced, and removes the files that they
    left. With `partition`, only those of runs of it: runs of others may go on.

    Returns the ended loads. Raises ConfigError for a load that goes to a destination."""
    check_needs_no_destination(engine.store, name)
    slot = slot_by_hand(partition)._replace(recovers=True)
    with (
        acquire_lease(engine.store, name, new_run_id(), engine.settings.lease_seconds, slot=slot) as renewal,
        Committer(engine.store, lambda: engine.tables, renewal.lease) as committer,
    ):
        ended = [engine.store.load(each.load.load_id) for each in committer.recover()]
    return [each for each in ended if each is not None]
