"""Whether a connector still offers what the assets were made from: its catalog of today against the saved one."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definition import ConnectionDefinition, definition_of
from dagster_airbyte_proto.dagster_defs.engines import Connector, opened_engine
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, StreamId
from dagster_airbyte_proto.protocols.session import CatalogEvent
from dagster_airbyte_proto.sync.ask import Listener, ask
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.offers import catalog_changes
from dagster_airbyte_proto.sync.run import keep_asked_config, new_run_id
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.source import Source

DRIFT = "schema_drift"
_DESCRIPTION = "The source offers the stream as it did when its catalog was saved."
_DISCOVER_SECONDS = 600.0


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
        drift = found_drift(definition, getattr(context.resources, connector_key))
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
    connector: Connector,
    *,
    patience_seconds: float = _DISCOVER_SECONDS,
    save: bool = False,
) -> Drift:
    """Asks the connector. With `save` its answer becomes the catalog that assets are made from, once they are loaded
    again. Raises ConfigError where none was saved before, ConnectorError when there is no answer in time."""
    old, connection = definition.catalog, definition.connection
    if old is None:
        raise ConfigError(
            f"looking for changes in what connection {connection.name} offers",
            "no catalog is saved to compare it with",
            remedy=f"Run `airbyte-proto discover {connection.origin or connection.name} --save`.",
        )
    with opened_engine(connector) as engine:
        found = _discovered(engine, connection, patience_seconds, save=save)
    before, now = _by_id(old), _by_id(found)
    changes = {
        key: tuple(catalog_changes(before.get(stream, _NONE), now.get(stream, _NONE)))
        for key, stream in definition.streams.items()
    }
    return Drift(changes, tuple(sorted(str(stream) for stream in now if stream not in before)))


_NONE = Catalog(())


def _by_id(catalog: Catalog) -> dict[StreamId, Catalog]:
    return {stream.id: Catalog((stream,)) for stream in catalog.streams}


def _discovered(engine: Engine, connection: Connection, patience_seconds: float, *, save: bool) -> Catalog:
    with RunLog(engine.settings.logs_folder / connection.name / "asked", new_run_id()) as log:
        source = engine.source(connection, log)
        kept = engine.store.config(connection.name)
        if kept is not None and kept.based_on == source.config_digest:
            source.take_config(kept.config)
        source.check_config()
        catalog = _answer(source, log, patience_seconds)
        keep_asked_config(engine, source)
    if save:
        engine.offers.save_catalog(connection.name, source.protocol.catalog_message(catalog))
    return catalog


def _answer(source: Source, log: RunLog, patience_seconds: float) -> Catalog:
    def keep(event: Any) -> None:
        source.unkept_config = event.config

    question = ("discover", source.protocol.discover(source.config))
    listener = Listener(log, source.mask, keep)
    return ask(source.connector, question, CatalogEvent, listener, patience_seconds=patience_seconds).catalog
