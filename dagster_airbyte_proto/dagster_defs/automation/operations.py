"""Jobs for manual work on a connection: reset, rollback, refresh and table care, as on the command line.

Each job waits for the connection's lease, so it never collides with a sync. Only table care takes no lease: it can run
beside a sync, and on a schedule.
"""

from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import NamedTuple

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.resolve_load import ResolveConfig, resolve_op
from dagster_airbyte_proto.dagster_defs.automation.single_table import (
    TableRollbackConfig,
    chosen_tables,
    table_rollback_op,
)
from dagster_airbyte_proto.dagster_defs.automation.state_changes import (
    STREAMS_HELP,
    ResetConfig,
    RollbackConfig,
    check_connection_is_known,
    reset_op,
    rollback_op,
)
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition, definition_for
from dagster_airbyte_proto.dagster_defs.definitions.connection_step import default_pool
from dagster_airbyte_proto.dagster_defs.deployment import run_deployment
from dagster_airbyte_proto.dagster_defs.engines import opened_engine, table_io_manager
from dagster_airbyte_proto.dagster_defs.failures import (
    INTERRUPTS,
    cancellation,
    doing_the_job,
    fail_if_incomplete,
    failing_the_step,
)
from dagster_airbyte_proto.dagster_defs.push.retry_rejected import (
    PushedConnection,
    RetryRejectedConfig,
    retry_rejected_op,
)
from dagster_airbyte_proto.dagster_defs.step import stream_metadata
from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync, StreamsCommitted, SyncEnded
from dagster_airbyte_proto.sync.commit_listener import CommitListener
from dagster_airbyte_proto.sync.maintenance.care import CareOptions, CareResult, care_for_table, tables_there
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, resent_text
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.tables.formats import care_of
from dagster_airbyte_proto.tables.writer import TableWriter

_POLL_SECONDS = 0.5
_STOP_SECONDS = 8.0
_DAY_SECONDS = 86400.0


class RefreshConfig(dg.Config):
    """The form of a refresh: these streams are read again. Old rows stay readable until the new ones are complete."""

    streams: list[str] = Field(default_factory=list, description=STREAMS_HELP)
    merge: bool = Field(default=False, description="Keep the old rows, and append to them or upsert by key.")


class ResendConfig(dg.Config):
    """The form of a retry of a relay: the rejected records of these streams are sent again, then they are synced."""

    streams: list[str] = Field(default_factory=list, description=STREAMS_HELP)
    unknown: bool = Field(
        default=False,
        description="Send the records again too of which nobody knows whether they arrived. Some may then be there"
        " twice.",
    )


class CareConfig(dg.Config):
    """The form of table care."""

    tables: list[str] = Field(
        default_factory=list, description="Tables as namespace.table; empty for all that the connection loads."
    )
    compact: bool = Field(default=True, description="Compact small files and apply deletes.")
    expire: bool = Field(default=True, description="Expire old snapshots and delete files of dead loads.")
    keep_days: float = Field(default=7.0, description="Keep snapshots of these days for rollbacks.", ge=0, le=36_500)
    orphans_after_days: float = Field(
        default=3.0, description="Delete files that no snapshot uses after this many days.", ge=1 / 24, le=36_500
    )


class _Keys(NamedTuple):
    connector: str
    io_manager: str


def build_connection_jobs(
    connection: Connection,
    *,
    assets: dg.AssetsDefinition | None = None,
    connector_key: str = "connector",
    io_manager_key: str = "io_manager",
) -> list[dg.JobDefinition]:
    """Builds the jobs `reset_<name>`, `rollback_<name>`, `refresh_<name>`, `care_<name>` and `resolve_load_<name>`,
    each launched with a form.

    The form of `care_<name>` has a default for every field, so a schedule can launch it unchanged. If the connection's
    `assets` are given, a refresh is planned from their catalog and records a materialization of each stream.

    A connection with a `push` has `retry_rejected_<name>` and `reset_push_<name>` in the place of refresh and reset.
    Its rollback and its care are those of the tables that remember what was delivered. One with `to` has
    `retry_rejected_<name>` beside them, one with tables `table_rollback_<name>`.
    """
    keys, name = _Keys(connector_key, io_manager_key), connection.name
    definition = definition_for(connection, assets)
    # For jobs that take as long as a sync: runs of both wait in the queue. They give up waiting for a lease.
    pool = (assets.op.pool if assets is not None else None) or default_pool(connection)
    return [
        *(
            _sync_jobs(definition, keys, pool)
            if connection.push is None
            else _push_jobs(PushedConnection(definition, assets, pool, *keys))
        ),
        _job(
            f"rollback_{name}",
            "Rolls states and tables back to an earlier version.",
            rollback_op(name, *keys),
            RollbackConfig(),
        ),
        _job(
            f"care_{name}", "Compacts the tables, and expires old snapshots and files.", _care(name, keys), CareConfig()
        ),
        _job(
            f"resolve_load_{name}",
            "Ends a load of which nobody knows whether it landed, as you say.",
            resolve_op(name, *keys),
            ResolveConfig(),
        ),
    ]


def _sync_jobs(definition: ConnectionDefinition, keys: _Keys, pool: str) -> Iterator[dg.JobDefinition]:
    name = definition.connection.name
    yield _job(
        f"reset_{name}",
        "Deletes the states of streams: the next sync reads them from the start.",
        reset_op(name, keys.connector),
        ResetConfig(),
    )
    yield _job(
        f"refresh_{name}",
        "Reads streams again from the start, as a new generation.",
        _refresh(definition, keys, pool),
        RefreshConfig(),
    )
    if definition.connection.to is None:
        yield _job(
            f"table_rollback_{name}",
            "Rolls one table back whose rows no state covers.",
            table_rollback_op(name, *keys),
            TableRollbackConfig(),
        )
    else:
        yield _job(
            f"retry_rejected_{name}",
            "Sends the records again that the destination rejected, then syncs.",
            _resend(definition, keys, pool),
            ResendConfig(),
        )


def _push_jobs(pushed: PushedConnection) -> Iterator[dg.JobDefinition]:
    name = pushed.definition.connection.name
    yield _job(
        f"retry_rejected_{name}",
        "Sends the rejected rows again, with what else is new.",
        retry_rejected_op(pushed),
        RetryRejectedConfig(),
    )
    yield _job(
        f"reset_push_{name}",
        "Forgets what was delivered: the next push sends all rows of these streams again.",
        reset_op(name, pushed.connector_key),
        ResetConfig(),
    )


def _job(name: str, description: str, op: dg.OpDefinition, form: dg.Config) -> dg.JobDefinition:
    """A job of one op. Its Launchpad shows the form with every default."""
    graph = dg.GraphDefinition(name=name, description=description, node_defs=[op])
    return graph.to_job(config={"ops": {op.name: {"config": form.model_dump()}}})


def _refresh(definition: ConnectionDefinition, keys: _Keys, pool: str) -> dg.OpDefinition:
    @dg.op(name=f"{definition.connection.name}_refresh", pool=pool, required_resource_keys=set(keys))
    def refresh(context: dg.OpExecutionContext, config: RefreshConfig) -> None:
        request = SyncRequest(config.streams or None, refresh=True, catalog=definition.catalog, merges=config.merge)
        _sync(context, definition, keys, request)

    return refresh


def _resend(definition: ConnectionDefinition, keys: _Keys, pool: str) -> dg.OpDefinition:
    @dg.op(name=f"{definition.connection.name}_retry_rejected", pool=pool, required_resource_keys=set(keys))
    def retry_rejected(context: dg.OpExecutionContext, config: ResendConfig) -> None:
        request = SyncRequest(
            config.streams or None, catalog=definition.catalog, retries_unknown=config.unknown, retries_rejected=True
        )
        _sync(context, definition, keys, request)

    return retry_rejected


def _sync(context: dg.OpExecutionContext, definition: ConnectionDefinition, keys: _Keys, request: SyncRequest) -> None:
    connector = getattr(context.resources, keys.connector)
    with failing_the_step():
        tables = _tables(context, keys, definition.connection.name)

    def sync(cancel: Event, listener: CommitListener) -> SyncReport:
        options = RunOptions(
            cancel, commit_listener=listener, run_id=context.run_id, lease_wait_seconds=connector.lease_wait_seconds
        )
        with opened_engine(connector, tables, partial(run_deployment, context)) as engine:
            return sync_connection(engine, definition.connection, request, options)

    _run_to_end(context, definition, BackgroundSync(sync))


def _care(name: str, keys: _Keys) -> dg.OpDefinition:
    @dg.op(name=f"{name}_care", required_resource_keys=set(keys))
    def care(context: dg.OpExecutionContext, config: CareConfig) -> None:
        connector = getattr(context.resources, keys.connector)
        with doing_the_job(f"care of {name}"), opened_engine(connector, _tables(context, keys, name)) as engine:
            check_connection_is_known(engine.store, name)
            options = CareOptions(
                compact=config.compact,
                keep_seconds=config.keep_days * _DAY_SECONDS if config.expire else None,
                orphan_seconds=config.orphans_after_days * _DAY_SECONDS,
            )
            table_care, errors = care_of(engine.tables), []
            names = tables_there(engine.tables, engine.store.loaded_tables(name), context.log.info)
            for table in chosen_tables(names, config.tables):
                done = care_for_table(engine.store, table_care, table, options)
                context.log.info(_care_text(done))
                errors += [done.error] if done.error else []
            # The tables after a failed one are cared for all the same; the first error then fails the step.
            if errors:
                raise errors[0]

    return care


def _care_text(done: CareResult) -> str:
    parts = [
        f"{done.compacted.rewritten_files} files rewritten into {done.compacted.written_files}, "
        f"{done.compacted.removed_delete_files} delete files removed"
        if done.compacted
        else "",
        f"{done.cleanup.snapshots} snapshots and {len(done.cleanup.orphans)} files that nothing needs removed"
        if done.cleanup
        else "",
        f"failed: {done.error}" if done.error else "",
    ]
    return f"{done.table}: {'; '.join(filter(None, parts))}"


def _run_to_end(
    context: dg.OpExecutionContext, definition: ConnectionDefinition, background: BackgroundSync[SyncReport]
) -> None:
    """Runs a sync to its end and records its streams. The step's main thread only waits, because Terminate can
    interrupt it at any moment."""
    keys = {stream: key for key, stream in definition.streams.items()}
    background.start()
    try:
        while not isinstance(message := background.next_message(_POLL_SECONDS), SyncEnded):
            if isinstance(message, StreamsCommitted):
                for each in message.streams:
                    if each.stream in keys:
                        key = keys[each.stream]
                        context.log_event(stream_metadata.unselected_materialization(key, each, context.run_id))
                background.accept()
    except INTERRUPTS:
        raise cancellation(definition.connection.name, None) from None
    finally:
        background.stop(_STOP_SECONDS)
    if message.error is not None:
        with failing_the_step():
            raise message.error
    if message.report is not None:
        for name, stream in message.report.streams.items():
            context.log.info(f"{name}: {stream.status.value}, {stream.committed} rows in {stream.table}")
            if stream.resent is not None:
                context.log.info(f"{name}: {resent_text(stream.resent)}")
        for warning in message.report.warnings:
            context.log.warning(warning)
        fail_if_incomplete(message.report)


def _tables(context: dg.OpExecutionContext, keys: _Keys, name: str) -> TableWriter:
    return table_io_manager(context.resources, keys.io_manager, name).tables({"dagster-run": context.run_id})
