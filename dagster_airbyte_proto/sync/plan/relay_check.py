"""Checks the streams of a relay against what its destination takes, before anything is read."""

from collections.abc import Sequence

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PlannedStream, RelayTarget, StreamId
from dagster_airbyte_proto.protocols.destination import DestinationOperation, DestinationProtocol, PushedStream
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.destination_catalog import check_stream, offered_operations


def streams_refused_by_destination(
    destination: ConfiguredConnector[DestinationProtocol], planned: Sequence[PlannedStream], *, fresh: bool = False
) -> dict[StreamId, ConfigError]:
    """Returns the streams that the destination does not take, by its spec, and by its catalog if it has one. A `fresh`
    catalog is asked for, else the last one counts."""
    spec, protocol = destination.spec(), destination.protocol
    refusals = {each.id: protocol.refusal(spec, each.relay.mode) for each in planned if each.relay is not None}
    operations = offered_operations(destination, fresh=fresh) if None in refusals.values() else ()
    refused = {}
    for each in planned:
        target = each.relay
        if target is None:
            continue
        found = refusals[each.id]
        if found is None and operations:
            found = protocol.mismatch(operations, _stream_of(target))
        if found is None:
            found = _catalog_fault(destination, each, operations)
        if found is not None:
            refused[each.id] = ConfigError(
                f"relaying connection {destination.connection.name}",
                found,
                remedy="Choose another `write`, `primary_key`, `rename` or other `options` for the stream.",
                stream=str(each.id),
            )
    return refused


def _stream_of(target: RelayTarget) -> PushedStream:
    return PushedStream(target.stream, {}, target.mode, target.keys)


def _catalog_fault(
    destination: ConfiguredConnector[DestinationProtocol],
    planned: PlannedStream,
    operations: Sequence[DestinationOperation],
) -> str | None:
    """The fault of the user's options for a stream, by the schema that the destination gives for them, or that of the
    schema which it gives for the rows."""
    target, chosen = planned.relay, destination.connection.options(planned.id)
    if target is None:
        return None
    options = chosen.options if chosen else {}
    try:
        check_stream(destination.protocol, operations, _stream_of(target), options, "its options")
    except ConfigError as error:
        return str(error)
    return None
