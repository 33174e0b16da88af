"""Catalogs as JSON, for every protocol: a list of streams, each kept byte for byte."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import Catalog, Stream, StreamId
from dagster_airbyte_proto.protocols.raw_json import MemberError, array, items, value


class UnreadableSchema(Exception):
    """The schema of a stream is no object."""


def parse_streams(
    stream_list: bytes, parse_stream: Callable[[Mapping[str, Any], bytes], Stream | None], *, name_member: str
) -> Catalog:
    """Parses the JSON list of streams of a catalog. Raises ProtocolViolation.

    `parse_stream` returns None for a stream that has no name, and raises UnreadableSchema for one whose schema cannot
    be used: it stays in the catalog, to be refused alone. `name_member` is the JSON member that holds the name; error
    messages quote it.
    """
    entries = items(stream_list)
    if entries is None:
        raise _violation("it has no list of streams")
    streams: dict[StreamId, Stream] = {}
    duplicates: list[Stream] = []
    unreadable: dict[StreamId, None] = {}
    for number, raw in enumerate(entries, start=1):
        try:
            entry = value(raw)
        except MemberError as error:
            raise _violation(f"stream number {number} cannot be read") from error
        entry = entry if isinstance(entry, dict) else {}
        try:
            stream, is_readable = parse_stream(entry, raw), True
        except UnreadableSchema:
            stream, is_readable = parse_stream(_without_schema(entry), raw), False
        if stream is None:
            raise _violation(f"stream number {number} has no {name_member}")
        if not is_readable:
            unreadable[stream.id] = None
        if stream.id in streams:
            duplicates.append(stream)
        else:
            streams[stream.id] = stream
    return Catalog(tuple(streams.values()), tuple(duplicates), tuple(unreadable))


def _without_schema(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in entry.items() if name not in ("json_schema", "schema")}


def catalog_message(streams: Iterable[bytes]) -> bytes:
    """Builds the JSON of a catalog from the JSON of its streams."""
    return b'{"streams":' + array(list(streams)) + b"}"


def _violation(found: str) -> ProtocolViolation:
    return ProtocolViolation("reading the connector's catalog", found)
