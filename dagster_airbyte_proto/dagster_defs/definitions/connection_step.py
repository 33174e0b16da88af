"""The one step of a connection: all of its assets, each of which can be run alone."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.definitions.utils import is_valid_name

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import asset_error_context
from dagster_airbyte_proto.errors import ConfigError


class StepOptions(NamedTuple):
    """The options of the step that are for Dagster."""

    name: str | None
    partitions_def: dg.PartitionsDefinition[Any] | None
    backfill_policy: dg.BackfillPolicy | None
    pool: str | None
    op_tags: Mapping[str, Any] | None
    retry_policy: dg.RetryPolicy | None
    required_resource_keys: Set[str] | None


def step_name(connection: Connection) -> str:
    """The name of the step: the connection's, with a suffix where Dagster reserves it, as `meta` and `import`."""
    return connection.name if is_valid_name(connection.name) else f"{connection.name}_connection"


def default_pool(connection: Connection) -> str:
    """The pool in which runs of a connection wait for each other, if the instance limits it."""
    return f"connector_{connection.name}"


def connection_step(
    connection: Connection,
    options: StepOptions,
    *,
    specs: Sequence[dg.AssetSpec],
    check_specs: Sequence[dg.AssetCheckSpec] | None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Decorates the function that is the step. Runs of one connection wait for each other in a pool of its own, and
    time windows are backfilled in one run, unless the options say otherwise. Raises ConfigError for streams with
    different partitions: a run would make slices of a table whose asset has no partitions."""
    _check_partitions(connection, options.partitions_def, specs)
    return dg.multi_asset(
        name=options.name,
        specs=specs,
        check_specs=check_specs,
        can_subset=True,
        partitions_def=options.partitions_def,
        backfill_policy=options.backfill_policy or _default_backfill_policy(options.partitions_def),
        pool=options.pool or default_pool(connection),
        op_tags=options.op_tags,
        retry_policy=options.retry_policy,
        required_resource_keys=set(options.required_resource_keys or ()),
    )


def _check_partitions(
    connection: Connection, of_all: dg.PartitionsDefinition[Any] | None, specs: Sequence[dg.AssetSpec]
) -> None:
    for spec in specs:
        own, others = spec.partitions_def or of_all, specs[0].partitions_def or of_all
        if own != others:
            raise ConfigError(
                asset_error_context(connection),
                f"asset {spec.key.to_user_string()} has other partitions than {specs[0].key.to_user_string()}",
                remedy="All streams of a connection share theirs: set `partitions_def`, or a component's `partitions`.",
            )


def _default_backfill_policy(partitions_def: dg.PartitionsDefinition[Any] | None) -> dg.BackfillPolicy | None:
    """A single run for time windows, which come in an order; Dagster's own policy for other partitions."""
    is_time = isinstance(partitions_def, dg.TimeWindowPartitionsDefinition)
    return dg.BackfillPolicy.single_run() if is_time else None
