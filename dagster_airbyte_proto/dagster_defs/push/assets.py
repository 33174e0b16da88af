"""Makes the pushed streams of a connection the assets of one step."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any, TypedDict, Unpack

import dagster as dg

from dagster_airbyte_proto.connection import Connection, PushOptions
from dagster_airbyte_proto.dagster_defs.definitions.code_references import code_references
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId

AssetKeyLike = dg.AssetKey | str | Sequence[str]


class PushAssetOptions(TypedDict, total=False):
    """The options of `push_assets` and `build_push_assets` beside the connection."""

    deps: Mapping[str, Sequence[AssetKeyLike]] | None
    key_prefix: Sequence[str] | None
    group_name: str | None
    name: str | None
    pool: str | None
    op_tags: Mapping[str, Any] | None
    retry_policy: dg.RetryPolicy | None
    automation_condition: dg.AutomationCondition[Any] | None
    io_manager_key: str


def push_assets(
    *,
    connection: Connection,
    deps: Mapping[str, Sequence[AssetKeyLike]] | None = None,
    key_prefix: Sequence[str] | None = None,
    group_name: str | None = None,
    name: str | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    required_resource_keys: Set[str] | None = None,
    io_manager_key: str = "io_manager",
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Decorates the step of a connection with a `push`: each of its streams becomes an asset that can be run alone.

    An asset depends on the asset of the table that it reads: of `lake.shop.users` that is `shop/users`. `deps` names
    other ones, by stream; a stream that reads a query has none without it. Raises ConfigError.
    """
    if connection.push is None:
        raise ConfigError(f"making the assets of connection {connection.name}", "it has no `push`")
    pushed = connection.push

    def decorated(function: Callable[..., Any]) -> dg.AssetsDefinition:
        streams = {dg.AssetKey([*(key_prefix or ()), connection.name, stream]): stream for stream in pushed}
        definition = ConnectionDefinition(
            connection, {key: StreamId.of(stream) for key, stream in streams.items()}, None, io_manager_key
        )
        references = code_references(connection, None if function.__module__ == __name__ else function)
        specs = [
            dg.AssetSpec(
                key,
                deps=list((deps or {}).get(stream, _upstream(pushed[stream]))),
                description=_description(connection, stream, pushed[stream]),
                kinds={connection.connector.protocol},
                group_name=group_name or connection.name,
                skippable=True,
                automation_condition=automation_condition,
                metadata={**definition.metadata, "dagster/code_references": references},
            ).with_io_manager_key(io_manager_key)
            for key, stream in streams.items()
        ]
        return dg.multi_asset(
            name=name,
            specs=specs,
            can_subset=True,
            pool=pool or f"connector_{connection.name}",
            op_tags=op_tags,
            retry_policy=retry_policy,
            required_resource_keys=set(required_resource_keys or ()),
        )(function)

    return decorated


def build_push_assets(
    connection: Connection, *, connector_key: str = "connector", **options: Unpack[PushAssetOptions]
) -> dg.AssetsDefinition:
    """Makes the same assets as `push_assets` without a decorated function: the step pushes with the resource
    `connector_key`."""

    def step(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from getattr(context.resources, connector_key).push(context)

    step.__name__ = connection.name
    return push_assets(connection=connection, required_resource_keys={connector_key}, **options)(step)


def _upstream(options: PushOptions) -> Collection[dg.AssetKey]:
    """The asset of the table: its name without the catalog, as syncs name theirs."""
    if options.table is None:
        return ()
    parts = [part.strip("`") for part in options.table.split(".")]
    return (dg.AssetKey(parts[1:] if len(parts) > 2 else parts),)


def _description(connection: Connection, stream: str, options: PushOptions) -> str:
    origin = f"table `{options.table}`" if options.table else "a query"
    keys = f" with the key {', '.join(options.key)}" if options.key else ""
    return f"Stream `{stream}` of the push `{connection.name}`: rows of {origin}, in mode {options.mode}{keys}."
