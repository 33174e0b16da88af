"""Checks the streams of a relay against what its destination takes, before anything is read."""

from collections.abc import Sequence

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.destination import DestinationProtocol, PushedStream
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.destination_catalog import offered_operations


def streams_refused_by_destination(
    destination: ConfiguredConnector[DestinationProtocol], planned: Sequence[PlannedStream], *, fresh: bool = False
) -> dict[StreamId, ConfigError]:
    """Returns the streams that the destination does not take, by its spec, and by its catalog if it has one. A `fresh`
    catalog is asked for, else the last one counts."""
    spec, protocol = destination.spec(), destination.protocol
    operations = offered_operations(destination, fresh=fresh)
    refused = {}
    for each in planned:
        target = each.relay
        if target is None:
            continue
        found = protocol.refusal(spec, target.mode)
        if found is None and operations:
            found = protocol.mismatch(operations, PushedStream(target.stream, {}, target.mode, target.keys))
        if found is not None:
            refused[each.id] = ConfigError(
                f"relaying connection {destination.connection.name}",
                found,
                remedy="Choose another `write`, `primary_key` or `rename` for the stream.",
                stream=str(each.id),
            )
    return refused
