"""The job `retry_rejected_<connection>`: sends the rejected rows of a push again, as `push --retry-rejected` does."""

from functools import partial
from threading import Event
from typing import NamedTuple

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.deployment import run_deployment
from dagster_airbyte_proto.dagster_defs.engines import opened_engine, table_io_manager
from dagster_airbyte_proto.dagster_defs.failures import failing_the_step
from dagster_airbyte_proto.dagster_defs.partitions import slice_of
from dagster_airbyte_proto.dagster_defs.push.push_metadata import push_metadata
from dagster_airbyte_proto.dagster_defs.push.step import (
    PushWait,
    cancelled_push,
    fail_unless_pushed,
    source_table,
)
from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import BY_KEY
from dagster_airbyte_proto.sync.commit_listener import CommitListener
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.push.push_context import PushRequest, landed_of
from dagster_airbyte_proto.sync.push.run import push_connection
from dagster_airbyte_proto.sync.push_report import PushReport
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run_options import RunOptions

_STOP_SECONDS = 1.0


class RetryRejectedConfig(dg.Config):
    """The form of a retry: these streams are pushed, and their rejected rows are sent again."""

    streams: list[str] = Field(
        default_factory=list, description="Names of streams; empty for all that remember their rejected rows."
    )
    partition: str = Field(default="", description="The key of a partition, for assets that have partitions.")
    unknown: bool = Field(
        default=False,
        description="Send the rows again too of which nobody knows whether they arrived. Some may then be there twice.",
    )
    unknown_landed: str = Field(
        default="",
        description="N/M: of the M rows that `airbyte-proto push unknown` lists the first N have arrived. Only the"
        " others are sent again.",
    )


class PushedConnection(NamedTuple):
    """The connection of the job, its pool, and the keys of its resources. `assets`, if any, get the push's events."""

    definition: ConnectionDefinition
    assets: dg.AssetsDefinition | None
    pool: str
    connector_key: str
    io_manager_key: str


def retry_rejected_op(pushed: PushedConnection) -> dg.OpDefinition:
    """Returns the op of the job."""
    connection = pushed.definition.connection

    @dg.op(
        name=f"{connection.name}_retry_rejected",
        pool=pushed.pool,
        required_resource_keys={pushed.connector_key, pushed.io_manager_key},
    )
    def retry_rejected(context: dg.OpExecutionContext, config: RetryRejectedConfig) -> None:
        connector = getattr(context.resources, pushed.connector_key)
        with failing_the_step():
            landed = landed_of(config.unknown_landed) if config.unknown_landed else None
            decides_unknown = config.unknown or landed is not None
            streams = (config.streams or None) if decides_unknown else _remembering(connection, config.streams)
            partition = _partition(pushed, config.partition)
            tables = table_io_manager(context.resources, pushed.io_manager_key, connection.name).tables(
                {"dagster-run": context.run_id}
            )
        request = PushRequest(
            streams=streams,
            retries_rejected=True,
            retries_unknown=config.unknown,
            partition=partition,
            unknown_landed=landed,
        )

        def run(cancel: Event, listener: CommitListener) -> PushReport:  # noqa: ARG001 - a push has no gate
            options = RunOptions(cancel, run_id=context.run_id, lease_wait_seconds=connector.lease_wait_seconds)
            with opened_engine(connector, tables, partial(run_deployment, context)) as engine:
                return push_connection(engine, connection, request, options)

        background = BackgroundSync(run)
        waiting = PushWait(background)
        try:
            report = waiting.report()
            if report is not None:
                _record(context, pushed, report)
            if waiting.is_interrupted:
                raise cancelled_push(connection.name)
            if report is not None:
                fail_unless_pushed(report)
        finally:
            background.stop(_STOP_SECONDS)

    return retry_rejected


def _remembering(connection: Connection, wanted: list[str]) -> list[str]:
    """The streams to push. Raises ConfigError for one whose rejected rows are remembered nowhere."""
    known = [name for name, each in (connection.push or {}).items() if each.changes_by in BY_KEY]
    lacking = [name for name in wanted if name not in known]
    if lacking or not known:
        raise ConfigError(
            f"sending the rejected rows of connection {connection.name} again",
            f"no rejected rows are remembered of {', '.join(lacking) or 'its streams'}",
            remedy=f"Streams with changes: diff or snapshots do. Here these are: {', '.join(known) or 'none'}.",
        )
    return wanted or known


def _partition(pushed: PushedConnection, key: str) -> Slice | None:
    """The partition of that key. Raises ConfigError where the assets have partitions and none is named."""
    partitions_def = pushed.assets.partitions_def if pushed.assets is not None else None
    if partitions_def is None:
        return Slice(key) if key else None
    if not key:
        name = pushed.definition.connection.name
        found = "its assets have partitions, and the form names none"
        raise ConfigError(f"sending the rejected rows of connection {name} again", found, remedy="Set `partition`.")
    return slice_of(partitions_def, key)


def _record(context: dg.OpExecutionContext, pushed: PushedConnection, report: PushReport) -> None:
    """Logs the numbers of each stream, and records a materialization of those that are complete and have an asset."""
    for name, stream in report.streams.items():
        context.log.info(
            f"{name}: {stream.status.value}, {stream.acknowledged:,} of {stream.sent:,} rows acknowledged,"
            f" {stream.rejected:,} rejected"
        )
    if pushed.assets is None:
        return
    partition = report.partition or None
    for key, stream_id in pushed.definition.streams.items():
        found = report.streams.get(str(stream_id))
        if found is not None and found.status is SyncStatus.COMPLETE:
            upstream = source_table(pushed.definition.connection, stream_id, pushed.assets, key)
            context.log_event(
                dg.AssetMaterialization(key, metadata=push_metadata(report, found, upstream), partition=partition)
            )
