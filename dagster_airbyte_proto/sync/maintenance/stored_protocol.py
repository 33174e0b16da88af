"""Finds the codec of a connection's states in the store, where neither its file nor its connector is at hand."""

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.lookup import state_codec_named
from dagster_airbyte_proto.protocols.state_codec import StateCodec


def state_codec(store: StateStore, connection: str) -> StateCodec:
    """The codec of the protocol that the connection's last run spoke. Raises ConfigError if there was no run."""
    name = store.protocol(connection)
    if not name:
        raise ConfigError(
            f"reading the states of connection {connection}",
            "it has not been synced yet, so the protocol of its states is not known",
            remedy="Name the connection by its file.",
        )
    return state_codec_named(name)
