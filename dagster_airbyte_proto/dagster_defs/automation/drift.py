"""Schema drift: compares the connector's current catalog with the saved one that the assets were made from."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.asset_streams import check_makes_assets
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition, definition_of
from dagster_airbyte_proto.dagster_defs.deployment import run_deployment
from dagster_airbyte_proto.dagster_defs.engines import opened_engine
from dagster_airbyte_proto.dagster_defs.failures import failing_the_step
from dagster_airbyte_proto.dagster_defs.partitions import newest_slice_words
from dagster_airbyte_proto.errors import ConfigError, outdated_catalog_remedy
from dagster_airbyte_proto.model import Catalog, StreamId
from dagster_airbyte_proto.sync.connector.catalog_changes import catalog_changes, in_former_order, saved_before
from dagster_airbyte_proto.sync.connector.opened_connector import opened_source
from dagster_airbyte_proto.sync.connector.queries import QUERY_TIMEOUT_SECONDS
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine

SCHEMA_DRIFT = "schema_drift"
_DESCRIPTION = "The source offers the stream as it did when its catalog was saved."


class CatalogDrift(NamedTuple):
    """The differences between two catalogs. `changes` has every asset, with a line for each difference; `new_streams`
    are in the current catalog and have no asset yet. `unsaved` says why the current one could not be saved."""

    changes: Mapping[dg.AssetKey, tuple[str, ...]]
    new_streams: tuple[str, ...]
    unsaved: str = ""


def build_schema_drift_checks(
    assets: dg.AssetsDefinition, *, connector_key: str = "connector"
) -> dg.AssetChecksDefinition:
    """Builds a check `schema_drift` for each asset of a connection. One step runs discovery and evaluates them all.

    Schedule these checks for connectors that answer slower than a sensor's tick allows. A schema drift sensor needs
    them too: it shows its findings as their results.
    """
    definition = definition_of(assets, pushed=False)
    name = f"{definition.connection.name}_{SCHEMA_DRIFT}"

    @dg.multi_asset_check(
        name=name,
        specs=[dg.AssetCheckSpec(SCHEMA_DRIFT, asset=key, description=_DESCRIPTION) for key in definition.streams],
        required_resource_keys={connector_key},
        can_subset=True,
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        words = newest_slice_words(definition.connection, assets.partitions_def, context.instance)
        connector = getattr(context.resources, connector_key)
        with failing_the_step(), opened_engine(connector, deployment=partial(run_deployment, context)) as engine:
            drift = detect_drift(definition, engine, words)
        for stream in drift.new_streams:
            context.log.warning(f"{stream} is in the connector's catalog and has no asset yet")
        for key, lines in drift.changes.items():
            if dg.AssetCheckKey(key, SCHEMA_DRIFT) in context.selected_asset_check_keys:
                yield dg.AssetCheckResult(asset_key=key, check_name=SCHEMA_DRIFT, **check_result_fields(lines))

    return checks


def check_result_fields(lines: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a check result for these differences."""
    return {
        "passed": not lines,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": "; ".join(lines) or "Nothing has changed.",
        "metadata": {"airbyte_proto/changes": len(lines)},
    }


def detect_drift(
    definition: ConnectionDefinition,
    engine: Engine,
    words: Mapping[str, str],
    *,
    timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
    save: bool = False,
) -> CatalogDrift:
    """Discovers the streams, with the `words` of one partition in the config, and compares them with the saved catalog.
    With `save` the answer becomes the saved catalog, which assets use once they are loaded again, unless none could be
    made from it. Raises ConfigError if no catalog was saved before, ConnectorError if no answer comes in time."""
    old, connection = definition.catalog, definition.connection
    if old is None:
        raise ConfigError(
            f"looking for schema changes of connection {connection.name}",
            "no catalog is saved to compare with",
            remedy=outdated_catalog_remedy(str(connection.origin or connection.name)),
        )
    with opened_source(engine, connection, words) as source:
        source.check_config()
        found = source.catalog(fresh=True, timeout_seconds=timeout_seconds)
    unsaved = _save(definition, engine, source, found) if save else ""
    before, now = _by_id(old), _by_id(found)
    changes = {
        key: tuple(catalog_changes(before.get(stream, _EMPTY), now.get(stream, _EMPTY)))
        for key, stream in definition.streams.items()
    }
    return CatalogDrift(changes, tuple(sorted(str(stream) for stream in now if stream not in before)), unsaved)


def _save(definition: ConnectionDefinition, engine: Engine, source: Source, found: Catalog) -> str:
    """Saves the catalog. Returns why it is not saved, if that is so: no assets could be made from it, or these have
    theirs from another file."""
    name, file = definition.connection.name, definition.catalog_file
    path = engine.settings.catalogs_folder / f"{name}.json"
    if file is not None and file.resolve() != path.resolve():
        return (
            f"the assets are made from {file}, and this sensor saves {path}. Save that file, or refresh the component"
        )
    before = saved_before(engine.answer_cache, source.protocol, name)
    ordered = in_former_order(found, definition.catalog or _EMPTY, before.catalog)
    make = None if definition.make is None else partial(definition.make, ordered)
    try:
        check_makes_assets(definition.connection, ordered, make)
    except ConfigError as error:
        return f"it would stop the code location. {error}"
    engine.answer_cache.save_catalog(name, source.protocol.catalog_message(ordered))
    return ""


_EMPTY = Catalog(())


def _by_id(catalog: Catalog) -> dict[StreamId, Catalog]:
    return {stream.id: Catalog((stream,)) for stream in catalog.streams}
