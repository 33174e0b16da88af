"""Makes the pushed streams of a connection the assets of one step."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, TypedDict, Unpack

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.asset_keys import (
    check_keys,
    check_lists,
    key_paths,
    named_asset,
    translated_spec,
)
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.dagster_defs.definitions.code_references import code_references, with_references
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.definitions.connection_step import StepOptions, connection_step, step_name
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import asset_error_context
from dagster_airbyte_proto.dagster_defs.push.push_checks import ONLY_REJECTS, push_check_specs
from dagster_airbyte_proto.dagster_defs.push.translator import PushTranslator, PushTranslatorData, table_asset
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId

AssetKeyLike = dg.AssetKey | str | Sequence[str]
UpstreamAssets = Mapping[str, Sequence[AssetKeyLike]]
"""Other upstream assets than those of the tables, by stream."""


class PushAssetOptions(TypedDict, total=False):
    """The options of `push_assets` and `build_push_assets` beside the connection."""

    translator: PushTranslator | None
    deps: UpstreamAssets | None
    name: str | None
    partitions_def: dg.PartitionsDefinition[Any] | None
    backfill_policy: dg.BackfillPolicy | None
    pool: str | None
    op_tags: Mapping[str, Any] | None
    retry_policy: dg.RetryPolicy | None
    checks: StreamChecks | None
    records_tables: bool
    io_manager_key: str


def push_assets(
    *,
    connection: Connection,
    translator: PushTranslator | None = None,
    deps: UpstreamAssets | None = None,
    name: str | None = None,
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    required_resource_keys: Set[str] | None = None,
    checks: StreamChecks | None = ONLY_REJECTS,
    records_tables: bool = False,
    io_manager_key: str = "io_manager",
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Decorates the step of a connection with a `push`: each of its streams becomes an asset that can be run alone.

    An asset depends on the asset of the table that it reads: of `lake.shop.users` that is `shop/users`. `deps` names
    other ones, by stream; a stream that reads a query has none without it. Runs of the step wait for each other in the
    pool `connector_<name>`, if the instance limits it. `checks=None` leaves out every check.

    With `records_tables` a run records the tables of `build_push_tables` too. With `partitions_def` a run pushes the
    rows of its partitions. Time windows are backfilled in a single run by default. Raises ConfigError.
    """

    options = StepOptions(name, partitions_def, backfill_policy, pool, op_tags, retry_policy, required_resource_keys)

    def decorated(function: Callable[..., Any]) -> dg.AssetsDefinition:
        specs = _specs(connection, translator or PushTranslator(), deps or {})
        streams = {spec.key: stream for stream, spec in specs.items()}
        definition = ConnectionDefinition(connection, streams, None, io_manager_key, checks, records_tables)
        references = code_references(connection, None if function.__module__ == __name__ else function)
        return connection_step(
            connection,
            options,
            specs=[_completed(spec, definition, references) for spec in specs.values()],
            check_specs=list(_check_specs(connection, specs, checks)) if checks else None,
        )(function)

    return decorated


def build_push_assets(
    connection: Connection, *, connector_key: str = "connector", **options: Unpack[PushAssetOptions]
) -> dg.AssetsDefinition:
    """Makes the same assets as `push_assets` without a decorated function: the step pushes with the resource
    `connector_key`."""

    def step(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from getattr(context.resources, connector_key).push(context)

    step.__name__ = step_name(connection)
    return push_assets(connection=connection, required_resource_keys={connector_key}, **options)(step)


def _completed(
    spec: dg.AssetSpec, definition: ConnectionDefinition, references: dg.CodeReferencesMetadataValue
) -> dg.AssetSpec:
    metadata = {**with_references(spec, references), **definition.metadata}
    completed = spec.replace_attributes(metadata=metadata, skippable=True)
    return completed.with_io_manager_key(definition.io_manager_key)


def _check_specs(
    connection: Connection, specs: Mapping[StreamId, dg.AssetSpec], checks: StreamChecks
) -> Iterator[dg.AssetCheckSpec]:
    for options, spec in zip((connection.push or {}).values(), specs.values(), strict=True):
        yield from push_check_specs(spec.key, options, checks)


def _specs(connection: Connection, translator: PushTranslator, deps: UpstreamAssets) -> Mapping[StreamId, dg.AssetSpec]:
    """The spec of each stream. Raises ConfigError for a connection without a push, for a key that is made twice or is
    invalid, and for upstream assets of a stream that it has not."""
    if connection.push is None:
        remedy = "Use build_connector_assets, or connector_assets, for a sync or a relay."
        raise ConfigError(asset_error_context(connection), "it has no `push`", remedy=remedy)
    if unknown := deps.keys() - connection.push.keys():
        raise ConfigError(
            asset_error_context(connection),
            f"`deps` names {', '.join(sorted(unknown))}",
            remedy=f"Its streams are {', '.join(connection.push)}.",
        )
    check_lists(asset_error_context(connection), "deps", deps)
    streams = [StreamId.of(name) for name in connection.push]
    specs = []
    for stream, key_path, (name, options) in zip(streams, key_paths(streams), connection.push.items(), strict=True):
        data = PushTranslatorData(connection, stream, options, key_path)
        spec = translated_spec(translator.get_asset_spec, data, stream)
        specs.append(spec.replace_attributes(deps=[*map(named_asset, deps[name])]) if name in deps else spec)
    keys = [spec.key for spec in specs]
    check_keys(connection, keys, streams)
    read = [None if name in deps else options.table for name, options in connection.push.items()]
    return {
        stream: spec if table is None else _without_pushed_stream(spec, table_asset(table), keys)
        for stream, spec, table in zip(streams, specs, read, strict=True)
    }


def _without_pushed_stream(spec: dg.AssetSpec, table: dg.AssetKey, pushed: Sequence[dg.AssetKey]) -> dg.AssetSpec:
    """Returns the spec without its table as an upstream asset where a stream of the push has that key, as `contacts` of
    the push `crm` and the table `lake.crm.contacts`: the rows come from no pushed stream."""
    if table not in pushed:
        return spec
    return spec.replace_attributes(deps=[dep for dep in spec.deps if dep.asset_key != table])
