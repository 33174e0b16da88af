"""Syncs many connections at once, as the tasks of one Spark job."""

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.sync.cluster.cluster_sync import finished, order_of, run_on_executors
from dagster_airbyte_proto.sync.cluster.connector_files import SyncFiles
from dagster_airbyte_proto.sync.cluster.executor_sync import ExecutorSync
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.leased_sync import SyncOptions, compacted_report
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, failed_report
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.telemetry.telemetry_choice import installed_telemetry


class _Named(NamedTuple):
    """A connection, and whether others have its name."""

    connection: Connection
    is_shared: bool


class _Begun(NamedTuple):
    """One of the syncs: with its tasks' side, or with the error by which it cannot begin."""

    connection: Connection
    sync_options: SyncOptions
    sync: ExecutorSync | None
    error: ProtoError | None


def sync_connections(engine: Engine, connections: Sequence[Connection], options: RunOptions) -> list[SyncReport]:
    """Syncs each connection, and returns a report of each, in their order. One that fails takes no other along.

    A connection fails before it begins if another one has its name, or if its destination is no table.
    """
    engine.check_has_jvm("syncing many connections", "tasks on executors")
    with ExitStack() as opened:
        contents: dict[str, bytes] = {}
        names = Counter(each.name for each in connections)
        begun = [_begin(engine, _Named(each, names[each.name] > 1), options, contents, opened) for each in connections]
        syncs = [each.sync for each in begun if each.sync is not None]
        failure = run_on_executors(engine, syncs, options) if syncs else ""
        return [_report(engine, each, failure, options.cancel) for each in begun]


def _check(named: _Named) -> None:
    doing, connection = "syncing many connections", named.connection
    if named.is_shared:
        found = f"more than one connection has the name {connection.name}"
        raise ConfigError(doing, found, remedy="Give each file a `name` of its own.")
    if connection.push is not None or connection.to is not None:
        raise ConfigError(doing, f"{connection.name} has a destination that is no table", remedy="Run it by itself.")


def _begin(engine: Engine, named: _Named, options: RunOptions, contents: dict[str, bytes], opened: ExitStack) -> _Begun:
    connection, run_id = named.connection, new_run_id()
    log = opened.enter_context(
        RunLog(
            engine.settings.logs_folder / connection.name, run_id, on_line=options.progress_listener.connector_logged
        )
    )
    sync_options = SyncOptions(options._replace(run_id=run_id), log, installed_telemetry())
    try:
        _check(named)
        files = SyncFiles(connection, contents)
        order = order_of(engine, connection, files.by_path, SyncRequest(), sync_options)
        sync = ExecutorSync(engine, connection.name, order, files, sync_options)
        return _Begun(connection, sync_options, sync, None)
    except ProtoError as error:
        return _Begun(connection, sync_options, None, error)


def _report(engine: Engine, begun: _Begun, failure: str, cancel: threading.Event) -> SyncReport:
    options, log, telemetry = begun.sync_options
    try:
        if begun.sync is None:
            raise begun.error or AssertionError
        ended = finished(begun.sync, failure)
    except ProtoError as error:
        report = failed_report(begun.connection.name, options.run_id or "", error, str(log.path))
    else:
        report = compacted_report(engine, ended, log, cancel)
        telemetry.ended(report)
    log.note_end(report.status, report.error_lines())
    return report
