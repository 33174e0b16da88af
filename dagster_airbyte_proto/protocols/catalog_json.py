"""Catalogs as JSON, for every protocol: a list of streams, each kept byte for byte."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import Catalog, Stream, StreamId
from dagster_airbyte_proto.protocols.raw_json import MemberError, array, items, value


def parse_streams(
    stream_list: bytes, parse_stream: Callable[[Mapping[str, Any], bytes], Stream | None], *, name_member: str
) -> Catalog:
    """Parses the JSON list of streams of a catalog. Raises ProtocolViolation.

    `parse_stream` returns None for a stream that has no name. `name_member` is the JSON member that holds the name;
    error messages quote it.
    """
    entries = items(stream_list)
    if entries is None:
        raise catalog_violation("it has no list of streams")
    streams: dict[StreamId, Stream] = {}
    duplicates: list[Stream] = []
    for number, raw in enumerate(entries, start=1):
        try:
            entry = value(raw)
        except MemberError as error:
            raise catalog_violation(f"stream number {number} cannot be read") from error
        stream = parse_stream(entry, raw) if isinstance(entry, dict) else None
        if stream is None:
            raise catalog_violation(f"stream number {number} has no {name_member}")
        if stream.id in streams:
            duplicates.append(stream)
        else:
            streams[stream.id] = stream
    return Catalog(tuple(streams.values()), tuple(duplicates))


def catalog_message(streams: Iterable[bytes]) -> bytes:
    """Builds the JSON of a catalog from the JSON of its streams."""
    return b'{"streams":' + array(list(streams)) + b"}"


def catalog_violation(found: str, *, stream: StreamId | None = None) -> ProtocolViolation:
    return ProtocolViolation("reading the connector's catalog", found, stream=str(stream) if stream else None)
