"""The catalog of a destination: the objects that it writes to.

Few Airbyte destinations have one, and no spec says which: one without a catalog fails as one does that is away for a
moment. So a failure is an answer only if the check of the destination succeeds, and then it fails once more. That is
found out once for each version and config, and nothing is checked then. `check` and `discover` ask again.

Where its check fails too, nothing is sent: rows would go unchecked to the objects that it may have, unless the user
says that it has none (`catalog: none`). Without any verdict of the check, or where the catalog came too late or its
failure is said to pass, the run goes on by the last answer, or unchecked, and the next one asks again.

A source gives no answer either if it does not reach what it reads. Where the spec does not say that it is a
destination, its usage texts tell before a row is sent; the cache keeps that this was found out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.encoding.json_types import checkable
from dagster_airbyte_proto.encoding.row_schema import RemovedRows, RowSchema
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.destination import (
    DestinationOperation,
    DestinationProtocol,
    HasCatalog,
    JsonDialect,
    PushedStream,
)
from dagster_airbyte_proto.protocols.events import CheckEvent, OperationsEvent, UsageEvent
from dagster_airbyte_proto.sync.connector.config_check import check_config
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.connector.queries import query_connector

_NONE = b'{"operations":[],"is_proved":true}'
_UNPROVED = b'{"operations":[]}'
"""What earlier releases kept of any failure. It is no answer."""
_SHOWN_STREAMS = 3
_USAGE_SECONDS = 120.0


def offered_operations(destination: Destination, *, fresh: bool = False) -> tuple[DestinationOperation, ...]:
    """Returns what the destination writes to; nothing if it does not say. Raises ConfigError for a source, which lists
    the streams that it reads."""
    protocol = destination.protocol
    if protocol.has_catalog is HasCatalog.NEVER or destination.connection.catalog == "none":
        return ()
    message = None if fresh else destination.offered or _cached(destination)
    if message is None:
        message = _queried(destination)
        if message is None:
            message = _cached(destination) or _UNPROVED
        else:
            destination.cache.keep_catalog(*destination.cache_key, message)
    # One run goes by one answer, and asks once.
    destination.offered = message
    return protocol.operations(message)


def may_have_catalog(destination: Destination) -> bool:
    """True if `offered_operations` returned nothing because the destination did not say."""
    return destination.offered == _UNPROVED


def _cached(destination: Destination) -> bytes | None:
    message = destination.usable_message(destination.cache.catalog(*destination.cache_key))
    return None if message == _UNPROVED else message


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


class WantedStream(NamedTuple):
    """A stream that a connection is to write, with the user's options for it. `where` names these in an error."""

    stream: PushedStream
    options: Mapping[str, Any]
    where: str


def refusals(
    destination: Destination,
    wanted: Mapping[StreamId, WantedStream],
    *,
    fresh: bool = False,
) -> Mapping[StreamId, str | ConfigError]:
    """Returns why the destination does not take some of the streams: by its spec, and by its catalog if it has one. A
    `fresh` catalog is asked for, else the last one counts.

    An error is about the user's options, or the schema that the destination gives for its rows.
    """
    spec, protocol = destination.spec(), destination.protocol
    by_spec = {stream_id: protocol.refusal(spec, each.stream.mode) for stream_id, each in wanted.items()}
    operations = offered_operations(destination, fresh=fresh) if None in by_spec.values() else ()
    found = {
        stream_id: by_spec[stream_id] or _refused_by_catalog(protocol, operations, each)
        for stream_id, each in wanted.items()
    }
    return {stream_id: reason for stream_id, reason in found.items() if reason is not None}


def _refused_by_catalog(
    protocol: DestinationProtocol, operations: Sequence[DestinationOperation], wanted: WantedStream
) -> str | ConfigError | None:
    stream = wanted.stream
    mismatch = protocol.mismatch(operations, stream) if operations else None
    if mismatch is not None:
        return mismatch
    try:
        opened_row_schema(protocol, row_schema_of(protocol, operations, stream), stream)
        for each in operations:
            if each.object_name == str(stream.id) and each.options_schema:
                check_config(wanted.options, each.options_schema, where=wanted.where)
    except ConfigError as error:
        return error
    return None


def _queried(destination: Destination) -> bytes | None:
    """The catalog, or that there is none; None if nobody can tell. Raises ConnectorError if a later run may tell."""
    try:
        return _discovered(destination)
    except ConnectorError as error:
        if destination.protocol.has_catalog is HasCatalog.ALWAYS:
            raise
        if _only_reads(destination):
            raise _source_error(destination, "it knows the command `read`, and not `write`") from error
        first = error
    try:
        _check_that_it_is_there(destination, first)
    except _NoVerdict as error:
        _warn_of_unchecked(destination, f"it gave none ({first.found}), and does not say whether it is there ({error})")
        return None
    if first.retryable:  # As a time limit is: to wait for it once more would double that.
        _warn_of_unchecked(destination, f"it is there, and gave none ({first.found})")
        return None
    try:
        return _discovered(destination)
    except ConnectorError as error:
        if error.retryable:
            raise
        destination.note(
            f"streams are not checked against the destination's catalog, for it answers none: {error.found}"
        )
        return _NONE


def _warn_of_unchecked(destination: Destination, why: str) -> None:
    unchecked = "streams are not checked against a catalog that the destination may have, and the next run asks again"
    destination.warn(f"{unchecked}: {why}")


def _discovered(destination: Destination) -> bytes:
    invocation = destination.protocol.discover(destination.config.current)
    found = query_connector(destination.connector, [invocation], OperationsEvent, destination.listener)
    if found.read_streams:
        raise _source_error(destination, f"it lists streams to read ({_first_of(found.read_streams)})")
    is_empty = destination.protocol.has_catalog is HasCatalog.SOME and not destination.protocol.operations(
        found.message
    )
    return _NONE if is_empty else found.message


class _NoVerdict(Exception):
    """A destination that does not say whether it is there."""


def _check_that_it_is_there(destination: Destination, error: ConnectorError) -> None:
    """Raises ConnectorError, which a later run may not meet, if the destination is away."""
    invocation = destination.protocol.check(destination.config.current)
    try:
        verdict = query_connector(destination.connector, [invocation], CheckEvent, destination.listener)
    except ProtoError as failed:  # A recording has no check.
        if failed.retryable:
            raise
        raise _NoVerdict(failed.found) from failed
    if not verdict.succeeded:
        why = destination.mask.text(verdict.message)
        raise ConnectorError(
            error.doing,
            f"{error.found}; and its check fails: {why or 'it does not say why'}",
            remedy="Nothing was sent: it is not known which objects it has. Try again when"
            f" `airbyte-proto check {destination.connection.name}` succeeds. If it writes though its check fails, and"
            " has no catalog, say so in the connection: `catalog: none`.",
            retryable=True,
        )


def _only_reads(destination: Destination) -> bool:
    return not _has_usage(destination, Verb.WRITE) and _has_usage(destination, Verb.READ)


def _has_usage(destination: Destination, verb: Verb) -> bool:
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


def _source_error(destination: Destination, sign: str) -> ConfigError:
    return ConfigError(
        f"checking the destination of connection {destination.connection.name}",
        f"its connector is a source: {sign}",
        remedy="Name a destination under `connector`, or under `to` if this is a relay.",
    )


def _first_of(streams: Sequence[str]) -> str:
    return ", ".join(streams[:_SHOWN_STREAMS]) + (", …" if len(streams) > _SHOWN_STREAMS else "")
