"""Checks the streams of a relay against what its destination takes, before anything is read."""

from collections.abc import Sequence

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.destination import PushedStream
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.connector.destination_catalog import WantedStream, refusals


def streams_refused_by_destination(
    destination: Destination, planned: Sequence[PlannedStream], *, fresh: bool = False
) -> dict[StreamId, ConfigError]:
    """Returns the streams that the destination does not take, by its spec, and by its catalog if it has one. A `fresh`
    catalog is asked for, else the last one counts."""
    wanted = {}
    for each in planned:
        if each.relay is not None:
            target, chosen = each.relay, destination.connection.options(each.id)
            stream = PushedStream(target.stream, {}, target.mode, target.keys)
            wanted[each.id] = WantedStream(stream, chosen.options if chosen else {}, "its options")
    return {
        stream: ConfigError(
            f"relaying connection {destination.connection.name}",
            str(reason),
            remedy="Choose another `write`, `primary_key`, `rename` or other `options` for the stream.",
            stream=str(stream),
        )
        for stream, reason in refusals(destination, wanted, fresh=fresh).items()
    }
