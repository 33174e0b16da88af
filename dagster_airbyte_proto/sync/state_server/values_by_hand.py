"""Changes of kept values by hand, within the limits that a connector has."""

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.kept_values import Asset, Key, ValueChanges
from dagster_airbyte_proto.checkpoints.store import Lease, StateChange
from dagster_airbyte_proto.checkpoints.transform_states import TRANSFORMS
from dagster_airbyte_proto.connection.stream_names import shell_word
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.syncmaven.state_calls import MAX_SEGMENTS
from dagster_airbyte_proto.sync.state_server.component_values import ComponentRole, check_component_value
from dagster_airbyte_proto.sync.state_server.pending_values import LimitExceeded, PendingValues, ValueLimits


class ValuesByHand:
    """The kept values of a stream, as a person changes them who has the lease of the connection.

    Raises ConfigError while a load is announced.
    """

    def __init__(self, store: DeliveryStore, lease: Lease, asset: Asset, *, who: str) -> None:
        self._store = store
        self._lease = lease
        self._asset = asset
        self._who = who

    def set(self, key: Key, value: bytes, *, of_component: bool = False) -> StateChange:
        """Sets the value of a key, as JSON. The components of Rapidbyte keep texts: with `of_component`, no other value
        is set where these are.

        Raises ConfigError for a key or a value that the connector could not set itself.
        """
        doing = f"setting a kept value of connection {self._asset.connection}"
        _check(doing, self._asset, key)
        if of_component and key[0] in set(ComponentRole):
            try:
                check_component_value(key, value)
            except ValueError as error:
                remedy = f"Write a text, such as '\"5\"', and --key {key[0]} --key NAME."
                raise ConfigError(doing, str(error), remedy=remedy, stream=str(self._asset.stream)) from None
        pending = PendingValues(self._store, self._asset, ValueLimits())
        try:
            pending.set(key, value)
        except LimitExceeded as refused:
            raise ConfigError(doing, str(refused), stream=str(self._asset.stream)) from None
        return self._store.set_values(self._lease, self._asset, pending.changes(), who=self._who)

    def drop(self, prefix: Key) -> StateChange:
        """Drops the value of a key, and all values under it. Raises ConfigError if there is none."""
        doing, asset = f"dropping kept values of connection {self._asset.connection}", self._asset
        _check(doing, asset, prefix)
        if not self._store.count_kept_values(asset, prefix)[0]:
            shown = f"airbyte-proto state show {asset.connection} {shell_word(str(asset.stream))}"
            found = f"no value is kept under the key {' / '.join(prefix)}"
            raise ConfigError(doing, found, remedy=f"{shown} lists them.", stream=str(asset.stream))
        return self._store.set_values(self._lease, asset, ValueChanges(dropped=(prefix,)), who=self._who)


def _check(doing: str, asset: Asset, key: Key) -> None:
    if not 0 < len(key) <= MAX_SEGMENTS:
        raise ConfigError(doing, f"a key has 1 to {MAX_SEGMENTS} segments, and this one has {len(key)}")
    try:
        "".join(key).encode()
    except UnicodeEncodeError:
        raise ConfigError(doing, "its key is not UTF-8 text") from None
    if key[0] == TRANSFORMS:
        raise ConfigError(
            doing,
            f"what is under the key {TRANSFORMS} is the state of a transform, which has several values that belong"
            " together",
            remedy=f"airbyte-proto state reset {asset.connection} {shell_word(str(asset.stream))} drops it, with the"
            " state.",
            stream=str(asset.stream),
        )
