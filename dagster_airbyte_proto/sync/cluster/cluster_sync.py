"""Runs syncs on executors, as one Spark job with a task for each, and waits for their ends."""

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import uuid4

import msgspec

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import Cancelled, ConnectorError
from dagster_airbyte_proto.launchers.permissions import parse_variables
from dagster_airbyte_proto.sync.cluster.channel import Channel
from dagster_airbyte_proto.sync.cluster.connector_files import SentFile, SyncFiles
from dagster_airbyte_proto.sync.cluster.executor_sync import ExecutorSync
from dagster_airbyte_proto.sync.cluster.sync_order import SettingsOfSync, SyncOrder, TablesOfDriver
from dagster_airbyte_proto.sync.cluster.sync_task import run_sync_task
from dagster_airbyte_proto.sync.cluster.values import from_remote
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.leased_sync import FinishedSync, SyncOptions
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from dagster_airbyte_proto.tables.writer import SupportsBranches, SupportsKeyLookup

_POLL_SECONDS = 0.2
_SILENT_SECONDS = 15.0
"""A cancelled task that is silent for so long is killed. One that speaks is committing what a state covers."""


def sync_on_executor(
    engine: Engine, connection: Connection, request: SyncRequest, sync_options: SyncOptions
) -> FinishedSync:
    """Runs one sync as a task of the engine's Spark session. Raises what `sync_leased` would raise here."""
    files = SyncFiles(connection, {})
    order = order_of(engine, connection, files.by_path, request, sync_options)
    sync = ExecutorSync(engine, connection.name, order, files, sync_options)
    failure = run_on_executors(engine, [sync], sync_options.options)
    return finished(sync, failure)


def run_on_executors(engine: Engine, syncs: Sequence[ExecutorSync], options: RunOptions) -> str:
    """Runs these syncs and returns when all have ended. Returns the error of the Spark job, or "".

    Cancelling is up to the tasks, which hear of it. The job is ended only when they are silent. For a cluster that is
    gone, Spark would wait for ever: so this wait has an end. Of several syncs, none runs in the last attempt of its
    task: if that fails, Spark gives up the whole job.
    """
    tasks = engine.tasks
    tag = f"airbyte-proto-{uuid4().hex}"
    failures: list[str] = []
    began = time.monotonic()
    if len(syncs) > 1:
        for sync in syncs:
            sync.last_attempt = tasks.last_attempt

    def run() -> None:
        try:
            failures.append(tasks.run(partial(run_sync_task, accesses), len(syncs), tag))
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: the syncs without an end tell it
            failures.append(f"{type(error).__name__}: {error}")

    with Channel(*tasks.place) as channel:
        accesses = [channel.admit(sync) for sync in syncs]
        job = threading.Thread(target=run, name="executors", daemon=True)
        try:
            job.start()
            while job.is_alive():
                job.join(_POLL_SECONDS)
                if options.cancel.is_set() and all(
                    sync.outcome or sync.seconds_silent > _SILENT_SECONDS for sync in syncs
                ):
                    tasks.interrupt(tag)
                if lost := _lost(syncs, time.monotonic() - began, options.timeouts):
                    return lost
        finally:
            # No task works for a driver that has gone on.
            tasks.interrupt(tag)
    return failures[0] if failures else ""


def _lost(syncs: Sequence[ExecutorSync], waited: float, timeouts: Timeouts) -> str:
    """Returns why nothing more is to be expected of the cluster, or ""."""
    begun = [sync.seconds_silent for sync in syncs if sync.outcome is None and not math.isinf(sync.seconds_silent)]
    if begun and min(begun) > timeouts.startup_seconds:
        return f"no executor has called for {timeouts.startup_seconds:.0f} s"
    # Those that have ended called, too: the others may have waited for their cores.
    idle = min([waited, *(sync.seconds_silent for sync in syncs)])
    if not begun and idle > timeouts.heartbeat_seconds:
        return f"no executor has taken it for {timeouts.heartbeat_seconds:.0f} s"
    return ""


def finished(sync: ExecutorSync, failure: str) -> FinishedSync:
    """Returns how a sync ended. Raises the error that ended it before its connector ran, or that took its task away."""
    if sync.raised is not None:
        raise sync.raised
    outcome = sync.outcome
    doing = f"running connection {sync.name} on an executor"
    if outcome is None:
        # Cancelling ends the job, and Spark calls that a failure of it.
        if sync.was_cancelled_unbegun:
            raise Cancelled(doing, "it was cancelled before it began")
        raise ConnectorError(
            doing,
            f"its task ended without a report: {failure or 'Spark says that it went well'}",
            remedy="Nothing is lost: the next sync ends the loads that it announced, and goes on from there.",
            retryable=True,
        )
    if outcome.error is not None:
        raise from_remote(outcome.error)
    assert outcome.report is not None
    # The executor's own log is on its machine.
    return FinishedSync(msgspec.structs.replace(outcome.report, log=str(sync.log.path)), outcome.due)


def order_of(
    engine: Engine,
    connection: Connection,
    files: Mapping[str, SentFile],
    request: SyncRequest,
    sync_options: SyncOptions,
) -> SyncOrder:
    tables, options = engine.tables, sync_options.options
    return SyncOrder(
        connection.for_another_process(os.environ),
        files,
        parse_variables(_variables(connection), os.environ),
        request,
        SettingsOfSync.of(engine.settings),
        TablesOfDriver(
            tables.abilities,
            tables.storage,
            tables.storage.source is not None,
            isinstance(tables, SupportsKeyLookup),
            isinstance(tables, SupportsBranches),
        ),
        options.run_id or "",
        options.attempt,
        options.lease_wait_seconds,
        options.timeouts,
        tuple(map(str, engine.hidden_files())),
    )


def _variables(connection: Connection) -> list[str]:
    connectors = [connection.connector, *(each.connector for each in connection.enrichments.values())]
    return [name for connector in connectors for name in connector.variables if "=" not in name]
