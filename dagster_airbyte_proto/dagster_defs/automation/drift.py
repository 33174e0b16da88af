"""Whether a connector still offers what the assets were made from: its catalog of today against the saved one."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.definition import ConnectionDefinition, definition_of
from dagster_airbyte_proto.dagster_defs.deployment import deployment_of
from dagster_airbyte_proto.dagster_defs.engines import opened_engine
from dagster_airbyte_proto.dagster_defs.partitions import sample_words
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, StreamId
from dagster_airbyte_proto.sync.connector.answer_cache import catalog_changes
from dagster_airbyte_proto.sync.connector.open_source import opened_source
from dagster_airbyte_proto.sync.connector.queries import PATIENCE_SECONDS
from dagster_airbyte_proto.sync.engine import Engine

DRIFT = "schema_drift"
_DESCRIPTION = "The source offers the stream as it did when its catalog was saved."


class Drift(NamedTuple):
    """`changes` has every asset, with a line for each difference. `new_streams` are offered and no asset yet."""

    changes: Mapping[dg.AssetKey, tuple[str, ...]]
    new_streams: tuple[str, ...]


def build_schema_drift_checks(
    assets: dg.AssetsDefinition, *, connector_key: str = "connector"
) -> dg.AssetChecksDefinition:
    """A check `schema_drift` for each asset of a connection: its connector is asked what it offers, in one step.

    For connectors that take longer to answer than a sensor's tick may last, schedule these; and where a sensor looks
    for drift, they are what its findings are shown on.
    """
    definition = definition_of(assets)
    name = f"{definition.connection.name}_{DRIFT}"

    @dg.multi_asset_check(
        name=name,
        specs=[dg.AssetCheckSpec(DRIFT, asset=key, description=_DESCRIPTION) for key in definition.streams],
        required_resource_keys={connector_key},
        can_subset=True,
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        words = sample_words(definition.connection, assets.partitions_def, context.instance)
        connector = getattr(context.resources, connector_key)
        with opened_engine(connector, deployment=partial(deployment_of, context)) as engine:
            drift = found_drift(definition, engine, words)
        for stream in drift.new_streams:
            context.log.warning(f"{stream} is offered and no asset yet")
        for key, lines in drift.changes.items():
            if dg.AssetCheckKey(key, DRIFT) in context.selected_asset_check_keys:
                yield dg.AssetCheckResult(asset_key=key, check_name=DRIFT, **verdict(lines))

    return checks


def verdict(lines: tuple[str, ...]) -> dict[str, Any]:
    """What a check's result says of these differences."""
    return {
        "passed": not lines,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": "; ".join(lines) or "Nothing has changed.",
        "metadata": {"airbyte_proto/changes": len(lines)},
    }


def found_drift(
    definition: ConnectionDefinition,
    engine: Engine,
    words: Mapping[str, str],
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    save: bool = False,
) -> Drift:
    """Asks the connector, in the partition whose `words` these are. With `save` its answer becomes the catalog that
    assets are made from, once they are loaded again. Raises ConfigError where none was saved before, ConnectorError
    when there is no answer in time."""
    old, connection = definition.catalog, definition.connection
    if old is None:
        raise ConfigError(
            f"looking for changes in what connection {connection.name} offers",
            "no catalog is saved to compare it with",
            remedy=f"Run `airbyte-proto discover {connection.origin or connection.name} --save`.",
        )
    with opened_source(engine, connection, words) as source:
        source.check_config()
        found = source.catalog(anew=True, patience_seconds=patience_seconds)
    if save:
        engine.offers.save_catalog(connection.name, source.protocol.catalog_message(found))
    before, now = _by_id(old), _by_id(found)
    changes = {
        key: tuple(catalog_changes(before.get(stream, _NONE), now.get(stream, _NONE)))
        for key, stream in definition.streams.items()
    }
    return Drift(changes, tuple(sorted(str(stream) for stream in now if stream not in before)))


_NONE = Catalog(())


def _by_id(catalog: Catalog) -> dict[StreamId, Catalog]:
    return {stream.id: Catalog((stream,)) for stream in catalog.streams}
