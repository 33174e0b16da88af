"""The values that a connector has written and that are not kept yet: they wait for the rows that they are about.

Their writer reads them meanwhile. They are kept when these rows are acknowledged, in one transaction with them, and
forgotten if the process ends before.
"""

import heapq
import threading
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.kept_values import Asset, KeptValue, Key, ValueChanges, ValueStore, stored_key
from dagster_airbyte_proto.checkpoints.transform_states import TRANSFORMS
from dagster_airbyte_proto.protocols.syncmaven.state_calls import BadCall

_ENTRY_BYTES = 64
"""The memory of a change beside its key and its value, about."""


class ValueLimits(NamedTuple):
    """The limits of what one connector may keep for one stream.

    A value and its key have at most `value_bytes` together, and a key `key_bytes`: an entry of an index of PostgreSQL
    has 2,704, with the names of the stream and its connection. All values of a stream have `kept_bytes` and are `kept`,
    those that wait have `waiting_bytes`.
    """

    value_bytes: int = 1 << 20
    key_bytes: int = 2000
    kept: int = 2_000_000
    kept_bytes: int = 1 << 30
    waiting_bytes: int = 128 << 20


class LimitExceeded(Exception):
    """The connector wants to keep more than it may."""


class PendingValues:
    """The values of one asset as the connector sees them: those that are kept, with its changes over them.

    What other connectors keep of the stream is among them in the store, under the first segments `of_others`, and out
    of the connector's reach: a call about it raises BadCall.
    """

    def __init__(
        self, store: ValueStore, asset: Asset, limits: ValueLimits, of_others: Collection[str] = (TRANSFORMS,)
    ) -> None:
        self._store, self._asset, self._limits, self._of_others = store, asset, limits, of_others
        self._lock = threading.Lock()
        self._changes: dict[Key, bytes | None] = {}
        self._dropped: set[Key] = set()  # Prefixes. Their keys are not in memory: there may be a million.
        self._waiting_bytes = 0
        self._kept, self._kept_bytes = store.count_kept_values(asset)

    def changes(self) -> ValueChanges:
        """The changes so far."""
        with self._lock:
            return ValueChanges(dict(self._changes), tuple(sorted(self._dropped)))

    def get(self, key: Key) -> bytes | None:
        self._check_own(key)
        with self._lock:
            if key in self._changes:
                return self._changes[key]
            if self._is_dropped(key):
                return None
        return self._store.kept_value(self._asset, key)

    def set(self, key: Key, value: bytes) -> None:
        """Raises LimitExceeded."""
        self._check_own(key)
        size = _size(key) + len(value)
        limits = self._limits
        if size > limits.value_bytes:
            raise LimitExceeded(f"a value and its key may have {limits.value_bytes:,} bytes, and these have {size:,}")
        if len(stored_key(key)) > limits.key_bytes:
            raise LimitExceeded(f"a key may have {limits.key_bytes:,} bytes, and this one has {len(stored_key(key)):,}")
        with self._lock:
            waiting = self._waiting_with(key, value)
            self._check_waiting(waiting)
            count = self._kept + len(self._changes) + (key not in self._changes)
            if count > limits.kept or self._kept_bytes + waiting > limits.kept_bytes:
                raise LimitExceeded(f"a stream may keep {limits.kept:,} values and {limits.kept_bytes:,} bytes")
            self._changes[key] = value
            self._waiting_bytes = waiting

    def delete(self, key: Key) -> bool:
        """Returns whether there was a value. Raises LimitExceeded."""
        self._check_own(key)
        is_stored = self._store.kept_value(self._asset, key) is not None
        with self._lock:
            is_stored = is_stored and not self._is_dropped(key)
            if self._changes.get(key) is None and (key in self._changes or not is_stored):
                return False
            if is_stored:
                waiting = self._waiting_with(key, None)
                self._check_waiting(waiting)
                self._changes[key], self._waiting_bytes = None, waiting
            else:  # Nothing is to be deleted from the store: of a value that came and went nothing stays here.
                self._waiting_bytes -= self._waiting_size(key)
                del self._changes[key]
        return True

    def delete_all(self, prefix: Key) -> int:
        """Drops all values under a prefix. Returns how many there were. Raises LimitExceeded."""
        self._check_own(prefix)
        count, stored = self._sizes(prefix)
        with self._lock:
            own = [key for key in self._changes if key[: len(prefix)] == prefix]
            waiting = self._waiting_bytes - sum(map(self._waiting_size, own))
            # Not by `count`: what the store has may wait to be deleted key by key, and these changes end here.
            if stored and not self._is_dropped(prefix):
                waiting += _size(prefix) + _ENTRY_BYTES
                self._check_waiting(waiting)
                self._dropped.add(prefix)
            for key in own:
                del self._changes[key]
            self._waiting_bytes = waiting
        return count

    def list(self, prefix: Key) -> Iterator[KeptValue]:
        """The values under a prefix, in the order of their keys."""
        self._check_own(prefix)
        with self._lock:
            own = {key: value for key, value in self._changes.items() if key[: len(prefix)] == prefix}
            dropped = frozenset(self._dropped)
        stored = () if _has_prefix_in(dropped, prefix) else self._store.kept_values(self._asset, prefix)
        kept = (each for each in stored if each.key not in own and not _has_prefix_in(dropped, each.key))
        new = [KeptValue(key, value) for key, value in own.items() if value is not None]
        new.sort(key=lambda each: stored_key(each.key))
        return heapq.merge(kept, new, key=lambda each: stored_key(each.key))

    def size(self, prefix: Key) -> int:
        """The number of values under a prefix. The store counts its own: there may be a million."""
        self._check_own(prefix)
        return self._sizes(prefix)[0]

    def _check_own(self, key: Key) -> None:
        if key[0] in self._of_others:
            raise BadCall(f"a key may not begin with {key[0]}: what another connector of the connection keeps is there")

    def _sizes(self, prefix: Key) -> tuple[int, int]:
        """The number of values under a prefix, and of those that the store has and that no dropped prefix covers."""
        with self._lock:
            own = {key: value is not None for key, value in self._changes.items() if key[: len(prefix)] == prefix}
            dropped = frozenset(self._dropped)
        new = sum(own.values())
        if _has_prefix_in(dropped, prefix):
            return new, 0
        store, asset = self._store, self._asset
        under = [each for each in dropped if each[: len(prefix)] == prefix and not _has_prefix_in(dropped, each[:-1])]
        gone = sum(store.count_kept_values(asset, each)[0] for each in under)
        stored = store.count_kept_values(asset, prefix)[0] - gone
        hidden = store.count_kept_keys(asset, [key for key in own if not _has_prefix_in(dropped, key)])
        return stored - hidden + new, stored

    def _is_dropped(self, key: Key) -> bool:
        return _has_prefix_in(self._dropped, key)

    def _check_waiting(self, waiting_bytes: int) -> None:
        if waiting_bytes > self._limits.waiting_bytes:
            raise LimitExceeded(f"values of more than {self._limits.waiting_bytes:,} bytes wait for their rows")

    def _waiting_with(self, key: Key, value: bytes | None) -> int:
        """The bytes that wait once this is the change of a key."""
        return self._waiting_bytes + _size(key) + len(value or b"") + _ENTRY_BYTES - self._waiting_size(key)

    def _waiting_size(self, key: Key) -> int:
        """The bytes of the change that waits under a key; 0 if there is none."""
        if key not in self._changes:
            return 0
        return _size(key) + len(self._changes[key] or b"") + _ENTRY_BYTES


def _size(key: Key) -> int:
    return sum(len(part.encode("utf-8", "surrogatepass")) for part in key)


def _has_prefix_in(prefixes: AbstractSet[Key], key: Key) -> bool:
    return bool(prefixes) and any(key[:length] in prefixes for length in range(1, len(key) + 1))
