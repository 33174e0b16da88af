"""The memory of a simulated push as it has to be: a row that arrives against it breaks a promise."""

from collections.abc import Iterable, Mapping, Sequence

from dagster_airbyte_proto.loads.push import Delivery, SealedPlan
from tests.simulation.pushes.push_schedule import PushKind
from tests.simulation.pushes.scripted_destination import REMOVED, Sent


class PushMemory:
    """The rows that were acknowledged, by the word of the store, and those that may be sent again.

    - No row is sent that is acknowledged, unless a plan sends all anew: after `--full`, a reset, or where each does.
    - In `append` and `insert` no row is sent that is `written`, unless a person has all unknown rows sent again.
    """

    def __init__(self, kind: PushKind, written: Sequence[Sent]) -> None:
        self._kind, self._written = kind, written
        self.plans: dict[str, list[Sent]] = {}
        self.people: dict[str, Mapping[int, int]] = {}
        """The rows of the table when each plan was made."""
        self.forgotten: set[int] = set()
        """Keys that the destination has and nobody remembers, since the store or the delivered table was set back."""
        self._proved: dict[int, int] = {}
        self._past: list[dict[int, int]] = []
        self._since = 0
        self._may_come_again: frozenset[Sent] = frozenset()

    def begin(self, may_come_again: Iterable[Sent]) -> None:
        """A run begins that may send these rows again."""
        self._may_come_again = frozenset(may_come_again)

    def sealed(self, plan: SealedPlan, rows: list[Sent], people: Mapping[int, int]) -> None:
        self.plans[plan.plan_id], self.people[plan.plan_id] = rows, dict(people)
        if plan.starts_over or self._kind.changes == "all":
            self._proved.clear()
            self._since = len(self._written)

    def acknowledged(self, delivery: Delivery) -> None:
        for row in self.plans.get(delivery.plan.plan_id, ())[: delivery.acknowledged]:
            if row.is_sendable:  # Else it is rejected: it is sent for the first time once it can be.
                self._proved[row.id] = row.version

    def remember(self) -> None:
        self._past.append(dict(self._proved))

    def set_store_back(self, moment: int) -> None:
        """The store knows as little as then. Rows that were sent since may come again."""
        self._proved = dict(self._past[moment])
        self._since = len(self._written)

    def forget(self, held: Iterable[int], known: Iterable[int]) -> None:
        """The store or the table was set back: of the keys that the destination has, only these are known by now."""
        self.forgotten |= {*held} - {*known}

    def fault_of(self, row: Sent) -> str:
        """The promise that a row breaks which arrives now; empty if it breaks none."""
        mode = self._kind.mode
        if mode == "overwrite":
            return ""
        proved = self._proved.get(row.id)
        if proved == row.version or (mode == "insert" and proved not in (None, REMOVED)):
            return f"{row} is sent again after it was acknowledged"
        is_double = mode in ("append", "insert") and row in self._written[self._since :]
        return f"{row} is sent twice" if is_double and row not in self._may_come_again else ""
