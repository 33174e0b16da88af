"""The job `resolve_load_<connection>`: ends a load whose outcome nobody knows, by the word of a person, as
`airbyte-proto loads resolve` does."""

from collections.abc import Sequence
from contextlib import ExitStack

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.dagster_defs.engines import opened_engine, table_io_manager
from dagster_airbyte_proto.dagster_defs.failures import doing_the_job
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.sync.lease import LeaseWait
from dagster_airbyte_proto.sync.maintenance.resolve import resolve_load

LANDED, LOST = "landed", "lost"


class ResolveConfig(dg.Config):
    """The form of a resolution: what became of a load. Look at the table first."""

    load: str = Field(default="", description="The id of the load, as the error names it. Empty: the only one.")
    outcome: str = Field(
        default="",
        description=f"`{LANDED}`: its rows are in the table, and its state moves. `{LOST}`: they are not, and the"
        " connector sends them again.",
    )


def resolve_op(name: str, connector_key: str, io_manager_key: str) -> dg.OpDefinition:
    """Returns the op of the job for the connection of this name."""

    @dg.op(name=f"{name}_resolve_load", required_resource_keys={connector_key, io_manager_key})
    def resolve(context: dg.OpExecutionContext, config: ResolveConfig) -> None:
        connector = getattr(context.resources, connector_key)
        with doing_the_job(f"resolution of a load of {name}"), ExitStack() as opened:
            tables = table_io_manager(context.resources, io_manager_key, name).tables({"dagster-run": context.run_id})
            engine = opened.enter_context(opened_engine(connector, tables))
            load_id = _chosen(name, engine.store.announced_loads(name), config)
            resolution = Resolution(config.outcome == LANDED, f"dagster run {context.run_id}")
            waiting = LeaseWait(connector.lease_wait_seconds, notify=context.log.info)
            entry = resolve_load(engine, load_id, resolution, waiting)
            context.log.info(f"load {load_id}: {entry.status.value}, {entry.reason}")

    return resolve


def _chosen(name: str, waiting: Sequence[Load], config: ResolveConfig) -> str:
    """The load that the form is about. Raises ConfigError for a form that leaves that, or the outcome, open."""
    doing = f"resolving a load of connection {name}"
    texts = [f"{each.load_id} ({sum(part.rows for part in each.parts):,} rows)" for each in waiting]
    if config.outcome not in (LANDED, LOST):
        found = f"the outcome is {config.outcome!r}"
        remedy = f"Set `outcome` to {LANDED} or {LOST}. These loads wait: {', '.join(texts) or 'none'}."
        raise ConfigError(doing, found, remedy=remedy)
    named = [each.load_id for each in waiting if config.load in ("", each.load_id)]
    if len(named) != 1:
        found = f"no load {config.load} of it waits" if config.load else f"{len(named)} of its loads wait"
        raise ConfigError(doing, found, remedy=f"Name one in `load`: {', '.join(texts) or 'there is none'}.")
    return named[0]
