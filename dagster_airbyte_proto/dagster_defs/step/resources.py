"""The resources that a user names: what runs a connection, and where its state lives."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from graphlib import TopologicalSorter
from typing import NamedTuple

import dagster as dg
from pydantic import PrivateAttr

from dagster_airbyte_proto.checkpoints.sql import sql_store
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.definition import ConnectionDefinition, definition_of
from dagster_airbyte_proto.dagster_defs.deployment import deployment_of
from dagster_airbyte_proto.dagster_defs.engines import engine_settings, gives_tables, opened_store
from dagster_airbyte_proto.dagster_defs.partitions import slices_of
from dagster_airbyte_proto.dagster_defs.step.backfill import Backfill
from dagster_airbyte_proto.dagster_defs.step.background import Background
from dagster_airbyte_proto.dagster_defs.step.failures import failing_the_step
from dagster_airbyte_proto.dagster_defs.step.syncing import Following, SyncedAssets, SyncEvent, SyncEvents
from dagster_airbyte_proto.dagster_defs.step.telling import Telling
from dagster_airbyte_proto.dagster_defs.step.watching import RunWatcher, step_key
from dagster_airbyte_proto.dagster_defs.tables.table_facts import Asked
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.delivery import Delivery
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SharedState, Slice, Wanted
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import Terms, sync_connection

# Of the ten seconds in which a terminated step is to be gone, a connector that does not listen may take these.
_STOP_GRACE_SECONDS = 3.0
_TEARDOWN_SECONDS = 10.0


class SqlStateStore(dg.ConfigurableResource[sql_store.SqlStateStore]):
    """Where state lives: `sqlite:///path/state.db` or `postgresql://user:password@host/database`."""

    url: str

    def open(self) -> sql_store.SqlStateStore:
        """The store, for the caller to close."""
        return sql_store.SqlStateStore(self.url)


class ConnectorResource(dg.ConfigurableResource["ConnectorResource"]):
    """Runs connections as steps.

    Without `state` it lies in `home`, which is the environment's `AIRBYTE_PROTO_HOME` or else `.airbyte-proto`. A
    connection that another run holds is waited for `lease_wait_seconds`. `shared_state` says what a selection means
    that has only some of the streams that share one state: "refuse", or "whole", which syncs the others too. A table
    that a sync wrote to is compacted after it once it has so many delete files, or small files; 0 is never.
    """

    state: SqlStateStore | None = None
    home: str = ""
    lease_seconds: float = 60.0
    lease_wait_seconds: float = 600.0
    progress_seconds: float = 10.0
    compact_after_delete_files: int = 4
    compact_after_small_files: int = 100
    shared_state: str = SharedState.REFUSE.value
    _at_work: list[Background] = PrivateAttr(default_factory=list)

    def sync(self, context: dg.AssetExecutionContext, connection: Connection | None = None) -> SyncEvents:
        """The events of one sync of the selected streams, for the step to yield. It begins with the first one.

        `connection` takes the place of the one that the assets were made from, for a config that is only known now.
        """
        return SyncEvents(partial(self._events, context, connection))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - as Dagster calls it
        """Ends what an iterator that was thrown away may have left at work."""
        for work in self._at_work:
            work.stop(_TEARDOWN_SECONDS)

    def _events(
        self, context: dg.AssetExecutionContext, connection: Connection | None, asked: Asked
    ) -> Iterator[SyncEvent]:
        with ExitStack() as opened:
            with failing_the_step():
                store = opened.enter_context(opened_store(self))
                following = self._following(context, connection, store, asked)
            if following is not None:
                yield from following.events()

    def _following(
        self,
        context: dg.AssetExecutionContext,
        connection: Connection | None,
        store: sql_store.SqlStateStore,
        asked: Asked,
    ) -> Following | None:
        definition = definition_of(context.assets_def)
        connection = connection or definition.connection
        backfill = Backfill(slices_of(context), store, connection.name, context.run.run_id)
        assets = _assets(context, connection, definition, backfill.complete)
        if not assets.streams:
            context.log.info("Every selected stream was completed by an earlier attempt of this run.")
            return None
        watcher = RunWatcher(context, every_seconds=self.progress_seconds)
        names = [str(stream) for stream in assets.streams.values()]
        one = _OneSync(context, connection, definition, self._shared(), watcher, self.lease_wait_seconds)
        tables_of = gives_tables(context.resources, definition.io_manager_key, connection.name)
        telling = Telling(context, definition, backfill, asked)
        labels = {"dagster-run": context.run.run_id, "dagster-step": step_key(context)}
        settings = engine_settings(self)

        def sync(cancel: threading.Event, delivery: Delivery) -> SyncReport:
            tables = tables_of.tables(labels)
            with Engine(
                settings,
                store=store,
                tables=tables,
                deployment=partial(deployment_of, context),
                stop_grace_seconds=_STOP_GRACE_SECONDS,
            ) as engine:
                return backfill.run(names, partial(one.sync, engine), cancel, delivery)

        work = Background(sync)
        self._at_work.append(work)
        return Following(context, assets, work, watcher, telling.event)

    def _shared(self) -> SharedState:
        try:
            return SharedState(self.shared_state)
        except ValueError:
            raise ConfigError(
                "reading the config of ConnectorResource",
                f"shared_state is {self.shared_state!r}",
                remedy=f"It may be {' or '.join(each.value for each in SharedState)}.",
            ) from None


class _OneSync(NamedTuple):
    """What the syncs of one step have in common."""

    context: dg.AssetExecutionContext
    connection: Connection
    definition: ConnectionDefinition
    shared: SharedState
    watcher: RunWatcher
    lease_wait_seconds: float

    def sync(
        self, engine: Engine, wanted_slice: Slice | None, names: Sequence[str], cancel: threading.Event, to: Delivery
    ) -> SyncReport:
        if wanted_slice is not None:
            self.context.log.info(f"Partition {wanted_slice.key}")
        wanted = Wanted(only=names, catalog=self.definition.catalog, shared=self.shared, slice=wanted_slice)
        waiting = self.lease_wait_seconds
        terms = Terms(cancel, self.watcher, delivery=to, run_id=self.context.run.run_id, lease_wait_seconds=waiting)
        return sync_connection(engine, self.connection, wanted, terms)


def _assets(
    context: dg.AssetExecutionContext,
    connection: Connection,
    definition: ConnectionDefinition,
    complete: frozenset[str],
) -> SyncedAssets:
    selected = context.selected_asset_keys
    streams: dict[dg.AssetKey, StreamId] = {}
    others: dict[dg.AssetKey, StreamId] = {}
    for key in _upstream_first(context.assets_def, definition):
        stream = definition.streams[key]
        if key not in selected:
            others[key] = stream
        elif str(stream) not in complete:
            streams[key] = stream
    return SyncedAssets(connection.name, streams, others)


def _upstream_first(assets: dg.AssetsDefinition, definition: ConnectionDefinition) -> Iterator[dg.AssetKey]:
    """In the order of the definition, but for streams that a translator made depend on one another."""
    upstream = {key: assets.asset_deps[key] & definition.streams.keys() for key in definition.streams}
    yield from TopologicalSorter(upstream).static_order()
