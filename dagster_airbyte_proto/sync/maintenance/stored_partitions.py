"""Finds a partition that a person names among those of which the state store has anything."""

import difflib
from collections.abc import Sequence

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.lookup import PUSH

_MAX_NAMED = 10


def check_partition(store: StateStore, connection: str, partition: str, doing: str) -> None:
    """Raises ConfigError for a key of which the store has nothing; the error lists those that it knows."""
    known = store.partitions(connection)
    if partition in known:
        return
    if not known:
        found, remedy = "no run of it was one of a partition", "Leave the partition out."
    else:
        found, remedy = f"the state store knows no partition {partition!r} of it", _nearest(partition, known)
    raise ConfigError(f"{doing} of connection {connection}", found, remedy=remedy)


def check_has_partitioned_states(store: StateStore, connection: str, doing: str) -> None:
    """Raises ConfigError for a push: the position of its streams is one for all partitions."""
    if store.protocol(connection) == PUSH:
        raise ConfigError(
            f"{doing} of connection {connection}",
            "it is a push, and a pushed stream has one position for all its partitions",
            remedy=f"Leave the partition out, as in `airbyte-proto state reset {connection}`, and push each partition"
            " again after that.",
        )


def check_states_without_partition(store: StateStore, connection: str, remedy: str) -> None:
    """Raises ConfigError if all states are of partitions: a stream that is named without one has none."""
    keys = partitions_with_state(store, connection)
    if keys and not store.states(connection):
        raise ConfigError(
            "looking up a stream's state",
            f"all states of connection {connection} are of partitions, and none was named",
            remedy=f"{remedy} They are of {named_partitions(keys)}.",
        )


def partitions_with_state(store: StateStore, connection: str) -> Sequence[str]:
    """The partitions that have a state."""
    return sorted({each.partition for each in store.states(connection, partition=None)} - {""})


def named_partitions(keys: Sequence[str]) -> str:
    """The keys for a message, which names the last of many: new ones are looked for more often."""
    if len(keys) <= _MAX_NAMED:
        return ", ".join(keys)
    return f"{', '.join(keys[-_MAX_NAMED:])}, and {len(keys) - _MAX_NAMED:,} before"


def partitions_text(keys: Sequence[str]) -> str:
    """The keys, as of one or several partitions."""
    return f"partition{'s' if len(keys) > 1 else ''} {named_partitions(keys)}"


def _nearest(partition: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(partition, known, n=1) if len(known) > 1 else []
    return f"{f'The nearest is {near[0]}. ' if near else ''}It knows {named_partitions(known)}."
