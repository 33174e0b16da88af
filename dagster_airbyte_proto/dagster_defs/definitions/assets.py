"""Makes the streams of a connection the assets of one step, from its saved catalog."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, get_args

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.asset_keys import check_keys, translated_spec
from dagster_airbyte_proto.dagster_defs.definitions.asset_streams import TablesOfAssets, plan_asset_streams
from dagster_airbyte_proto.dagster_defs.definitions.checks import ONLY_NULLED, StreamChecks, check_specs
from dagster_airbyte_proto.dagster_defs.definitions.code_references import code_references, with_references
from dagster_airbyte_proto.dagster_defs.definitions.column_schema import source_asset
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.definitions.connection_step import StepOptions, connection_step, step_name
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import (
    asset_error_context,
    saved_catalog,
    saved_catalog_path,
)
from dagster_airbyte_proto.dagster_defs.definitions.translator import (
    StreamTranslator,
    StreamTranslatorData,
    TableFormat,
)
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, PlannedStream
from dagster_airbyte_proto.project_folder import expanded

IncludedMetadata = Literal["column_metadata", "insights"]
"""The same names as in Dagster's other components."""


_MAX_SAMPLE_ROWS = 100


class AssetOptions(TypedDict, total=False):
    """The options of `connector_assets` and `build_connector_assets` beside the connection."""

    translator: StreamTranslator | None
    catalog: Path | str | None
    home: Path | str | None
    spark_catalog: str
    table_format: TableFormat
    name: str | None
    partitions_def: dg.PartitionsDefinition[Any] | None
    backfill_policy: dg.BackfillPolicy | None
    pool: str | None
    op_tags: Mapping[str, Any] | None
    retry_policy: dg.RetryPolicy | None
    checks: StreamChecks | None
    io_manager_key: str


def connector_assets(
    *,
    connection: Connection,
    translator: StreamTranslator | None = None,
    catalog: Path | str | None = None,
    home: Path | str | None = None,
    spark_catalog: str = "",
    table_format: TableFormat = "iceberg",
    name: str | None = None,
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    required_resource_keys: Set[str] | None = None,
    checks: StreamChecks | None = ONLY_NULLED,
    io_manager_key: str = "io_manager",
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Decorates the step of a connection: each of its streams becomes an asset that can be run alone.

    The assets are made from the catalog that `airbyte-proto discover --save` saved under `home`, or from the file
    `catalog`: no connector starts, no network is used, and no `${env:…}` is filled. `table_format` is the format of the
    IO manager's tables, and `spark_catalog` their catalog, by default the format's own. Runs of the step wait for each
    other in the pool `connector_<name>`, if the instance limits it. `checks=None` leaves out every check. Time-window
    partitions are backfilled in a single run by default. Raises ConfigError.
    """

    options = StepOptions(name, partitions_def, backfill_policy, pool, op_tags, retry_policy, required_resource_keys)
    file = expanded(catalog) if catalog else None
    tables = TablesOfAssets(spark_catalog, table_format, partitions_def is not None)

    def made(function: Callable[..., Any], offered: Catalog | None) -> dg.AssetsDefinition:
        streams = plan_asset_streams(connection, offered, tables)
        specs = _specs(connection, streams, translator)
        planned = {spec.key: data.planned for spec, data in zip(specs, streams, strict=True)}
        ids = {key: each.id for key, each in planned.items()}
        definition = ConnectionDefinition(
            connection,
            ids,
            offered,
            io_manager_key,
            checks,
            make=partial(made, function),
            catalog_file=file or saved_catalog_path(connection, home),
        )
        references = code_references(connection, None if function.__module__ == __name__ else function)
        return connection_step(
            connection,
            options,
            specs=[_completed(spec, definition, references) for spec in specs],
            check_specs=_check_specs(planned, checks) if checks else None,
        )(function)

    def decorated(function: Callable[..., Any]) -> dg.AssetsDefinition:
        return made(function, saved_catalog(connection, catalog=file, home=home))

    return decorated


def build_connector_assets(
    connection: Connection,
    *,
    connector_key: str = "connector",
    include_metadata: Collection[IncludedMetadata] = (),
    sample_rows: int = 0,
    **options: Unpack[AssetOptions],
) -> dg.AssetsDefinition:
    """Makes the same assets as `connector_assets` without a decorated function: the step syncs with the resource
    `connector_key`.

    `include_metadata` and `sample_rows` replace the methods that such a function would chain: `fetch_column_metadata`,
    `with_insights`, `with_sample`. Raises ConfigError for what these refuse.
    """
    _check_included(connection, include_metadata)
    if sample_rows:
        check_sample_rows(f"{asset_error_context(connection)}: reading `sample_rows`", sample_rows)

    def step(context: dg.AssetExecutionContext) -> Iterator[Any]:
        events = getattr(context.resources, connector_key).sync(context)
        if "column_metadata" in include_metadata:
            events = events.fetch_column_metadata()
        if "insights" in include_metadata:
            events = events.with_insights()
        yield from events.with_sample(sample_rows) if sample_rows else events

    step.__name__ = step_name(connection)
    return connector_assets(connection=connection, required_resource_keys={connector_key}, **options)(step)


def check_sample_rows(doing: str, rows: int) -> None:
    """Raises ConfigError for a number of rows that no sample has."""
    if not 1 <= rows <= _MAX_SAMPLE_ROWS:
        raise ConfigError(doing, f"{rows} rows", remedy=f"A sample has 1 to {_MAX_SAMPLE_ROWS} rows.")


def _check_included(connection: Connection, include_metadata: Collection[str]) -> None:
    """Raises ConfigError for metadata that no step can report: it would be missing without a word."""
    known = get_args(IncludedMetadata)
    wanted = [include_metadata] if isinstance(include_metadata, str) else include_metadata
    if unknown := [each for each in wanted if each not in known]:
        found = f"`include_metadata` has {', '.join(map(repr, unknown))}"
        raise ConfigError(asset_error_context(connection), found, remedy=f"It may have {' and '.join(known)}.")


def _specs(
    connection: Connection, streams: Sequence[StreamTranslatorData], translator: StreamTranslator | None
) -> list[dg.AssetSpec]:
    """One spec for each stream, in order. Raises ConfigError if the translator fails, or made a key twice, or an
    invalid one."""
    translator = translator or StreamTranslator()
    specs = [translated_spec(translator.get_asset_spec, data, data.stream.id) for data in streams]
    check_keys(connection, [spec.key for spec in specs], [data.planned.id for data in streams])
    return specs


def _check_specs(planned: Mapping[dg.AssetKey, PlannedStream], checks: StreamChecks) -> list[dg.AssetCheckSpec]:
    return [check for key, each in planned.items() for check in check_specs(key, each, checks)]


def _completed(
    spec: dg.AssetSpec, definition: ConnectionDefinition, references: dg.CodeReferencesMetadataValue
) -> dg.AssetSpec:
    """The spec with what no translator may leave out: the ConnectionDefinition for the step, the IO manager, and
    `skippable`, because a stream that yields no event must not fail the step."""
    metadata = {**with_references(spec, references), **definition.metadata}
    source, upstream = source_asset(spec.metadata), {dep.asset_key: dep for dep in spec.deps}
    if source is not None:
        upstream.setdefault(source, dg.AssetDep(source))
    completed = spec.replace_attributes(metadata=metadata, deps=upstream.values(), skippable=True)
    return completed.with_io_manager_key(definition.io_manager_key)
