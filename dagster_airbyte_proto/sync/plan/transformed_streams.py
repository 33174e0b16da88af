"""Checks the streams that transforms name against a catalog."""

from collections.abc import Iterator
from difflib import get_close_matches

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.stream_names import streams_named
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog


def unknown_transformed_streams(connection: Connection, catalog: Catalog) -> Iterator[ConfigError]:
    """Returns an error for each name of a stream that the catalog does not have: its transform would change nothing."""
    offered = [stream.id for stream in catalog.streams]
    for name in connection.transformed_streams:
        if not streams_named(name, offered):
            near = get_close_matches(name, map(str, offered), n=3)
            yield ConfigError(
                f"planning the transforms of connection {connection.name}",
                f"there is no stream {name!r}",
                remedy=f"Did you mean {' or '.join(map(repr, near))}?" if near else "",
            )
