"""The connection behind an assets definition: each of its specs carries it, so that a step can find it.

It is kept in the metadata, the only thing that Dagster passes from definitions to steps and IO managers. It is an
object, not a dict: other processes see only its label, the connection's name, while a dict would show them its values,
including the config.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, StreamId

_KEY = "airbyte_proto/connection"


@dataclass(frozen=True)
class ConnectionDefinition:
    """A connection with its planned streams. `catalog` is the saved one, None if none was saved at definition time.

    A push that `records_tables` records a materialization of the tables that remember what was delivered. `make` makes
    the assets of a sync from another catalog, with their own translator; they were made from that in `catalog_file`.
    """

    connection: Connection
    streams: Mapping[dg.AssetKey, StreamId]
    catalog: Catalog | None
    io_manager_key: str = "io_manager"
    checks: StreamChecks | None = None
    records_tables: bool = False
    make: Callable[[Catalog], dg.AssetsDefinition] | None = None
    catalog_file: Path | None = None

    @property
    def metadata(self) -> dict[str, ObjectMetadataValue]:
        """The metadata entry that carries this definition in a spec."""
        return {_KEY: ObjectMetadataValue(self.connection.name, instance=self)}


def definition_in(metadata: Mapping[str, Any]) -> ConnectionDefinition | None:
    """The definition that a spec's metadata carries; None for an asset that no connection made."""
    found = getattr(metadata.get(_KEY), "instance", None)
    return found if isinstance(found, ConnectionDefinition) else None


def definition_of(assets: dg.AssetsDefinition, *, pushed: bool | None = None) -> ConnectionDefinition:
    """The definition behind these assets, by the keys that they have now. Raises ConfigError for assets that no
    connection made, and where they have to be `pushed`, or must not be, for others."""
    for metadata in assets.metadata_by_key.values():
        if found := definition_in(metadata):
            if pushed is not None and pushed is (found.connection.push is None):
                raise ConfigError(
                    f"looking for the {'push' if pushed else 'sync'} of connection {found.connection.name}",
                    f"its streams are {'synced' if pushed else 'pushed'}",
                    remedy=f"Pass the assets of {'build_push_assets' if pushed else 'build_connector_assets'}.",
                )
            # Dagster may have renamed them since, by a `key_prefix` for one. Their outputs keep the names of old.
            keys = assets.node_keys_by_output_name
            streams = {keys[key.to_python_identifier()]: stream for key, stream in found.streams.items()}
            return replace(found, streams=streams)
    raise ConfigError(
        "looking for the connection of a step",
        f"the assets of {assets.node_def.name!r} were not made from a connection",
        remedy="Decorate the function with @connector_assets(connection=...).",
    )


def definition_for(connection: Connection, assets: dg.AssetsDefinition | None) -> ConnectionDefinition:
    """The definition behind the assets of a connection; one without streams if there are none. Raises ConfigError for
    assets of another connection."""
    if assets is None:
        return ConnectionDefinition(connection, {}, None)
    definition = definition_of(assets)
    if definition.connection.name != connection.name:
        found = f"the assets of {assets.node_def.name!r} are those of connection {definition.connection.name}"
        raise ConfigError(f"looking for the assets of connection {connection.name}", found)
    return definition
