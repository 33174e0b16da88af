"""Finds a protocol by its name."""

from typing import Final

from dagster_airbyte_proto.errors import ConfigError, InternalError
from dagster_airbyte_proto.protocols.airbyte.destination import AirbyteDestination
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.airbyte.states import AirbyteStates
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.destination import DestinationProtocol
from dagster_airbyte_proto.protocols.rapidbyte.destination import RapidbyteDestination
from dagster_airbyte_proto.protocols.rapidbyte.source import RapidbyteSource
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.protocols.singer.target import SingerTarget
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.protocols.syncmaven.destination import SyncmavenDestination

PUSH: Final = "push"
"""The name under which the store keeps the states of a push, whatever its destination speaks."""


def source_protocol(name: str) -> SourceProtocol:
    """The protocol of this name, as sources speak it. Raises ConfigError if it has none."""
    if name == "airbyte":
        return AirbyteSource()
    if name == "singer":
        return SingerSource()
    if name == "rapidbyte":
        return RapidbyteSource()
    if name == "syncmaven":
        raise ConfigError(
            "opening the connector",
            "a Syncmaven connector is no source: it takes rows",
            remedy="Push to it: give the connection a `push` in the place of `streams`.",
        )
    raise InternalError("opening the connector", f"protocol {name} is unknown")


def destination_protocol(name: str) -> DestinationProtocol:
    """The protocol of this name, as destinations speak it."""
    if name == "airbyte":
        return AirbyteDestination()
    if name == "singer":
        return SingerTarget()
    if name == "syncmaven":
        return SyncmavenDestination()
    if name == "rapidbyte":
        return RapidbyteDestination()
    raise InternalError("opening the connector", f"protocol {name} is unknown")


def state_codec_named(name: str) -> StateCodec:
    """The codec of the states that the store keeps under this name."""
    # The states of a push are our own. They have the form of Airbyte's states of streams.
    return AirbyteStates() if name == PUSH else source_protocol(name).states
