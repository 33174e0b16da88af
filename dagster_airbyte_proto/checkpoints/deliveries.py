"""The state store of pushes: it keeps the sealed plan of each stream, and how far it is delivered.

- A batch is announced before its first row is sent. So after a crash nobody takes a row for unsent that was sent.
- A position is acknowledged together with the rows that were rejected before it, in one transaction.
- A position only grows, except where `begin_delivery` sets it back.
- Whoever changes the state of a stream by hand, or rolls it back, has its plan forgotten.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.checkpoints.kept_values import Asset, EnrichedRowStore, KeptSize, ValueChanges, ValueStore
from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.loads.push import Delivery, RejectedRow, SealedPlan
from dagster_airbyte_proto.model import StreamId


class AcknowledgedRows(NamedTuple):
    """The rows that a destination has: those up to this position, except the rejected ones.

    `values` are the changes of what the destination keeps for itself.
    """

    rows: int
    rejected: Sequence[RejectedRow] = ()
    values: ValueChanges = ValueChanges()


def asset_of(plan: SealedPlan) -> Asset:
    """The asset whose kept values a destination of this plan sees."""
    return Asset(plan.connection, plan.stream, plan.partition or "")


class DeliveryStore(StateStore, ValueStore, EnrichedRowStore, Protocol):
    """The state store, with the deliveries of pushes."""

    def seal_plan(self, lease: Lease, plan: SealedPlan) -> None:
        """Makes this the plan of its stream. The one before it, with its rejected rows, is forgotten."""
        ...

    def deliveries(self, connection: str) -> Mapping[StreamId, Delivery]:
        """The delivery of the last plan of each stream."""
        ...

    def begin_delivery(self, lease: Lease, plan: SealedPlan, position: int) -> None:
        """Counts an attempt to deliver the rows after this position. Nothing after it counts as acknowledged any more,
        nor as announced, but in a mode in which a row that is sent twice may be there twice, and in a mirror."""
        ...

    def announce_rows(self, lease: Lease, plan: SealedPlan, rows: int) -> None:
        """Records that rows up to this position are about to be sent."""
        ...

    def acknowledge_rows(self, lease: Lease, plan: SealedPlan, acknowledged: AcknowledgedRows) -> None:
        """Records how far the destination has the rows, and what it keeps of them, in one transaction."""
        ...

    def keep_values(self, lease: Lease, asset: Asset, changes: ValueChanges) -> None:
        """Changes values that belong to no rows."""
        ...

    def kept_sizes(self, connection: str) -> Sequence[KeptSize]:
        """Returns the assets of a connection that have values, also those without a state."""
        ...

    def set_values(self, lease: Lease, asset: Asset, changes: ValueChanges, *, who: str) -> StateChange:
        """Changes values by hand. Raises ConfigError while a load is announced: its recovery may change them too."""
        ...

    def rejected_rows(self, plan: SealedPlan) -> Sequence[RejectedRow]:
        """The rejected rows of a plan, in their order."""
        ...
