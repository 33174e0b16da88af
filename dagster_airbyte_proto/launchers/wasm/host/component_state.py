"""State that a connector keeps at its host, beside its checkpoints: texts by scope and key.

The components of one read, each with its partition, share one: so a swap (`state-cas`) of one of them fails if another
was first. A single thread serves them all, so it needs no lock.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

PIPELINE, PER_STREAM, CONNECTOR_INSTANCE = range(3)
"""The scopes, by their numbers in the protocol."""

SHARED: Mapping[str, int] = MappingProxyType({"pipeline": PIPELINE, "instance": CONNECTOR_INSTANCE})
"""The scopes that belong to no stream, by the names that they have outside of this room."""


class ComponentState(Protocol):
    """The values of one connector. `stream` is that which runs, for the scope PER_STREAM, and else empty."""

    def get(self, scope: int, stream: str, key: str) -> str | None: ...

    def put(self, scope: int, stream: str, key: str, value: str) -> None: ...

    def characters(self, scope: int, stream: str) -> int:
        """The characters of the keys and values of a scope; of PER_STREAM those of this stream."""
        ...

    def shared(self) -> Mapping[str, Mapping[str, str]]:
        """The values of the two scopes that belong to no stream, by the names of `SHARED`."""
        ...

    def of_stream(self, stream: str) -> Mapping[str, str]:
        """The values of the scope PER_STREAM, by their keys."""
        ...


class MemoryState:
    """Values that live as long as the connector runs. `kept` are those of earlier runs that belong to no stream."""

    def __init__(self, kept: Mapping[str, Mapping[str, str]] = MappingProxyType({})) -> None:
        self.values: dict[tuple[int, str, str], str] = {}
        self._characters: Counter[tuple[int, str]] = Counter()
        for name, scope in SHARED.items():
            for key, text in kept.get(name, {}).items():
                self.put(scope, "", key, text)

    def shared(self) -> Mapping[str, Mapping[str, str]]:
        return {
            name: {key: text for (found, _, key), text in self.values.items() if found == scope}
            for name, scope in SHARED.items()
        }

    def get(self, scope: int, stream: str, key: str) -> str | None:
        return self.values.get((scope, stream, key))

    def put(self, scope: int, stream: str, key: str, value: str) -> None:
        before = self.values.get((scope, stream, key))
        self._characters[scope, stream] += len(value) + (len(key) if before is None else -len(before))
        self.values[scope, stream, key] = value

    def characters(self, scope: int, stream: str) -> int:
        return self._characters[scope, stream]

    def of_stream(self, stream: str) -> Mapping[str, str]:
        return {key: text for (scope, name, key), text in self.values.items() if (scope, name) == (PER_STREAM, stream)}
