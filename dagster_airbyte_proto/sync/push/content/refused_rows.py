"""The rows that one process does not take, found by us or shown by its destination, until the store has them.

We refuse rows of a batch before the destination proves the batch before, so they do not come in the order of the plan.
"""

from collections import Counter
from collections.abc import Sequence

from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.transforms.transform import DROPPED


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
