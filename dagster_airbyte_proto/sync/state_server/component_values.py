"""The values that a component keeps between runs, as the store has them.

| scope | belongs to | key in the store |
|---|---|---|
| pipeline | the connection: its source and its destination share it | pipeline, key |
| instance | the connection, for one of its components | source, destination, or transform and its name; key |
| stream | the stream | source or destination, key |

A source's values of a stream are in its states where it is read incrementally, see `protocols/rapidbyte/states.py`. A
full refresh has no states that stay: they are here, and `stream/NAME` is their scope.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum

import msgspec

from dagster_airbyte_proto.checkpoints.kept_values import Asset, Key, ValueChanges, ValueStore
from dagster_airbyte_proto.model import PlannedStream, ReadMode, StreamId
from dagster_airbyte_proto.protocols.rapidbyte.source import STREAM_SCOPE

Kept = Mapping[str, Mapping[str, str]]
"""Values by their scopes."""

_TEXT = msgspec.json.Decoder(str)
_SEGMENTS = 2


class ComponentRole(StrEnum):
    SOURCE = "source"
    DESTINATION = "destination"


def shared_asset(connection: str) -> Asset:
    """The owner of the values that belong to no stream."""
    return Asset(connection, None)


def shared_values(store: ValueStore, connection: str, role: str) -> Kept:
    """Returns the values that belong to no stream, by their scopes."""
    asset = shared_asset(connection)
    found = {scope: _under(store, asset, prefix) for scope, prefix in _prefixes(role)}
    return {scope: values for scope, values in found.items() if values}


def stream_values(store: ValueStore, asset: Asset, role: ComponentRole) -> Mapping[str, str]:
    """Returns the values that a component keeps for a stream."""
    return _under(store, asset, role.value)


def source_values(store: ValueStore, connection: str, streams: Iterable[PlannedStream]) -> Kept:
    """Returns the values that a source keeps beside its states, by their scopes."""
    refreshed = [each.id for each in streams if each.read is ReadMode.FULL_REFRESH]
    kept = {
        f"{STREAM_SCOPE}{stream.name}": stream_values(store, Asset(connection, stream), ComponentRole.SOURCE)
        for stream in refreshed
    }
    found = {**shared_values(store, connection, ComponentRole.SOURCE), **kept}
    return {scope: values for scope, values in found.items() if values}


def source_changes(store: ValueStore, connection: str, kept: Kept) -> Iterator[tuple[Asset, ValueChanges]]:
    """Yields the changes by which the store comes to have what a source keeps beside its states."""
    yield shared_asset(connection), shared_changes(store, connection, ComponentRole.SOURCE, kept)
    for scope, values in kept.items():
        if scope.startswith(STREAM_SCOPE):
            asset = Asset(connection, StreamId.of(scope.removeprefix(STREAM_SCOPE)))
            before = stream_values(store, asset, ComponentRole.SOURCE)
            yield asset, stream_changes(before, values, ComponentRole.SOURCE)


def changed_values(before: Kept, now: Kept) -> Kept:
    """Returns the values that are new, or others than before, by their scopes."""
    found = {
        scope: {key: text for key, text in values.items() if before.get(scope, {}).get(key) != text}
        for scope, values in now.items()
    }
    return {scope: values for scope, values in found.items() if values}


def shared_changes(store: ValueStore, connection: str, role: str, kept: Kept) -> ValueChanges:
    """Returns the changes by which the store comes to have these values. Nothing is ever dropped: no component can."""
    before = shared_values(store, connection, role)
    return ValueChanges(
        {
            (prefix, key): msgspec.json.encode(text)
            for scope, prefix in _prefixes(role)
            for key, text in kept.get(scope, {}).items()
            if before.get(scope, {}).get(key) != text
        }
    )


def stream_changes(before: Mapping[str, str], now: Mapping[str, str], role: ComponentRole) -> ValueChanges:
    """Returns the changes between the values that a component kept for a stream, and those that it keeps now."""
    changed: dict[Key, bytes | None] = {
        (role.value, key): msgspec.json.encode(text) for key, text in now.items() if before.get(key) != text
    }
    return ValueChanges(changed)


def _prefixes(role: str) -> Iterator[tuple[str, str]]:
    yield "pipeline", "pipeline"
    yield "instance", str(role)


def _under(store: ValueStore, asset: Asset, prefix: str) -> Mapping[str, str]:
    """Passes over values of another form than components keep: a person or a Syncmaven destination set them."""
    found = {}
    for each in store.kept_values(asset, (prefix,)):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            if len(each.key) == _SEGMENTS:
                found[each.key[1]] = _TEXT.decode(each.value)
    return found


def check_component_value(key: Key, value: bytes) -> None:
    """Raises ValueError for what no component can keep under a key of its own."""
    if len(key) != _SEGMENTS:
        raise ValueError(f"a component keeps values under the key {key[0]} and one more segment")
    try:
        _TEXT.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("a component keeps texts, and this is none") from None
