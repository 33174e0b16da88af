"""Finds the streams that a connection, a request and transforms name in a catalog.

A name that no stream has is a fault of the settings, and of no stream: it stops all of them.
"""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

from dagster_airbyte_proto.connection import OTHERS, Connection, StreamOptions
from dagster_airbyte_proto.connection.stream_names import full_name, streams_named, unmistakable_name
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, StreamId

_MOST_NAMED = 20


def chosen_streams(connection: Connection, offered: Collection[StreamId]) -> dict[StreamId, StreamOptions]:
    """Returns the streams with their options. A name that may mean several streams chooses them all."""
    if connection.streams is None:
        return dict.fromkeys(offered, StreamOptions())
    named = {
        stream: options
        for name, options in connection.streams.items()
        if name != OTHERS
        for stream in _streams_meant(name, offered, "streams")
    }
    others = connection.streams.get(OTHERS)
    return named if others is None else {stream: named.get(stream, others) for stream in offered}


def requested_streams(only: Collection[StreamId | str], chosen: Collection[StreamId]) -> Iterator[StreamId]:
    """Returns the streams that a request names among the chosen ones."""
    for each in only:
        meant = (
            [each] if isinstance(each, StreamId) and each in chosen else _streams_meant(str(each), chosen, "--streams")
        )
        if len(meant) > 1:
            raise _ambiguous_name(str(each), meant, "--streams")
        yield from meant


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


def offered_text(offered: Collection[StreamId]) -> str:
    """The remedy where no stream is found: the names that there are."""
    if not offered:
        return "Does its config name what is to be read, and may its user see that?"
    names = sorted(map(str, offered))
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"The connector offers: {', '.join(names[:_MOST_NAMED])}{more}"


def _streams_meant(name: str, offered: Collection[StreamId], where: str) -> Sequence[StreamId]:
    """The streams with this name: several if the full names of more than one are written so."""
    found = streams_named(name, offered)
    if len(found) == 1 or (found and full_name(found[0]) == name):
        return found
    if found:
        raise _ambiguous_name(name, found, where)
    near = get_close_matches(name, map(str, offered), n=3)
    raise ConfigError(
        f"choosing streams ({where})",
        f"there is no stream {name!r}",
        remedy=f"Did you mean {' or '.join(map(repr, near))}?" if near else offered_text(offered),
    )


def _ambiguous_name(name: str, meant: Sequence[StreamId], where: str) -> ConfigError:
    return ConfigError(
        f"choosing streams ({where})",
        f"{len(meant)} streams have the name {name!r}",
        remedy=f"Did you mean {' or '.join(map(unmistakable_name, meant))}?",
    )
