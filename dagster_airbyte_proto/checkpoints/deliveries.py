"""The state store of pushes: it keeps the sealed plan of each stream, and how far it is delivered.

- A batch is announced before its first row is sent. So after a crash nobody takes a row for unsent that was sent.
- A position is acknowledged together with the rows that were rejected before it, in one transaction.
- A position only grows, except where `begin_delivery` sets it back.
- Whoever changes the state of a stream by hand, or rolls it back, has its plan forgotten.
- A push has a table for its rejected rows. A relay has none, so the store keeps the records that its destination or
  its source rejected: the newest of each stream, within limits, because nothing else limits them.
- A load that sends such records again takes them over when it is announced. Each leaves with the transaction that
  acknowledges it; one that is rejected again stays, with its new reason. So do all of a range in which the destination
  only counts what it rejected.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from dagster_airbyte_proto.checkpoints.kept_values import Asset, EnrichedRowStore, KeptSize, ValueChanges, ValueStore
from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
from dagster_airbyte_proto.loads.push import Delivery, RejectedRow, SealedPlan
from dagster_airbyte_proto.model import StreamId

MOST_KEPT_REJECTIONS: Final = 10_000
"""The rejected records of one stream that are kept, and the bytes that they have together at most."""
MOST_KEPT_BYTES: Final = 16 << 20
LONGEST_KEPT_BYTES: Final = 1 << 20
"""A longer record is not kept itself, only why it was rejected."""
LONGEST_KEPT_REASON: Final = 1000
"""The characters of a reason that are kept with a record."""
MOST_REASONS: Final = 1000
OTHER_REASONS: Final = "(other reasons)"
PERHAPS_TAKEN: Final = "rejected again, or taken: the destination does not say which"
"""The reason of a record that was sent again to a destination which counts what it rejects, and does not name it."""


class RejectedContent(NamedTuple):
    """A rejected row of a relay, and the record that it is. A record that is too long is None. One that is not
    `sendable` is text for people: JSON has no form for it, or the source rejected it.

    What the source rejected is no row of the plan: it has a place below 0.
    """

    row: RejectedRow
    record: str | None
    sendable: bool = True


class KeptRejection(NamedTuple):
    """A record that the destination of a relay, or its source, rejected, with the load that it came in.

    One that `may_be_there` was sent again, and perhaps taken, in a mode in which it is there twice if it is sent twice.
    """

    stream: StreamId
    load_id: str
    row: RejectedRow
    record: str | None
    rejected_at: datetime
    sendable: bool = True
    may_be_there: bool = False

    @property
    def is_of_source(self) -> bool:
        """True if the source rejected it. It was not to be sent, so nothing here can send it again."""
        return self.row.row < 0


class AcknowledgedRows(NamedTuple):
    """The rows that a destination has: those up to this position, except the rejected ones.

    `values` are the changes of what the destination keeps for itself. Of the rows in each of the ranges `unsure`, in
    their order, it did not take some: it says how many, and not which.
    """

    rows: int
    rejected: Sequence[RejectedRow] = ()
    values: ValueChanges = ValueChanges()
    unsure: Sequence[tuple[int, int]] = ()


def asset_of(plan: SealedPlan) -> Asset:
    """The asset whose kept values a destination of this plan sees."""
    return Asset(plan.connection, plan.stream, plan.partition or "")


class DeliveryStore(StateStore, ValueStore, EnrichedRowStore, Protocol):
    """The state store, with the deliveries of pushes."""

    def seal_plan(self, lease: Lease, plan: SealedPlan) -> None:
        """Makes this the plan of its stream. The one before it, with its rejected rows, is forgotten."""
        ...

    def deliveries(self, connection: str, stream: StreamId | None = None) -> Mapping[StreamId, Delivery]:
        """The delivery of the last plan of each stream, or of one stream."""
        ...

    def begin_delivery(self, lease: Lease, plan: SealedPlan, position: int) -> None:
        """Counts an attempt to deliver the rows after this position. Nothing after it counts as acknowledged any more.
        What was announced stays so, but in a replacement, which begins anew."""
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

    def rejected_rows(self, plan: SealedPlan, *, start: int = 0, limit: int | None = None) -> Sequence[RejectedRow]:
        """The rejected rows of a plan, in their order: from `start` on, and no more than the limit."""
        ...

    def rejection_reasons(self, plan: SealedPlan, *, start: int = 0, end: int | None = None) -> Mapping[str, int]:
        """The reasons of the rejected rows of a plan from `start` up to `end`, with the numbers of their rows. Beyond
        `MOST_REASONS` the rarer ones are counted as one."""
        ...

    def keep_rejections(self, lease: Lease, plan: SealedPlan, rejections: Sequence[RejectedContent]) -> None:
        """Keeps the rejected records of a plan, whose id is that of a load, in the place of those kept of it before.
        One that replaces all that the destination has takes the place of those of all loads before, too.

        They go once they are older than the history, and if a person says that the load is lost: then they come again.
        """
        ...

    def keeps_rejections(self, plan: SealedPlan) -> bool:
        """Returns whether rejected records of a plan are kept."""
        ...

    def kept_rejections(self, connection: str, stream: StreamId | None = None) -> Sequence[KeptRejection]:
        """The rejected records that are kept, by stream, or those of one stream, in the order in which they came. There
        is a limit to those of one stream, and none to the streams."""
        ...

    def kept_counts(self, connection: str) -> Mapping[StreamId, int]:
        """The number of rejected records that are kept of each stream that has some, in the order of their streams."""
        ...

    def forget_rejections(self, lease: Lease, rejections: Sequence[KeptRejection]) -> None:
        """Forgets kept records: a newer record of their key is about to be sent."""
        ...
