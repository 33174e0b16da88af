"""The catalog of a destination: the objects that it writes to.

Few Airbyte destinations have one, and no spec says which. So such a destination is asked once for each version and
config, and no answer is an answer: nothing is checked then. `check` and `discover` ask again.
"""

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.protocols.destination import DestinationOperation, DestinationProtocol, HasCatalog
from dagster_airbyte_proto.protocols.events import OperationsEvent
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.queries import query_connector

_NONE = b'{"operations":[]}'


def offered_operations(
    destination: ConfiguredConnector[DestinationProtocol], *, fresh: bool = False
) -> tuple[DestinationOperation, ...]:
    """Returns what the destination writes to; nothing if it does not say."""
    protocol = destination.protocol
    if protocol.has_catalog is HasCatalog.NEVER:
        return ()
    cache_key = (destination.connection.name, destination.identity, destination.config.digest)
    message = None if fresh else destination.usable_message(destination.cache.catalog(*cache_key))
    if message is None:
        message = _queried(destination)
        destination.cache.keep_catalog(*cache_key, message)
    return protocol.operations(message)


def _queried(destination: ConfiguredConnector[DestinationProtocol]) -> bytes:
    invocation = destination.protocol.discover(destination.config.current)
    try:
        return query_connector(destination.connector, [invocation], OperationsEvent, destination.listener).message
    except ConnectorError as error:
        if destination.protocol.has_catalog is HasCatalog.ALWAYS:
            raise
        destination.note(
            f"streams are not checked against the destination's catalog, for it answers none: {error.found}"
        )
        return _NONE
