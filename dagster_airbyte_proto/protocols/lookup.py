"""Finds a protocol by its name."""

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.singer.source import SingerSource


def source_protocol(name: str) -> SourceProtocol:
    """The protocol of this name. Raises ConfigError if it is not built yet."""
    if name == "airbyte":
        return AirbyteSource()
    if name == "singer":
        return SingerSource()
    found = f"protocol {name} is not built yet"
    raise ConfigError("opening the connector", found, remedy="Use a connector that speaks airbyte or singer.")
