"""Streams that cannot be told apart, or be known: each fails alone, before the connector reads, and the others are
synced.

- A catalog has two entries of one namespace and name. Their records look the same.
- A name in the connection file may mean several streams.
- Two streams have the same text, which is their key in the report: `a.b` without a namespace, and `b` in `a`.
- A stream has NUL in its name. A state store in PostgreSQL has no such text, and one in SQLite may move there.
- The schema of a stream cannot be read. Without it the stream would land as JSON text, beside the columns that it had.

A stream that shares a state with one of them fails too: the state would move on without that one's rows.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence

from dagster_airbyte_proto.connection import OTHERS, Connection
from dagster_airbyte_proto.connection.stream_names import streams_named, unmistakable_name
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, PlannedStream, ReadMode, State, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.sync.plan.shared_state import streams_sharing

_DOING = "telling streams apart"


def clashing_streams(
    connection: Connection, catalog: Catalog, planned: Sequence[PlannedStream]
) -> dict[StreamId, ConfigError]:
    """Returns the planned streams that clash with another one, or cannot be read, each with its error."""
    found = {each.id: each for each in planned}
    errors: dict[StreamId, ConfigError] = {}
    for stream, error in (
        *_duplicates(catalog),
        *_ambiguously_named(connection, catalog),
        *_with_equal_text(tuple(found)),
        *_with_nul(found),
        *_unreadable(catalog),
    ):
        if stream in found:
            errors.setdefault(stream, error)
    return errors


def streams_held_back(
    protocol: SourceProtocol,
    shared: Sequence[State],
    planned: Sequence[PlannedStream],
    refused: Container[StreamId],
) -> dict[StreamId, ConfigError]:
    """Returns the streams that share one of these states with a refused one, each with its error."""
    incremental = [each for each in planned if each.read is ReadMode.INCREMENTAL]
    group = {each.id for each in streams_sharing(protocol, shared, incremental, incremental)} if shared else set()
    missing = sorted(str(stream) for stream in group if stream in refused)
    if not missing:
        return {}
    found = f"it shares a state with {', '.join(missing)}, which cannot be synced"
    remedy = "Their own errors say what to do first."
    held_back = (stream for stream in group if stream not in refused)
    return {stream: ConfigError(_DOING, found, remedy=remedy, stream=str(stream)) for stream in held_back}


def _duplicates(catalog: Catalog) -> Iterator[tuple[StreamId, ConfigError]]:
    for stream, more in Counter(each.id for each in catalog.duplicates).items():
        yield (
            stream,
            ConfigError(
                _DOING,
                f"the catalog has {more + 1} streams {unmistakable_name(stream)}; a null namespace and an empty one are"
                " the same",
                remedy="Choose other streams, or rename one of them in the source.",
                stream=str(stream),
            ),
        )


def _ambiguously_named(connection: Connection, catalog: Catalog) -> Iterator[tuple[StreamId, ConfigError]]:
    offered = [stream.id for stream in catalog.streams]
    for name in connection.streams or ():
        meant = () if name == OTHERS else streams_named(name, offered)
        if len(meant) > 1:
            found = f"streams: {name} may mean {' or '.join(map(unmistakable_name, meant))}"
            yield from _errors(meant, found, "Write the name in quotes, as here.")


def _with_equal_text(streams: Iterable[StreamId]) -> Iterator[tuple[StreamId, ConfigError]]:
    by_text: dict[str, list[StreamId]] = {}
    for stream in streams:
        by_text.setdefault(str(stream), []).append(stream)
    for text, same in by_text.items():
        if len(same) > 1:
            found = f"{' and '.join(map(unmistakable_name, same))} would both be {text} in reports"
            yield from _errors(
                same, found, "Choose one of them by its name in quotes, and the other in a connection of its own."
            )


def _with_nul(streams: Iterable[StreamId]) -> Iterator[tuple[StreamId, ConfigError]]:
    named = [stream for stream in streams if "\0" in str(stream)]
    return _errors(named, "its name has a NUL character", "Leave it out, or rename it in the source.")


def _unreadable(catalog: Catalog) -> Iterator[tuple[StreamId, ConfigError]]:
    for stream in catalog.unreadable:
        remedy = "Report it to the connector's author, and leave the stream out until then."
        found = "its schema in the catalog is no object"
        yield stream, ConfigError("reading the connector's catalog", found, remedy=remedy, stream=str(stream))


def _errors(streams: Iterable[StreamId], found: str, remedy: str) -> Iterator[tuple[StreamId, ConfigError]]:
    return ((stream, ConfigError(_DOING, found, remedy=remedy, stream=str(stream))) for stream in streams)
