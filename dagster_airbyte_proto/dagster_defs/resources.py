"""The Dagster resources that run a connection and hold its state."""

import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack
from functools import partial
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

import dagster as dg
from pydantic import PrivateAttr

from dagster_airbyte_proto.checkpoints.sql import sql_store
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition, definition_of
from dagster_airbyte_proto.dagster_defs.deployment import run_deployment
from dagster_airbyte_proto.dagster_defs.engines import (
    engine_settings,
    opened_engine,
    opened_store,
    table_io_manager,
)
from dagster_airbyte_proto.dagster_defs.failures import (
    cancellation,
    ending_by_interrupts,
    fail_if_blocked_before,
    failing_the_step,
)
from dagster_airbyte_proto.dagster_defs.partitions import slices_of
from dagster_airbyte_proto.dagster_defs.push.partition_pushes import PartitionPushes
from dagster_airbyte_proto.dagster_defs.push.push_progress import PushProgress
from dagster_airbyte_proto.dagster_defs.push.step import PushedAssets, PushEvents, PushStep, cancelled_push
from dagster_airbyte_proto.dagster_defs.step.backfill import Backfill
from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync
from dagster_airbyte_proto.dagster_defs.step.earlier_loads import EarlierLoads
from dagster_airbyte_proto.dagster_defs.step.materialization_builder import MaterializationBuilder
from dagster_airbyte_proto.dagster_defs.step.run_progress import RunProgress, step_key
from dagster_airbyte_proto.dagster_defs.step.sync_events import SyncedAssets, SyncEvent, SyncEvents, SyncEventStream
from dagster_airbyte_proto.dagster_defs.tables.table_metadata import RequestedMetadata
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit_listener import CommitListener
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SharedStatePolicy, Slice, SyncRequest
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push.run import push_connection
from dagster_airbyte_proto.sync.push_report import PushReport
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import RunOptions

# A terminated step has to be gone within ten seconds. A connector that ignores SIGTERM gets this share of them.
_STOP_GRACE_SECONDS = 3.0
_TEARDOWN_SECONDS = 10.0


# Else the run is green, for a stream without an event fails no step; or Dagster's error speaks of outputs.
_UNTAKEN = (
    "A step has called `sync` or `push` and taken none of its events, so nothing was synced or pushed. Write"
    " `yield from connector.sync(context)`."
)


class SqlStateStore(dg.ConfigurableResource[sql_store.SqlStore]):
    """The database that holds state: `sqlite:///path/state.db` or `postgresql://user:password@host/database`."""

    url: str

    def open(self) -> sql_store.SqlStore:
        """Opens the store; the caller closes it."""
        return sql_store.SqlStore(self.url)


class ConnectorResource(dg.ConfigurableResource["ConnectorResource"]):
    """Runs connections as steps.

    Without `state`, state is kept in `home`: by default the environment's `AIRBYTE_PROTO_HOME`, or else
    `.airbyte-proto` of the project, from the working directory upward. If another run holds the connection, a sync
    waits up to `lease_wait_seconds` for it. `shared_state` decides what happens when only some of the streams that
    share one state are selected: "refuse" fails, "whole" syncs the others too. After a sync, each table it wrote to is
    compacted if it has `compact_after_delete_files` delete files or `compact_after_small_files` small files; 0 means
    never. Past states, loads and reports are kept for `keep_history_days`; 0 means for ever, and else it is at least 7.
    `run_on` "executors" runs the connectors on the executors of the Spark session, unless a connection says otherwise.
    A settings file is not read.
    """

    state: SqlStateStore | None = None
    home: str = ""
    lease_seconds: float = 60.0
    lease_wait_seconds: float = 600.0
    progress_seconds: float = 10.0
    compact_after_delete_files: int = 4
    compact_after_small_files: int = 100
    keep_history_days: float = 365.0
    shared_state: str = SharedStatePolicy.REFUSE.value
    run_on: str = "driver"
    _running_syncs: list[BackgroundSync[Any]] = PrivateAttr(default_factory=list)
    _untaken: int = PrivateAttr(default=0)

    def sync(self, context: dg.AssetExecutionContext, connection: Connection | None = None) -> SyncEvents:
        """Returns the events of one sync of the selected streams, for the step to yield. Taking the first event starts
        the sync.

        `connection` replaces the one that the assets were made from, for a config that is only known at run time.
        """
        self._untaken += 1
        return SyncEvents(partial(self._events, context, connection))

    def push(self, context: dg.AssetExecutionContext, connection: Connection | None = None) -> PushEvents:
        """Returns the events of one push of the selected streams, for the step to yield. Taking the first event starts
        the push."""
        self._untaken += 1
        return self._pushed(context, connection)

    def _pushed(self, context: dg.AssetExecutionContext, connection: Connection | None) -> PushEvents:
        self._untaken -= 1
        with ending_by_interrupts(cancelled_push(_name(context, connection))):
            yield from self._push_events(context, connection)
            fail_if_blocked_before(context)

    def _push_events(self, context: dg.AssetExecutionContext, connection: Connection | None) -> PushEvents:
        with failing_the_step():
            definition = definition_of(context.assets_def)
            connection = connection or definition.connection
            wanted = _selected_assets(context, connection)
            io_manager = table_io_manager(context.resources, definition.io_manager_key, connection.name)
            slices = slices_of(context)
            with opened_store(self) as store:
                pushes = PartitionPushes(slices, store, connection.name, context.run.run_id)
            recorded = _recorded_assets(context) if pushes.is_retry else frozenset()
            selected = {
                key: definition.streams[key]
                for key in _upstream_first(context.assets_def, definition)
                if key in wanted and key not in recorded
            }
        if not selected:
            context.log.info("An earlier attempt of this run has pushed every selected stream.")
            return
        names = [str(stream) for stream in selected.values()]
        labels = {"dagster-run": context.run.run_id, "dagster-step": step_key(context)}
        deployment = partial(run_deployment, context)
        progress = RunProgress(context, interval_seconds=self.progress_seconds)

        def run(cancel: threading.Event, listener: CommitListener) -> PushReport:  # noqa: ARG001 - a push has no gate
            options = RunOptions(
                cancel,
                progress,
                run_id=context.run.run_id,
                lease_wait_seconds=self.lease_wait_seconds,
                attempt=context.retry_number + 1,
            )
            tables = io_manager.tables(labels)
            with opened_engine(self, tables, deployment, _STOP_GRACE_SECONDS) as engine:

                def push(partition: Slice | None, streams: Sequence[str]) -> PushReport:
                    request = PushRequest(streams=streams, partition=partition)
                    return push_connection(engine, connection, request, options)

                return pushes.run(names, push, cancel)

        background = BackgroundSync(run)
        self._running_syncs.append(background)
        pushed = PushedAssets(connection, definition, selected, io_manager, pushes)
        pushed_rows = PushProgress(context, self, connection.name, names)
        yield from PushStep(context, pushed, background, partial(pushed_rows.report, self.progress_seconds)).events()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Ends syncs that still run because their iterator was dropped, and tells of those that nobody has begun."""
        if self._untaken > 0 and context.log is not None:
            context.log.warning(_UNTAKEN)
        for background in self._running_syncs:
            background.stop(_TEARDOWN_SECONDS)

    def _events(
        self, context: dg.AssetExecutionContext, connection: Connection | None, requested: RequestedMetadata
    ) -> Iterator[SyncEvent]:
        self._untaken -= 1
        with ending_by_interrupts(cancellation(_name(context, connection), None)), ExitStack() as opened:
            with failing_the_step():
                store = opened.enter_context(opened_store(self))
                stream = self._event_stream(context, connection, store, requested)
            if stream is not None:
                yield from stream.events()
            fail_if_blocked_before(context)

    def _event_stream(
        self,
        context: dg.AssetExecutionContext,
        connection: Connection | None,
        store: sql_store.SqlStore,
        requested: RequestedMetadata,
    ) -> SyncEventStream | None:
        definition = definition_of(context.assets_def)
        connection = connection or definition.connection
        backfill = Backfill(slices_of(context), store, connection.name, context.run.run_id)
        assets = _synced_assets(context, connection, definition, backfill.completed_streams)
        if not assets.streams:
            context.log.info("An earlier attempt of this run has completed every selected stream.")
            return None
        progress = RunProgress(context, interval_seconds=self.progress_seconds)
        names = [str(stream) for stream in assets.streams.values()]
        partition_sync = _PartitionSync(
            context, connection, definition, self._shared_state_policy(), progress, self.lease_wait_seconds
        )
        io_manager = table_io_manager(context.resources, definition.io_manager_key, connection.name)
        earlier = EarlierLoads(store, connection.name)
        builder = MaterializationBuilder(context, definition, backfill, requested, earlier)
        labels = {"dagster-run": context.run.run_id, "dagster-step": step_key(context)}
        settings = engine_settings(self)

        def sync(cancel: threading.Event, listener: CommitListener) -> SyncReport:
            tables = io_manager.tables(labels)
            with Engine(
                settings,
                store=store,
                tables=tables,
                connector_options=ConnectorOptions(partial(run_deployment, context), _STOP_GRACE_SECONDS),
            ) as engine:
                return backfill.run(names, partial(partition_sync.sync, engine), cancel, listener)

        background = BackgroundSync(sync)
        self._running_syncs.append(background)
        return SyncEventStream(context, assets, background, progress, builder.build)

    def _shared_state_policy(self) -> SharedStatePolicy:
        try:
            return SharedStatePolicy(self.shared_state)
        except ValueError:
            raise ConfigError(
                "reading the config of ConnectorResource",
                f"shared_state is {self.shared_state!r}",
                remedy=f"Set it to {' or '.join(each.value for each in SharedStatePolicy)}.",
            ) from None


class _PartitionSync(NamedTuple):
    """Syncs one partition of a step; the fields are the same for all of its partitions."""

    context: dg.AssetExecutionContext
    connection: Connection
    definition: ConnectionDefinition
    shared: SharedStatePolicy
    progress: RunProgress
    lease_wait_seconds: float

    def sync(
        self,
        engine: Engine,
        partition: Slice | None,
        names: Sequence[str],
        cancel: threading.Event,
        listener: CommitListener,
    ) -> SyncReport:
        if partition is not None:
            self.context.log.info(f"Partition {partition.key}")
        order = {name: number for number, name in enumerate(names)}
        only = [stream for stream in self.definition.streams.values() if str(stream) in order]
        only.sort(key=lambda stream: order[str(stream)])
        request = SyncRequest(only=only, catalog=self.definition.catalog, shared_state=self.shared, slice=partition)
        options = RunOptions(
            cancel,
            self.progress,
            commit_listener=listener,
            run_id=self.context.run.run_id,
            lease_wait_seconds=self.lease_wait_seconds,
            attempt=self.context.retry_number + 1,
        )
        return sync_connection(engine, self.connection, request, options)


def _name(context: dg.AssetExecutionContext, connection: Connection | None) -> str:
    return context.assets_def.node_def.name if connection is None else connection.name


def _synced_assets(
    context: dg.AssetExecutionContext,
    connection: Connection,
    definition: ConnectionDefinition,
    complete: frozenset[str],
) -> SyncedAssets:
    selected = _selected_assets(context, connection)
    streams: dict[dg.AssetKey, StreamId] = {}
    unselected: dict[dg.AssetKey, StreamId] = {}
    for key in _upstream_first(context.assets_def, definition):
        stream = definition.streams[key]
        if key not in selected:
            unselected[key] = stream
        elif str(stream) not in complete:
            streams[key] = stream
    return SyncedAssets(connection.name, streams, unselected)


def _selected_assets(context: dg.AssetExecutionContext, connection: Connection) -> Set[dg.AssetKey]:
    """The assets that the run selects. Raises ConfigError if these are checks alone."""
    selected: Set[dg.AssetKey] = context.selected_asset_keys
    if selected:
        return selected
    raise ConfigError(
        f"running connection {connection.name}",
        "only checks are selected, and they are evaluated when their streams run",
        remedy="Materialize the assets of the checks.",
    )


def _recorded_assets(context: dg.AssetExecutionContext) -> Set[dg.AssetKey]:
    """The assets whose materialization an earlier attempt of this run has recorded."""
    logged = context.instance.all_logs(context.run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    events = [entry.dagster_event for entry in logged if entry.dagster_event]
    return {event.asset_key for event in events if event.asset_key}


def _upstream_first(assets: dg.AssetsDefinition, definition: ConnectionDefinition) -> Iterator[dg.AssetKey]:
    """The assets in the order of the definition, except that a stream comes after those a translator made it depend
    on."""
    upstream = {key: assets.asset_deps[key] & definition.streams.keys() for key in definition.streams}
    yield from TopologicalSorter(upstream).static_order()
