"""The version of a connection's states, which each change of them increments."""

from dagster_airbyte_proto.checkpoints.store import StateStore


def states_version(store: StateStore, connection: str) -> int:
    """Returns the version of the stored states; 0 before the first."""
    newest = store.history(connection, limit=1)
    return newest[0].version if newest else 0
