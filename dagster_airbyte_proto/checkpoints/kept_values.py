"""The values that connectors keep between runs: a small store of keys and JSON, apart from their states.

- They belong to one asset: a stream of a connection, in a partition. No connector sees those of another.
- They change together with the rows that they are about: in the transaction that acknowledges these. So they never run
  ahead of the rows.
- Each change has a version of the connection's states. A reset of the state drops them, a rollback brings them back as
  they were, and the history tells of both.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from dagster_airbyte_proto.checkpoints.store import Lease, StateChange
from dagster_airbyte_proto.model import StreamId

Key = tuple[str, ...]
"""The segments of a key."""

VALUES_ROLLED_BACK = "rollback of values"

_SEGMENTS = msgspec.json.Decoder(list[str])


class ValueChanges(NamedTuple):
    """Changes of values: all under the `dropped` prefixes end, then each key has its new value, as JSON, or none."""

    values: Mapping[Key, bytes | None] = {}
    dropped: tuple[Key, ...] = ()


class KeptValue(NamedTuple):
    """A key and its value, as JSON."""

    key: Key
    value: bytes


class Asset(NamedTuple):
    """The owner of kept values. Without a stream they are the connection's own."""

    connection: str
    stream: StreamId | None
    partition: str = ""


class KeptSize(NamedTuple):
    """The number of the values of an asset, and their bytes."""

    asset: Asset
    values: int
    size_bytes: int


class ValueStore(Protocol):
    """The part of the state store that reads kept values.

    A prefix matches by whole segments; an empty one matches all.
    """

    def kept_value(self, asset: Asset, key: Key) -> bytes | None: ...

    def kept_values(self, asset: Asset, prefix: Key = ()) -> Iterator[KeptValue]:
        """The values under a prefix, in the order of their keys. They are read piece by piece."""
        ...

    def count_kept_values(self, asset: Asset, prefix: Key = ()) -> tuple[int, int]:
        """Returns the number of values under a prefix, and their bytes."""
        ...

    def count_kept_keys(self, asset: Asset, keys: Sequence[Key]) -> int:
        """Returns how many of these keys have a value."""
        ...


class CachedRows(NamedTuple):
    """The owner of cached rows: an enrichment of a connection. They are used for so many seconds."""

    connection: str
    enrichment: str
    seconds: float


class EnrichedRowStore(Protocol):
    """The part of the state store that has the rows that enrichments made, by a digest of the row they were made of.

    They are facts about rows, and no position: they are kept as soon as the process that made them has ended well, also
    if the run fails later. So they have no versions, and a rollback leaves them. A reset of the whole connection drops
    them.
    """

    def enriched_rows(self, owner: CachedRows, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Returns those that are kept under these keys, and not too old."""
        ...

    def keep_enriched_rows(self, lease: Lease, owner: CachedRows, rows: Mapping[bytes, bytes]) -> None:
        """Keeps rows by their keys, and drops those of the connection that are too old. Raises StateConflict."""
        ...

    def count_enriched_rows(self, connection: str) -> int: ...


def is_of_values(change: StateChange) -> bool:
    """True for a change of values: the state beside them is as it was."""
    return change.why.startswith(("kept ", "set ", "dropped ", VALUES_ROLLED_BACK))


def stored_key(key: Sequence[str]) -> bytes:
    """Returns a key as the store has it: its prefixes are those of the bytes, and the order is that of the bytes."""
    return b"".join(json.dumps(segment).encode() + b"," for segment in key)


def key_stored_as(stored: bytes) -> Key:
    return tuple(_SEGMENTS.decode(b"[" + stored[:-1] + b"]"))


def after_prefix(stored: bytes) -> bytes:
    """Returns the least bytes after all keys with this prefix."""
    return stored[:-1] + bytes([stored[-1] + 1])
