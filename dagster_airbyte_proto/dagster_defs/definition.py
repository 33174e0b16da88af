"""What an assets definition was made of: one object that each of its specs carries, for a step to find it again."""

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.checks import StreamChecks
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, StreamId

# An object is kept for Python alone; a dict here would show its values, the config among them, in the web server.
KEY = "airbyte_proto/definition"


@dataclass(frozen=True)
class ConnectionDefinition:
    """`catalog` is the saved one; None where none was saved when the definition was made."""

    connection: Connection
    streams: Mapping[dg.AssetKey, StreamId]
    catalog: Catalog | None
    io_manager_key: str = "io_manager"
    checks: StreamChecks | None = None


def definition_of(assets: dg.AssetsDefinition) -> ConnectionDefinition:
    """Raises ConfigError for assets that are not a connection's."""
    for metadata in assets.metadata_by_key.values():
        found = metadata.get(KEY)
        if isinstance(found, ConnectionDefinition):
            return found
    raise ConfigError(
        "looking for the connection of a step",
        f"the assets of {assets.node_def.name!r} were not made from a connection",
        remedy="Decorate the function with @connector_assets(connection=...).",
    )
