"""Which protocol is meant: by its name, or by what was kept of it."""

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import State
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.protocols.singer.states import is_one


def source_protocol(name: str) -> SourceProtocol:
    """Raises ConfigError for one that is not built yet."""
    if name == "airbyte":
        return AirbyteSource()
    if name == "singer":
        return SingerSource()
    found = f"protocol {name} is not built yet"
    raise ConfigError("opening the connector", found, remedy="Use a connector that speaks airbyte or singer.")


def protocol_of_state(state: State) -> SourceProtocol:
    """Whose state it is, where nobody says."""
    return SingerSource() if is_one(state) else AirbyteSource()
