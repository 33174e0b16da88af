"""The catalog of a destination: the objects that it writes to.

Few Airbyte destinations have one, and no spec says which. So such a destination is asked once for each version and
config, and no answer is an answer: nothing is checked then. `check` and `discover` ask again.

A source gives no answer either if it does not reach what it reads. Where the spec does not say that it is a
destination, its usage texts tell before a row is sent; the cache keeps that this was found out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagster_airbyte_proto.encoding.json_types import checkable
from dagster_airbyte_proto.encoding.row_schema import RemovedRows, RowSchema
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.destination import (
    DestinationOperation,
    DestinationProtocol,
    HasCatalog,
    JsonDialect,
    PushedStream,
)
from dagster_airbyte_proto.protocols.events import OperationsEvent, UsageEvent
from dagster_airbyte_proto.sync.connector.config_check import check_config
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.queries import query_connector

_NONE = b'{"operations":[]}'
_SHOWN_STREAMS = 3
_USAGE_SECONDS = 120.0


def offered_operations(
    destination: ConfiguredConnector[DestinationProtocol], *, fresh: bool = False
) -> tuple[DestinationOperation, ...]:
    """Returns what the destination writes to; nothing if it does not say. Raises ConfigError for a source, which lists
    the streams that it reads."""
    protocol = destination.protocol
    if protocol.has_catalog is HasCatalog.NEVER:
        return ()
    cache_key = destination.cache_key
    message = None if fresh else destination.usable_message(destination.cache.catalog(*cache_key))
    if message is None:
        message = _queried(destination)
        destination.cache.keep_catalog(*cache_key, message)
    return protocol.operations(message)


def row_schema_of(
    protocol: DestinationProtocol, operations: Sequence[DestinationOperation], stream: PushedStream
) -> Mapping[str, Any] | None:
    """Returns the JSON Schema of the operation that writes a stream; None if it takes any row."""
    fitting = (each for each in operations if protocol.mismatch((each,), stream) is None)
    operation = next(fitting, None)
    schema = None if operation is None else operation.row_schema
    return checkable(schema) if schema and protocol.dialect is JsonDialect.AIRBYTE else schema


def opened_row_schema(
    protocol: DestinationProtocol, schema: Mapping[str, Any] | None, stream: PushedStream
) -> RowSchema | None:
    """Returns the schema that rows of a stream are held against. Raises ConfigError if it is not valid."""
    if schema is None:
        return None
    removed = RemovedRows(protocol.deletion_column, stream.keys) if protocol.deletion_column else None
    return RowSchema(schema, str(stream.id), removed)


def check_stream(
    protocol: DestinationProtocol,
    operations: Sequence[DestinationOperation],
    stream: PushedStream,
    options: Mapping[str, Any],
    where: str,
) -> None:
    """Raises ConfigError if the user's options for a stream do not fit the schemas that the destination gives for them,
    or if the schema for its rows is not valid. `where` names the options in the error."""
    opened_row_schema(protocol, row_schema_of(protocol, operations, stream), stream)
    for each in operations:
        if each.object_name == str(stream.id) and each.options_schema:
            check_config(options, each.options_schema, where=where)


def _queried(destination: ConfiguredConnector[DestinationProtocol]) -> bytes:
    invocation = destination.protocol.discover(destination.config.current)
    try:
        found = query_connector(destination.connector, [invocation], OperationsEvent, destination.listener)
    except ConnectorError as error:
        if destination.protocol.has_catalog is HasCatalog.ALWAYS:
            raise
        if _only_reads(destination):
            raise _source_error(destination, "it knows the command `read`, and not `write`") from error
        destination.note(
            f"streams are not checked against the destination's catalog, for it answers none: {error.found}"
        )
        return _NONE
    if found.read_streams:
        raise _source_error(destination, f"it lists streams to read ({_first_of(found.read_streams)})")
    return found.message


def _only_reads(destination: ConfiguredConnector[DestinationProtocol]) -> bool:
    return not _has_usage(destination, Verb.WRITE) and _has_usage(destination, Verb.READ)


def _has_usage(destination: ConfiguredConnector[DestinationProtocol], verb: Verb) -> bool:
    """True if the connector explains a request. Nothing else is taken from the text: programs word it as they like."""
    invocation = destination.protocol.usage(verb, destination.spec())
    if invocation is None:
        return False
    try:
        query_connector(
            destination.connector, [invocation], UsageEvent, destination.listener, timeout_seconds=_USAGE_SECONDS
        )
    except ProtoError:  # A recording has no usage texts.
        return False
    return True


def _source_error(destination: ConfiguredConnector[DestinationProtocol], sign: str) -> ConfigError:
    return ConfigError(
        f"checking the destination of connection {destination.connection.name}",
        f"its connector is a source: {sign}",
        remedy="Name a destination under `connector`, or under `to` if this is a relay.",
    )


def _first_of(streams: Sequence[str]) -> str:
    return ", ".join(streams[:_SHOWN_STREAMS]) + (", …" if len(streams) > _SHOWN_STREAMS else "")
