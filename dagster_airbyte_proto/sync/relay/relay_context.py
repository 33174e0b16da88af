"""The services of one relay that holds its connection, for the delivery of its loads."""

from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.lease import LeaseRenewal
from dagster_airbyte_proto.sync.push.push_context import Destination
from dagster_airbyte_proto.sync.run_options import RunOptions


class RelayContext(NamedTuple):
    """The destination of one run, and what the run holds until it ends. See `sync.push.delivery.DeliveryContext`.

    With `retries_unknown` rows are sent again of which nobody knows whether the destination has them.
    """

    destination: Destination
    options: RunOptions
    renewal: LeaseRenewal
    store: DeliveryStore
    retries_unknown: bool

    @property
    def sync_id(self) -> int:
        return self.lease.fence

    @property
    def lease(self) -> Lease:
        return self.renewal.lease

    @property
    def connection(self) -> Connection:
        return self.destination.connection

    def is_cancelled(self) -> bool:
        """True once somebody has cancelled the sync. Raises StateConflict if another run has taken over."""
        self.renewal.check()
        return self.options.cancel.is_set()
