"""What people do to a connection by hand, as jobs with a form: reset, roll back, refresh. The same as the command line.

Each waits for the connection's lease, so none collides with a sync. The care of its tables takes none: that goes on
beside a sync, and by a schedule as well as by hand.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import NamedTuple

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.definition import ConnectionDefinition, definition_of
from dagster_airbyte_proto.dagster_defs.deployment import deployment_of
from dagster_airbyte_proto.dagster_defs.engines import Connector, gives_tables, opened_engine
from dagster_airbyte_proto.dagster_defs.step import events
from dagster_airbyte_proto.dagster_defs.step.background import Background, Ended, Ready
from dagster_airbyte_proto.dagster_defs.step.failures import cancelled, fail_if_incomplete, failing_the_step
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.sync.delivery import Delivery
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import Waiting, held_lease
from dagster_airbyte_proto.sync.maintenance.care import Cared, CareTerms, care_of, cared, tables_of
from dagster_airbyte_proto.sync.maintenance.reset import reset_state
from dagster_airbyte_proto.sync.maintenance.rollback import Rollback, roll_back
from dagster_airbyte_proto.sync.plan.stream_plan import Wanted
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import Terms, sync_connection
from dagster_airbyte_proto.tables.writer import TableWriter

_LOOK_SECONDS = 0.5
_STOP_SECONDS = 8.0
_DAY_SECONDS = 86400.0
_STREAMS = "Their names; none means all of the connection."
_INTERRUPTS = (dg.DagsterExecutionInterruptedError, KeyboardInterrupt)


class ResetConfig(dg.Config):
    """Which states are forgotten: their streams are read from nothing the next time."""

    streams: list[str] = Field(default_factory=list, description=_STREAMS)


class RollbackConfig(dg.Config):
    """What the connection goes back to."""

    version: int = Field(description="A version of the states: `airbyte-proto state history` lists them.", ge=0)
    tables: bool = Field(True, description="The rows too, as they stood then; else the states alone.")


class RefreshConfig(dg.Config):
    """What is read anew, from nothing; the old rows can be read until the new ones are there."""

    streams: list[str] = Field(default_factory=list, description=_STREAMS)
    merge: bool = Field(False, description="The old rows stay: new ones are added, or upserted by key.")


class CareConfig(dg.Config):
    """What is done to the connection's tables."""

    tables: list[str] = Field(default_factory=list, description="As namespace.table; none means all it has loaded.")
    compact: bool = Field(True, description="Small files are put together, deletes applied.")
    expire: bool = Field(True, description="Old snapshots go, and files of dead loads.")
    keep_days: float = Field(7.0, description="How far back a rollback must be able to go.", ge=0)
    orphans_after_days: float = Field(3.0, description="How long files lie that no snapshot has.", ge=1 / 24)


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
    """The jobs `reset_<name>`, `rollback_<name>`, `refresh_<name>` and `care_<name>`, to be launched with a form.

    All that is in the form of `care_<name>` has a default: a schedule may launch it as it is.
    With the connection's `assets`, what was refreshed is recorded as materialized, and planned from their catalog.
    """
    keys, name = _Keys(connector_key, io_manager_key), connection.name
    definition = definition_of(assets) if assets is not None else ConnectionDefinition(connection, {}, None)
    return [
        _job(
            f"reset_{name}", "Forgets where streams stand: the next sync reads them from nothing.", _reset(name, keys)
        ),
        _job(f"rollback_{name}", "Puts states and tables back to where they stood.", _rollback(name, keys)),
        _job(f"refresh_{name}", "Reads streams anew, as a new generation.", _refresh(definition, keys)),
        _job(f"care_{name}", "Compacts the tables and lets go of what is old.", _care(name, keys)),
    ]


def _job(name: str, description: str, op: dg.OpDefinition) -> dg.JobDefinition:
    return dg.GraphDefinition(name=name, description=description, node_defs=[op]).to_job()


def _reset(name: str, keys: _Keys) -> dg.OpDefinition:
    @dg.op(name=f"{name}_reset", required_resource_keys={keys.connector})
    def reset(context: dg.OpExecutionContext, config: ResetConfig) -> None:
        connector = getattr(context.resources, keys.connector)
        with failing_the_step(), _held(context, name, connector) as (engine, lease):
            known = [stored.state.stream for stored in engine.store.states(name)]
            streams = [_known(stream, known) for stream in config.streams] or [None]
            for stream in streams:
                _tell(context, [reset_state(engine.store, lease, stream, who=_who(context))])

    return reset


def _rollback(name: str, keys: _Keys) -> dg.OpDefinition:
    @dg.op(name=f"{name}_rollback", required_resource_keys=set(keys))
    def rollback(context: dg.OpExecutionContext, config: RollbackConfig) -> None:
        connector = getattr(context.resources, keys.connector)
        with failing_the_step():
            tables = _tables(context, keys, name) if config.tables else None
            with _held(context, name, connector, tables) as (engine, lease):
                if config.tables:
                    done = roll_back(engine, lease, config.version, who=_who(context))
                else:
                    done = Rollback(tuple(engine.store.rollback(lease, config.version, who=_who(context))), ())
        _tell(context, done.changes)
        for each in done.tables:
            where = f"is as in snapshot {each.snapshot_id}" if each.snapshot_id else "has no rows"
            context.log.info(f"{each.table} {where}" + ("" if each.has_moved else ", and was before"))

    return rollback


def _refresh(definition: ConnectionDefinition, keys: _Keys) -> dg.OpDefinition:
    name = definition.connection.name

    @dg.op(name=f"{name}_refresh", required_resource_keys=set(keys))
    def refresh(context: dg.OpExecutionContext, config: RefreshConfig) -> None:
        connector = getattr(context.resources, keys.connector)
        with failing_the_step():
            tables = _tables(context, keys, name)
        wanted = Wanted(config.streams or None, refresh=True, catalog=definition.catalog, merges=config.merge)

        def sync(cancel: Event, delivery: Delivery) -> SyncReport:
            terms = Terms(
                cancel,
                delivery=delivery,
                run_id=context.run_id,
                lease_wait_seconds=connector.lease_wait_seconds,
            )
            with opened_engine(connector, tables, partial(deployment_of, context)) as engine:
                return sync_connection(engine, definition.connection, wanted, terms)

        _follow(context, definition, Background(sync))

    return refresh


def _care(name: str, keys: _Keys) -> dg.OpDefinition:
    @dg.op(name=f"{name}_care", required_resource_keys=set(keys))
    def care(context: dg.OpExecutionContext, config: CareConfig) -> None:
        connector = getattr(context.resources, keys.connector)
        with failing_the_step(), opened_engine(connector, _tables(context, keys, name)) as engine:
            _check_known(engine.store, name)
            terms = CareTerms(
                compact=config.compact,
                keep_seconds=config.keep_days * _DAY_SECONDS if config.expire else None,
                orphan_seconds=config.orphans_after_days * _DAY_SECONDS,
            )
            of_tables, refused = care_of(engine.tables), []
            for table in _chosen(tables_of(engine.store, name), config.tables):
                done = cared(engine.store, of_tables, table, terms)
                context.log.info(_told(done))
                refused += [done.error] if done.error else []
            if refused:
                raise refused[0]

    return care


def _chosen(known: Sequence[TableName], wanted: Sequence[str]) -> Sequence[TableName]:
    by_name = {str(each): each for each in known}
    if unknown := [each for each in wanted if each not in by_name]:
        raise ConfigError(
            "looking up tables",
            f"the connection has loaded no {' and no '.join(unknown)}",
            remedy=f"It has loaded {', '.join(by_name) or 'nothing yet'}.",
        )
    return [by_name[each] for each in wanted] or known


def _told(done: Cared) -> str:
    told = [
        f"{done.compacted.rewritten_files} files rewritten into {done.compacted.written_files}, "
        f"{done.compacted.removed_delete_files} delete files gone"
        if done.compacted
        else "",
        f"{done.let_go.snapshots} snapshots and {len(done.let_go.orphans)} files of dead loads gone"
        if done.let_go
        else "",
        f"refused: {done.error}" if done.error else "",
    ]
    return f"{done.table}: {'; '.join(filter(None, told))}"


def _follow(context: dg.OpExecutionContext, definition: ConnectionDefinition, work: Background) -> None:
    """The step's main thread only waits: Terminate strikes it at any moment."""
    keys = {stream: key for key, stream in definition.streams.items()}
    work.start()
    try:
        while not isinstance(message := work.message(_LOOK_SECONDS), Ended):
            if isinstance(message, Ready):
                for each in message.streams:
                    if each.stream in keys:
                        context.log_event(events.unasked(keys[each.stream], each))
                work.accept()
    except _INTERRUPTS as interrupt:
        raise cancelled(definition.connection.name, None) from interrupt
    finally:
        work.stop(_STOP_SECONDS)
    if message.error is not None:
        with failing_the_step():
            raise message.error
    if message.report is not None:
        for stream, told in message.report.streams.items():
            context.log.info(f"{stream}: {told.status.value}, {told.committed} rows in {told.table}")
        fail_if_incomplete(message.report)


@contextmanager
def _held(
    context: dg.OpExecutionContext, name: str, connector: Connector, tables: TableWriter | None = None
) -> Iterator[tuple[Engine, Lease]]:
    with opened_engine(connector, tables) as engine:
        _check_known(engine.store, name)
        waiting = Waiting(connector.lease_wait_seconds, tell=context.log.info)
        with held_lease(engine.store, name, context.run_id, connector.lease_seconds, waiting) as keeper:
            yield engine, keeper.lease


def _check_known(store: StateStore, name: str) -> None:
    known = store.connections()
    if name not in known:
        raise ConfigError(
            f"looking up connection {name}",
            "the state store does not know it",
            remedy=f"Known there: {', '.join(known) or 'none'}. Is the connector resource's state right?",
        )


def _tables(context: dg.OpExecutionContext, keys: _Keys, name: str) -> TableWriter:
    return gives_tables(context.resources, keys.io_manager, name).tables({"dagster-run": context.run_id})


def _known(name: str, known: Sequence[StreamId | None]) -> StreamId | None:
    """The stream that is meant. A connection whose streams share a state answers for itself why one cannot be reset."""
    streams = list(dict.fromkeys(stream for stream in known if stream is not None))
    found = [stream for stream in streams if str(stream) == name] or [each for each in streams if each.name == name]
    if len(found) == 1:
        return found[0]
    if None in known:
        return StreamId.of(name)
    raise ConfigError(
        "looking up a stream's state",
        f"there are {len(found)} streams {name!r}",
        remedy=f"There are states of: {', '.join(map(str, streams)) or 'none'}",
    )


def _tell(context: dg.OpExecutionContext, changes: Sequence[StateChange]) -> None:
    """In the run's log; the states themselves may hold what is private."""
    for change in changes:
        what = "reset" if change.state is None else "put back"
        context.log.info(f"version {change.version}: the state of {change.stream or 'the whole'} was {what}")


def _who(context: dg.OpExecutionContext) -> str:
    return f"dagster run {context.run_id}"
