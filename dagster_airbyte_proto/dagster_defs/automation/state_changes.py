"""The jobs `reset_<connection>` and `rollback_<connection>`: states by hand, as `airbyte-proto state` changes them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.checkpoints.kept_values import is_of_values
from dagster_airbyte_proto.checkpoints.slot import slot_by_hand
from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.connection.stream_names import streams_named, unmistakable_name
from dagster_airbyte_proto.dagster_defs.engines import ConnectorSettings, opened_engine, table_io_manager
from dagster_airbyte_proto.dagster_defs.failures import doing_the_job
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.lease import LeaseWait, acquire_lease
from dagster_airbyte_proto.sync.maintenance.reset import reset_state, streams_to_reset
from dagster_airbyte_proto.sync.maintenance.rollback import Rollback, roll_back, version_before_newest_run
from dagster_airbyte_proto.sync.maintenance.stored_partitions import (
    check_has_partitioned_states,
    check_partition,
    check_states_without_partition,
    named_partitions,
    partitions_with_state,
)

STREAMS_HELP = "Names of streams; empty for all streams of the connection."
_PARTITION_HELP = "The key of a partition: only its states change. Empty for"


class ResetConfig(dg.Config):
    """The form of a reset: the next sync reads these streams from the start, the next push sends all their rows."""

    streams: list[str] = Field(default_factory=list, description=STREAMS_HELP)
    partition: str = Field(default="", description=f"{_PARTITION_HELP} the states of runs without a partition.")


class RollbackConfig(dg.Config):
    """The form of a rollback: the point to which the connection goes back."""

    version: int | None = Field(
        default=None,
        description="A version of the states, as `airbyte-proto state history` lists them. Empty: the one before the "
        "newest run that changed a state; a rollback to it that has begun is done again.",
    )
    tables: bool = Field(default=True, description="Roll back the rows of the tables too, not only the states.")
    partition: str = Field(
        default="", description=f"{_PARTITION_HELP} the states of all. A table goes back as a whole: unset `tables`."
    )


def reset_op(name: str, connector_key: str) -> dg.OpDefinition:
    """Returns the op of the reset for the connection of this name."""

    @dg.op(name=f"{name}_reset", required_resource_keys={connector_key})
    def reset(context: dg.OpExecutionContext, config: ResetConfig) -> None:
        connector = getattr(context.resources, connector_key)
        with (
            doing_the_job(f"reset of {name}"),
            opened_engine(connector) as engine,
            _leased(context, engine.store, _Part(name, config.partition, "resetting the state"), connector) as lease,
        ):
            known = streams_to_reset(engine.store, name, config.partition) if config.streams else ()
            if config.streams and not config.partition and not known:
                check_states_without_partition(engine.store, name, "Set `partition`.")
            streams = [_stream_named(stream, known) for stream in config.streams] or [None]
            for stream in streams:
                _log_state_changes(context, [reset_state(engine.store, lease, stream, who=_actor(context))])
            keys = () if config.partition else partitions_with_state(engine.store, name)
            if keys:
                context.log.info(f"the states of partitions stay: {named_partitions(keys)}")

    return reset


def rollback_op(name: str, connector_key: str, io_manager_key: str) -> dg.OpDefinition:
    """Returns the op of the rollback for the connection of this name."""
    keys = {connector_key, io_manager_key}

    @dg.op(name=f"{name}_rollback", required_resource_keys=keys)
    def rollback(context: dg.OpExecutionContext, config: RollbackConfig) -> None:
        connector = getattr(context.resources, connector_key)
        with doing_the_job(f"rollback of {name}", again="before a sync reads rows twice"):
            if config.partition and config.tables:
                raise ConfigError(
                    f"rolling back partition {config.partition} of connection {name}",
                    "a table goes back as a whole, with the rows of all partitions",
                    remedy="Unset `tables` to roll back the state alone, or materialize the partition: it is replaced.",
                )
            run_tags = {"dagster-run": context.run_id}
            tables = (
                table_io_manager(context.resources, io_manager_key, name).tables(run_tags) if config.tables else None
            )
            part = _Part(name, config.partition, "rolling back the state")
            with opened_engine(connector, tables) as engine, _leased(context, engine.store, part, connector) as lease:
                version = config.version
                if version is None:
                    version = version_before_newest_run(engine.store, name, config.partition or None)
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


class _Part(NamedTuple):
    """The part of a connection that a form is about: one partition, or all; and what is done to it."""

    connection: str
    partition: str
    doing: str


@contextmanager
def _leased(
    context: dg.OpExecutionContext, store: StateStore, part: _Part, connector: ConnectorSettings
) -> Iterator[Lease]:
    check_connection_is_known(store, part.connection)
    if part.partition:
        check_has_partitioned_states(store, part.connection, part.doing)
        check_partition(store, part.connection, part.partition, part.doing)
    waiting, slot = LeaseWait(connector.lease_wait_seconds, notify=context.log.info), slot_by_hand(part.partition)
    with acquire_lease(store, part.connection, context.run_id, connector.lease_seconds, waiting, slot=slot) as keeper:
        yield keeper.lease


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
        of_partition = f" in partition {change.partition}" if change.partition else ""
        context.log.info(f"version {change.version}: the {done} of {change.stream or 'the whole'}{of_partition}")


def _actor(context: dg.OpExecutionContext) -> str:
    return f"dagster run {context.run_id}"
