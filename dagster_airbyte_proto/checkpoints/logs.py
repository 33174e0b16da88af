"""Reads the logs of a state store: the loads, and the changes of states.

A year of either may be larger than the memory, so each is read page by page, and whoever goes through it keeps what it
needs. The pages go by number and by version: what is added meanwhile moves none of them.
"""

from collections.abc import Iterator

from dagster_airbyte_proto.checkpoints.store import LoggedLoad, StateChange, StateStore

_LOADS = 10
"""The loads of a page: each may have megabytes, with a part for each of a thousand streams."""
_CHANGES = 100


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


def changes_newest_first(store: StateStore, connection: str) -> Iterator[StateChange]:
    """Yields the changes of a connection's states, in all its partitions."""
    before: int | None = None
    limit = _CHANGES
    while page := store.history(connection, limit=limit, before=before):
        # The page may have cut the last version in two.
        whole = page if len(page) < limit else [each for each in page if each.version != page[-1].version]
        yield from whole
        if whole:
            before = whole[-1].version
        else:
            limit *= 2
