"""What an assets definition was made of: one object that each of its specs carries, for a step to find it again.

It travels in the metadata, which is all that Dagster hands from definitions to steps and IO managers. Other processes
see its label alone, the connection's name; a dict would show them its values, the config among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.tables.checks import StreamChecks
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, StreamId

_KEY = "airbyte_proto/connection"


@dataclass(frozen=True)
class ConnectionDefinition:
    """`catalog` is the saved one; None where none was saved when the definition was made."""

    connection: Connection
    streams: Mapping[dg.AssetKey, StreamId]
    catalog: Catalog | None
    io_manager_key: str = "io_manager"
    checks: StreamChecks | None = None

    @property
    def metadata(self) -> dict[str, ObjectMetadataValue]:
        """What a spec carries it in."""
        return {_KEY: ObjectMetadataValue(self.connection.name, instance=self)}


def definition_in(metadata: Mapping[str, Any]) -> ConnectionDefinition | None:
    """What a spec carries. None for an asset that is not a connection's."""
    found = getattr(metadata.get(_KEY), "instance", None)
    return found if isinstance(found, ConnectionDefinition) else None


def definition_of(assets: dg.AssetsDefinition) -> ConnectionDefinition:
    """Raises ConfigError for assets that are not a connection's."""
    for metadata in assets.metadata_by_key.values():
        if found := definition_in(metadata):
            return found
    raise ConfigError(
        "looking for the connection of a step",
        f"the assets of {assets.node_def.name!r} were not made from a connection",
        remedy="Decorate the function with @connector_assets(connection=...).",
    )
