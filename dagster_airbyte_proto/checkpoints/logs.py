"""Reads the logs of a state store.

A year of loads may be larger than the memory, so they are read page by page, and whoever goes through them keeps what
it needs. The pages go by number: what is added meanwhile moves none of them.
"""

from collections.abc import Iterator

from dagster_airbyte_proto.checkpoints.store import LoggedLoad, StateStore

_LOADS = 10
"""The loads of a page: each may have megabytes, with a part for each of a thousand streams."""


def states_version(store: StateStore, connection: str) -> int:
    """Returns the version of the stored states; 0 before the first."""
    newest = store.history(connection, limit=1)
    return newest[0].version if newest else 0


def loads_newest_first(store: StateStore, connection: str) -> Iterator[LoggedLoad]:
    """Yields the loads of a connection. Those that are announced meanwhile are not among them."""
    before: int | None = None
    while page := store.loads(connection, limit=_LOADS, before=before):
        yield from page
        before = page[-1].number
