"""The values of an enrichment in one of its processes: those from before it, with its own changes, as one.

They are in memory as a whole, and so is the state that they go into: see `checkpoints/transform_states.py`. So what an
enrichment may keep is less than what a destination may.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence

from dagster_airbyte_proto.checkpoints.kept_values import KeptValue, Key, stored_key
from dagster_airbyte_proto.sync.state_server.pending_values import LimitExceeded, ValueLimits

LIMITS_OF_STATE = ValueLimits(key_bytes=600, kept=100_000, kept_bytes=16 << 20)
"""What an enrichment may keep for a stream. The state goes into the announcement of each load. In it a key is a text
within a key, in which each quote may take four bytes of an index."""
LIMITS_OF_PROCESS = ValueLimits(kept_bytes=ValueLimits().waiting_bytes)
"""What a process may have of its own, of which nothing is kept."""
_ENTRY_BYTES = 64
"""The memory of a value beside its key and its bytes, about."""


class MemoryValues:
    """The values that the calls of one process are about. `refused` says what was too much, the first time."""

    def __init__(self, before: Mapping[Key, bytes], limits: ValueLimits, remedy: str = "") -> None:
        self._lock = threading.Lock()
        self._values, self._limits, self._remedy = dict(before), limits, remedy
        self._bytes = sum(_memory(key, value) for key, value in before.items())
        self.refused = ""

    def now(self) -> Mapping[Key, bytes]:
        """The values with the changes so far."""
        with self._lock:
            return dict(self._values)

    def get(self, key: Key) -> bytes | None:
        with self._lock:
            return self._values.get(key)

    def set(self, key: Key, value: bytes) -> None:
        """Raises LimitExceeded."""
        limits, size, key_bytes = self._limits, _size(key, value), len(stored_key(key))
        if size > limits.value_bytes:
            raise self._too_much(f"a value and its key may have {limits.value_bytes:,} bytes, and these have {size:,}")
        if key_bytes > limits.key_bytes:
            raise self._too_much(f"a key may have {limits.key_bytes:,} bytes, and this one has {key_bytes:,}")
        with self._lock:
            before = self._values.get(key)
            count = len(self._values) + (before is None)
            bytes_now = self._bytes + _memory(key, value) - (0 if before is None else _memory(key, before))
            is_too_much = count > limits.kept or bytes_now > limits.kept_bytes
            if not is_too_much:
                self._values[key], self._bytes = value, bytes_now
        if is_too_much:
            raise self._too_much(f"a stream may keep {limits.kept:,} values and {limits.kept_bytes:,} bytes")

    def delete(self, key: Key) -> bool:
        """Returns whether there was a value."""
        with self._lock:
            return self._drop(key)

    def delete_all(self, prefix: Key) -> int:
        """Drops all values under a prefix. Returns how many there were."""
        with self._lock:
            return sum(self._drop(key) for key in self._under(prefix))

    def list(self, prefix: Key) -> Iterator[KeptValue]:
        """The values under a prefix, in the order of their keys."""
        with self._lock:
            found = [KeptValue(key, self._values[key]) for key in self._under(prefix)]
        return iter(sorted(found, key=lambda each: stored_key(each.key)))

    def size(self, prefix: Key) -> int:
        """The number of values under a prefix."""
        with self._lock:
            return len(self._under(prefix))

    def _under(self, prefix: Key) -> Sequence[Key]:
        return [key for key in self._values if key[: len(prefix)] == prefix]

    def _drop(self, key: Key) -> bool:
        value = self._values.pop(key, None)
        self._bytes -= 0 if value is None else _memory(key, value)
        return value is not None

    def _too_much(self, found: str) -> LimitExceeded:
        self.refused = self.refused or f"{found}{self._remedy}"
        return LimitExceeded(f"{found}{self._remedy}")


def values_of_state(values: Mapping[str, str]) -> Mapping[Key, bytes]:
    """Returns the values of a transform's state, by the segments of their keys."""
    return {tuple(json.loads(key)): text.encode() for key, text in values.items()}


def state_of_values(values: Mapping[Key, bytes]) -> Mapping[str, str]:
    """Returns values as the state of a transform has them: texts of JSON by texts of JSON."""
    return {json.dumps(key): value.decode() for key, value in values.items()}


def _size(key: Key, value: bytes) -> int:
    return sum(len(part.encode("utf-8", "surrogatepass")) for part in key) + len(value)


def _memory(key: Key, value: bytes) -> int:
    return _size(key, value) + _ENTRY_BYTES
