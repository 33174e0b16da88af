"""The values that one process of a connector keeps: served while it runs, and handed over with its rows."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.kept_values import Asset, ValueChanges, ValueStore
from dagster_airbyte_proto.checkpoints.transform_states import TRANSFORMS
from dagster_airbyte_proto.launchers.process import HostPlace
from dagster_airbyte_proto.protocols.syncmaven.state_calls import Values, speaks_as_specified
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.state_server.component_values import ComponentRole
from dagster_airbyte_proto.sync.state_server.memory_values import MemoryValues
from dagster_airbyte_proto.sync.state_server.pending_values import PendingValues, ValueLimits
from dagster_airbyte_proto.sync.state_server.server import StateServer


class ServedValues(NamedTuple):
    """The environment of the connector, and what it has changed so far; both empty where nothing is served."""

    variables: Mapping[str, str] = {}
    pending: PendingValues | None = None

    @property
    def changes(self) -> ValueChanges:
        return self.pending.changes() if self.pending else ValueChanges()


@contextmanager
def served_values(
    connector: Destination,
    store: ValueStore,
    asset: Asset,
    check: Callable[[], None],
    others: Collection[ComponentRole] = (),
) -> Iterator[ServedValues]:
    """Serves the values of an asset to one process of a connector, if its protocol has such.

    `check` raises ProtoError once the run is over. `others` are the roles of connectors that keep values of the same
    asset, out of this one's reach. So are those of transforms.
    """
    place = _place_of_server(connector)
    if place is None:
        yield ServedValues()
        return
    pending = PendingValues(store, asset, ValueLimits(), (TRANSFORMS, *others))
    with _server(connector, pending, place, check) as variables:
        yield ServedValues(variables, pending)


@contextmanager
def served_in_memory(
    connector: Destination, values: MemoryValues, check: Callable[[], None]
) -> Iterator[Mapping[str, str]]:
    """Serves values to one process of a connector, and yields its environment; empty where nothing is served."""
    place = _place_of_server(connector)
    if place is None:
        yield {}
        return
    with _server(connector, values, place, check) as variables:
        yield variables


def _place_of_server(connector: Destination) -> HostPlace | None:
    """The place where the connector can reach us; None if its protocol has no values, or it cannot."""
    if not connector.protocol.keeps_values:
        return None
    place = connector.connector.launcher.host_place()
    if place is None:
        connector.log.write("NOTE", "the connector cannot reach us from where it runs: it keeps nothing between runs")
    return place


@contextmanager
def _server(
    connector: Destination, values: Values, place: HostPlace, check: Callable[[], None]
) -> Iterator[Mapping[str, str]]:
    is_as_specified = speaks_as_specified(connector.spec().message)
    server = StateServer(values, place, is_as_specified=is_as_specified, check=check)
    connector.mask_of_process(server.secret)
    try:
        yield server.variables
    finally:
        server.close()
