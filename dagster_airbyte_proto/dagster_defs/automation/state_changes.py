"""The jobs `reset_<connection>` and `rollback_<connection>`: states by hand, as `airbyte-proto state` changes them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.checkpoints.kept_values import is_of_values
from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.connection.stream_names import streams_named, unmistakable_name
from dagster_airbyte_proto.dagster_defs.engines import ConnectorSettings, opened_engine, table_io_manager
from dagster_airbyte_proto.dagster_defs.failures import doing_the_job
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import LeaseWait, acquire_lease
from dagster_airbyte_proto.sync.maintenance.reset import reset_state, streams_to_reset
from dagster_airbyte_proto.sync.maintenance.rollback import Rollback, roll_back, version_before_newest_run
from dagster_airbyte_proto.tables.writer import TableWriter

STREAMS_HELP = "Names of streams; empty for all streams of the connection."


class ResetConfig(dg.Config):
    """The form of a reset: the next sync reads these streams from the start, the next push sends all their rows."""

    streams: list[str] = Field(default_factory=list, description=STREAMS_HELP)


class RollbackConfig(dg.Config):
    """The form of a rollback: the point to which the connection goes back."""

    version: int | None = Field(
        default=None,
        description="A version of the states, as `airbyte-proto state history` lists them. Empty: the one before the "
        "newest run that changed a state; a rollback to it that has begun is done again.",
    )
    tables: bool = Field(default=True, description="Roll back the rows of the tables too, not only the states.")


def reset_op(name: str, connector_key: str) -> dg.OpDefinition:
    """Returns the op of the reset for the connection of this name."""

    @dg.op(name=f"{name}_reset", required_resource_keys={connector_key})
    def reset(context: dg.OpExecutionContext, config: ResetConfig) -> None:
        connector = getattr(context.resources, connector_key)
        with doing_the_job(f"reset of {name}"), _leased_engine(context, name, connector) as (engine, lease):
            known = streams_to_reset(engine.store, name) if config.streams else ()
            streams = [_stream_named(stream, known) for stream in config.streams] or [None]
            for stream in streams:
                _log_state_changes(context, [reset_state(engine.store, lease, stream, who=_actor(context))])

    return reset


def rollback_op(name: str, connector_key: str, io_manager_key: str) -> dg.OpDefinition:
    """Returns the op of the rollback for the connection of this name."""
    keys = {connector_key, io_manager_key}

    @dg.op(name=f"{name}_rollback", required_resource_keys=keys)
    def rollback(context: dg.OpExecutionContext, config: RollbackConfig) -> None:
        connector = getattr(context.resources, connector_key)
        with doing_the_job(f"rollback of {name}"):
            run_tags = {"dagster-run": context.run_id}
            tables = (
                table_io_manager(context.resources, io_manager_key, name).tables(run_tags) if config.tables else None
            )
            with _leased_engine(context, name, connector, tables) as (engine, lease):
                version = version_before_newest_run(engine.store, name) if config.version is None else config.version
                context.log.info(f"rolling back to version {version}")
                if config.tables:
                    done = roll_back(engine, lease, version, who=_actor(context))
                else:
                    done = Rollback(tuple(engine.store.rollback(lease, version, who=_actor(context))), ())
        _log_state_changes(context, done.changes)
        for each in done.tables:
            state = f"is at snapshot {each.snapshot_id}" if each.snapshot_id else "has no rows"
            context.log.info(f"{each.table} {state}" + ("" if each.has_moved else ", as before"))

    return rollback


@contextmanager
def _leased_engine(
    context: dg.OpExecutionContext, name: str, connector: ConnectorSettings, tables: TableWriter | None = None
) -> Iterator[tuple[Engine, Lease]]:
    with opened_engine(connector, tables) as engine:
        check_connection_is_known(engine.store, name)
        waiting = LeaseWait(connector.lease_wait_seconds, notify=context.log.info)
        with acquire_lease(engine.store, name, context.run_id, connector.lease_seconds, waiting) as keeper:
            yield engine, keeper.lease


def check_connection_is_known(store: StateStore, name: str) -> None:
    known = store.connections()
    if name not in known:
        raise ConfigError(
            f"looking up connection {name}",
            "the state store does not know it",
            remedy=f"Known there: {', '.join(known) or 'none'}. Is the connector resource's state right?",
        )


def _stream_named(name: str, known: Sequence[StreamId | None]) -> StreamId | None:
    """The stream with this name. If the streams share one state, any name passes: `reset_state` explains why a single
    stream cannot be reset."""
    streams = list(dict.fromkeys(stream for stream in known if stream is not None))
    found = streams_named(name, streams)
    if len(found) == 1:
        return found[0]
    if None in known:
        return StreamId.of(name)
    names = map(unmistakable_name, found) if found else map(str, streams)
    raise ConfigError(
        "looking up a stream's state",
        f"there are {len(found)} streams {name!r}",
        remedy=f"There are states of: {', '.join(names) or 'none'}",
    )


def _log_state_changes(context: dg.OpExecutionContext, changes: Sequence[StateChange]) -> None:
    """Logs which states changed, but not the states: they may hold private data."""
    for change in changes:
        done = "state was reset" if change.state is None else "state was rolled back"
        done = "kept values were rolled back" if is_of_values(change) else done
        context.log.info(f"version {change.version}: the {done} of {change.stream or 'the whole'}")


def _actor(context: dg.OpExecutionContext) -> str:
    return f"dagster run {context.run_id}"
