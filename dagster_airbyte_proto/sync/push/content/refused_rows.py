"""The rows that a destination does not take: those of one process, found by us or shown by it, until the store has
them; and those that the store has, which may be more than fit into memory.

We refuse rows of a batch before the destination proves the batch before, so they do not come in the order of the plan.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.loads.push import RejectedRow, SealedPlan
from dagster_airbyte_proto.transforms.transform import DROPPED

_PAGE_ROWS = 10_000


def stored_rejections(store: DeliveryStore, plan: SealedPlan, start: int = 0) -> Iterator[RejectedRow]:
    """Yields the rejected rows of a plan that the store has, from a position on and in their order."""
    while page := store.rejected_rows(plan, start=start, limit=_PAGE_ROWS):
        yield from page
        start = page[-1].row + 1


class RejectedInOrder:
    """The rejected rows of a plan that the store has, for a reader that goes through the plan once."""

    def __init__(self, store: DeliveryStore, plan: SealedPlan, start: int) -> None:
        self._rows = stored_rejections(store, plan, start)
        self._next = next(self._rows, None)

    def until(self, end: int) -> dict[int, RejectedRow]:
        """The next ones before a position, by their own."""
        found = {}
        while self._next is not None and self._next.row < end:
            found[self._next.row] = self._next
            self._next = next(self._rows, None)
        return found


class RefusedRows:
    """The refused rows of one process. `count` are all but those that a transform left out: no limit counts these."""

    def __init__(self) -> None:
        self._unstored: list[RejectedRow] = []
        self.count = 0

    def add(self, rows: Sequence[RejectedRow]) -> None:
        self._unstored += rows
        self.count += sum(each.reason != DROPPED for each in rows)

    def before(self, position: int) -> list[RejectedRow]:
        """The rows before a position of the plan that the store does not have."""
        return [each for each in self._unstored if each.row < position]

    def stored(self, position: int) -> None:
        """Takes the rows before a position for stored."""
        self._unstored = [each for each in self._unstored if each.row >= position]

    @property
    def reasons(self) -> Counter[str]:
        """The reasons of the rows that the store does not have."""
        return Counter(each.reason for each in self._unstored)
