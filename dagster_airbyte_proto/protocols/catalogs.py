"""What catalogs are in any protocol: lists of streams, each kept as it came, no two of one name."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import Catalog, Stream, StreamId
from dagster_airbyte_proto.protocols.raw_json import PartError, array, items, value


def catalog_of(offered: bytes, read: Callable[[Mapping[str, Any], bytes], Stream | None], *, name: str) -> Catalog:
    """From a list of streams. What `read` makes of one is None where it has no name; `name` is what that is called.
    Raises ProtocolViolation."""
    entries = items(offered)
    if entries is None:
        raise violation("it has no list of streams")
    streams: dict[StreamId, Stream] = {}
    for number, raw in enumerate(entries, start=1):
        try:
            entry = value(raw)
        except PartError as error:
            raise violation(f"stream number {number} cannot be read") from error
        stream = read(entry, raw) if isinstance(entry, dict) else None
        if stream is None:
            raise violation(f"stream number {number} has no {name}")
        if stream.id in streams:
            raise violation(f"two streams have this {name}", stream=stream.id)
        streams[stream.id] = stream
    return Catalog(tuple(streams.values()))


def catalog_message(streams: Iterable[bytes]) -> bytes:
    """A catalog as JSON, of the JSON of its streams."""
    return b'{"streams":' + array(list(streams)) + b"}"


def violation(found: str, *, stream: StreamId | None = None) -> ProtocolViolation:
    return ProtocolViolation("reading the connector's catalog", found, stream=str(stream) if stream else None)
